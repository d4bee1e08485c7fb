/* Control loops: each device that takes part in a loop runs a small loop of its own, driven by the predicate of the
 * one that holds the LoopCond, and receives once per iteration. */
#include "graph/control_loop.h"

#include <stdio.h>

#include "base/mem.h"
#include "graph/internal.h"
#include "graph/relay.h"

/* ---- devices ---- */

td_status td_device_table_add(td_device_table *t, td_str device, int *out) {
  void *known = td_map_get(&t->by_name, device);
  if (known) {
    *out = (int)((intptr_t)known - 1);
    return TD_STATUS_OK;
  }
  td_device_name name;
  char task[TD_DEVICE_NAME_MAX];
  if (!td_device_name_parse(device, &name) || !td_device_name_is_complete(&name))
    return td_internal("Malformed assigned device '%.*s'", TD_STR_ARG(device));
  name.type[0] = '\0';
  name.id = -1;
  td_device_name_format(&name, task);
  TD_GROW(t->entries, t->count, t->capacity);
  t->entries[t->count] =
      (struct td_device_entry){.name = td_arena_str(t->arena, device), .task = td_arena_str(t->arena, td_str_of(task))};
  *out = (int)t->count++;
  td_map_put(&t->by_name, t->entries[*out].name, (void *)((intptr_t)*out + 1));
  return TD_STATUS_OK;
}

void td_device_table_deinit(td_device_table *t) {
  td_map_deinit(&t->by_name);
  td_free(t->entries);
}

/* ---- colocation of control flow ---- */

static void colocate(const td_node *n, int *device_of) {
  const td_node *with = NULL;
  if ((n->kind == TD_NODE_SWITCH || n->kind == TD_NODE_EXIT) && n->input_count && n->in[0]) {
    with = n->in[0]->src;
  } else if ((n->kind == TD_NODE_ENTER && n->input_count && !td_dtype_is_ref(n->input_types[0])) ||
             n->kind == TD_NODE_NEXT_ITERATION) {
    for (const td_edge *e = n->out_edges; e && !with; e = e->next_out)
      if (e->dst_slot != TD_CONTROL_SLOT) with = e->dst;
  }
  if (with) device_of[n->id] = device_of[with->id];
}

/* Depth first from the nodes without inputs, as TensorFlow goes: the order decides which moves see which. */
void td_control_flow_colocate(const td_graph *g, int *device_of) {
  td_arena scratch = {0};
  size_t edges = 0;
  for (size_t i = 0; i < g->node_count; i++)
    for (const td_edge *e = g->nodes[i]->out_edges; e; e = e->next_out) edges++;
  bool *seen = td_arena_array(&scratch, bool, g->node_count);
  const td_node **stack = td_arena_array(&scratch, const td_node *, g->node_count + edges);
  size_t depth = 0;
  for (size_t i = 0; i < g->node_count; i++)
    if (!g->nodes[i]->is_removed && !g->nodes[i]->in_edges) stack[depth++] = g->nodes[i];
  while (depth) {
    const td_node *n = stack[--depth];
    if (seen[n->id]) continue;
    seen[n->id] = true;
    colocate(n, device_of);
    for (const td_edge *e = n->out_edges; e; e = e->next_out)
      if (!seen[e->dst->id]) stack[depth++] = e->dst;
  }
  td_arena_deinit(&scratch);
}

/* ---- making nodes ---- */

td_str td_partition_new_name(const td_partition_options *o, const td_graph *g, td_arena *arena, td_str of) {
  td_str name;
  do {
    name = td_str_of(td_arena_printf(arena, "%.*s_%c%lld", TD_STR_ARG(of), o->suffix, (long long)(*o->next_suffix)++));
  } while (td_graph_find(g, name));
  return name;
}

bool td_node_is_control_loop(const td_node *n) { return td_str_starts(n->def.name, TD_STR("_cloop")); }

td_status td_graph_add_op(td_graph *g, const char *op_name, td_str name, td_str device, td_attr *attrs,
                          size_t attr_count, td_node **out) {
  const td_op_def *op = td_op_find(td_str_of(op_name));
  if (!op) return td_op_not_found(td_str_of(op_name));
  td_node_def def = {.name = name, .op = op->name, .attrs = attrs, .attr_count = attr_count};
  td_node_add_defaults(&def, op, &g->arena);
  TD_TRY(td_graph_add_node(g, &def, op, out));
  (*out)->device = device;
  return TD_STATUS_OK;
}

static Pb__AttrValue *empty_float(td_arena *a) {
  Pb__TensorProto *t = td_arena_new(a, Pb__TensorProto);
  pb__tensor_proto__init(t);
  t->dtype = TD_FLOAT;
  t->tensor_shape = td_arena_new(a, Pb__TensorShapeProto);
  pb__tensor_shape_proto__init(t->tensor_shape);
  t->tensor_shape->dim = td_arena_array(a, Pb__TensorShapeProto__Dim *, 1);
  t->tensor_shape->dim[0] = td_arena_new(a, Pb__TensorShapeProto__Dim);
  pb__tensor_shape_proto__dim__init(t->tensor_shape->dim[0]);
  t->tensor_shape->n_dim = 1;
  Pb__AttrValue *v = td_arena_new(a, Pb__AttrValue);
  pb__attr_value__init(v);
  v->value_case = PB__ATTR_VALUE__VALUE_TENSOR;
  v->tensor = t;
  return v;
}

td_status td_graph_add_empty_const(td_graph *g, td_str name, td_str device, td_node **out) {
  td_attr *attrs = td_arena_array(&g->arena, td_attr, 2);
  attrs[0] = (td_attr){TD_STR("dtype"), td_attr_value_type(&g->arena, TD_FLOAT)};
  attrs[1] = (td_attr){TD_STR("value"), empty_float(&g->arena)};
  return td_graph_add_op(g, "Const", name, device, attrs, 2, out);
}

/* ---- control loops ---- */

typedef struct control_loop {
  td_node *enter, *merge;
} control_loop;

typedef struct loop_builder {
  td_graph *g; /* the copy */
  const td_partition_options *o;
  td_device_table *devices;
  td_arena *arena;
  td_frames frames;
  int *device_of; /* grows with the graph */
  size_t device_capacity;
  control_loop *loops;  /* by frame * devices->count + device */
  td_node **predicates; /* by frame: the relay of its LoopCond; NULL: none */
} loop_builder;

static void note_device(loop_builder *b, const td_node *n, int device) {
  while (b->device_capacity < b->g->node_count) {
    int *more = td_arena_array(b->arena, int, b->device_capacity * 2);
    memcpy(more, b->device_of, b->device_capacity * sizeof *more);
    b->device_of = more;
    b->device_capacity *= 2;
  }
  b->device_of[n->id] = device;
}

static td_status add_loop_node(loop_builder *b, const char *op, const td_node *dst, bool is_loop, int device,
                               td_attr *attrs, size_t attr_count, td_node **out) {
  td_graph *g = b->g;
  td_str name = td_partition_new_name(b->o, g, &g->arena, dst->def.name);
  if (is_loop) name = td_str_of(td_arena_printf(&g->arena, "_cloop%.*s", TD_STR_ARG(name)));
  td_str where = td_arena_str(&g->arena, b->devices->entries[device].name);
  if (attrs)
    TD_TRY(td_graph_add_op(g, op, name, where, attrs, attr_count, out));
  else
    TD_TRY(td_graph_add_empty_const(g, name, where, out));
  (*out)->original = td_node_original(dst);
  note_device(b, *out, device);
  return TD_STATUS_OK;
}

static td_status add_loops_around(loop_builder *b, td_node *dst, int frame);

/* The frame's predicate as a device can receive it. */
static td_status predicate(loop_builder *b, int frame, int device, td_node **out) {
  *out = b->g->nodes[b->frames.frames[frame].loop_cond->id];
  if (!td_relay_is_needed(b->o, b->devices, b->device_of[(*out)->id], device)) return TD_STATUS_OK;
  if (!b->predicates[frame]) {
    int relay;
    TD_TRY(td_relay_add(b->g, b->o, *out, 0, &b->predicates[frame]));
    TD_TRY(td_device_table_add(b->devices, b->o->relay, &relay));
    note_device(b, b->predicates[frame], relay);
    TD_TRY(add_loops_around(b, b->predicates[frame], frame)); /* the relay runs once an iteration, too */
  }
  *out = b->predicates[frame];
  return TD_STATUS_OK;
}

static td_status add_loop(loop_builder *b, const td_node *dst, int frame, int device, control_loop *out) {
  const td_frame_info *f = &b->frames.frames[frame];
  td_arena *a = &b->g->arena;
  td_node *switch_node, *next, *cond;
  if (!f->loop_cond)
    return td_invalid_argument("A cross-device loop must have a pivot predicate: %.*s", TD_STR_ARG(f->frame_name));
  TD_TRY(predicate(b, frame, device, &cond));
  td_attr type = {TD_STR("T"), td_attr_value_type(a, TD_FLOAT)};
  td_attr *enter = td_arena_array(a, td_attr, 4), *merge = td_arena_array(a, td_attr, 2),
          *one = td_arena_array(a, td_attr, 1);
  enter[0] = merge[0] = one[0] = type;
  enter[1] = (td_attr){TD_STR("frame_name"), td_attr_value_str(a, f->frame_name)};
  enter[2] = (td_attr){TD_STR("parallel_iterations"), td_attr_value_int(a, f->parallel_iterations)};
  enter[3] = (td_attr){TD_STR("is_constant"), td_attr_value_bool(a, false)}; /* TensorFlow fills in no defaults here */
  merge[1] = (td_attr){TD_STR("N"), td_attr_value_int(a, 2)};
  TD_TRY(add_loop_node(b, "Enter", dst, true, device, enter, 4, &out->enter));
  TD_TRY(add_loop_node(b, "Merge", dst, true, device, merge, 2, &out->merge));
  TD_TRY(add_loop_node(b, "Switch", dst, true, device, one, 1, &switch_node));
  TD_TRY(add_loop_node(b, "NextIteration", dst, true, device, one, 1, &next));
  td_graph_add_edge(b->g, out->merge, 0, switch_node, 0);
  td_graph_add_edge(b->g, cond, 0, switch_node, 1);
  td_graph_add_edge(b->g, switch_node, 1, next, 0);
  td_graph_add_edge(b->g, out->enter, 0, out->merge, 0);
  td_graph_add_edge(b->g, next, 0, out->merge, 1);
  return TD_STATUS_OK;
}

/* The loops of this frame and of those around it, on the device of `dst`. */
static td_status add_loops_around(loop_builder *b, td_node *dst, int frame) {
  int device = b->device_of[dst->id];
  td_node *child_enter = NULL;
  for (;; frame = b->frames.frames[frame].parent) {
    if (!frame) {
      td_node *start;
      if (!child_enter) return TD_STATUS_OK;
      TD_TRY(add_loop_node(b, "Const", dst, false, device, NULL, 0, &start));
      td_graph_add_edge(b->g, start, 0, child_enter, 0);
      return TD_STATUS_OK;
    }
    control_loop *loop = &b->loops[(size_t)frame * b->devices->count + (size_t)device];
    bool exists = loop->enter;
    if (!exists) TD_TRY(add_loop(b, dst, frame, device, loop));
    if (child_enter) td_graph_add_edge(b->g, loop->merge, 0, child_enter, 0);
    if (exists) return TD_STATUS_OK;
    child_enter = loop->enter;
  }
}

static bool crosses_in_frame(const td_edge *e, const td_frames *frames, const int *device_of) {
  return device_of[e->src->id] != device_of[e->dst->id] && frames->of_node[e->dst->id] > 0;
}

static td_status add_loops(loop_builder *b) {
  td_graph *g = b->g;
  size_t old_nodes = g->node_count, all_nodes;
  for (size_t i = 0; i < old_nodes; i++)
    for (td_edge *e = g->nodes[i]->in_edges; e; e = e->next_in)
      if (crosses_in_frame(e, &b->frames, b->device_of))
        TD_TRY(add_loops_around(b, e->dst, b->frames.of_node[e->dst->id]));
  /* The predicate's way to the loops' Switches crosses devices too: so does a control edge for each such edge. */
  all_nodes = g->node_count;
  int *of_node = td_arena_array(b->arena, int, all_nodes);
  memcpy(of_node, b->frames.of_node, old_nodes * sizeof *of_node);
  for (size_t k = 0; k < b->frames.count * b->devices->count; k++) {
    const control_loop *l = &b->loops[k];
    if (!l->enter) continue;
    int frame = (int)(k / b->devices->count);
    of_node[l->enter->id] = b->frames.frames[frame].parent;
    of_node[l->merge->id] = frame;
    of_node[l->merge->out_edges->dst->id] = frame;
    of_node[l->merge->in[1]->src->id] = frame;
  }
  for (size_t f = 0; f < b->frames.count; f++)
    if (b->predicates[f]) of_node[b->predicates[f]->id] = (int)f;
  b->frames.of_node = of_node;
  for (size_t i = 0; i < all_nodes; i++) {
    td_node *dst = g->nodes[i];
    int frame = of_node[i];
    td_edge *last = dst->last_in;
    if (frame <= 0 || !last) continue;
    td_node *merge = b->loops[(size_t)frame * b->devices->count + (size_t)b->device_of[i]].merge;
    for (td_edge *e = dst->in_edges;; e = e->next_in) {
      if (crosses_in_frame(e, &b->frames, b->device_of)) {
        td_graph_add_control_edge(g, merge, dst); /* the cut moves it to the receive */
        break;
      }
      if (e == last) break;
    }
  }
  return TD_STATUS_OK;
}

static td_graph *copy_graph(td_graph *g) {
  td_graph *copy = td_graph_create(g->library);
  copy->origin = td_graph_retain(g);
  td_graph_copy_versions(copy, g);
  td_graph_reserve(copy, g->node_count + 64);
  for (size_t i = 0; i < g->node_count; i++) td_graph_clone_node(copy, g->nodes[i]);
  for (size_t i = 0; i < g->node_count; i++) {
    for (const td_edge *e = g->nodes[i]->in_edges; e; e = e->next_in) {
      td_node *src = copy->nodes[e->src->id], *dst = copy->nodes[i];
      td_edge *made = e->src_slot == TD_CONTROL_SLOT ? td_graph_add_control_edge(copy, src, dst)
                                                     : td_graph_add_edge(copy, src, e->src_slot, dst, e->dst_slot);
      made->id = e->id;
    }
  }
  copy->next_edge_id = g->next_edge_id;
  return copy;
}

/* Relays come first: they take part in the loops. */
static td_status insert_relays(loop_builder *b) {
  if (!b->o->dialect) return TD_STATUS_OK;
  size_t before = b->g->node_count;
  int relay;
  TD_TRY(td_device_table_add(b->devices, b->o->relay, &relay));
  TD_TRY(td_relays_insert(b->g, b->o, b->devices, &b->frames, b->device_of));
  for (size_t i = before; i < b->g->node_count; i++) note_device(b, b->g->nodes[i], relay);
  return td_graph_frames(b->g, b->arena, &b->frames);
}

static td_status build_loops(loop_builder *b) {
  size_t cells;
  TD_TRY(insert_relays(b));
  if (!td_mul_size(b->frames.count, b->devices->count, &cells) || cells > 16u << 20)
    return td_resource_exhausted("%zu loops over %zu devices", b->frames.count, b->devices->count);
  b->loops = td_arena_array(b->arena, control_loop, cells);
  b->predicates = td_arena_array(b->arena, td_node *, b->frames.count);
  return add_loops(b);
}

td_status td_control_loops_add(td_graph *g, const td_partition_options *options, td_device_table *devices,
                               td_arena *arena, int **device_of, td_graph **out) {
  td_frames frames;
  *out = td_graph_retain(g);
  td_status status = td_graph_frames(g, arena, &frames);
  bool crosses = false;
  for (size_t i = 0; i < g->node_count && !status && !crosses && frames.count > 1; i++)
    for (const td_edge *e = g->nodes[i]->in_edges; e && !crosses; e = e->next_in)
      crosses = crosses_in_frame(e, &frames, *device_of);
  if (!status && crosses) {
    td_graph_release(*out);
    loop_builder b = {.g = copy_graph(g), .o = options, .devices = devices, .arena = arena, .frames = frames};
    *out = b.g;
    b.device_of = *device_of;
    b.device_capacity = g->node_count;
    status = build_loops(&b);
    *device_of = b.device_of;
  }
  if (status) {
    td_graph_release(*out);
    *out = NULL;
  }
  return status;
}
