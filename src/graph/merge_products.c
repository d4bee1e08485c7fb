/* Products with two constants: (x * b) * a becomes x * (a * b), where that changes no bit but of what would overflow on
 * the way: b is a power of two from 1 on, everywhere, as in the gradient of a square. TensorFlow's rule
 * (ConstantPushDown of grappler's constant_folding.cc) takes any b.
 */
#include <float.h>
#include <math.h>

#include "base/mem.h"
#include "graph/build.h"
#include "graph/optimize_internal.h"

static bool is_product(td_optimizer *o, const td_node *n) {
  int type = n->output_count == 1 ? n->output_types[0] : TD_INVALID;
  return td_str_is(n->op->name, "Mul") && (type == TD_FLOAT || type == TD_DOUBLE) && td_node_is_pure(o, n) &&
         td_optimizer_on_cpu(o, n);
}

/* The input that is a constant; -1: none or both. */
static int constant_input(td_optimizer *o, const td_node *n) {
  bool is_const[2];
  for (int i = 0; i < 2; i++) is_const[i] = td_node_is_const(n->in[i]->src) && td_node_is_pure(o, n->in[i]->src);
  return is_const[0] == is_const[1] ? -1 : is_const[1];
}

/* It exists for `reader` alone, and nothing else orders it. */
static bool serves_only(const td_optimizer *o, const td_node *n, const td_node *reader) {
  if (td_optimizer_keeps(o, n) || !n->out_edges || n->out_edges->next_out || n->out_edges->dst != reader) return false;
  for (const td_edge *e = n->in_edges; e; e = e->next_in)
    if (e->dst_slot == TD_CONTROL_SLOT) return false;
  return td_str_eq(n->device, reader->device);
}

static double element(const td_tensor *t, int64_t i) {
  return t->dtype == TD_FLOAT ? TD_DATA(t, float)[i] : TD_DATA(t, double)[i];
}

static bool is_power_of_two(const td_tensor *t) {
  int exponent;
  for (int64_t i = 0; i < t->count; i++)
    if (fabs(frexp(element(t, i), &exponent)) != 0.5 || exponent < 1) return false;
  return t->count > 0;
}

/* No element lost anything by becoming very large or very small. */
static bool is_exact(const td_tensor *product) {
  double least = product->dtype == TD_FLOAT ? FLT_MIN : DBL_MIN, most = product->dtype == TD_FLOAT ? FLT_MAX : DBL_MAX;
  for (int64_t i = 0; i < product->count; i++) {
    double size = fabs(element(product, i));
    if (!(size >= least && size <= most) && size != 0) return false;
  }
  return true;
}

/* One reference; NULL: it cannot be computed, or is too large. */
static td_tensor *value_of(td_optimizer *o, const td_node *n, td_tensor *const *in, size_t max_bytes) {
  td_tensor *out = NULL;
  td_status s = o->options->evaluator->compute(o->options->evaluator, n, in, max_bytes, &out);
  td_status_free(s);
  return s ? NULL : out;
}

/* The product of two constants, no larger than the larger one; NULL: not to be had, or not the same. */
static td_tensor *product_of(td_optimizer *o, const td_node *product, const td_node *outer, const td_node *inner) {
  size_t most = o->options->max_folded_bytes;
  td_tensor *in[2] = {value_of(o, outer, NULL, most), NULL}, *out = NULL;
  if (in[0]) in[1] = value_of(o, inner, NULL, most);
  if (in[1] && is_power_of_two(in[1])) out = value_of(o, product, in, TD_MIN(TD_MAX(in[0]->size, in[1]->size), most));
  if (out && !is_exact(out)) {
    td_tensor_release(out);
    out = NULL;
  }
  td_tensor_release(in[0]);
  td_tensor_release(in[1]);
  return out;
}

/* What waits for a constant's control inputs does so in the new one's place, too. */
static void copy_order(td_optimizer *o, const td_node *from, td_node *to) {
  for (const td_edge *e = from->in_edges; e; e = e->next_in)
    if (!(td_node_is_const(e->src) && !e->src->in_edges)) td_graph_add_control_edge(o->g, e->src, to);
}

static void drop_unread(td_optimizer *o, td_node *n) {
  if (!n->out_edges && !td_optimizer_keeps(o, n)) td_graph_remove_node(o->g, n);
}

static void merge(td_optimizer *o, td_node *n, int at) {
  td_node *outer = n->in[at]->src, *with = n->in[1 - at]->src;
  if (!is_product(o, with) || !serves_only(o, with, n)) return;
  int k = constant_input(o, with);
  if (k < 0) return;
  td_node *inner = with->in[k]->src, *x = with->in[1 - k]->src, *made;
  int x_slot = with->in[1 - k]->src_slot;
  td_tensor *value = product_of(o, n, outer, inner);
  if (!value) return;
  td_status s = td_optimizer_add_const(o, n, value, &made);
  td_tensor_release(value);
  td_status_free(s);
  if (s) return;
  copy_order(o, outer, made);
  copy_order(o, inner, made);
  td_graph_remove_edge(o->g, n->in[at]);
  td_graph_remove_edge(o->g, n->in[1 - at]);
  td_graph_add_edge(o->g, made, 0, n, at);
  td_graph_add_edge(o->g, x, x_slot, n, 1 - at);
  td_graph_remove_node(o->g, with);
  drop_unread(o, outer);
  if (inner != outer) drop_unread(o, inner);
}

void td_merge_products(td_optimizer *o) {
  size_t count;
  td_node **order = td_graph_order(o->g, &o->scratch, &count);
  for (size_t i = 0; i < count; i++) {
    td_node *n = order[i];
    if (n->is_removed || !is_product(o, n)) continue;
    int at = constant_input(o, n);
    if (at >= 0) merge(o, n, at);
  }
}
