/* GraphDef in. Everything is checked on staged nodes that lie in an arena of their own; only when nothing can fail
 * any more are they put into the graph, in TensorFlow's order: topological, the earlier in the message first. */
#include "graph/import.h"

#include "base/log.h"
#include "base/mem.h"
#include "graph/build.h"
#include "graph/internal.h"

enum {
  KNOWN_PRODUCER = 1645,  /* TensorFlow 2.15: attributes that this build lacks are an error up to here */
  MAX_OUTPUTS = 16 << 20, /* of all nodes together: a small message must not ask for much memory */
  MAX_NODES = 4 << 20,
  MAX_INPUTS = 32 << 20,
};

typedef struct staged_input {
  td_node *src; /* staged or of the graph */
  int slot;
  int staged; /* index of a staged source; -1: of the graph */
} staged_input;

typedef struct staged {
  td_node *node;
  size_t input_begin, input_end; /* in builder.inputs; data inputs first */
  int pending;                   /* sources not yet processed */
  bool is_processed;
} staged;

typedef struct builder {
  td_graph *g;
  const Pb__GraphDef *def;
  td_arena *arena; /* holds `def` and what is kept */
  td_arena scratch;
  td_library *library;
  bool is_partition, is_extension, tolerate_unknown;
  size_t unknown_attrs, outputs;
  size_t count;
  staged *nodes; /* by index in the message */
  td_map names;  /* name -> staged */
  staged_input *inputs;
  size_t *out_begin; /* consumers of staged node i: outs[out_begin[i] .. out_begin[i + 1]) */
  int *outs;
  int *order; /* of processing */
} builder;

static td_str name_of(const staged *s) { return s->node->def.name; }

/* ---- names ---- */

static td_status index_node(builder *b, size_t i) {
  const Pb__NodeDef *def = b->def->node[i];
  if (!td_node_name_is_valid(td_str_of(def->name), true))
    return td_invalid_argument("Node '%s': Node name contains invalid characters", def->name);
  td_str name = td_str_of(def->name);
  if (b->is_extension && td_graph_find(b->g, name))
    return td_invalid_argument(
        "GraphDef argument to Extend includes node '%s', which was created by a previous call to Create or Extend in "
        "this session.",
        def->name);
  if (td_map_insert(&b->names, name, &b->nodes[i])) return td_invalid_argument("Node '%s' is not unique", def->name);
  if (!*def->op) return td_invalid_argument("Node '%s' does not specify an operation", def->name);
  if (b->is_partition && !*def->device)
    return td_invalid_argument("Node '%s' is missing a device specification", def->name);
  bool seen_control = false;
  for (size_t k = 0; k < def->n_input; k++) {
    bool is_control = def->input[k][0] == '^';
    if (seen_control && !is_control)
      return td_invalid_argument("Node '%s': Control dependencies must come after regular dependencies", def->name);
    seen_control = is_control;
  }
  td_node *n = td_arena_new(b->arena, td_node);
  n->def = (td_node_def){.name = name, .op = td_str_of(def->op), .device = td_str_of(def->device)};
  if (b->is_partition) n->device = n->def.device;
  const Pb__NodeDef__ExperimentalDebugInfo *info = def->experimental_debug_info;
  if (info && info->n_original_node_names) n->original = td_str_of(info->original_node_names[0]);
  b->nodes[i].node = n;
  return TD_STATUS_OK;
}

/* ---- ops, attributes, types ---- */

/* Copies the entries; of several with one name the last counts, as in any map on the wire. */
static void set_attrs(builder *b, td_node *n, const Pb__NodeDef *def) {
  static Pb__AttrValue nothing = PB__ATTR_VALUE__INIT;
  td_map seen = {0};
  n->def.attrs = td_arena_array(b->arena, td_attr, def->n_attr);
  for (size_t i = 0; i < def->n_attr; i++) {
    const Pb__AttrEntry *e = def->attr[i];
    td_attr attr = {td_str_of(e->key), e->value ? e->value : &nothing}, *old = NULL;
    if (def->n_attr > 16) {
      old = td_map_insert(&seen, attr.name, &n->def.attrs[n->def.attr_count]);
    } else {
      for (size_t k = 0; k < n->def.attr_count && !old; k++)
        if (td_str_eq(n->def.attrs[k].name, attr.name)) old = &n->def.attrs[k];
    }
    if (old)
      *old = attr;
    else
      n->def.attrs[n->def.attr_count++] = attr;
  }
  td_map_deinit(&seen);
}

static void note_unknown_attrs(builder *b, const td_node *n) {
  for (size_t i = 0; i < n->def.attr_count; i++) {
    td_str attr = n->def.attrs[i].name;
    if ((attr.size && attr.data[0] == '_') || td_op_attr(n->op, attr)) continue;
    if (!b->unknown_attrs++)
      td_warn("graph of producer %d: ignoring attribute '%.*s' of node '%.*s' (%.*s), and others that are unknown here",
              b->def->versions->producer, TD_STR_ARG(attr), TD_STR_ARG(n->def.name), TD_STR_ARG(n->op->name));
  }
}

static td_status wrong_input_count(const td_node *n, size_t given) {
  td_strbuf types = {0};
  for (int i = 0; i < n->input_count && i < 100; i++)
    td_strbuf_printf(&types, "%s%s", i ? ", " : "", td_dtype_name(n->input_types[i]));
  td_status s = td_invalid_argument(
      "NodeDef expected inputs '%s' do not match %zu inputs specified; Op<name=%.*s>; NodeDef: {{node %.*s}}",
      td_strbuf_cstr(&types), given, TD_STR_ARG(n->op->name), TD_STR_ARG(n->def.name));
  td_strbuf_deinit(&types);
  return s;
}

static td_status define_node(builder *b, size_t i) {
  const Pb__NodeDef *def = b->def->node[i];
  td_node *n = b->nodes[i].node;
  n->op = td_library_op(b->library, n->def.op);
  if (!n->op) return td_op_not_found(n->def.op);
  n->def.op = n->op->name;
  n->kind = td_node_kind_of(n->op->name);
  set_attrs(b, n, def);
  td_node_add_defaults(&n->def, n->op, b->arena);
  TD_TRY(td_node_validate(&n->def, n->op, b->tolerate_unknown));
  if (b->tolerate_unknown) note_unknown_attrs(b, n);
  size_t inputs, outputs, given = 0;
  int *types;
  TD_TRY(td_node_input_types(&n->def, n->op, &b->scratch, &types, &inputs));
  while (given < def->n_input && def->input[given][0] != '^') given++;
  n->input_count = (int)inputs;
  n->input_types = types;
  if (given != inputs) return wrong_input_count(n, given);
  n->input_types = td_arena_alloc(b->arena, (inputs + 1) * sizeof *types);
  memcpy((int *)n->input_types, types, inputs * sizeof *types);
  TD_TRY(td_node_output_types(&n->def, n->op, b->arena, &types, &outputs));
  n->output_types = types;
  n->output_count = (int)outputs;
  b->outputs += outputs;
  if (b->outputs > MAX_OUTPUTS)
    return td_resource_exhausted("The graph's nodes have more than %d outputs", (int)MAX_OUTPUTS);
  n->in = td_arena_array(b->arena, td_edge *, inputs);
  return TD_STATUS_OK;
}

/* ---- inputs ---- */

static td_status unknown_input(const staged *s, const char *input) {
  return td_invalid_argument("Node '%.*s': Unknown input node '%s'", TD_STR_ARG(name_of(s)), input);
}

static td_status resolve_inputs(builder *b, size_t i, staged_input **next) {
  const Pb__NodeDef *def = b->def->node[i];
  staged *s = &b->nodes[i];
  s->input_begin = (size_t)(*next - b->inputs);
  for (size_t k = 0; k < def->n_input; k++) {
    td_str name;
    staged_input in = {.staged = -1};
    if (!td_input_parse(td_str_of(def->input[k]), &name, &in.slot)) return unknown_input(s, def->input[k]);
    if (in.slot == TD_CONTROL_SLOT && memchr(name.data, ':', name.size))
      return td_invalid_argument("Control input '%s' must not have ':' in NodeDef: {{node %s}}", def->input[k],
                                 def->name);
    staged *src = td_map_get(&b->names, name);
    if (src) {
      in.src = src->node;
      in.staged = (int)(src - b->nodes);
      b->out_begin[in.staged + 1]++;
    } else {
      in.src = b->is_extension ? td_graph_find(b->g, name) : NULL;
      if (!in.src) return unknown_input(s, def->input[k]);
    }
    *(*next)++ = in;
  }
  s->input_end = (size_t)(*next - b->inputs);
  return TD_STATUS_OK;
}

static void index_consumers(builder *b) {
  for (size_t i = 0; i < b->count; i++) b->out_begin[i + 1] += b->out_begin[i];
  size_t *at = td_arena_alloc(&b->scratch, (b->count + 1) * sizeof *at);
  memcpy(at, b->out_begin, (b->count + 1) * sizeof *at);
  b->outs = td_arena_array(&b->scratch, int, b->out_begin[b->count]);
  for (size_t i = 0; i < b->count; i++)
    for (size_t k = b->nodes[i].input_begin; k < b->nodes[i].input_end; k++)
      if (b->inputs[k].staged >= 0) b->outs[at[b->inputs[k].staged]++] = (int)i;
}

/* A Merge that closes a loop waits for its control inputs and any one data input. */
static void count_pending(builder *b) {
  for (size_t i = 0; i < b->count; i++) {
    staged *s = &b->nodes[i];
    int all = 0, control = 0;
    bool closes_loop = false;
    for (size_t k = s->input_begin; k < s->input_end; k++) {
      const staged_input *in = &b->inputs[k];
      if (in->staged < 0) continue;
      all++;
      if (in->slot == TD_CONTROL_SLOT)
        control++;
      else if (s->node->kind == TD_NODE_MERGE && in->src->kind == TD_NODE_NEXT_ITERATION)
        closes_loop = true;
    }
    if (closes_loop) {
      size_t outside = 0; /* data inputs from the graph that is extended count as processed */
      for (size_t k = s->input_begin; k < s->input_end; k++)
        outside += b->inputs[k].staged < 0 && b->inputs[k].slot != TD_CONTROL_SLOT;
      s->pending = control + (outside ? 0 : 1);
    } else {
      s->pending = all;
    }
  }
}

/* ---- order ---- */

static void heap_push(int *heap, size_t *count, int v) {
  size_t i = (*count)++;
  for (; i && heap[(i - 1) / 2] > v; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = v;
}

static int heap_pop(int *heap, size_t *count) {
  int top = heap[0], v = heap[--*count];
  size_t i = 0;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= *count) break;
    if (child + 1 < *count && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= v) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = v;
  return top;
}

/* Clients add outputs to these when they differentiate them: too late for a node that was sent. */
static bool is_control_flow_call(const td_node *n) {
  return n->is_lowered || td_str_is(n->def.op, "If") || td_str_is(n->def.op, "StatelessIf") ||
         td_str_is(n->def.op, "While") || td_str_is(n->def.op, "StatelessWhile");
}

static td_status check_edge(const td_node *dst, int dst_slot, const staged_input *in) {
  if (in->slot >= in->src->output_count)
    return td_invalid_argument(
        "Node '%.*s': Connecting to invalid output %d of source node %.*s which has %d outputs.%s",
        TD_STR_ARG(dst->def.name), in->slot, TD_STR_ARG(in->src->def.name), in->src->output_count,
        is_control_flow_call(in->src) ? " Try using tf.compat.v1.experimental.output_all_intermediates(True)." : "");
  return td_graph_check_types(dst, dst_slot, in->src->def.name, in->slot, in->src->output_types[in->slot]);
}

static td_status check_inputs(builder *b, const staged *s) {
  bool has_back_edge = false;
  for (size_t k = s->input_begin; k < s->input_end; k++) {
    const staged_input *in = &b->inputs[k];
    if (in->staged >= 0 && !b->nodes[in->staged].is_processed) has_back_edge = true;
    if (in->slot != TD_CONTROL_SLOT) TD_TRY(check_edge(s->node, (int)(k - s->input_begin), in));
  }
  if (has_back_edge && s->node->kind != TD_NODE_MERGE)
    return td_invalid_argument("Node '%.*s' had a back edge, but only Merge nodes can have back edges.",
                               TD_STR_ARG(name_of(s)));
  return TD_STATUS_OK;
}

static td_status order_nodes(builder *b) {
  int *heap = td_arena_array(&b->scratch, int, b->count);
  size_t ready = 0, processed = 0;
  b->order = td_arena_array(&b->scratch, int, b->count);
  for (size_t i = 0; i < b->count; i++)
    if (!b->nodes[i].pending) heap_push(heap, &ready, (int)i);
  while (ready) {
    int i = heap_pop(heap, &ready);
    staged *s = &b->nodes[i];
    TD_TRY(check_inputs(b, s));
    s->is_processed = true;
    b->order[processed++] = i;
    for (size_t k = b->out_begin[i]; k < b->out_begin[i + 1]; k++) {
      staged *dst = &b->nodes[b->outs[k]];
      if (s->node->kind == TD_NODE_NEXT_ITERATION && dst->node->kind == TD_NODE_MERGE) continue;
      if (dst->pending > 0 && --dst->pending == 0) heap_push(heap, &ready, b->outs[k]);
    }
  }
  if (processed < b->count) return td_invalid_argument("%zu nodes in a cycle", b->count - processed);
  return TD_STATUS_OK;
}

/* ---- commit ---- */

static void add_control_edges(builder *b, const staged *s, const td_node **last_dst) {
  for (size_t k = s->input_begin; k < s->input_end; k++) {
    const staged_input *in = &b->inputs[k];
    if (in->slot != TD_CONTROL_SLOT || last_dst[in->src->id] == s->node) continue;
    last_dst[in->src->id] = s->node; /* one control edge between two nodes is enough */
    td_graph_add_control_edge(b->g, in->src, s->node);
  }
}

static void commit(builder *b) {
  td_graph *g = b->g;
  td_graph_reserve(g, g->node_count + b->count);
  for (size_t i = 0; i < b->count; i++) td_graph_put_node(g, b->nodes[b->order[i]].node);
  const td_node **last_dst = td_arena_array(&b->scratch, const td_node *, g->node_count);
  for (size_t i = 0; i < b->count; i++) {
    const staged *s = &b->nodes[b->order[i]];
    for (size_t k = s->input_begin; k < s->input_end; k++) {
      const staged_input *in = &b->inputs[k];
      if (in->slot == TD_CONTROL_SLOT) break;
      td_graph_add_edge(g, in->src, in->slot, s->node, (int)(k - s->input_begin));
    }
    add_control_edges(b, s, last_dst);
  }
  const Pb__VersionDef *v = b->def->versions;
  if (v) {
    g->producer = v->producer;
    g->min_consumer = TD_MAX(g->min_consumer, v->min_consumer);
    for (size_t i = 0; i < v->n_bad_consumers; i++) {
      size_t k = 0;
      if (g->bad_consumer_count >= 1000) break;
      while (k < g->bad_consumer_count && g->bad_consumers[k] != v->bad_consumers[i]) k++;
      if (k < g->bad_consumer_count) continue;
      g->bad_consumers = td_realloc(g->bad_consumers, (k + 1) * sizeof *g->bad_consumers);
      g->bad_consumers[g->bad_consumer_count++] = v->bad_consumers[i];
    }
  }
  td_library_release(g->library);
  g->library = td_library_retain(b->library);
}

static td_status stage(builder *b) {
  size_t input_count = 0;
  TD_TRY(td_graph_check_versions(b->def->versions));
  if (!b->is_partition) TD_TRY(td_graph_check_syntax(b->def));
  if (b->def->n_node > MAX_NODES || b->g->node_count > MAX_NODES)
    return td_resource_exhausted("A graph of %zu nodes is too large; the limit is %d",
                                 b->def->n_node + b->g->node_count, (int)MAX_NODES);
  b->count = b->def->n_node;
  b->nodes = td_arena_array(&b->scratch, staged, b->count);
  td_map_reserve(&b->names, b->count);
  for (size_t i = 0; i < b->count; i++) {
    TD_TRY(index_node(b, i));
    input_count += b->def->node[i]->n_input;
  }
  if (input_count > MAX_INPUTS)
    return td_resource_exhausted("A graph of %zu edges is too large; the limit is %d", input_count, (int)MAX_INPUTS);
  TD_TRY(td_library_merge(b->g->library, b->def->library, &b->library));
  b->tolerate_unknown = b->def->versions && b->def->versions->producer > KNOWN_PRODUCER;
  for (size_t i = 0; i < b->count; i++) TD_TRY(define_node(b, i));
  b->inputs = td_arena_array(&b->scratch, staged_input, input_count);
  b->out_begin = td_arena_array(&b->scratch, size_t, b->count + 1);
  staged_input *next = b->inputs;
  for (size_t i = 0; i < b->count; i++) TD_TRY(resolve_inputs(b, i, &next));
  index_consumers(b);
  count_pending(b);
  return order_nodes(b);
}

/* Adds `def`, which lies in *arena, to `g`, and takes the arena over. */
static td_status add_messages(td_graph *g, const Pb__GraphDef *def, td_arena *arena, bool is_partition,
                              bool is_extension) {
  builder b = {.g = g, .def = def, .arena = arena, .is_partition = is_partition, .is_extension = is_extension};
  td_status status = stage(&b);
  if (!status) {
    commit(&b);
    td_graph_adopt_arena(g, arena);
  }
  td_library_release(b.library);
  td_map_deinit(&b.names);
  td_arena_deinit(&b.scratch);
  td_arena_deinit(arena);
  return status;
}

td_status td_graph_import(const Pb__GraphDef *def, td_arena *arena_of_def, const td_import_options *options,
                          td_graph **out) {
  td_arena copies = {0};
  td_status status = TD_STATUS_OK;
  if (!arena_of_def) {
    Pb__GraphDef *copy;
    status = td_graph_copy_message(&def->base, &copies, &copy);
    arena_of_def = &copies;
    def = copy;
  }
  td_graph *g = td_graph_create(NULL);
  if (!status) status = add_messages(g, def, arena_of_def, options && options->is_partition, false);
  if (status) {
    td_graph_release(g);
    td_arena_deinit(arena_of_def);
    return status;
  }
  *out = g;
  return TD_STATUS_OK;
}

/* What lowering has made gives way to a node that the client calls by the same name. */
static void make_room(td_graph *g, const Pb__GraphDef *def) {
  for (size_t i = 0; i < def->n_node; i++) {
    td_node *n = td_graph_find(g, td_str_of(def->node[i]->name));
    if (!n || !n->is_made) continue;
    td_map_remove(&g->by_name, n->def.name);
    n->def.name = td_graph_new_name(g, n->def.name);
    td_map_put(&g->by_name, n->def.name, n);
  }
}

td_status td_graph_extend(td_graph *g, const Pb__GraphDef *def, td_arena *arena_of_def) {
  td_arena copies = {0};
  if (!arena_of_def) {
    Pb__GraphDef *copy;
    td_status status = td_graph_copy_message(&def->base, &copies, &copy);
    if (status) {
      td_arena_deinit(&copies);
      return status;
    }
    arena_of_def = &copies;
    def = copy;
  }
  make_room(g, def);
  return add_messages(g, def, arena_of_def, false, true);
}
