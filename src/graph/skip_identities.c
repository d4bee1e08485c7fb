/* Nodes that only hand on: a reader of an Identity reads what it reads, and waits for what it waits for; who waits for
 * a NoOp waits for its sources. Only where edges do not become more, and where nobody can tell the difference: not
 * where a reference is read (that moment counts), not where deadness would get lost, not where a value travels. As
 * grappler's dependency optimizer. */
#include "graph/optimize_internal.h"

typedef struct edges {
  int data_in, control_in, data_out, control_out;
} edges;

static edges count_edges(const td_node *n) {
  edges c = {.data_in = n->input_count};
  for (const td_edge *e = n->in_edges; e; e = e->next_in) c.control_in += e->dst_slot == TD_CONTROL_SLOT;
  for (const td_edge *e = n->out_edges; e; e = e->next_out) *(e->src_slot < 0 ? &c.control_out : &c.data_out) += 1;
  return c;
}

static bool reads_ref(const td_node *n) {
  for (int i = 0; i < n->input_count; i++)
    if (!n->in[i] || td_dtype_is_ref(n->in[i]->src->output_types[n->in[i]->src_slot])) return true;
  return false;
}

static bool hands_on(const td_node *n) {
  return n->kind == TD_NODE_PLAIN && n->input_count == 1 && n->output_count == 1 && n->output_types[0] != TD_RESOURCE &&
         n->output_types[0] != TD_VARIANT &&
         (td_str_is(n->op->name, "Identity") || td_str_is(n->op->name, "StopGradient") ||
          td_str_is(n->op->name, "PreventGradient"));
}

/* ---- Identity ---- */

/* A Merge runs when one live input is there, but waits for all of its control inputs. Readers elsewhere would hear of
 * each control input on a way of its own. */
static bool readers_fit(const td_node *n, const td_node *src, bool with_controls) {
  for (const td_edge *e = n->out_edges; e; e = e->next_out) {
    td_node_kind kind = e->dst->kind;
    if (e->src_slot < 0 ? src->kind != TD_NODE_PLAIN : kind == TD_NODE_MERGE && src->kind != TD_NODE_PLAIN)
      return false;
    if (!with_controls) continue;
    if ((kind != TD_NODE_PLAIN && kind != TD_NODE_SEND) || !td_str_eq(e->dst->device, n->device)) return false;
  }
  return true;
}

static bool can_skip_identity(const td_optimizer *o, const td_node *n) {
  if (!hands_on(n) || td_optimizer_keeps(o, n) || !n->out_edges || reads_ref(n)) return false;
  const td_node *src = n->in[0]->src;
  if (reads_ref(src) || !td_str_eq(src->device, n->device)) return false;
  edges c = count_edges(n);
  int readers = c.data_out + c.control_out;
  return readers * (1 + c.control_in) <= readers + 1 + c.control_in && readers_fit(n, src, c.control_in > 0);
}

static void wait_for(td_graph *g, td_node *src, td_node *dst) {
  if (!td_graph_waits_for(dst, src)) td_graph_add_control_edge(g, src, dst);
}

/* Everyone who hears of `n` waits for what it waits for, besides its input, which they hear of anyway. */
static void hand_on_controls(td_graph *g, const td_node *n) {
  for (const td_edge *in = n->in_edges; in; in = in->next_in) {
    if (in->dst_slot != TD_CONTROL_SLOT || (n->input_count && in->src == n->in[0]->src)) continue;
    for (const td_edge *out = n->out_edges; out; out = out->next_out) wait_for(g, in->src, out->dst);
  }
}

static void skip_identity(td_graph *g, td_node *n) {
  td_node *src = n->in[0]->src;
  int slot = n->in[0]->src_slot;
  hand_on_controls(g, n);
  for (const td_edge *e = n->out_edges; e; e = e->next_out)
    if (e->src_slot < 0) wait_for(g, src, e->dst);
  td_graph_move_readers(g, n, 0, src, slot);
  td_graph_remove_node(g, n);
}

/* ---- NoOp ---- */

static bool can_skip_noop(const td_optimizer *o, const td_node *n) {
  if (!td_str_is(n->op->name, "NoOp") || td_optimizer_keeps(o, n) || !n->out_edges) return false;
  edges c = count_edges(n);
  if ((int64_t)c.control_in * c.control_out > (int64_t)c.control_in + c.control_out) return false;
  for (const td_edge *e = n->in_edges; e; e = e->next_in)
    if (!td_str_eq(e->src->device, n->device)) return false;
  for (const td_edge *e = n->out_edges; e; e = e->next_out)
    if (!td_str_eq(e->dst->device, n->device)) return false;
  return true;
}

void td_skip_identities(td_optimizer *o) {
  size_t count;
  td_node **order = td_graph_order(o->g, &o->scratch, &count);
  for (size_t i = 0; i < count; i++) {
    if (can_skip_identity(o, order[i])) {
      skip_identity(o->g, order[i]);
    } else if (can_skip_noop(o, order[i])) {
      hand_on_controls(o->g, order[i]);
      td_graph_remove_node(o->g, order[i]);
    }
  }
}
