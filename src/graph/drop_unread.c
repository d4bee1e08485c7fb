/* Values that nobody reads: a node that others only wait for, such as the gradient of an input that is no variable,
 * which stands behind the same barrier as the others, becomes a NoOp that waits for what the node read. As grappler's
 * dependency optimizer; what would have failed in such a node does not fail then, in TensorFlow as here. Nodes that are
 * there to fail stay. */
#include "base/mem.h"
#include "graph/optimize_internal.h"

static bool is_check(td_str op) {
  static const char *const names[] = {"CheckNumerics", "CheckNumericsV2", "EnsureShape"};
  for (size_t i = 0; i < TD_COUNT(names); i++)
    if (td_str_is(op, names[i])) return true;
  return false;
}

static bool is_read(const td_node *n) {
  for (const td_edge *e = n->out_edges; e; e = e->next_out)
    if (e->src_slot >= 0) return true;
  return false;
}

/* Who waits for these nodes learns as much, deadness included, as who reads them: all outputs live or die together. */
static bool inputs_can_be_waited_for(const td_node *n) {
  for (int i = 0; i < n->input_count; i++)
    if (n->in[i]->src->kind != TD_NODE_PLAIN && n->in[i]->src->kind != TD_NODE_RECV) return false;
  return true;
}

static bool can_drop(const td_optimizer *o, const td_node *n) {
  return n->input_count && n->out_edges && !is_read(n) && !td_optimizer_keeps(o, n) && td_node_is_pure(o, n) &&
         !is_check(n->op->name) && inputs_can_be_waited_for(n);
}

/* Runs when the step begins: nobody need wait for it. */
static bool is_there_at_once(const td_node *n) { return td_node_is_const(n) && !n->in_edges; }

static void stop_reading(const td_optimizer *o, td_edge *e) {
  td_node *src = e->src, *n = e->dst;
  td_graph_remove_edge(o->g, e);
  if (!is_there_at_once(src)) {
    if (!td_graph_waits_for(n, src)) td_graph_add_control_edge(o->g, src, n);
  } else if (!src->out_edges && !td_optimizer_keeps(o, src)) {
    td_graph_remove_node(o->g, src);
  }
}

static void become_noop(const td_optimizer *o, td_node *n, const td_op_def *noop) {
  while (n->input_count) stop_reading(o, n->in[--n->input_count]);
  n->op = noop;
  n->def.op = noop->name;
  n->def.attrs = NULL;
  n->def.attr_count = 0;
  n->output_count = 0;
  n->is_lowered = false;
}

void td_drop_unread(td_optimizer *o) {
  size_t count;
  const td_op_def *noop = td_op_find(TD_STR("NoOp"));
  if (!noop) return;
  td_node **order = td_graph_order(o->g, &o->scratch, &count);
  for (size_t i = count; i-- > 0;) /* readers first */
    if (can_drop(o, order[i])) become_noop(o, order[i], noop);
}
