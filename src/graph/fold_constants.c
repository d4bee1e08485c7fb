/* Constant folding: nodes whose inputs are constants are computed once, here. As TensorFlow's constant_folding.cc, with
 * grappler's rule that a constant may not be much larger than what it is made of, but if it repeats one value.
 *
 * Nodes are visited in order and computed as soon as their inputs are known. What a computed value waited for along
 * control edges, its own and those of what it was made from, the constant in its place waits for: so order, frame and
 * deadness stay. Whoever cannot be computed reads constants; what nobody reads any more goes.
 */
#include "base/mem.h"
#include "graph/build.h"
#include "graph/optimize_internal.h"
#include "proto/message.h"
#include "tensor/tensor_proto.h"

enum {
  MAX_DEPENDENCIES = 8, /* of a constant, along control edges */
  MAX_EDGES = 64,       /* inputs, and outputs, of what is computed */
  SMALL_BYTES = 100 << 10,
  UNIFORM_BYTES = 1 << 20,    /* of one that repeats a value, as gradients of means do */
  MAX_TOTAL_BYTES = 64 << 20, /* of all constants that one graph gets, and of the values known at any time */
};

typedef struct fold {
  td_tensor **values; /* by output; NULL: not known, or not needed any more */
  uint32_t unvisited; /* readers that may still want the values */
  bool is_constant, is_computed, is_needed;
  uint8_t dependency_count;
  td_node **dependencies;
} fold;

typedef struct folder {
  td_optimizer *o;
  fold *folds; /* by id */
  size_t total_bytes, known_bytes;
} folder;

static fold *fold_of(const folder *f, const td_node *n) { return &f->folds[n->id]; }

static void release_values(folder *f, const td_node *n) {
  fold *v = fold_of(f, n);
  for (int i = 0; v->values && i < n->output_count; i++) {
    f->known_bytes -= v->values[i]->size;
    td_tensor_release(v->values[i]);
  }
  v->values = NULL;
}

/* ---- what a constant waits for ---- */

static bool add_dependency(td_node **list, uint8_t *count, td_node *n) {
  for (int i = 0; i < *count; i++)
    if (list[i] == n) return true;
  if (*count == MAX_DEPENDENCIES) return false;
  list[(*count)++] = n;
  return true;
}

/* False when there are too many. A constant among them stands for what it waits for itself. */
static bool collect_dependencies(folder *f, const td_node *n, fold *v) {
  td_node *list[MAX_DEPENDENCIES];
  uint8_t count = 0;
  for (const td_edge *e = n->in_edges; e; e = e->next_in) {
    const fold *src = fold_of(f, e->src);
    if (!src->is_constant && !add_dependency(list, &count, e->src)) return false;
    for (int i = 0; i < src->dependency_count; i++)
      if (!add_dependency(list, &count, src->dependencies[i])) return false;
  }
  v->dependency_count = count;
  v->dependencies = count ? td_arena_array(&f->o->scratch, td_node *, count) : NULL;
  if (count) memcpy(v->dependencies, list, count * sizeof *list);
  return true;
}

/* ---- values ---- */

/* Bytes of a Const's tensor by its declared shape; SIZE_MAX when that is no shape or no plain type. */
static size_t declared_bytes(const td_node *n) {
  const Pb__TensorProto *proto;
  td_status s = td_attr_tensor(&n->def, "value", &proto);
  td_status_free(s);
  if (s) return SIZE_MAX;
  size_t bytes = td_dtype_size(td_dtype_base(n->output_types[0]));
  for (size_t i = 0; proto->tensor_shape && i < proto->tensor_shape->n_dim; i++) {
    const Pb__TensorShapeProto__Dim *d = proto->tensor_shape->dim[i];
    if (!d || d->size < 0 || __builtin_mul_overflow(bytes, (size_t)d->size, &bytes)) return SIZE_MAX;
  }
  return bytes;
}

static td_status compute(folder *f, const td_node *n, td_tensor *const *in, size_t max_bytes) {
  fold *v = fold_of(f, n);
  td_tensor **values = td_arena_array(&f->o->scratch, td_tensor *, (size_t)n->output_count);
  td_evaluator *evaluator = f->o->options->evaluator;
  TD_TRY(evaluator->compute(evaluator, n, in, max_bytes, values));
  v->values = values;
  for (int i = 0; i < n->output_count; i++) f->known_bytes += values[i]->size;
  return TD_STATUS_OK;
}

static bool try_compute(folder *f, const td_node *n, td_tensor *const *in, size_t max_bytes) {
  td_status s = compute(f, n, in, max_bytes);
  td_status_free(s); /* a step will say so, if it comes to that */
  return !s;
}

static bool is_foldable(const folder *f, const td_node *n) {
  if (!n->input_count || n->input_count > MAX_EDGES || n->output_count > MAX_EDGES) return false;
  if (f->known_bytes > MAX_TOTAL_BYTES || !n->out_edges || !td_optimizer_on_cpu(f->o, n)) return false;
  for (int i = 0; i < n->input_count; i++)
    if (!n->in[i] || !fold_of(f, n->in[i]->src)->is_constant) return false;
  return td_node_is_pure(f->o, n);
}

/* Whether the values are worth the memory that they take for good, where a step would make them anew: those not much
 * larger than what they are made of, or all the same; but not what Fill makes, as initial values often are. */
static bool are_worth_keeping(const td_node *n, td_tensor *const *values, size_t small_bytes) {
  for (int i = 0; i < n->output_count; i++)
    if (values[i]->size > small_bytes && (td_str_is(n->op->name, "Fill") || !td_tensor_repeats_a_value(values[i])))
      return false;
  return true;
}

static bool fold_node(folder *f, const td_node *n) {
  td_tensor *in[MAX_EDGES];
  size_t bytes = 0;
  for (int i = 0; i < n->input_count; i++) {
    const td_edge *e = n->in[i];
    const fold *src = fold_of(f, e->src);
    if (!src->values && (src->is_computed || !try_compute(f, e->src, NULL, SIZE_MAX))) return false;
    in[i] = src->values[e->src_slot];
    bytes += in[i]->size;
  }
  size_t most = f->o->options->max_folded_bytes;
  bytes = TD_MIN(TD_MAX(bytes, (size_t)SMALL_BYTES), most);
  if (!collect_dependencies(f, n, fold_of(f, n)) ||
      !try_compute(f, n, in, TD_MIN(TD_MAX(bytes, (size_t)UNIFORM_BYTES), most)))
    return false;
  if (are_worth_keeping(n, fold_of(f, n)->values, bytes)) return true;
  release_values(f, n);
  return false;
}

static uint32_t reader_count(const td_node *n) {
  uint32_t count = 0;
  for (const td_edge *e = n->out_edges; e; e = e->next_out) count += e->src_slot >= 0;
  return count;
}

static void visit(folder *f, const td_node *n) {
  fold *v = fold_of(f, n);
  v->unvisited = reader_count(n);
  if (td_node_is_const(n)) {
    v->is_constant = td_node_is_pure(f->o, n) && td_optimizer_on_cpu(f->o, n) &&
                     declared_bytes(n) <= f->o->options->max_folded_bytes && collect_dependencies(f, n, v);
  } else if (v->unvisited && is_foldable(f, n)) {
    v->is_constant = v->is_computed = fold_node(f, n);
  }
  if (!v->is_constant) v->dependency_count = 0;
  for (int i = 0; i < n->input_count; i++) {
    if (!n->in[i]) continue;
    td_node *src = n->in[i]->src;
    fold *s = fold_of(f, src);
    if (!v->is_constant) s->is_needed = true;
    if (s->unvisited) s->unvisited--;
    if (!s->unvisited && !(s->is_computed && s->is_needed)) release_values(f, src);
  }
}

/* ---- constants in the place of nodes ---- */

static td_status encode(td_graph *g, const td_tensor *t, Pb__TensorProto **out) {
  td_strbuf bytes = {0};
  td_status s = td_tensor_encode(t, &bytes);
  if (!s)
    s = td_message_decode(&pb__tensor_proto__descriptor, td_strbuf_view(&bytes), &g->arena, (ProtobufCMessage **)out);
  td_strbuf_deinit(&bytes);
  return s;
}

/* Makes `def` that of a Const. */
static td_status define(td_graph *g, const td_tensor *t, td_node_def *def) {
  td_arena *a = &g->arena;
  Pb__AttrValue *value = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(value);
  value->value_case = PB__ATTR_VALUE__VALUE_TENSOR;
  TD_TRY(encode(g, t, &value->tensor));
  def->op = TD_STR("Const");
  def->attr_count = 2;
  def->attrs = td_arena_array(a, td_attr, 2);
  def->attrs[0] = (td_attr){TD_STR("dtype"), td_attr_value_type(a, (td_dtype)t->dtype)};
  def->attrs[1] = (td_attr){TD_STR("value"), value};
  return TD_STATUS_OK;
}

td_status td_optimizer_add_const(td_optimizer *o, const td_node *like, const td_tensor *t, td_node **out) {
  td_node_def def = {.name = td_graph_new_name(o->g, like->def.name), .device = like->def.device};
  TD_TRY(define(o->g, t, &def));
  TD_TRY(td_graph_add_node(o->g, &def, td_op_find(TD_STR("Const")), out));
  (*out)->device = like->device;
  (*out)->original = td_node_original(like);
  (*out)->is_made = true;
  return TD_STATUS_OK;
}

static void add_dependencies(const folder *f, const fold *v, td_node *n) {
  for (int i = 0; i < v->dependency_count; i++) td_graph_add_control_edge(f->o->g, v->dependencies[i], n);
}

static td_status replace_output(folder *f, td_node *n, int slot) {
  fold *v = fold_of(f, n);
  td_node *made;
  TD_TRY(td_optimizer_add_const(f->o, n, v->values[slot], &made));
  f->total_bytes += v->values[slot]->size;
  add_dependencies(f, v, made);
  td_graph_move_readers(f->o->g, n, slot, made, 0);
  return TD_STATUS_OK;
}

/* The node itself becomes its first output. */
static td_status become_const(folder *f, td_node *n) {
  fold *v = fold_of(f, n);
  td_node_def def = n->def;
  TD_TRY(define(f->o->g, v->values[0], &def));
  f->total_bytes += v->values[0]->size;
  while (n->in_edges) td_graph_remove_edge(f->o->g, n->in_edges);
  n->def = def;
  n->op = td_op_find(def.op);
  n->input_count = 0;
  n->output_count = 1;
  n->is_lowered = false;
  add_dependencies(f, v, n);
  return TD_STATUS_OK;
}

static bool is_read(const td_node *n, int slot) {
  for (const td_edge *e = n->out_edges; e; e = e->next_out)
    if (e->src_slot == slot) return true;
  return false;
}

static void replace(folder *f, td_node *n) {
  int outputs = n->output_count;
  td_tensor **values = fold_of(f, n)->values;
  td_status s = TD_STATUS_OK;
  for (int i = 1; !s && i < outputs; i++)
    if (is_read(n, i)) s = replace_output(f, n, i);
  if (!s) s = become_const(f, n);
  td_status_free(s); /* what could not be encoded stays a node that computes */
  for (int i = 0; i < outputs; i++) td_tensor_release(values[i]);
  fold_of(f, n)->values = NULL;
}

/* Takes away what nobody reads any more, readers first. */
static void sweep(folder *f, td_node **order, size_t count) {
  for (size_t i = count; i-- > 0;)
    if (fold_of(f, order[i])->is_constant && !order[i]->out_edges && !td_optimizer_keeps(f->o, order[i]))
      td_graph_remove_node(f->o->g, order[i]);
}

void td_fold_constants(td_optimizer *o) {
  folder f = {.o = o};
  size_t count;
  td_node **order = td_graph_order(o->g, &o->scratch, &count);
  f.folds = td_arena_array(&o->scratch, fold, o->g->node_count);
  for (size_t i = 0; i < count; i++) visit(&f, order[i]);
  bool changed = false;
  for (size_t i = 0; i < count; i++) {
    fold *v = fold_of(&f, order[i]);
    if (!v->values) continue;
    if (v->is_computed && (v->is_needed || v->unvisited) && f.total_bytes < MAX_TOTAL_BYTES) {
      replace(&f, order[i]);
      changed = true;
    }
  }
  for (size_t i = 0; i < count; i++) {
    td_node *n = order[i];
    fold *v = fold_of(&f, n);
    if (v->values) release_values(&f, n);
  }
  if (changed) sweep(&f, order, count);
}
