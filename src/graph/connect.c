#include "graph/connect.h"

#include "base/mem.h"
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/tensor_set.h"

typedef struct connector {
  const td_prune_options *o;
  td_graph *base, *g;
  td_arena scratch;
  td_output *from, *to; /* by connection, in the base graph */
  td_tensor_set to_set; /* `to` by number of connection */
  td_tensor_set fed;    /* what is fed: nothing is computed behind it */
  td_node **copy_of;    /* by base node */
  td_node **identity;   /* by connection */
  bool *is_seen;        /* base nodes, then connections */
  int *stack;
} connector;

/* ---- names ---- */

static td_status find_from(connector *c, size_t i) {
  td_str name = c->o->connections[i].from, to = c->o->connections[i].to, node;
  td_output *from = &c->from[i];
  from->node = td_tensor_name_parse(name, &node, &from->slot) ? td_graph_find(c->base, node) : NULL;
  if (!from->node)
    return td_invalid_argument("Requested tensor connection from unknown node: \"%.*s\".", TD_STR_ARG(to));
  if (from->slot >= from->node->output_count)
    return td_invalid_argument(
        "Requested tensor connection from unknown edge: \"%.*s\" (actual number of outputs = %d).", TD_STR_ARG(to),
        from->node->output_count);
  return TD_STATUS_OK;
}

static td_status find_to(connector *c, size_t i) {
  td_str name = c->o->connections[i].to, node;
  td_output *to = &c->to[i];
  to->node = td_tensor_name_parse(name, &node, &to->slot) ? td_graph_find(c->base, node) : NULL;
  if (!to->node) return td_not_found("FeedInputs: unable to find feed output %.*s", TD_STR_ARG(name));
  if (to->slot >= to->node->output_count)
    return td_invalid_argument("FeedInputs: %.*s should have output index < %d", TD_STR_ARG(name),
                               to->node->output_count);
  td_tensor_set_add(&c->to_set, to->node, to->slot);
  return TD_STATUS_OK;
}

/* A tensor is replaced once, and what is replaced cannot be fetched. */
static td_status check_endpoints(connector *c) {
  const td_prune_options *o = c->o;
  td_map taken = {0};
  td_status status = TD_STATUS_OK;
  for (size_t i = 0; i < o->feed_count; i++) td_map_put(&taken, o->feeds[i], c);
  for (size_t i = 0; i < o->connection_count && !status; i++)
    if (td_map_insert(&taken, o->connections[i].to, c))
      status = td_invalid_argument("Endpoint \"%.*s\" fed more than once.", TD_STR_ARG(o->connections[i].to));
  for (size_t i = 0; i < o->fetch_count && !status; i++)
    if (td_map_get(&taken, o->fetches[i]))
      status = td_invalid_argument("%.*s is both fed and fetched.", TD_STR_ARG(o->fetches[i]));
  td_map_deinit(&taken);
  return status;
}

/* Feeds that are none are left for pruning to refuse. */
static void find_feeds(connector *c) {
  td_str node;
  int slot;
  for (size_t i = 0; i < c->o->feed_count; i++) {
    td_node *n = td_tensor_name_parse(c->o->feeds[i], &node, &slot) ? td_graph_find(c->base, node) : NULL;
    if (n) td_tensor_set_add(&c->fed, n, slot);
  }
}

/* ---- cycles ---- */

/* The connection that an edge of the base graph leads to, as far as made: one below `end`; -1: its own source. */
static int connection_of(const connector *c, const td_edge *e, int end) {
  int k = -1;
  if (e->src_slot != TD_CONTROL_SLOT) {
    k = td_tensor_set_find(&c->to_set, e->src, e->src_slot);
  } else if (td_node_is_placeholder(e->src)) { /* its control edges go with its value */
    k = td_tensor_set_find(&c->to_set, e->src, 0);
  }
  return k < end ? k : -1;
}

/* The connection that connection k's own source leads to: one made after it and below `end`; -1: the source itself. */
static int next_connection(const connector *c, int k, int end) {
  int next = td_tensor_set_find(&c->to_set, c->from[k].node, c->from[k].slot);
  return next > k && next < end ? next : -1;
}

static void visit(connector *c, int id, size_t *size) {
  if (c->is_seen[id]) return;
  c->is_seen[id] = true;
  c->stack[(*size)++] = id;
}

/* Whether `from` of connection i is computed from its `to`, the connections before i being made. */
static bool makes_cycle(connector *c, int i) {
  int nodes = (int)c->base->node_count;
  size_t size = 0;
  memset(c->is_seen, 0, (size_t)nodes + c->o->connection_count);
  visit(c, c->from[i].node->id, &size);
  while (size && !c->is_seen[c->to[i].node->id]) {
    int id = c->stack[--size];
    if (id >= nodes) {
      int k = id - nodes, next = next_connection(c, k, i);
      visit(c, next >= 0 ? nodes + next : c->from[k].node->id, &size);
      continue;
    }
    for (const td_edge *e = c->base->nodes[id]->in_edges; e; e = e->next_in) {
      int k = connection_of(c, e, i);
      if (k >= 0)
        visit(c, nodes + k, &size);
      else if (td_tensor_set_find(&c->fed, e->src, e->src_slot) < 0)
        visit(c, e->src->id, &size);
    }
  }
  return c->is_seen[c->to[i].node->id];
}

static td_status check_cycles(connector *c) {
  size_t n = c->base->node_count + c->o->connection_count;
  c->is_seen = td_arena_array(&c->scratch, bool, n + 1);
  c->stack = td_arena_array(&c->scratch, int, n + 1);
  for (int i = 0; i < (int)c->o->connection_count; i++)
    if (makes_cycle(c, i))
      return td_invalid_argument(
          "Requested Tensor connection between nodes \"%.*s\" and \"%.*s\" would create a cycle.",
          TD_STR_ARG(c->to[i].node->def.name), TD_STR_ARG(c->from[i].node->def.name));
  return TD_STATUS_OK;
}

/* ---- the new graph ---- */

static void copy_nodes(connector *c) {
  td_graph *base = c->base;
  c->copy_of = td_arena_array(&c->scratch, td_node *, base->node_count + 1);
  td_graph_reserve(c->g, base->node_count + c->o->connection_count);
  for (size_t i = 0; i < base->node_count; i++)
    if (!base->nodes[i]->is_removed) c->copy_of[i] = td_graph_clone_node(c->g, base->nodes[i]);
}

/* From the last one on: each may read one that was made later. */
static td_status add_identities(connector *c) {
  int n = (int)c->o->connection_count;
  c->identity = td_arena_array(&c->scratch, td_node *, (size_t)n + 1);
  for (int k = n - 1; k >= 0; k--) {
    int next = next_connection(c, k, n);
    td_node *to = c->to[k].node;
    td_output input = {next >= 0 ? c->identity[next] : c->copy_of[c->from[k].node->id],
                       next >= 0 ? 0 : c->from[k].slot};
    td_new_node spec = {.name = td_graph_endpoint_name(c->g, "identity", to, c->to[k].slot),
                        .op = TD_STR("Identity"),
                        .original = to->original.size ? to->original : to->def.name,
                        .inputs = &input,
                        .input_count = 1};
    TD_TRY(td_graph_build_node(c->g, &spec, &c->identity[k]));
    c->identity[k]->device = to->device;
  }
  return TD_STATUS_OK;
}

static td_status copy_edges(connector *c) {
  int n = (int)c->o->connection_count;
  for (size_t i = 0; i < c->base->node_count; i++) {
    td_node *dst = c->copy_of[i];
    if (!dst) continue;
    for (const td_edge *e = c->base->nodes[i]->in_edges; e; e = e->next_in) {
      int k = connection_of(c, e, n);
      td_node *src = k >= 0 ? c->identity[k] : c->copy_of[e->src->id];
      if (e->src_slot == TD_CONTROL_SLOT) {
        td_graph_add_control_edge(c->g, src, dst);
        continue;
      }
      if (k >= 0) TD_TRY(td_graph_check_types(dst, e->dst_slot, src->def.name, 0, src->output_types[0]));
      td_graph_add_edge(c->g, src, k >= 0 ? 0 : e->src_slot, dst, e->dst_slot);
    }
  }
  return TD_STATUS_OK;
}

static td_status connect(connector *c, int *out_first) {
  const td_prune_options *o = c->o;
  c->from = td_arena_array(&c->scratch, td_output, o->connection_count);
  c->to = td_arena_array(&c->scratch, td_output, o->connection_count);
  td_tensor_set_init(&c->to_set, &c->scratch, c->base, o->connection_count);
  td_tensor_set_init(&c->fed, &c->scratch, c->base, o->feed_count);
  for (size_t i = 0; i < o->connection_count; i++) TD_TRY(find_from(c, i));
  TD_TRY(check_endpoints(c));
  for (size_t i = 0; i < o->connection_count; i++) TD_TRY(find_to(c, i));
  find_feeds(c);
  TD_TRY(check_cycles(c));
  copy_nodes(c);
  *out_first = (int)c->g->node_count;
  TD_TRY(add_identities(c));
  return copy_edges(c);
}

td_status td_graph_connect(td_graph *base, const td_prune_options *options, td_graph **out, int *out_first) {
  connector c = {.o = options, .base = base, .g = td_graph_create(base->library)};
  c.g->origin = td_graph_retain(base);
  td_graph_copy_versions(c.g, base);
  td_status status = connect(&c, out_first);
  td_arena_deinit(&c.scratch);
  if (status)
    td_graph_release(c.g);
  else
    *out = c.g;
  return status;
}
