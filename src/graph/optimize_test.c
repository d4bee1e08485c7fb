/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/optimize.h"
#include "base/mem.h"
#include "base/testing.h"
#include "graph/testing.h"
#include "tensor/tensor_proto.h"

#define ON    " @/job:a/replica:0/task:0/device:CPU:0"
#define OTHER " @/job:b/replica:0/task:0/device:CPU:0"
#define GPU   " @/job:a/replica:0/task:0/device:GPU:0"
#define CONST "Const()" ON " {dtype: float; value: empty}\n"
#define SEND                                                                                       \
  " {T: float; tensor_name: 't'; send_device: 'd'; recv_device: 'd'; send_device_incarnation: 1; " \
  "client_terminated: true}\n"
#define VARIABLE "v = VariableV2()" ON " {dtype: float; shape: unknown}\n"
#define RECV                                                                     \
  "Recv()" ON                                                                    \
  " {tensor_type: float; tensor_name: 't'; send_device: 'd'; recv_device: 'd'; " \
  "send_device_incarnation: 1; client_terminated: true}\n"

/* ---- a stand-in for kernels: every output is one float; "Square" fails, "Mul" makes a large tensor, "Sub" one of
 * 256 KB, "Tile" and "Fill" one that repeats its value ---- */

typedef struct counter {
  td_evaluator base;
  int computed; /* nodes other than Const */
} counter;

/* For products: constants by the first letter of their names, "a" 3, "b" 2, "c" 2.5, "h" 3e38, others 0.5. */
static float constant_by_name(const td_node *n) {
  switch (n->def.name.data[0]) {
    case 'a':
      return 3;
    case 'b':
      return 2;
    case 'c':
      return 2.5f;
    case 'h':
      return 3e38f;
    default:
      return 0.5f;
  }
}

static td_status multiply(td_evaluator *self, const td_node *n, td_tensor *const *in, size_t max_bytes,
                          td_tensor **out) {
  bool is_const = td_str_is(n->def.op, "Const");
  if (!is_const && !td_str_is(n->def.op, "Mul")) return td_invalid_argument("only products");
  must(td_tensor_create_dims(TD_FLOAT, 0, NULL, out));
  *TD_DATA(*out, float) = is_const ? constant_by_name(n) : *TD_DATA(in[0], float) * *TD_DATA(in[1], float);
  return TD_STATUS_OK;
}

static td_status compute(td_evaluator *self, const td_node *n, td_tensor *const *in, size_t max_bytes,
                         td_tensor **out) {
  bool repeats = td_str_is(n->def.op, "Tile") || td_str_is(n->def.op, "Fill");
  int64_t size = td_str_is(n->def.op, "Mul") ? 1 << 20 : repeats || td_str_is(n->def.op, "Sub") ? 1 << 16 : 1;
  if (td_str_is(n->def.op, "Square")) return td_invalid_argument("it fails in a step too");
  if ((size_t)size * sizeof(float) > max_bytes) return td_resource_exhausted("too large");
  float sum = 1;
  for (int i = 0; i < n->input_count; i++) sum += TD_DATA(in[i], float)[0];
  if (!td_str_is(n->def.op, "Const")) TD_CONTAINER_OF(self, counter, base)->computed++;
  for (int i = 0; i < n->output_count; i++) {
    must(td_tensor_create_dims(td_dtype_base(n->output_types[i]), 1, &size, &out[i]));
    memset(out[i]->data, 0, out[i]->size);
    for (int64_t k = 0; k < (repeats ? size : 1); k++) TD_DATA(out[i], float)[k] = sum + (float)(10 * i);
  }
  return TD_STATUS_OK;
}

static td_graph *placed(const char *text) {
  td_graph *g = td_graph_test_graph(text);
  for (size_t i = 0; i < g->node_count; i++) g->nodes[i]->device = g->nodes[i]->def.device;
  return g;
}

/* Optimises the text with the passes of `o`; "t" is a target. */
static td_graph *optimized(const char *text, td_optimize_options o, counter *c) {
  td_str target = TD_STR("t");
  td_graph *g = placed(text);
  *c = (counter){.base.compute = o.evaluator ? o.evaluator->compute : compute};
  o.targets = &target;
  o.target_count = 1;
  o.evaluator = &c->base;
  if (!o.max_folded_bytes) o.max_folded_bytes = 1 << 20;
  td_graph_optimize(g, &o);
  return g;
}

static void assert_becomes(const char *text, td_optimize_options o, const char *expected) {
  counter c;
  td_arena a = {0};
  td_graph *g = optimized(text, o, &c), *want = placed(expected);
  assert_string_equal(td_graph_test_print(g, &a), td_graph_test_print(want, &a));
  td_graph_release(want);
  td_graph_release(g);
  td_arena_deinit(&a);
}

static const td_optimize_options fold = {.fold_constants = true}, merge = {.merge_common = true},
                                 drop = {.drop_unread = true}, skip = {.skip_identities = true},
                                 copy = {.copy_constants = true};

/* ---- constants ---- */

static void test_folds_a_chain(void **state) {
  static const char text[] = "a = " CONST "b = Neg(a)" ON " {T: float}\nc = Add(b, a)" ON " {T: float}\nr = _" RECV
                             "d = Add(c, r)" ON " {T: float}\nt = NoOp(^d)" ON "\n";
  assert_becomes(text, fold, "c = " CONST "r = _" RECV "d = Add(c, r)" ON " {T: float}\nt = NoOp(^d)" ON "\n");
  counter c;
  td_graph *g = optimized(text, fold, &c);
  const td_node *n = td_graph_find(g, TD_STR("c"));
  const Pb__TensorProto *proto;
  td_tensor *value;
  must(td_attr_tensor(&n->def, "value", &proto));
  must(td_tensor_from_proto(proto, &value));
  assert_int_equal(c.computed, 2);
  assert_true(TD_DATA(value, float)[0] == 4); /* 1 + (1 + 1) + 1 */
  td_tensor_release(value);
  td_graph_release(g);
}

static void test_keeps_order_and_deadness(void **state) {
  /* what the constant is made from waits for r and s, so does the constant */
  assert_becomes("r = _" RECV "s = _" RECV "a = Const(^r)" ON " {dtype: float; value: empty}\nb = Neg(a, ^s)" ON
                 " {T: float}\nt = Neg(b)" ON " {T: float}\n",
                 fold,
                 "r = _" RECV "s = _" RECV "b = Const(^r, ^s)" ON " {dtype: float; value: empty}\nt = Neg(b)" ON
                 " {T: float}\n");
}

static void test_leaves_what_fails(void **state) {
  static const char text[] = "b = " CONST "c = Square(b)" ON " {T: float}\nt = Neg(c)" ON " {T: float}\n";
  assert_becomes(text, fold, text);
  static const char large[] = "b = " CONST "c = Mul(b, b)" ON " {T: float}\nt = Neg(c)" ON " {T: float}\n";
  assert_becomes(large, fold, large);
}

static void test_folds_what_repeats_a_value(void **state) {
  static const char before[] = "a = " CONST "i = Const()" ON " {dtype: int32; value: empty}\nb = Tile(a, i)" ON
                               " {T: float; Tmultiples: int32}\nd = Sub(a, a)" ON " {T: float}\ne = Fill(i, a)" ON
                               " {T: float; index_type: int32}\nt = AddN(b, d, e)" ON " {N: 3; T: float}\n";
  static const char after[] =
      "a = " CONST "i = Const()" ON " {dtype: int32; value: empty}\nb = " CONST "d = Sub(a, a)" ON
      " {T: float}\ne = Fill(i, a)" ON " {T: float; index_type: int32}\nt = AddN(b, d, e)" ON " {N: 3; T: float}\n";
  assert_becomes(before, fold, after);
}

static void test_merges_products(void **state) {
  td_evaluator multiplies = {.compute = multiply};
  const td_optimize_options products = {.fold_constants = true, .evaluator = &multiplies};
#define MUL " {T: float}\n"
  /* either order of inputs; the constant gets what both waited for */
  assert_becomes("r = _" RECV "s = _" RECV "a = Const(^s)" ON " {dtype: float; value: empty}\nb = " CONST
                 "m = Mul(r, b)" ON MUL "t = Mul(a, m)" ON MUL,
                 products,
                 "r = _" RECV "s = _" RECV "t/_0 = Const(^s)" ON
                 " {dtype: float; value: empty}\nt = Mul(t/_0, r)" ON MUL);
  /* three in a row: the inner ones first */
  assert_becomes("r = _" RECV "a = " CONST "b = " CONST "b2 = " CONST "m = Mul(b, r)" ON MUL "b4 = Mul(m, b2)" ON MUL
                 "t = Mul(b4, a)" ON MUL,
                 products, "r = _" RECV "t/_1 = " CONST "t = Mul(r, t/_1)" ON MUL);
  static const char *const stay[] = {
      /* the inner one is no power of two, or less than one; the product overflows */
      "r = _" RECV "a = " CONST "c = " CONST "m = Mul(r, c)" ON MUL "t = Mul(m, a)" ON MUL,
      "r = _" RECV "a = " CONST "x = " CONST "m = Mul(r, x)" ON MUL "t = Mul(m, a)" ON MUL,
      "r = _" RECV "h = " CONST "b = " CONST "m = Mul(r, b)" ON MUL "t = Mul(m, h)" ON MUL,
      /* somebody else reads, waits for, or orders what is between; it is elsewhere, or fetched */
      "r = _" RECV "a = " CONST "b = " CONST "m = Mul(r, b)" ON MUL "n = Neg(m)" ON MUL "t = Mul(m, a, ^n)" ON MUL,
      "r = _" RECV "a = " CONST "b = " CONST "m = Mul(r, b)" ON MUL "n = NoOp(^m)" ON "\nt = Mul(m, a, ^n)" ON MUL,
      "r = _" RECV "s = _" RECV "a = " CONST "b = " CONST "m = Mul(r, b, ^s)" ON MUL "t = Mul(m, a)" ON MUL,
      "r = _" RECV "a = " CONST "b = " CONST "m = Mul(r, b)" OTHER MUL "t = Mul(m, a)" ON MUL,
      "r = _" RECV "a = " CONST "b = " CONST "t = Mul(r, b)" ON MUL "n = Mul(t, a)" ON MUL,
      /* no constant */
      "r = _" RECV "s = _" RECV "b = " CONST "m = Mul(r, b)" ON MUL "t = Mul(m, s)" ON MUL,
  };
  for (size_t i = 0; i < TD_COUNT(stay); i++) assert_becomes(stay[i], products, stay[i]);
#undef MUL
}

static void test_leaves_what_is_no_function(void **state) {
  static const char text[] = VARIABLE "b = " CONST "e = Effect(b)" ON " {T: float}\nu = Assign(v, b)" ON
                                      " {T: float}\nw = Neg(b)" GPU " {T: float}\np = Placeholder()" ON
                                      " {dtype: float}\nq = Neg(p)" ON " {T: float}\nt = NoOp(^e, ^u, ^w, ^q)" ON "\n";
  assert_becomes(text, fold, text);
}

static void test_folds_several_outputs(void **state) {
  assert_becomes("a = " CONST "b = IdentityN(a, a)" ON " {T: [float, float]}\nr = _" RECV "t = Add(b, r)" ON
                 " {T: float}\nu = Add(b:1, r)" ON " {T: float}\n",
                 fold,
                 "b = " CONST "b/_0 = " CONST "r = _" RECV "t = Add(b, r)" ON " {T: float}\nu = Add(b/_0, r)" ON
                 " {T: float}\n");
}

static void test_folds_inside_loops(void **state) {
  /* a constant of an iteration waits for the loop's pivot: it stays in its frame */
  static const char loop[] =
      "a = " CONST "e = Enter(a)" ON " {T: float; frame_name: 'f'}\nm = Merge(e, n)" ON
      " {T: float; N: 2}\nc = Less(m, l)" ON " {T: float}\nl = Enter(a)" ON
      " {T: float; frame_name: 'f'; is_constant: true}\np = LoopCond(c)" ON "\ns = Switch(m, p)" ON
      " {T: float}\ni = Identity(s:1)" ON " {T: float}\nx = Exit(s)" ON " {T: float}\nt = Neg(x)" ON " {T: float}\n";
  char *before = td_asprintf("%sk = Const(^i)" ON " {dtype: float; value: empty}\nd = Neg(k)" ON
                             " {T: float}\nn0 = Add(i, d)" ON " {T: float}\nn = NextIteration(n0)" ON " {T: float}\n",
                             loop);
  char *after = td_asprintf("%sd = Const(^i)" ON " {dtype: float; value: empty}\nn0 = Add(i, d)" ON
                            " {T: float}\nn = NextIteration(n0)" ON " {T: float}\n",
                            loop);
  assert_becomes(before, fold, after);
  td_free(before);
  td_free(after);
}

static void test_fetched_and_target_stay(void **state) {
  assert_becomes("a = " CONST "b = Neg(a)" ON " {T: float}\nt = Neg(b)" ON " {T: float}\nf = _Send(b)" ON SEND, fold,
                 "b = " CONST "t = Neg(b)" ON " {T: float}\nf = _Send(b)" ON SEND);
}

/* ---- common subexpressions ---- */

static void test_merges_equal_nodes(void **state) {
  assert_becomes("a = " CONST "b = " CONST "r = _" RECV "c = Add(a, r)" ON " {T: float}\nd = Add(b, r)" ON
                 " {T: float}\ne = Mul(c, d)" ON " {T: float}\nt = NoOp(^e, ^d)" ON "\n",
                 merge,
                 "a = " CONST "r = _" RECV "c = Add(a, r)" ON " {T: float}\ne = Mul(c, c)" ON
                 " {T: float}\nt = NoOp(^e, ^c)" ON "\n");
}

static void test_different_nodes_stay(void **state) {
  static const char text[] =
      VARIABLE "r = _" RECV "a = Neg(r)" ON " {T: float}\nb = Neg(r)" OTHER " {T: float}\nc = Neg(r, ^a)" ON
               " {T: float}\nd = Effect(r)" ON " {T: float}\ne = Effect(r)" ON " {T: float}\nf = Identity(v)" ON
               " {T: float}\ng = Identity(v)" ON " {T: float}\nh = Sum(r, i)" ON
               " {T: float; Tidx: int32; keep_dims: true}\n"
               "i = Shape(r)" ON " {T: float}\nj = Sum(r, i)" ON
               " {T: float; Tidx: int32}\n"
               "t = NoOp(^a, ^b, ^c, ^d, ^e, ^f, ^g, ^h, ^j)" ON "\n";
  assert_becomes(text, merge, text);
}

static void test_merge_keeps_names_of_fetches(void **state) {
  assert_becomes("r = _" RECV "a = Neg(r)" ON " {T: float}\nb = Neg(r)" ON " {T: float}\nf = _Send(b)" ON SEND
                 "t = Neg(a)" ON " {T: float}\n",
                 merge,
                 "r = _" RECV "b = Neg(r)" ON " {T: float}\nf = _Send(b)" ON SEND "t = Neg(b)" ON " {T: float}\n");
}

/* ---- Identity and NoOp ---- */

static void test_skips_identities(void **state) {
  assert_becomes("r = _" RECV "a = Neg(r)" ON " {T: float}\nb = Identity(a)" ON " {T: float}\nc = Identity(b)" ON
                 " {T: float}\nd = Neg(c)" ON " {T: float}\nt = NoOp(^d, ^b)" ON "\n",
                 skip,
                 "r = _" RECV "a = Neg(r)" ON " {T: float}\nd = Neg(a)" ON " {T: float}\nt = NoOp(^d, ^a)" ON "\n");
}

static void test_skips_barriers(void **state) {
  /* TensorFlow's tuple(): whoever reads one waits for both, with fewer edges */
  assert_becomes("r = _" RECV "a = Neg(r)" ON " {T: float}\nb = Square(r)" ON " {T: float}\ng = NoOp(^a, ^b)" ON
                 "\nc = Identity(a, ^g)" ON " {T: float}\nd = Identity(b, ^g)" ON " {T: float}\ne = Neg(c)" ON
                 " {T: float}\nf = Neg(d)" ON " {T: float}\nt = NoOp(^e, ^f)" ON "\n",
                 skip,
                 "r = _" RECV "a = Neg(r)" ON " {T: float}\nb = Square(r)" ON " {T: float}\ne = Neg(a, ^b)" ON
                 " {T: float}\nf = Neg(b, ^a)" ON " {T: float}\nt = NoOp(^e, ^f)" ON "\n");
}

static void test_keeps_identities_that_do_something(void **state) {
  /* a read of a variable, what is read from it, a pivot, one on another device, a fetched one */
  static const char text[] =
      VARIABLE "r = _" RECV "p = Less(r, r)" ON " {T: float}\na = Identity(v)" ON " {T: float}\nb = Identity(a)" ON
               " {T: float}\nc = Neg(b)" ON " {T: float}\ns = Switch(r, p)" ON " {T: float}\ni = Identity(s:1)" ON
               " {T: float}\nk = Const(^i)" ON " {dtype: float; value: empty}\nl = Identity(r)" OTHER
               " {T: float}\nm = Neg(l)" OTHER " {T: float}\no = Identity(c)" ON " {T: float}\nf = _Send(o)" ON SEND
               "t = NoOp(^k, ^m)" ON "\n";
  assert_becomes(text, skip, text);
}

static void test_keeps_barriers_between_devices(void **state) {
  /* one value travels, and says that both are there; two would have to */
  assert_becomes("r = _" RECV "a = Neg(r)" ON " {T: float}\nb = Square(r)" ON " {T: float}\nc = Identity(a, ^b)" ON
                 " {T: float}\ne = Neg(c)" OTHER " {T: float}\nf = Identity(b)" ON " {T: float}\nh = Neg(f)" OTHER
                 " {T: float}\nt = NoOp(^e, ^h)" OTHER "\n",
                 skip,
                 "r = _" RECV "a = Neg(r)" ON " {T: float}\nb = Square(r)" ON " {T: float}\nc = Identity(a, ^b)" ON
                 " {T: float}\ne = Neg(c)" OTHER " {T: float}\nh = Neg(b)" OTHER " {T: float}\nt = NoOp(^e, ^h)" OTHER
                 "\n");
}

static void test_keeps_wide_barriers(void **state) {
  static const char text[] =
      "r = _" RECV "a = Neg(r)" ON " {T: float}\nb = Neg(r)" ON " {T: float}\nc = Neg(r)" ON
      " {T: float}\ng = NoOp(^a, ^b, ^c)" ON "\nd = Neg(r, ^g)" ON " {T: float}\ne = Neg(r, ^g)" ON
      " {T: float}\nf = Neg(r, ^g)" ON " {T: float}\nt = NoOp(^d, ^e, ^f)" ON "\n";
  assert_becomes(text, skip, text);
}

/* ---- values that nobody reads ---- */

static void test_drops_what_nobody_reads(void **state) {
  /* b and c are only waited for; d is read, too; the shape k is wanted no more */
  assert_becomes("r = _" RECV "a = Neg(r)" ON " {T: float}\nk = " CONST "b = Neg(a)" ON " {T: float}\nc = Add(b, k)" ON
                 " {T: float}\nd = Neg(a)" ON " {T: float}\ne = Neg(d, ^c, ^d)" ON " {T: float}\nt = Neg(e)" ON
                 " {T: float}\n",
                 drop,
                 "r = _" RECV "a = Neg(r)" ON " {T: float}\nb = NoOp(^a)" ON "\nc = NoOp(^b)" ON "\nd = Neg(a)" ON
                 " {T: float}\ne = Neg(d, ^c, ^d)" ON " {T: float}\nt = Neg(e)" ON " {T: float}\n");
  /* twice the same source, and one that it waits for anyway */
  assert_becomes("r = _" RECV "b = Add(r, r, ^r)" ON " {T: float}\nt = NoOp(^b)" ON "\n", drop,
                 "r = _" RECV "b = NoOp(^r)" ON "\nt = NoOp(^b)" ON "\n");
}

static void test_computes_what_does_something(void **state) {
  /* targets, effects, reads of variables, ways of dead values */
  static const char text[] =
      VARIABLE "r = _" RECV "e = Effect(r)" ON " {T: float}\nw = Neg(v)" ON " {T: float}\np = _" RECV
               "c = Less(r, p)" ON " {T: float}\ns = Switch(r, c)" ON " {T: float}\nx = Neg(s:1)" ON
               " {T: float}\nt = Neg(r, ^e, ^w, ^x)" ON " {T: float}\n";
  assert_becomes(text, drop, text);
}

/* ---- constants on other devices ---- */

static void test_copies_constants(void **state) {
  assert_becomes("r = _" RECV "a = " CONST "b = Add(a, r)" ON " {T: float}\nc = Add(a, r)" OTHER
                 " {T: float}\nd = Neg(a)" OTHER " {T: float}\nt = NoOp(^b, ^c, ^d)" ON "\n",
                 copy,
                 "r = _" RECV "a = " CONST "a/_0 = Const()" OTHER " {dtype: float; value: empty}\nb = Add(a, r)" ON
                 " {T: float}\nc = Add(a/_0, r)" OTHER " {T: float}\nd = Neg(a/_0)" OTHER
                 " {T: float}\nt = NoOp(^b, ^c, ^d)" ON "\n");
}

static void test_moves_constants(void **state) {
  assert_becomes("a = " CONST "c = Neg(a)" OTHER " {T: float}\nt = NoOp(^c)" ON "\n", copy,
                 "a = Const()" OTHER " {dtype: float; value: empty}\nc = Neg(a)" OTHER " {T: float}\nt = NoOp(^c)" ON
                 "\n");
}

static void test_constants_that_wait_stay(void **state) {
  static const char text[] = "r = _" RECV "a = Const(^r)" ON " {dtype: float; value: empty}\nc = Neg(a)" OTHER
                             " {T: float}\nb = " CONST "t = Neg(b)" GPU " {T: float}\n";
  assert_becomes(text, copy, text);
  /* what is fetched, or a target, comes from where it was placed */
  static const char fetched[] = "d = " CONST "f = _Send(d)" OTHER SEND "t = " CONST "u = Neg(t)" OTHER " {T: float}\n";
  assert_becomes(fetched, copy,
                 "d = " CONST "f = _Send(d)" OTHER SEND "t = " CONST "t/_0 = Const()" OTHER
                 " {dtype: float; value: empty}\nu = Neg(t/_0)" OTHER " {T: float}\n");
}

/* ---- a long chain ---- */

static void test_is_linear(void **state) {
  enum { N = 20000 };
  td_strbuf text = {0};
  td_strbuf_puts(&text, "n0 = " CONST "w = " CONST);
  for (int i = 1; i < N; i++) td_strbuf_printf(&text, "n%d = Add(n%d, w)" ON " {T: float}\n", i, i - 1);
  td_strbuf_printf(&text, "t = Neg(n%d)" ON " {T: float}\n", N - 1);
  counter c;
  td_graph *g =
      optimized(td_strbuf_cstr(&text), (td_optimize_options){true, true, true, true, true, 0, NULL, NULL, 0}, &c);
  td_arena a = {0};
  assert_int_equal(c.computed, N - 1);
  char *want = td_arena_printf(&a, "n%d = Const()" ON "\nt = Neg(n%d)" ON "\n", N - 1, N - 1);
  assert_string_equal(td_graph_test_print(g, &a), want);
  td_arena_deinit(&a);
  td_graph_release(g);
  td_strbuf_deinit(&text);
}

/* ---- what a session asks for ---- */

static void test_options(void **state) {
  Pb__GraphOptions g = PB__GRAPH_OPTIONS__INIT;
  Pb__OptimizerOptions o = PB__OPTIMIZER_OPTIONS__INIT;
  Pb__RewriterConfig r = PB__REWRITER_CONFIG__INIT;
  td_optimize_options got = td_optimize_options_of(NULL);
  assert_true(got.fold_constants && got.merge_common && got.drop_unread && got.skip_identities && got.copy_constants);
  assert_int_equal(got.max_folded_bytes, 10 << 20);
  g.optimizer_options = &o;
  o.opt_level = -1;
  got = td_optimize_options_of(&g);
  assert_false(td_optimize_wants_any(&got));
  o.do_constant_folding = true;
  o.max_folded_constant_in_bytes = 8;
  got = td_optimize_options_of(&g);
  assert_true(got.fold_constants && !got.merge_common && !got.skip_identities && !got.copy_constants);
  assert_int_equal(got.max_folded_bytes, 8);
  o.opt_level = 0;
  g.rewrite_options = &r;
  r.constant_folding = r.dependency_optimization = 2;
  r.common_subgraph_elimination = 1;
  got = td_optimize_options_of(&g);
  assert_true(!got.fold_constants && got.merge_common && !got.skip_identities && got.copy_constants);
  r.disable_meta_optimizer = true;
  got = td_optimize_options_of(&g);
  assert_false(td_optimize_wants_any(&got));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_folds_a_chain),
      cmocka_unit_test(test_keeps_order_and_deadness),
      cmocka_unit_test(test_leaves_what_fails),
      cmocka_unit_test(test_merges_products),
      cmocka_unit_test(test_leaves_what_is_no_function),
      cmocka_unit_test(test_folds_what_repeats_a_value),
      cmocka_unit_test(test_folds_several_outputs),
      cmocka_unit_test(test_folds_inside_loops),
      cmocka_unit_test(test_fetched_and_target_stay),
      cmocka_unit_test(test_merges_equal_nodes),
      cmocka_unit_test(test_different_nodes_stay),
      cmocka_unit_test(test_merge_keeps_names_of_fetches),
      cmocka_unit_test(test_skips_identities),
      cmocka_unit_test(test_skips_barriers),
      cmocka_unit_test(test_keeps_identities_that_do_something),
      cmocka_unit_test(test_keeps_barriers_between_devices),
      cmocka_unit_test(test_keeps_wide_barriers),
      cmocka_unit_test(test_drops_what_nobody_reads),
      cmocka_unit_test(test_computes_what_does_something),
      cmocka_unit_test(test_copies_constants),
      cmocka_unit_test(test_moves_constants),
      cmocka_unit_test(test_constants_that_wait_stay),
      cmocka_unit_test(test_is_linear),
      cmocka_unit_test(test_options),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
