#include "graph/optimize.h"

#include "base/mem.h"
#include "graph/optimize_internal.h"

enum { LEVEL_L1 = 0, TOGGLE_OFF = 2 }; /* of OptimizerOptions, RewriterConfig */
enum { DEFAULT_MAX_FOLDED = 10 << 20 /* TensorFlow's */, MAX_SCANNED_EDGES = 32 };

/* ---- what is asked for ---- */

td_optimize_options td_optimize_options_of(const Pb__GraphOptions *g) {
  const Pb__OptimizerOptions *o = g ? g->optimizer_options : NULL;
  const Pb__RewriterConfig *r = g ? g->rewrite_options : NULL;
  td_optimize_options out = {.max_folded_bytes = DEFAULT_MAX_FOLDED};
  if (r && r->disable_meta_optimizer) return out;
  bool all = !o || o->opt_level >= LEVEL_L1;
  out.fold_constants = all || o->do_constant_folding;
  out.merge_common = all || o->do_common_subexpression_elimination;
  out.drop_unread = out.skip_identities = out.copy_constants = all;
  if (o && o->max_folded_constant_in_bytes > 0) out.max_folded_bytes = (size_t)o->max_folded_constant_in_bytes;
  if (!r) return out;
  if (r->constant_folding == TOGGLE_OFF) out.fold_constants = false;
  if (r->common_subgraph_elimination == TOGGLE_OFF) out.merge_common = false;
  if (r->dependency_optimization == TOGGLE_OFF) out.drop_unread = out.skip_identities = false;
  return out;
}

bool td_optimize_wants_any(const td_optimize_options *o) {
  return o->fold_constants || o->merge_common || o->drop_unread || o->skip_identities || o->copy_constants;
}

/* ---- nodes ---- */

bool td_optimizer_keeps(const td_optimizer *o, const td_node *n) {
  return (size_t)n->id < o->kept_count && o->is_kept[n->id];
}

bool td_optimizer_on_cpu(td_optimizer *o, const td_node *n) {
  td_device_name name;
  if (!n->device.size) return false;
  if (n->device.data == o->cpu_device) return true;
  if (n->device.data == o->other_device) return false;
  bool is_cpu = td_device_name_parse(n->device, &name) && !strcmp(name.type, "CPU");
  *(is_cpu ? &o->cpu_device : &o->other_device) = n->device.data;
  return is_cpu;
}

bool td_node_is_const(const td_node *n) { return td_str_is(n->op->name, "Const"); }

static bool is_value(int type) {
  return !td_dtype_is_ref(type) && type != TD_RESOURCE && type != TD_VARIANT && type != TD_INVALID;
}

/* Beside what starts so: ops without the flag of state that do more than compute. */
static bool is_special(td_str op) {
  static const char *const names[] = {"Abort", "GenerateVocabRemapping", "ImmutableConst", "MatchingFiles", "ReadFile"};
  static const char *const prefixes[] = {"_",       "Collective", "Copy",        "Debug", "FakeParam",
                                         "Inplace", "Parallel",   "Placeholder", "Stack", "TensorArray"};
  for (size_t i = 0; i < TD_COUNT(names); i++)
    if (td_str_is(op, names[i])) return true;
  for (size_t i = 0; i < TD_COUNT(prefixes); i++)
    if (td_str_starts(op, td_str_of(prefixes[i]))) return true;
  return false;
}

static bool calls_functions(const td_optimizer *o, const td_node *n) {
  if (td_library_find(o->g->library, n->op->name)) return true;
  for (size_t i = 0; i < n->op->attr_count; i++)
    if (n->op->attrs[i].kind == TD_ATTR_FUNC) return true;
  return false;
}

bool td_node_is_pure(const td_optimizer *o, const td_node *n) {
  if (n->kind != TD_NODE_PLAIN || n->op->flags & TD_OP_STATEFUL || n->output_count < 1) return false;
  for (int i = 0; i < n->output_count; i++)
    if (!is_value(n->output_types[i])) return false;
  for (int i = 0; i < n->input_count; i++) {
    const td_edge *e = n->in[i];
    if (!e || !is_value(n->input_types[i]) || !is_value(e->src->output_types[e->src_slot])) return false;
  }
  return !is_special(n->op->name) && !calls_functions(o, n);
}

void td_graph_move_readers(td_graph *g, td_node *src, int slot, td_node *to, int to_slot) {
  for (td_edge *e = src->out_edges, *next; e; e = next) {
    next = e->next_out;
    if (e->src_slot != slot) continue;
    td_node *dst = e->dst;
    int dst_slot = e->dst_slot;
    td_graph_remove_edge(g, e);
    if (slot == TD_CONTROL_SLOT)
      td_graph_add_control_edge(g, to, dst);
    else
      td_graph_add_edge(g, to, to_slot, dst, dst_slot);
  }
}

bool td_graph_waits_for(const td_node *dst, const td_node *src) {
  int left = MAX_SCANNED_EDGES;
  for (const td_edge *e = dst->last_in; e && left--; e = e->prev_in)
    if (e->src == src && (e->dst_slot == TD_CONTROL_SLOT || dst->kind != TD_NODE_MERGE)) return true;
  return false;
}

/* ---- all of it ---- */

static bool is_fetch(const td_node *n) {
  bool to_client = false;
  if (n->kind != TD_NODE_SEND) return false;
  td_status_free(td_attr_bool(&n->def, "client_terminated", &to_client));
  return to_client;
}

static void find_kept(td_optimizer *o) {
  const td_graph *g = o->g;
  o->kept_count = g->node_count;
  o->is_kept = td_arena_array(&o->scratch, bool, g->node_count);
  for (size_t i = 0; i < o->options->target_count; i++) {
    const td_node *n = td_graph_find(g, o->options->targets[i]);
    if (n) o->is_kept[n->id] = true;
  }
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    if (n->is_removed || !is_fetch(n)) continue;
    o->is_kept[i] = true;
    for (int k = 0; k < n->input_count; k++)
      if (n->in[k]) o->is_kept[n->in[k]->src->id] = true;
  }
}

void td_graph_optimize(td_graph *g, const td_optimize_options *options) {
  td_optimizer o = {.g = g, .options = options};
  find_kept(&o);
  if (options->fold_constants && options->evaluator && td_op_find(TD_STR("Const"))) {
    td_fold_constants(&o);
    td_merge_products(&o);
  }
  if (options->merge_common) td_merge_common(&o);
  if (options->drop_unread) td_drop_unread(&o);
  if (options->skip_identities) td_skip_identities(&o);
  if (options->copy_constants) td_copy_constants(&o);
  td_arena_deinit(&o.scratch);
}
