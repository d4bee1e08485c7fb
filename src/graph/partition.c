/* Cuts a placed graph into one graph per location, with a _Send and a _Recv for what crosses. */
#include "graph/partition.h"

#include <stdlib.h>

#include "base/mem.h"
#include "graph/control_loop.h"
#include "graph/internal.h"

typedef struct node_list {
  td_node **items;
  size_t count, capacity;
} node_list;

/* A variable of another partition that a node reads. */
typedef struct remote_read {
  const td_edge *edge;
  td_node *send, *recv;
} remote_read;

typedef struct cutter {
  const td_partition_options *o;
  td_graph *g; /* what is cut: the caller's graph or a copy with control loops */
  td_arena arena;
  td_device_table devices;
  int *device_of; /* by node id */
  int *part_of_device;
  td_partition *parts;
  size_t part_count;
  Pb__AttrValue ***device_values; /* by partition, device: its name as an attribute in that partition's arena */
  td_node **copy_of;              /* by node id */
  td_map received;                /* (source, slot, partition) -> the node in the partition that hands the value on */
  int next_edge_id;               /* for pairs that no edge stands for */
  bool are_frames_known;
  int *frame_of;      /* by node id; NULL: not to be had */
  remote_read *reads; /* of the node at hand */
  size_t read_count, read_capacity;
  node_list other_inputs; /* of the node at hand, in its partition */
} cutter;

static int part_of(const cutter *c, const td_node *n) { return c->part_of_device[c->device_of[n->id]]; }

static td_graph *graph_of(const cutter *c, const td_node *n) { return c->parts[part_of(c, n)].graph; }

static void push(node_list *l, td_node *n) {
  TD_GROW(l->items, l->count, l->capacity);
  l->items[l->count++] = n;
}

/* ---- locations ---- */

static td_status number_devices(cutter *c) {
  c->devices.arena = &c->arena;
  c->device_of = td_arena_array(&c->arena, int, c->g->node_count);
  for (size_t i = 0; i < c->g->node_count; i++)
    if (!c->g->nodes[i]->is_removed) TD_TRY(td_device_table_add(&c->devices, c->g->nodes[i]->device, &c->device_of[i]));
  return TD_STATUS_OK;
}

static int by_location(const void *a, const void *b) {
  return td_str_cmp(((const td_partition *)a)->location, ((const td_partition *)b)->location);
}

static void make_partitions(cutter *c) {
  size_t n = c->devices.count;
  bool *is_used = td_arena_array(&c->arena, bool, n);
  for (size_t i = 0; i < c->g->node_count; i++)
    if (!c->g->nodes[i]->is_removed) is_used[c->device_of[i]] = true;
  td_map seen = {0};
  c->parts = td_new_array(td_partition, n + 1);
  c->part_of_device = td_arena_array(&c->arena, int, n);
  for (size_t i = 0; i < n; i++) {
    td_str location = c->o->by_task ? c->devices.entries[i].task : c->devices.entries[i].name;
    if (is_used[i] && !td_map_insert(&seen, location, c)) c->parts[c->part_count++].location = location;
  }
  td_map_clear(&seen);
  qsort(c->parts, c->part_count, sizeof *c->parts, by_location);
  for (size_t i = 0; i < c->part_count; i++) td_map_put(&seen, c->parts[i].location, &c->parts[i]);
  for (size_t i = 0; i < n; i++) {
    const td_partition *part =
        td_map_get(&seen, c->o->by_task ? c->devices.entries[i].task : c->devices.entries[i].name);
    c->part_of_device[i] = part ? (int)(part - c->parts) : -1;
  }
  td_map_deinit(&seen);
  c->device_values = td_arena_array(&c->arena, Pb__AttrValue **, c->part_count);
}

/* ---- copying nodes ---- */

/* Feeds and fetches of an earlier graph may not have known the incarnation. */
static bool lacks_incarnation(const td_node *n, td_str *out_device) {
  int64_t incarnation;
  if (n->kind != TD_NODE_SEND && n->kind != TD_NODE_RECV) return false;
  td_status s = td_attr_int(&n->def, "send_device_incarnation", &incarnation);
  if (!s) s = td_attr_str(&n->def, "send_device", out_device);
  bool lacks = !s && !incarnation && out_device->size;
  td_status_free(s);
  return lacks;
}

static uint64_t incarnation_of(const cutter *c, td_str device) {
  return c->o->incarnation ? c->o->incarnation(c->o->arg, device) : 0;
}

static uint64_t incarnation_of_entry(const cutter *c, struct td_device_entry *e) {
  if (!e->is_incarnation_known) e->incarnation = incarnation_of(c, e->name);
  e->is_incarnation_known = true;
  return e->incarnation;
}

static void copy_node(cutter *c, const td_node *n) {
  td_partition *part = &c->parts[part_of(c, n)];
  td_node *copy = td_graph_clone_node(part->graph, n);
  td_str device;
  copy->device = c->devices.entries[c->device_of[n->id]].name;
  c->copy_of[n->id] = copy;
  if (!lacks_incarnation(n, &device)) return;
  uint64_t incarnation = incarnation_of(c, device);
  if (incarnation)
    td_node_def_set_attr(&copy->def, &part->graph->arena, TD_STR("send_device_incarnation"),
                         td_attr_value_int(&part->graph->arena, (int64_t)incarnation));
}

/* Device and location names move to where they live as long as the partitions. */
static void copy_nodes(cutter *c) {
  size_t *counts = td_arena_array(&c->arena, size_t, c->part_count);
  for (size_t i = 0; i < c->g->node_count; i++)
    if (!c->g->nodes[i]->is_removed) counts[part_of(c, c->g->nodes[i])]++;
  for (size_t i = 0; i < c->part_count; i++) {
    td_graph *g = c->parts[i].graph = td_graph_create(c->g->library);
    g->origin = td_graph_retain(c->g);
    td_graph_copy_versions(g, c->g);
    td_graph_reserve(g, counts[i] + counts[i] / 8);
    c->parts[i].location = td_arena_str(&g->arena, c->parts[i].location);
  }
  c->copy_of = td_arena_array(&c->arena, td_node *, c->g->node_count);
  td_str **names = td_arena_array(&c->arena, td_str *, c->part_count);
  for (size_t i = 0; i < c->g->node_count; i++) {
    const td_node *n = c->g->nodes[i];
    if (n->is_removed) continue;
    copy_node(c, n);
    int part = part_of(c, n), device = c->device_of[n->id];
    if (!names[part]) names[part] = td_arena_array(&c->arena, td_str, c->devices.count);
    if (!names[part][device].data)
      names[part][device] = td_arena_str(&c->parts[part].graph->arena, c->devices.entries[device].name);
    c->copy_of[n->id]->device = names[part][device];
  }
}

/* ---- sends and receives ---- */

static Pb__AttrValue *device_value(cutter *c, int part, int device) {
  if (!c->device_values[part]) c->device_values[part] = td_arena_array(&c->arena, Pb__AttrValue *, c->devices.count);
  Pb__AttrValue **v = &c->device_values[part][device];
  if (!*v) *v = td_attr_value_str(&c->parts[part].graph->arena, c->devices.entries[device].name);
  return *v;
}

static td_status add_transfer(cutter *c, const td_edge *e, bool is_send, td_dtype type, td_node **out) {
  const td_node *at = is_send ? e->src : e->dst;
  int part = part_of(c, at), from = c->device_of[e->src->id], to = c->device_of[e->dst->id];
  td_graph *g = c->parts[part].graph;
  td_arena *a = &g->arena;
  td_str src = e->src->def.name;
  char *edge = td_arena_printf(a, "edge_%d_%.*s", e->id, TD_STR_ARG(src));
  uint64_t incarnation = incarnation_of_entry(c, &c->devices.entries[from]);
  td_attr *attrs = td_arena_array(a, td_attr, 6);
  attrs[0] = (td_attr){is_send ? TD_STR("T") : TD_STR("tensor_type"), td_attr_value_type(a, type)};
  attrs[1] = (td_attr){TD_STR("tensor_name"), td_attr_value_str(a, td_str_of(edge))};
  attrs[2] = (td_attr){TD_STR("send_device"), device_value(c, part, from)};
  attrs[3] = (td_attr){TD_STR("send_device_incarnation"), td_attr_value_int(a, (int64_t)incarnation)};
  attrs[4] = (td_attr){TD_STR("recv_device"), device_value(c, part, to)};
  attrs[5] = (td_attr){TD_STR("client_terminated"), td_attr_value_bool(a, false)};
  td_str name = td_partition_new_name(c->o, c->g, a, src);
  TD_TRY(td_graph_add_op(g, is_send ? "_Send" : "_Recv", name, c->copy_of[at->id]->device, attrs, 6, out));
  (*out)->original = td_node_original(e->src);
  return TD_STATUS_OK;
}

static td_status add_send(cutter *c, const td_edge *e, td_dtype type, td_node **send) {
  td_graph *g = graph_of(c, e->src);
  td_node *src = c->copy_of[e->src->id], *from = src;
  if (e->src_slot == TD_CONTROL_SLOT) { /* something small has to travel */
    td_str name = td_partition_new_name(c->o, c->g, &g->arena, src->def.name);
    TD_TRY(td_graph_add_empty_const(g, name, src->device, &from));
    from->original = td_node_original(src);
    td_graph_add_control_edge(g, src, from);
  }
  TD_TRY(add_transfer(c, e, true, type, send));
  td_graph_add_edge(g, from, TD_MAX(e->src_slot, 0), *send, 0);
  return TD_STATUS_OK;
}

/* *out hands the value on: the receive itself, or behind it an Identity for a control edge. */
static td_status add_recv(cutter *c, const td_edge *e, td_dtype type, td_node **out_recv, td_node **out) {
  TD_TRY(add_transfer(c, e, false, type, out_recv));
  *out = *out_recv;
  if (e->src_slot != TD_CONTROL_SLOT) return TD_STATUS_OK;
  td_graph *g = graph_of(c, e->dst);
  td_attr *attrs = td_arena_array(&g->arena, td_attr, 1);
  attrs[0] = (td_attr){TD_STR("T"), td_attr_value_type(&g->arena, type)};
  td_str name = td_partition_new_name(c->o, c->g, &g->arena, e->src->def.name);
  TD_TRY(td_graph_add_op(g, "Identity", name, (*out_recv)->device, attrs, 1, out));
  (*out)->original = td_node_original(e->src);
  td_graph_add_edge(g, *out_recv, 0, *out, 0);
  return TD_STATUS_OK;
}

/* The node in dst's partition that stands for the source of `e`; *is_new when a pair was made for it. */
static td_status transfer(cutter *c, const td_edge *e, const td_node *loop_merge, td_node **out, bool *is_new) {
  struct key {
    int src, slot, part;
  } key = {e->src->id, e->src_slot, part_of(c, e->dst)};
  *is_new = false;
  bool is_ref = e->src_slot != TD_CONTROL_SLOT && td_dtype_is_ref(e->src->output_types[e->src_slot]);
  *out = td_map_get(&c->received, td_str_n(&key, sizeof key));
  if (!*out) {
    td_dtype type = e->src_slot == TD_CONTROL_SLOT ? TD_FLOAT : td_dtype_base(e->src->output_types[e->src_slot]);
    td_node *send, *recv;
    TD_TRY(add_send(c, e, type, &send));
    TD_TRY(add_recv(c, e, type, &recv, out));
    if (loop_merge) td_graph_add_control_edge(graph_of(c, e->dst), c->copy_of[loop_merge->id], recv);
    if (is_ref) {
      TD_GROW(c->reads, c->read_count, c->read_capacity); /* each reader of a ref reads at its own time */
      c->reads[c->read_count++] = (remote_read){e, send, recv};
    } else {
      struct key *kept = td_arena_alloc(&c->arena, sizeof key);
      *kept = key;
      td_map_put(&c->received, td_str_n(kept, sizeof key), *out);
    }
    *is_new = true;
  }
  if (!is_ref) push(&c->other_inputs, *out);
  return TD_STATUS_OK;
}

/* ---- edges ---- */

static bool is_loop_merge(const cutter *c, const td_edge *e) {
  return e->src_slot == TD_CONTROL_SLOT && e->src->kind == TD_NODE_MERGE && td_node_is_control_loop(e->src) &&
         part_of(c, e->src) == part_of(c, e->dst);
}

static bool is_in_loop(cutter *c, const td_node *n) {
  if (!c->are_frames_known) {
    td_frames frames;
    td_status s = td_graph_frames(c->g, &c->arena, &frames);
    if (!s) c->frame_of = frames.of_node;
    c->are_frames_known = true;
    td_status_free(s);
  }
  return !c->frame_of || c->frame_of[n->id] > 0;
}

/* A remote read of a variable happens as late as a local one would: after the node's other inputs, among which may be
 * updates of that variable. TensorFlow holds back the receive and relies on the sent buffer being the variable's own,
 * so that later updates show in it; here a sent value does not change, so that the send has to wait. */
static td_status delay_reads(cutter *c, const td_node *dst) {
  size_t inputs = c->other_inputs.count;
  for (size_t i = 0; i < c->read_count; i++) {
    remote_read r = c->reads[i];
    for (size_t k = 0; k < inputs; k++) td_graph_add_control_edge(graph_of(c, dst), c->other_inputs.items[k], r.recv);
    if (dst->kind == TD_NODE_MERGE) continue;
    for (const td_edge *e = dst->in_edges; e; e = e->next_in) {
      bool is_read = e->src_slot != TD_CONTROL_SLOT && td_dtype_is_ref(e->src->output_types[e->src_slot]);
      td_node *src = c->copy_of[e->src->id];
      if (is_read || e->src == r.edge->src || is_loop_merge(c, e)) continue;
      if (part_of(c, e->src) != part_of(c, r.edge->src)) {
        td_edge wait = {.src = e->src, .dst = r.edge->src, .src_slot = TD_CONTROL_SLOT, .dst_slot = TD_CONTROL_SLOT};
        bool is_new;
        if (is_in_loop(c, dst)) continue; /* it would need a control loop there */
        wait.id = c->next_edge_id++;
        TD_TRY(transfer(c, &wait, NULL, &src, &is_new));
      }
      td_graph_add_control_edge(graph_of(c, r.edge->src), src, r.send);
    }
  }
  return TD_STATUS_OK;
}

static td_status connect(cutter *c, const td_node *dst) {
  td_graph *g = graph_of(c, dst);
  td_node *copy = c->copy_of[dst->id];
  const td_node *loop_merge = NULL;
  size_t new_recvs = 0, kept = 0;
  c->read_count = c->other_inputs.count = 0;
  if (dst->last_in && dst->last_in->src_slot == TD_CONTROL_SLOT)
    for (const td_edge *e = dst->in_edges; e; e = e->next_in)
      if (is_loop_merge(c, e)) loop_merge = e->src;
  for (const td_edge *e = dst->in_edges; e; e = e->next_in) {
    td_node *src = c->copy_of[e->src->id];
    if (is_loop_merge(c, e)) continue;
    if (part_of(c, e->src) != part_of(c, dst)) {
      bool is_new;
      TD_TRY(transfer(c, e, loop_merge, &src, &is_new));
      if (e->dst_slot != TD_CONTROL_SLOT) /* a ref cannot travel */
        TD_TRY(td_graph_check_types(dst, e->dst_slot, src->def.name, 0, src->output_types[0]));
      if (is_new)
        new_recvs++;
      else
        kept++;
      if (e->src_slot != TD_CONTROL_SLOT) td_graph_add_edge(g, src, 0, copy, e->dst_slot);
    } else {
      if (c->device_of[e->src->id] != c->device_of[dst->id]) kept++;
      if (e->src_slot == TD_CONTROL_SLOT || !td_dtype_is_ref(e->src->output_types[e->src_slot]))
        push(&c->other_inputs, src);
      if (e->src_slot != TD_CONTROL_SLOT) td_graph_add_edge(g, src, e->src_slot, copy, e->dst_slot);
    }
    if (e->src_slot == TD_CONTROL_SLOT) td_graph_add_control_edge(g, src, copy);
  }
  TD_TRY(delay_reads(c, dst));
  /* The split by device needs it where an edge still crosses devices. */
  if (loop_merge && (!new_recvs || (kept && c->o->by_task)))
    td_graph_add_control_edge(g, c->copy_of[loop_merge->id], copy);
  return TD_STATUS_OK;
}

static td_status check_complete(const td_graph *g) {
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    int missing = 0;
    for (int k = 0; k < n->input_count && !n->is_removed; k++) missing += !n->in[k];
    if (missing)
      return td_invalid_argument("Incomplete graph, missing %d inputs for %.*s", missing, TD_STR_ARG(n->def.name));
  }
  return TD_STATUS_OK;
}

/* One location and nothing to change: the graph itself serves. */
static bool is_whole(const cutter *c) {
  if (c->part_count != 1) return false;
  for (size_t i = 0; i < c->g->node_count; i++) {
    const td_node *n = c->g->nodes[i];
    td_str device;
    if (n->is_removed || lacks_incarnation(n, &device)) return false;
    if (!td_str_eq(n->device, c->devices.entries[c->device_of[i]].name)) return false;
  }
  return true;
}

static bool has_control_flow(const td_graph *g) {
  for (size_t i = 0; i < g->node_count; i++)
    if (g->nodes[i]->kind >= TD_NODE_SWITCH && g->nodes[i]->kind <= TD_NODE_LOOP_COND) return true;
  return false;
}

static td_status cut(cutter *c, td_graph *g) {
  c->g = td_graph_retain(g);
  TD_TRY(check_complete(g));
  TD_TRY(number_devices(c));
  if (c->o->by_task && has_control_flow(g)) {
    td_graph *with_loops;
    td_control_flow_colocate(g, c->device_of);
    TD_TRY(td_control_loops_add(g, c->o, &c->devices, &c->arena, &c->device_of, &with_loops));
    td_graph_release(c->g);
    c->g = with_loops;
  }
  make_partitions(c);
  if (is_whole(c)) {
    c->parts[0].graph = td_graph_retain(c->g);
    c->parts[0].location = c->o->by_task ? td_arena_str(&c->g->arena, c->parts[0].location) : c->g->nodes[0]->device;
    return TD_STATUS_OK;
  }
  c->next_edge_id = c->g->next_edge_id;
  copy_nodes(c);
  for (size_t i = 0; i < c->g->node_count; i++)
    if (!c->g->nodes[i]->is_removed) TD_TRY(connect(c, c->g->nodes[i]));
  return TD_STATUS_OK;
}

td_status td_graph_partition(td_graph *g, const td_partition_options *options, td_partition **out, size_t *out_count) {
  cutter c = {.o = options};
  td_status status = cut(&c, g);
  if (status) {
    td_partitions_free(c.parts, c.part_count);
  } else {
    *out = c.parts;
    *out_count = c.part_count;
  }
  td_free(c.reads);
  td_free(c.other_inputs.items);
  td_map_deinit(&c.received);
  td_device_table_deinit(&c.devices);
  td_arena_deinit(&c.arena);
  td_graph_release(c.g);
  return status;
}

void td_partitions_free(td_partition *p, size_t count) {
  for (size_t i = 0; i < count; i++) td_graph_release(p[i].graph);
  td_free(p);
}
