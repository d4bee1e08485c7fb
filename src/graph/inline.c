/* A function's body in the place of its call. */
#include "base/mem.h"
#include "framework/device.h"
#include "graph/internal.h"
#include "graph/lower_internal.h"

typedef struct inliner {
  td_graph *g;
  td_node *call;
  const td_function_body *body;
  const td_inline_options *o;
  td_node **copy; /* by id in the body; of an argument: the Identity of the input */
  td_output *results;
  td_node *before; /* runs when the call may; NULL: the call waits for nothing but its inputs */
  td_node *after;  /* runs when all effects have happened */
  bool is_device_known;
  td_device_name device; /* of the call */
  td_arena scratch;
} inliner;

static td_str original_of(const td_node *n) { return n->original.size ? n->original : n->def.name; }

/* "Func/<call>/<part>/_<k>" */
static td_status add(inliner *in, const char *part, const char *op, td_str device, const td_output *input,
                     td_node **out) {
  const char *prefix = td_arena_printf(&in->scratch, "Func/%.*s/%s", TD_STR_ARG(in->call->def.name), part);
  td_new_node spec = {.name = td_graph_new_name(in->g, td_str_of(prefix)),
                      .op = td_str_of(op),
                      .device = device,
                      .original = original_of(in->call),
                      .inputs = input,
                      .input_count = input ? 1 : 0};
  return td_graph_build_node(in->g, &spec, out);
}

/* ---- inputs ---- */

static bool is_call(const td_graph *g, const td_node *n) {
  return td_library_find(g->library, n->def.op) || td_str_is(n->def.op, "PartitionedCall") ||
         td_str_is(n->def.op, "StatefulPartitionedCall") || td_str_is(n->def.op, "SymbolicGradient");
}

static bool is_end(const td_node *n) { return td_str_is(n->def.op, "_Arg") || td_str_is(n->def.op, "_Retval"); }

/* What has no inputs runs only if the call does; an inner call hands that on to its own body. */
static bool waits(const inliner *in, const td_node *n) { return !n->in_edges || is_call(in->g, n); }

static bool has_waiting(const inliner *in) {
  const td_graph *from = in->body->graph;
  for (size_t i = 0; i < from->node_count; i++)
    if (!from->nodes[i]->is_removed && !is_end(from->nodes[i]) && waits(in, from->nodes[i])) return true;
  return false;
}

static td_status add_before(inliner *in) {
  bool all = in->o->is_in_control_flow && has_waiting(in); /* the inputs tell too whether the call is alive */
  for (const td_edge *e = in->call->in_edges; e; e = e->next_in) {
    if (e->src_slot != TD_CONTROL_SLOT && !all) continue;
    if (!in->before) TD_TRY(add(in, "input_control_node", "NoOp", in->call->def.device, NULL, &in->before));
    td_graph_add_control_edge(in->g, e->src, in->before);
  }
  return TD_STATUS_OK;
}

/* Arguments stay with their sources, unless the body has to be on one device. A source that keeps its device when the
 * graph is placed again is asked for by that. */
static td_str input_device(const inliner *in, const td_node *src) {
  if (!in->o->is_multi_device) return in->call->def.device;
  return src->device.size && (src->op->flags & TD_OP_STATEFUL) ? src->device : src->def.device;
}

static td_status add_inputs(inliner *in) {
  for (size_t i = 0; i < in->body->arg_count; i++) {
    const td_edge *e = in->call->in[i];
    td_output input = {e->src, e->src_slot};
    td_node **copy = &in->copy[in->body->args[i]->id];
    TD_TRY(add(in, "input", "Identity", input_device(in, e->src), &input, copy));
    if (in->before) td_graph_add_control_edge(in->g, in->before, *copy);
  }
  return TD_STATUS_OK;
}

/* ---- the body's nodes ---- */

static td_str device_of(inliner *in, const td_node *n) {
  td_device_name name;
  char text[TD_DEVICE_NAME_MAX];
  if (!in->o->is_multi_device || !n->def.device.size) return in->call->def.device;
  if (!in->is_device_known || !td_device_name_parse(n->def.device, &name)) return n->def.device;
  if (in->device.job[0]) memcpy(name.job, in->device.job, sizeof name.job);
  if (in->device.replica >= 0) name.replica = in->device.replica;
  if (in->device.task >= 0) name.task = in->device.task;
  td_device_name_format(&name, text);
  return td_arena_str(&in->g->arena, td_str_of(text));
}

static td_str with_prefix(inliner *in, td_str name) {
  return td_str_of(td_arena_printf(&in->g->arena, "%.*s/%.*s", TD_STR_ARG(in->call->def.name), TD_STR_ARG(name)));
}

/* Loops of two calls are two loops. */
static td_status rename_frame(inliner *in, td_node_def *def) {
  td_str frame;
  TD_TRY(td_attr_str(def, "frame_name", &frame));
  td_node_def_set_attr(def, &in->g->arena, TD_STR("frame_name"),
                       td_attr_value_str(&in->g->arena, with_prefix(in, frame)));
  return TD_STATUS_OK;
}

/* "loc:@n" means the body's node n, or one outside that the body's author could see. */
static void rename_groups(inliner *in, td_node_def *def, const Pb__AttrValue *old) {
  td_arena *a = &in->g->arena;
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  if (old->value_case != PB__ATTR_VALUE__VALUE_LIST || !old->list->n_s) return;
  *v = *old;
  v->list = td_arena_new(a, Pb__AttrValue__ListValue);
  *v->list = *old->list;
  v->list->s = td_arena_array(a, ProtobufCBinaryData, old->list->n_s);
  v->list->n_s = 0;
  for (size_t i = 0; i < old->list->n_s; i++) {
    td_str group = td_str_n(old->list->s[i].data, old->list->s[i].len);
    if (td_str_starts(group, TD_STR("loc:@"))) {
      td_str name = td_str_n(group.data + 5, group.size - 5);
      td_node *inner = td_graph_find(in->body->graph, name);
      const td_node *other = inner ? in->copy[inner->id] : td_graph_find(in->g, name);
      if (!other) continue;
      group = td_str_of(td_arena_printf(a, "loc:@%.*s", TD_STR_ARG(other->def.name)));
    }
    v->list->s[v->list->n_s++] = (ProtobufCBinaryData){group.size, (uint8_t *)group.data};
  }
  td_node_def_set_attr(def, a, TD_STR("_class"), v);
}

static td_status copy_nodes(inliner *in) {
  const td_graph *from = in->body->graph;
  for (size_t i = 0; i < from->node_count; i++) {
    td_node n = *from->nodes[i];
    if (n.is_removed || is_end(&n)) continue;
    n.original = original_of(&n);
    n.is_made = true;
    n.def.device = device_of(in, from->nodes[i]);
    td_str name = with_prefix(in, n.def.name);
    n.def.name = td_graph_find(in->g, name) ? td_graph_new_name(in->g, name) : name;
    if (n.kind == TD_NODE_ENTER) TD_TRY(rename_frame(in, &n.def));
    td_node *copy = in->copy[i] = td_graph_clone_node(in->g, &n);
    if (in->before && waits(in, &n)) td_graph_add_control_edge(in->g, in->before, copy);
  }
  for (size_t i = 0; i < from->node_count; i++) {
    const Pb__AttrValue *groups =
        in->copy[i] && !is_end(from->nodes[i]) ? td_attr_find(&in->copy[i]->def, "_class") : NULL;
    if (groups) rename_groups(in, &in->copy[i]->def, groups);
  }
  return TD_STATUS_OK;
}

static void copy_edges(inliner *in) {
  const td_graph *from = in->body->graph;
  for (size_t i = 0; i < from->node_count; i++) {
    const td_node *n = from->nodes[i];
    if (n->is_removed || is_end(n)) continue;
    for (const td_edge *e = n->in_edges; e; e = e->next_in) {
      if (e->src_slot == TD_CONTROL_SLOT)
        td_graph_add_control_edge(in->g, in->copy[e->src->id], in->copy[i]);
      else
        td_graph_add_edge(in->g, in->copy[e->src->id], e->src_slot, in->copy[i], e->dst_slot);
    }
  }
}

/* ---- outputs ---- */

static td_status add_results(inliner *in) {
  in->results = td_arena_array(&in->scratch, td_output, in->body->result_count);
  for (size_t i = 0; i < in->body->result_count; i++) {
    const td_node *end = in->body->results[i];
    td_output value = {in->copy[end->in[0]->src->id], end->in[0]->src_slot};
    td_str device = in->o->is_multi_device ? (td_str){0} : in->call->def.device;
    TD_TRY(add(in, "output", "Identity", device, &value, &in->results[i].node));
    for (const td_edge *e = end->in_edges; e; e = e->next_in)
      if (e->src_slot == TD_CONTROL_SLOT) td_graph_add_control_edge(in->g, in->copy[e->src->id], in->results[i].node);
  }
  return TD_STATUS_OK;
}

/* Nodes with state that no result and no control output needs: a call runs them all the same. */
static void add_loose_effects(inliner *in) {
  const td_graph *from = in->body->graph;
  td_node **stack = td_arena_array(&in->scratch, td_node *, from->node_count);
  bool *seen = td_arena_array(&in->scratch, bool, from->node_count);
  size_t depth = 0;
  for (size_t i = 0; i < in->body->result_count; i++) stack[depth++] = in->body->results[i];
  for (size_t i = 0; i < in->body->control_count; i++)
    if (!seen[in->body->controls[i]->id]) {
      seen[in->body->controls[i]->id] = true;
      stack[depth++] = in->body->controls[i];
    }
  while (depth) {
    for (const td_edge *e = stack[--depth]->in_edges; e; e = e->next_in) {
      if (seen[e->src->id]) continue;
      seen[e->src->id] = true;
      stack[depth++] = e->src;
    }
  }
  for (size_t i = 0; i < from->node_count; i++) {
    const td_node *n = from->nodes[i];
    if (!n->is_removed && !is_end(n) && !seen[i] && n->op->flags & TD_OP_STATEFUL)
      td_graph_add_control_edge(in->g, in->copy[i], in->after);
  }
}

static td_status add_after(inliner *in) {
  TD_TRY(add(in, "output_control_node", "NoOp", in->call->def.device, NULL, &in->after));
  for (size_t i = 0; i < in->body->control_count; i++)
    td_graph_add_control_edge(in->g, in->copy[in->body->controls[i]->id], in->after);
  if (in->o->has_effects) {
    add_loose_effects(in);
    for (size_t i = 0; i < in->body->result_count && in->after->in_edges; i++)
      td_graph_add_control_edge(in->g, in->after, in->results[i].node);
    if (!in->after->in_edges) goto wait_for_results;
  } else if (!in->o->is_multi_device) {
    goto wait_for_results;
  }
  if (!in->after->in_edges && in->before) td_graph_add_control_edge(in->g, in->before, in->after);
  return TD_STATUS_OK;
wait_for_results:
  for (size_t i = 0; i < in->body->result_count; i++) td_graph_add_control_edge(in->g, in->results[i].node, in->after);
  if (!in->after->in_edges && in->before) td_graph_add_control_edge(in->g, in->before, in->after);
  return TD_STATUS_OK;
}

static td_status run(inliner *in) {
  in->copy = td_arena_array(&in->scratch, td_node *, in->body->graph->node_count);
  in->is_device_known = td_device_name_parse(in->call->def.device, &in->device);
  TD_TRY(add_before(in));
  TD_TRY(add_inputs(in));
  TD_TRY(copy_nodes(in));
  copy_edges(in);
  TD_TRY(add_results(in));
  TD_TRY(add_after(in));
  return td_lower_replace(in->g, in->call, in->results, in->after);
}

td_status td_graph_inline_call(td_graph *g, td_node *call, td_function_body *body, const td_inline_options *options) {
  inliner in = {.g = g, .call = call, .body = body, .o = options};
  td_status s = run(&in);
  td_arena_deinit(&in.scratch);
  td_graph_adopt_arena(g, &body->graph->arena); /* copies share definitions and types with it */
  td_graph_release(body->graph);
  return s;
}
