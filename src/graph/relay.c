#include "graph/relay.h"

#include "graph/internal.h"

bool td_relay_is_needed(const td_partition_options *o, const td_device_table *devices, int from, int to) {
  if (!o->dialect || from == to) return false;
  td_frame_dialect a = o->dialect(o->arg, devices->entries[from].task);
  td_frame_dialect b = o->dialect(o->arg, devices->entries[to].task);
  return a != b && a != TD_FRAMES_ANY && b != TD_FRAMES_ANY;
}

td_status td_relay_add(td_graph *g, const td_partition_options *o, td_node *src, int slot, td_node **out) {
  td_arena *a = &g->arena;
  td_str name = td_partition_new_name(o, g, a, src->def.name), device = td_arena_str(a, o->relay);
  if (slot == TD_CONTROL_SLOT) {
    TD_TRY(td_graph_add_op(g, "NoOp", name, device, NULL, 0, out));
    td_graph_add_control_edge(g, src, *out);
  } else {
    td_attr *type = td_arena_array(a, td_attr, 1);
    *type = (td_attr){TD_STR("T"), td_attr_value_type(a, td_dtype_base(src->output_types[slot]))};
    TD_TRY(td_graph_add_op(g, "Identity", name, device, type, 1, out));
    td_graph_add_edge(g, src, slot, *out, 0);
  }
  (*out)->original = td_node_original(src);
  return TD_STATUS_OK;
}

/* Replaces `e` by an edge from the relay of its source. */
static td_status divert(td_graph *g, const td_partition_options *o, td_arena *scratch, td_map *relays, td_edge *e) {
  struct key {
    int src, slot;
  } *key = td_arena_alloc(scratch, sizeof *key);
  td_node *dst = e->dst;
  int slot = e->dst_slot;
  *key = (struct key){e->src->id, e->src_slot};
  td_node *relay = td_map_get(relays, td_str_n(key, sizeof *key));
  if (!relay) {
    TD_TRY(td_relay_add(g, o, e->src, e->src_slot, &relay));
    td_map_put(relays, td_str_n(key, sizeof *key), relay);
  }
  td_graph_remove_edge(g, e);
  if (slot == TD_CONTROL_SLOT)
    td_graph_add_control_edge(g, relay, dst);
  else
    td_graph_add_edge(g, relay, 0, dst, slot);
  return TD_STATUS_OK;
}

td_status td_relays_insert(td_graph *g, const td_partition_options *o, const td_device_table *devices,
                           const td_frames *frames, const int *device_of) {
  td_arena scratch = {0};
  td_map relays = {0};
  td_status status = TD_STATUS_OK;
  size_t nodes = g->node_count;
  for (size_t i = 0; !status && i < nodes; i++) {
    if (frames->of_node[i] <= 0) continue;
    for (td_edge *e = g->nodes[i]->in_edges, *next; !status && e; e = next) {
      next = e->next_in;
      if ((size_t)e->src->id < nodes && td_relay_is_needed(o, devices, device_of[e->src->id], device_of[i]))
        status = divert(g, o, &scratch, &relays, e);
    }
  }
  td_map_deinit(&relays);
  td_arena_deinit(&scratch);
  return status;
}
