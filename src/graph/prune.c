/* The client graph. The base graph is only read: what feeds and fetches change is decided while copying. */
#include "graph/prune.h"

#include <stdio.h>

#include "base/mem.h"
#include "graph/connect.h"
#include "graph/internal.h"

bool td_tensor_name_parse(td_str text, td_str *out_node, int *out_index) {
  if (!td_input_parse(text, out_node, out_index)) return false;
  return out_node->size && *out_index >= 0;
}

typedef struct feed {
  td_node *node; /* of the base graph: whose output is fed */
  int slot;
  const td_node *named; /* as the client calls it */
  int named_slot;
  int next; /* feed of the same node; -1: none */
  bool is_used, takes_control;
  td_node *recv; /* in the new graph */
} feed;

typedef struct fetch {
  td_str name;
  td_node *node;
  int slot;
  feed *fed; /* the fetched tensor is itself fed (under another spelling) */
} fetch;

typedef struct pruner {
  const td_prune_options *o;
  td_graph *base, *g;
  int first_connection; /* nodes from this id on read what is computed, not what is fed */
  td_arena scratch;
  feed *feeds;
  fetch *fetches;
  size_t fetch_count;
  int *feed_of; /* by base node: its first feed; -1: none */
  bool *is_kept;
  int *stack;
  size_t stack_size;
  td_node **copy_of;
} pruner;

/* ---- names ---- */

static td_status check_endpoints(pruner *p) {
  td_map fed = {0};
  td_status status = TD_STATUS_OK;
  for (size_t i = 0; i < p->o->feed_count && !status; i++)
    if (td_map_insert(&fed, p->o->feeds[i], p))
      status = td_invalid_argument("Endpoint \"%.*s\" fed more than once.", TD_STR_ARG(p->o->feeds[i]));
  for (size_t i = 0; i < p->o->fetch_count && !status; i++)
    if (td_map_get(&fed, p->o->fetches[i]))
      status = td_invalid_argument("%.*s is both fed and fetched.", TD_STR_ARG(p->o->fetches[i]));
  td_map_deinit(&fed);
  return status;
}

static feed *find_feed(pruner *p, const td_node *n, int slot) {
  int i = p->feed_of[n->id];
  while (i >= 0 && p->feeds[i].slot != slot) i = p->feeds[i].next;
  return i >= 0 ? &p->feeds[i] : NULL;
}

bool td_node_is_placeholder(const td_node *n) {
  return td_str_is(n->def.op, "Placeholder") || td_str_is(n->def.op, "PlaceholderV2");
}

/* The consumers of a lowered node read what its IdentityN reads. */
static void find_value(td_node **n, int *slot) {
  if (!(*n)->is_lowered || *slot >= (*n)->input_count) return;
  const td_edge *e = (*n)->in[*slot];
  *n = e->src;
  *slot = e->src_slot;
}

static td_status resolve_feeds(pruner *p) {
  for (size_t i = 0; i < p->o->feed_count; i++) {
    td_str name = p->o->feeds[i], node;
    feed *f = &p->feeds[i];
    f->node = td_tensor_name_parse(name, &node, &f->slot) ? td_graph_find(p->base, node) : NULL;
    if (!f->node) return td_not_found("FeedInputs: unable to find feed output %.*s", TD_STR_ARG(name));
    if (f->slot >= f->node->output_count)
      return td_invalid_argument("FeedInputs: %.*s should have output index < %d", TD_STR_ARG(name),
                                 f->node->output_count);
    f->named = f->node;
    f->named_slot = f->slot;
    find_value(&f->node, &f->slot);
    if (find_feed(p, f->node, f->slot))
      return td_invalid_argument("Endpoint \"%.*s\" fed more than once.", TD_STR_ARG(name));
    f->takes_control = p->feed_of[f->node->id] < 0 && td_node_is_placeholder(f->node);
    f->next = p->feed_of[f->node->id];
    p->feed_of[f->node->id] = (int)i;
  }
  return TD_STATUS_OK;
}

static td_status resolve_fetches(pruner *p) {
  td_map seen = {0};
  td_status status = TD_STATUS_OK;
  for (size_t i = 0; i < p->o->fetch_count && !status; i++) {
    td_str name = p->o->fetches[i], node;
    fetch *f = &p->fetches[p->fetch_count];
    if (td_map_insert(&seen, name, p)) continue;
    f->name = name;
    f->node = td_tensor_name_parse(name, &node, &f->slot) ? td_graph_find(p->base, node) : NULL;
    if (!f->node) {
      status = td_not_found("FetchOutputs node %.*s: not found", TD_STR_ARG(name));
    } else if (!f->node->output_count) {
      status = td_invalid_argument(
          "Tried to fetch data for '%.*s', which produces no output.  To run to a node but not fetch any data, pass "
          "'%.*s' as an argument to the 'target_node_names' argument of the Session::Run API.",
          TD_STR_ARG(name), TD_STR_ARG(name));
    } else if (f->slot >= f->node->output_count) {
      status = td_invalid_argument("FetchOutputs %.*s: output index too large, must be < %d", TD_STR_ARG(name),
                                   f->node->output_count);
    } else {
      td_node *value = f->node;
      int slot = f->slot;
      find_value(&value, &slot);
      f->fed = find_feed(p, value, slot);
      p->fetch_count++;
    }
  }
  td_map_deinit(&seen);
  return status;
}

/* ---- what is needed ---- */

static void need_node(pruner *p, const td_node *n) {
  if (p->is_kept[n->id]) return;
  p->is_kept[n->id] = true;
  p->stack[p->stack_size++] = n->id;
}

/* The feed that the edge comes from in the new graph; NULL: its own source. */
static feed *feed_of_edge(pruner *p, const td_edge *e) {
  int i = p->feed_of[e->src->id];
  if (i < 0 || e->dst->id >= p->first_connection) return NULL;
  if (e->src_slot != TD_CONTROL_SLOT) return find_feed(p, e->src, e->src_slot);
  while (i >= 0 && !p->feeds[i].takes_control) i = p->feeds[i].next;
  return i >= 0 ? &p->feeds[i] : NULL;
}

static td_status mark_needed(pruner *p) {
  for (size_t i = 0; i < p->fetch_count; i++) {
    fetch *f = &p->fetches[i];
    if (f->fed)
      f->fed->is_used = true;
    else
      need_node(p, f->node);
  }
  td_strbuf missing = {0};
  for (size_t i = 0; i < p->o->target_count; i++) {
    td_str node;
    int slot;
    td_node *n = td_tensor_name_parse(p->o->targets[i], &node, &slot) ? td_graph_find(p->base, node) : NULL;
    if (n)
      need_node(p, n);
    else
      td_strbuf_printf(&missing, "%.*s ", TD_STR_ARG(p->o->targets[i]));
  }
  td_status status = TD_STATUS_OK;
  if (missing.size) status = td_not_found("PruneForTargets: Some target nodes not found: %s", td_strbuf_cstr(&missing));
  td_strbuf_deinit(&missing);
  if (status) return status;
  while (p->stack_size) {
    const td_node *n = p->base->nodes[p->stack[--p->stack_size]];
    for (const td_edge *e = n->in_edges; e; e = e->next_in) {
      feed *f = feed_of_edge(p, e);
      if (f)
        f->is_used = true;
      else
        need_node(p, e->src);
    }
  }
  return TD_STATUS_OK;
}

/* ---- the new graph ---- */

td_str td_graph_endpoint_name(td_graph *g, const char *kind, const td_node *n, int slot) {
  char *name = td_arena_printf(&g->arena, "_%s_%.*s_%d", kind, TD_STR_ARG(n->def.name), slot);
  for (int k = 1; td_graph_find(g, td_str_of(name)); k++)
    name = td_arena_printf(&g->arena, "_%s_%.*s_%d_%d", kind, TD_STR_ARG(n->def.name), slot, k);
  return td_str_of(name);
}

static td_status add_endpoint(pruner *p, const char *kind, const char *op_name, td_str tensor, const td_node *n,
                              int slot, td_node **out) {
  td_arena *a = &p->g->arena;
  td_str device = td_arena_str(a, p->o->client_device);
  const td_op_def *op = td_op_find(td_str_of(op_name));
  if (!op) return td_op_not_found(td_str_of(op_name));
  td_attr *attrs = td_arena_array(a, td_attr, 6);
  td_dtype type = td_dtype_base(n->output_types[slot]);
  Pb__AttrValue *where = td_attr_value_str(a, device);
  attrs[0] = (td_attr){*kind == 'r' ? TD_STR("tensor_type") : TD_STR("T"), td_attr_value_type(a, type)};
  attrs[1] = (td_attr){TD_STR("tensor_name"), td_attr_value_str(a, tensor)};
  attrs[2] = (td_attr){TD_STR("send_device"), where};
  attrs[3] = (td_attr){TD_STR("send_device_incarnation"), td_attr_value_int(a, (int64_t)p->o->client_incarnation)};
  attrs[4] = (td_attr){TD_STR("recv_device"), where};
  attrs[5] = (td_attr){TD_STR("client_terminated"), td_attr_value_bool(a, true)};
  td_node_def def = {
      .name = td_graph_endpoint_name(p->g, kind, n, slot), .op = op->name, .attrs = attrs, .attr_count = 6};
  TD_TRY(td_graph_add_node(p->g, &def, op, out));
  (*out)->device = device;
  (*out)->original = n->original.size ? n->original : n->def.name;
  return TD_STATUS_OK;
}

static td_status build(pruner *p) {
  td_graph *base = p->base, *g = p->g;
  size_t kept = 0;
  for (size_t i = 0; i < base->node_count; i++) kept += p->is_kept[i];
  td_graph_reserve(g, kept + p->o->feed_count + p->fetch_count);
  p->copy_of = td_arena_array(&p->scratch, td_node *, base->node_count);
  for (size_t i = 0; i < base->node_count; i++)
    if (p->is_kept[i]) p->copy_of[i] = td_graph_clone_node(g, base->nodes[i]);
  for (size_t i = 0; i < p->o->feed_count; i++) {
    feed *f = &p->feeds[i];
    if (f->is_used) TD_TRY(add_endpoint(p, "recv", "_Recv", p->o->feeds[i], f->named, f->named_slot, &f->recv));
  }
  for (size_t i = 0; i < base->node_count; i++) {
    td_node *dst = p->copy_of[i];
    if (!dst) continue;
    for (const td_edge *e = base->nodes[i]->in_edges; e; e = e->next_in) {
      feed *f = feed_of_edge(p, e);
      td_node *src = f ? f->recv : p->copy_of[e->src->id];
      if (f && e->dst_slot != TD_CONTROL_SLOT) /* a value cannot stand in for a ref that is written to */
        TD_TRY(td_graph_check_types(dst, e->dst_slot, src->def.name, 0, src->output_types[0]));
      if (e->src_slot == TD_CONTROL_SLOT)
        td_graph_add_control_edge(g, src, dst);
      else
        td_graph_add_edge(g, src, f ? 0 : e->src_slot, dst, e->dst_slot);
    }
  }
  for (size_t i = 0; i < p->fetch_count; i++) {
    fetch *f = &p->fetches[i];
    td_node *send;
    TD_TRY(add_endpoint(p, "send", "_Send", f->name, f->node, f->slot, &send));
    td_graph_add_edge(g, f->fed ? f->fed->recv : p->copy_of[f->node->id], f->fed ? 0 : f->slot, send, 0);
  }
  return TD_STATUS_OK;
}

static td_status prune(pruner *p) {
  size_t nodes = p->base->node_count;
  if (!p->o->fetch_count && !p->o->target_count)
    return td_invalid_argument("Must specify at least one target to fetch or execute.");
  TD_TRY(check_endpoints(p));
  p->feeds = td_arena_array(&p->scratch, feed, p->o->feed_count);
  p->fetches = td_arena_array(&p->scratch, fetch, p->o->fetch_count);
  p->feed_of = td_arena_array(&p->scratch, int, nodes);
  for (size_t i = 0; i < nodes; i++) p->feed_of[i] = -1;
  p->is_kept = td_arena_array(&p->scratch, bool, nodes);
  p->stack = td_arena_array(&p->scratch, int, nodes);
  TD_TRY(resolve_feeds(p));
  TD_TRY(resolve_fetches(p));
  TD_TRY(mark_needed(p));
  return build(p);
}

td_status td_graph_prune(td_graph *base, const td_prune_options *options, td_graph **out) {
  td_graph *connected = NULL;
  int first_connection = (int)base->node_count;
  if (options->connection_count) {
    TD_TRY(td_graph_connect(base, options, &connected, &first_connection));
    base = connected;
  }
  pruner p = {.o = options, .base = base, .g = td_graph_create(base->library), .first_connection = first_connection};
  p.g->origin = td_graph_retain(base);
  td_graph_copy_versions(p.g, base);
  td_status status = prune(&p);
  td_arena_deinit(&p.scratch);
  td_graph_release(connected);
  if (status)
    td_graph_release(p.g);
  else
    *out = p.g;
  return status;
}
