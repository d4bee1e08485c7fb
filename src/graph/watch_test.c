/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/watch.h"
#include "base/testing.h"

#include "base/mem.h"
#include "graph/testing.h"

#define DEVICE "/job:a/replica:0/task:0/device:CPU:0"

static td_arena arena;

/* One watch: node, slot, ops (comma between), URLs (blank between), or NULL at the end. */
typedef struct watch {
  const char *node;
  int slot;
  const char *ops, *urls;
  bool is_tolerant;
} watch;

#define W(n, s, o, u) .node = n, .slot = s, .ops = o, .urls = u

static char **words(const char *text, char sep, size_t *count) {
  char **out = td_arena_array(&arena, char *, strlen(text) + 1);
  td_str rest = td_str_of(text);
  for (*count = 0; rest.size;) {
    td_str word = td_str_split(&rest, sep);
    out[(*count)++] = td_arena_strndup(&arena, word.data, word.size);
  }
  return out;
}

static Pb__DebugOptions *options(const watch *w) {
  Pb__DebugOptions *o = td_arena_new(&arena, Pb__DebugOptions);
  pb__debug_options__init(o);
  o->debug_tensor_watch_opts = td_arena_array(&arena, Pb__DebugTensorWatch *, 8);
  for (; w->node; w++) {
    Pb__DebugTensorWatch *p = td_arena_new(&arena, Pb__DebugTensorWatch);
    pb__debug_tensor_watch__init(p);
    p->node_name = (char *)w->node;
    p->output_slot = w->slot;
    p->debug_ops = words(w->ops, ',', &p->n_debug_ops);
    p->debug_urls = words(w->urls, ' ', &p->n_debug_urls);
    p->tolerate_debug_op_creation_failures = w->is_tolerant;
    o->debug_tensor_watch_opts[o->n_debug_tensor_watch_opts++] = p;
  }
  return o;
}

static td_status insert(td_graph *g, const watch *w) { return td_watches_insert(options(w), g, TD_STR(DEVICE)); }

static td_graph *watched(const char *text, const watch *w) {
  td_graph *g = td_graph_test_graph(text);
  must(insert(g, w));
  return g;
}

static void assert_graph(const td_graph *g, const char *expected) {
  assert_string_equal(td_graph_test_print(g, &arena), expected);
}

static const td_node *node(const td_graph *g, const char *name) {
  const td_node *n = td_graph_find(g, td_str_of(name));
  if (!n) fail_msg("no node %s", name);
  return n;
}

static void assert_text(const td_node *n, const char *attr, const char *expected) {
  td_str value;
  assert_null(td_attr_str(&n->def, attr, &value));
  assert_true(td_str_is(value, expected));
}

static void assert_texts(const td_node *n, const char *attr, const char *expected) {
  const Pb__AttrValue__ListValue *list;
  td_strbuf b = {0};
  assert_null(td_attr_list(&n->def, attr, &list));
  for (size_t i = 0; i < list->n_s; i++)
    td_strbuf_printf(&b, "%s%.*s", i ? " " : "", (int)list->s[i].len, (char *)list->s[i].data);
  assert_string_equal(td_strbuf_cstr(&b), expected);
  td_strbuf_deinit(&b);
}

#define TWO                                    \
  "a = Const() {dtype: float; value: empty}\n" \
  "b = Neg(a) {T: float}\n"                    \
  "c = Add(a, b) {T: float}\n"

static void test_value(void **state) {
  td_graph *g = watched(TWO, (watch[]){{W("a", 0, "DebugIdentity", "file:///x grpc://h:1")}, {.node = NULL}});
  assert_graph(g, "__copy_a_0 = Copy(a) @" DEVICE
                  "\n"
                  "__dbg_a:0_0_DebugIdentity = DebugIdentity(__copy_a_0) @" DEVICE
                  "\n"
                  "a = Const()\n"
                  "b = Neg(__copy_a_0, ^__dbg_a:0_0_DebugIdentity)\n"
                  "c = Add(__copy_a_0, b, ^__dbg_a:0_0_DebugIdentity)\n");
  const td_node *copy = node(g, "__copy_a_0"), *debug = node(g, "__dbg_a:0_0_DebugIdentity");
  assert_texts(copy, "debug_ops_spec", "DebugIdentity;file:///x;0 DebugIdentity;grpc://h:1;0");
  assert_text(copy, "tensor_name", "a:0");
  assert_text(debug, "tensor_name", "a:0");
  assert_text(debug, "device_name", DEVICE);
  assert_texts(debug, "debug_urls", "file:///x grpc://h:1");
  assert_non_null(td_attr_find(&debug->def, "gated_grpc")); /* defaults are there */
  td_graph_release(g);
}

/* Consumers of a ref keep their edge: they write it. */
static void test_ref(void **state) {
  td_graph *g = watched(
      "v = VariableV2() {dtype: float; shape: unknown}\n"
      "a = Const() {dtype: float; value: empty}\n"
      "w = Assign(v, a) {T: float}\n",
      (watch[]){{W("v", 0, "DebugIdentity,DebugNumericSummary", "file:///x")}, {.node = NULL}});
  assert_graph(g, "__copy_v_0 = Copy(v) @" DEVICE
                  "\n"
                  "__dbg_v:0_0_DebugIdentity = DebugIdentity(__copy_v_0) @" DEVICE
                  "\n"
                  "__dbg_v:0_1_DebugNumericSummary = DebugNumericSummary(__copy_v_0) @" DEVICE
                  "\n"
                  "a = Const()\n"
                  "v = VariableV2()\n"
                  "w = Assign(v, a, ^__dbg_v:0_0_DebugIdentity, ^__dbg_v:0_1_DebugNumericSummary)\n");
  td_graph_release(g);
}

static void test_unused_output_and_unknown_node(void **state) {
  td_graph *g = watched(TWO, (watch[]){{W("c", 0, "DebugIdentity", "file:///x")},
                                       {W("c", 7, "DebugIdentity", "file:///x")},
                                       {W("nobody", 0, "DebugIdentity", "file:///x")},
                                       {W("a", 0, "", "file:///x")},
                                       {W("b", 0, "DebugIdentity", "")},
                                       {.node = NULL}});
  assert_graph(g, "__copy_c_0 = Copy(c) @" DEVICE
                  "\n"
                  "__dbg_c:0_0_DebugIdentity = DebugIdentity(__copy_c_0) @" DEVICE
                  "\n"
                  "a = Const()\n"
                  "b = Neg(a)\n"
                  "c = Add(a, b)\n");
  td_graph_release(g);
}

/* The wildcard stands for what has no watch of its own; alone it stands for nothing. */
static void test_wildcard(void **state) {
  td_graph *g = watched(
      TWO,
      (watch[]){{W("a", 0, "DebugIdentity", "file:///x")}, {W("*", -1, "DebugIdentity", "file:///y")}, {.node = NULL}});
  assert_texts(node(g, "__dbg_a:0_0_DebugIdentity"), "debug_urls", "file:///x");
  assert_texts(node(g, "__dbg_b:0_0_DebugIdentity"), "debug_urls", "file:///y");
  assert_texts(node(g, "__dbg_c:0_0_DebugIdentity"), "debug_urls", "file:///y");
  td_graph_release(g);
  g = watched(TWO, (watch[]){{W("*", -1, "DebugIdentity", "file:///y")}, {.node = NULL}});
  assert_int_equal(g->node_count, 3);
  td_graph_release(g);
}

static void test_loop(void **state) {
  td_graph *g = watched(
      "a = Const() {dtype: float; value: empty}\n"
      "e = Enter(a) {T: float; frame_name: 'f'; parallel_iterations: 10}\n"
      "m = Merge(e, n) {T: float; N: 2}\n"
      "i = Neg(m) {T: float}\n"
      "n = NextIteration(i) {T: float}\n",
      (watch[]){{W("e", 0, "DebugIdentity", "file:///x")},
                {W("n", 0, "DebugIdentity", "file:///x")},
                {W("m", 0, "DebugIdentity", "file:///x")},
                {.node = NULL}});
  int64_t parallel;
  assert_null(td_attr_int(&node(g, "e")->def, "parallel_iterations", &parallel));
  assert_int_equal(parallel, 1);
  for (td_edge *e = node(g, "m")->in_edges; e; e = e->next_in) assert_int_not_equal(e->dst_slot, TD_CONTROL_SLOT);
  assert_int_equal(node(g, "i")->last_in->dst_slot, TD_CONTROL_SLOT);
  td_graph_release(g);
}

/* "gated_grpc" concerns the copy, too; others set attributes of the debug op. */
static void test_attributes(void **state) {
  td_graph *g = watched(
      TWO,
      (watch[]){{W("a", 0, "DebugNumericSummary(mute_if_healthy=True; lower_bound=-2.5 ; gated_grpc=1)", "grpc://h:1")},
                {.node = NULL}});
  const td_node *n = node(g, "__dbg_a:0_0_DebugNumericSummary");
  bool flag;
  float bound;
  assert_null(td_attr_bool(&n->def, "mute_if_healthy", &flag));
  assert_true(flag);
  assert_null(td_attr_bool(&n->def, "gated_grpc", &flag));
  assert_true(flag);
  assert_null(td_attr_float(&n->def, "lower_bound", &bound));
  assert_true(bound == -2.5f);
  assert_texts(node(g, "__copy_a_0"), "debug_ops_spec", "DebugNumericSummary;grpc://h:1;1");
  td_graph_release(g);
}

static void assert_refused(const char *text, const char *ops, int slot, const char *node_name, const char *expected) {
  td_graph *g = td_graph_test_graph(text);
  td_status s = insert(g, (watch[]){{W(node_name, slot, ops, "file:///x")}, {.node = NULL}});
  assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
  if (!strstr(td_status_message(s), expected)) fail_msg("%s", td_status_message(s));
  td_status_free(s);
  td_graph_release(g);
}

#define INTEGER "a = Const() {dtype: int32; value: empty}\n"

static void test_refused(void **state) {
  assert_refused(TWO, "DebugIdentity", 0, "*",
                 "output_slot is expected to be -1 for wildcard node name (\"*\"), but got 0");
  assert_refused(TWO, "DebugIdentity", -1, "a", "but got node name a");
  assert_refused(TWO, "DebugNumericSummary(foo=1.0)", 0, "a",
                 "1 attribute key(s) were not valid for debug node __dbg_a:0_0_DebugNumericSummary: foo");
  assert_refused(TWO, "DebugNumericSummary(foo=1; bar=f)", 0, "a",
                 "2 attribute key(s) were not valid for debug node __dbg_a:0_0_DebugNumericSummary: foo, bar");
  assert_refused(TWO, "DebugNumericSummary(lower_bound=low)", 0, "a", "Invalid value string for float-type attribute");
  assert_refused(TWO, "DebugIdentity(gated_grpc=maybe)", 0, "a", "Invalid string for bool value: maybe");
  assert_refused(TWO, "DebugIdentity(gated_grpc=1;gated_grpc=1)", 0, "a", "Duplicate attribute name \"gated_grpc\"");
  assert_refused(TWO, "DebugIdentity(gated_grpc)", 0, "a", "Malformed attributes in debug op name");
  assert_refused(TWO, "(x=1)", 0, "a", "Malformed debug op name");
  assert_refused(TWO, "DebugIdentity)", 0, "a", "Malformed debug op name");
  assert_refused(TWO, "DebugNothing", 0, "a", "Failed to create node definition for debug op DebugNothing");
  assert_refused(TWO, "Neg", 0, "a", "Failed to create debug node Neg for tensor a:0");
  assert_refused(TWO, "Add", 0, "a", "Failed to create debug node Add for tensor a:0");
  assert_refused(INTEGER, "DebugNumericSummary", 0, "a",
                 "Failed to find kernel definition for debug op DebugNumericSummary on watched tensor a:0");
}

static void test_tolerant(void **state) {
  td_graph *g =
      watched(INTEGER "b = Neg(a) {T: int32}\n",
              (watch[]){{W("a", 0, "DebugNumericSummary,Add,DebugIdentity", "file:///x"), .is_tolerant = true},
                        {.node = NULL}});
  assert_graph(g, "__copy_a_0 = Copy(a) @" DEVICE
                  "\n"
                  "__dbg_a:0_2_DebugIdentity = DebugIdentity(__copy_a_0) @" DEVICE
                  "\n"
                  "a = Const()\n"
                  "b = Neg(__copy_a_0, ^__dbg_a:0_2_DebugIdentity)\n");
  td_graph_release(g);
}

static void append(td_strbuf *b, const watch *w) { td_watches_append_key(b, options(w)); }

static void test_keys(void **state) {
  const watch all[][3] = {
      {{W("a", 0, "x", "u")}},
      {{W("a", 1, "x", "u")}},
      {{W("a", 0, "x,y", "u")}},
      {{W("a", 0, "x", "u v")}},
      {{W("a", 0, "xy", "u")}},
      {{W("a", 0, "x", "u"), .is_tolerant = true}},
      {{W("a", 0, "x", "u")}, {W("b", 0, "x", "u")}},
      {{.node = NULL}},
  };
  td_strbuf keys[TD_COUNT(all)] = {0};
  for (size_t i = 0; i < TD_COUNT(all); i++) {
    append(&keys[i], all[i]);
    for (size_t k = 0; k < i; k++) assert_false(td_str_eq(td_strbuf_view(&keys[i]), td_strbuf_view(&keys[k])));
  }
  for (size_t i = 0; i < TD_COUNT(all); i++) td_strbuf_deinit(&keys[i]);
  size_t count;
  td_str *urls = td_watches_urls(options((watch[]){{W("a", 0, "x", "u v")}, {W("b", 0, "y", "v w")}, {.node = NULL}}),
                                 &arena, &count);
  assert_int_equal(count, 3);
  assert_true(td_str_is(urls[0], "u") && td_str_is(urls[1], "v") && td_str_is(urls[2], "w"));
}

static int setup(void **state) {
  td_graph_test_register();
  return 0;
}

static int teardown(void **state) {
  td_arena_deinit(&arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_value),
      cmocka_unit_test(test_ref),
      cmocka_unit_test(test_unused_output_and_unknown_node),
      cmocka_unit_test(test_wildcard),
      cmocka_unit_test(test_loop),
      cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_tolerant),
      cmocka_unit_test(test_keys),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
