/* Placement and partitions against what a real TensorFlow 1.15 cluster ran: tests/fuzz-corpus/graph/NAME.pb is the
 * client's graph, NAME.partitions the step and the nodes of each device (made by make_corpus.py there). */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/testing.h"
#include "graph/import.h"
#include "graph/partition.h"
#include "graph/prune.h"
#include "graph/testing.h"

enum { MOST_LINES = 1000, MOST_NAMES = 8 };

static td_arena arena;

static td_str read_file(const char *name, const char *extension) {
  char path[1024];
  const char *slash = strrchr(__FILE__, '/');
  snprintf(path, sizeof path, "%.*s/../../tests/fuzz-corpus/graph/%s.%s", (int)(slash - __FILE__), __FILE__, name,
           extension);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot read %s", path);
  char *data = td_arena_alloc(&arena, 1 << 16);
  size_t size = fread(data, 1, (1 << 16) - 1, f);
  data[size] = '\0';
  fclose(f);
  return td_str_n(data, size);
}

/* "a_S12" -> "a_S", as the expectations are written. */
static char *plain(td_str s) {
  char *out = td_arena_alloc(&arena, s.size + 1), *p = out;
  for (size_t i = 0; i < s.size; i++) {
    *p++ = s.data[i];
    if (p - out < 2 || p[-2] != '_' || (p[-1] != 'S' && p[-1] != 'G')) continue;
    while (i + 1 < s.size && s.data[i + 1] >= '0' && s.data[i + 1] <= '9') i++;
  }
  *p = '\0';
  return out;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static const char *attr_value(const td_attr *a) {
  const Pb__AttrValue *v = a->value;
  if (v->value_case == PB__ATTR_VALUE__VALUE_TYPE) {
    const char *name = td_dtype_name(v->type); /* TensorFlow's Python says float32 */
    return v->type == TD_FLOAT ? "float32" : v->type == TD_DOUBLE ? "float64" : name;
  }
  if (v->value_case == PB__ATTR_VALUE__VALUE_B) return v->b ? "true" : "false";
  char *text = td_arena_strndup(&arena, (const char *)v->s.data, v->s.len);
  if (strncmp(text, "edge_", 5) || text[5] < '0' || text[5] > '9') return text;
  const char *rest = strchr(text + 5, '_');
  return plain(td_str_of(td_arena_printf(&arena, "edge%s", rest ? rest : "")));
}

static void print_attrs(const td_node *n, td_strbuf *b) {
  static const char *const shown[] = {"client_terminated", "frame_name", "recv_device", "send_device", "tensor_name",
                                      "tensor_type",       "T"};
  const char *separator = " {";
  for (size_t k = 0; k < TD_COUNT(shown); k++)
    for (size_t i = 0; i < n->def.attr_count; i++) {
      const td_attr *a = &n->def.attrs[i];
      if (!td_str_is(a->name, shown[k]) || (k == 6 && n->kind != TD_NODE_SEND)) continue;
      td_strbuf_printf(b, "%s%s=%s", separator, k >= 5 ? "type" : shown[k], attr_value(a));
      separator = "; ";
    }
  if (separator[0] == ';') td_strbuf_puts(b, "}");
}

static char *print_node(const td_node *n) {
  td_strbuf b = {0};
  char *control[100];
  size_t count = 0;
  td_strbuf_printf(&b, "%s = %.*s(", plain(n->def.name), TD_STR_ARG(n->def.op));
  for (const td_edge *e = n->in_edges; e; e = e->next_in) {
    if (e->src_slot == TD_CONTROL_SLOT) {
      control[count++] = plain(e->src->def.name);
      continue;
    }
    td_strbuf_printf(&b, "%s%s", e == n->in_edges ? "" : ", ", plain(e->src->def.name));
    if (e->src_slot) td_strbuf_printf(&b, ":%d", e->src_slot);
  }
  qsort(control, count, sizeof *control, by_text);
  for (size_t i = 0; i < count; i++) td_strbuf_printf(&b, "%s^%s", i || n->input_count ? ", " : "", control[i]);
  td_strbuf_printf(&b, ") @%.*s", TD_STR_ARG(n->device));
  print_attrs(n, &b);
  char *line = td_arena_strdup(&arena, td_strbuf_cstr(&b));
  td_strbuf_deinit(&b);
  return line;
}

typedef struct step {
  td_str feeds[MOST_NAMES], fetches[MOST_NAMES], targets[MOST_NAMES];
  td_prune_options prune;
  char *lines[MOST_LINES];
  size_t line_count;
} step;

static void parse_step(td_str text, step *s) {
  *s = (step){.prune = {.feeds = s->feeds, .fetches = s->fetches, .targets = s->targets}};
  while (text.data && text.size) {
    td_str line = td_str_split(&text, '\n'), rest = line, word = td_str_split(&rest, ' ');
    if (td_str_is(word, "feed"))
      s->feeds[s->prune.feed_count++] = rest;
    else if (td_str_is(word, "fetch"))
      s->fetches[s->prune.fetch_count++] = rest;
    else if (td_str_is(word, "target"))
      s->targets[s->prune.target_count++] = rest;
    else if (line.size)
      s->lines[s->line_count++] = td_arena_strndup(&arena, line.data, line.size);
  }
}

static td_graph *import(const char *name) {
  td_str bytes = read_file(name, "pb");
  Pb__GraphDef *def = pb__graph_def__unpack(NULL, bytes.size, (const uint8_t *)bytes.data);
  td_graph *g;
  assert_non_null(def);
  must(td_graph_import(def, NULL, NULL, &g));
  pb__graph_def__free_unpacked(def, NULL);
  return g;
}

static void check(const char *name) {
  static step s;
  td_graph_test_register();
  parse_step(read_file(name, "partitions"), &s);
  td_graph_test_cluster c = td_graph_test_devices(&arena, "worker", 2, 1);
  td_graph *g = import(name), *client;
  td_place_options place = {.devices = c.devices, .device_count = c.count, .own_task_device = c.devices[0].name};
  must(td_graph_place(g, &place));
  s.prune.client_device = c.devices[0].name;
  s.prune.client_incarnation = 1;
  must(td_graph_prune(g, &s.prune, &client));
  int64_t k = 0;
  td_partition_options o = {
      .by_task = true, .suffix = 'S', .next_suffix = &k, .incarnation = td_graph_test_incarnation, .arg = &c};
  td_partition *parts;
  size_t count, lines = 0;
  char *got[MOST_LINES];
  must(td_graph_partition(client, &o, &parts, &count));
  for (size_t i = 0; i < count; i++)
    for (size_t n = 0; n < parts[i].graph->node_count; n++) got[lines++] = print_node(parts[i].graph->nodes[n]);
  qsort(got, lines, sizeof *got, by_text);
  qsort(s.lines, s.line_count, sizeof *s.lines, by_text);
  size_t differences = 0;
  for (size_t a = 0, b = 0; a < lines || b < s.line_count;) {
    int order = a == lines ? 1 : b == s.line_count ? -1 : strcmp(got[a], s.lines[b]);
    if (order) differences++, print_message("%c %s\n", order < 0 ? '+' : '-', order < 0 ? got[a] : s.lines[b]);
    a += order <= 0;
    b += order >= 0;
  }
  td_partitions_free(parts, count);
  td_graph_release(client);
  td_graph_release(g);
  td_arena_deinit(&arena);
  assert_int_equal(differences, 0);
}

static void test_training(void **state) { check("training"); }
static void test_while_loop(void **state) { check("while_loop"); }
static void test_nested_loop(void **state) { check("nested_loop"); }
static void test_cond(void **state) { check("cond"); }
static void test_control(void **state) { check("control"); }
static void test_resource(void **state) { check("resource"); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_training),    cmocka_unit_test(test_while_loop),
                                     cmocka_unit_test(test_nested_loop), cmocka_unit_test(test_cond),
                                     cmocka_unit_test(test_control),     cmocka_unit_test(test_resource)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
