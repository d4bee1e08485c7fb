#include "runtime/program.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "framework/device.h"
#include "graph/build.h"
#include "graph/partition.h"
#include "runtime/kernel_cache.h"
#include "runtime/late_reads.h"
#include "runtime/program_internal.h"
#include "runtime/walk.h"

/* What is needed only while a program is made. */
typedef struct compiler {
  td_program *p;
  td_graph *g;
  const td_program_options *options;
  td_str function;
  td_frames frames;   /* frames.count == 0: no control flow with frames */
  td_node **nodes;    /* by program index */
  uint32_t *index_of; /* program index by node id */
  td_arena scratch;
} compiler;

static td_str label_of(const compiler *c, const td_node *n) {
  td_str name = n->original.size ? n->original : n->def.name;
  return td_arena_str(&c->p->arena, name);
}

static td_status at_node(const compiler *c, const td_node *n, td_status s) {
  td_str name = n->original.size ? n->original : n->def.name;
  if (!s) return s;
  if (strstr(td_status_message(s), "{{node ")) return s;
  if (c->function.size)
    return td_status_append(s, "\n\t [[{{function_node %.*s}}{{node %.*s}}]]", TD_STR_ARG(c->function),
                            TD_STR_ARG(name));
  return td_status_append(s, "\n\t [[{{node %.*s}}]]", TD_STR_ARG(name));
}

/* ---- frames and order ---- */

static bool changes_frame(const td_node *n) {
  return n->kind == TD_NODE_ENTER || n->kind == TD_NODE_EXIT || n->kind == TD_NODE_NEXT_ITERATION;
}

static uint32_t frame_of(const compiler *c, const td_node *n) {
  return c->frames.count ? (uint32_t)c->frames.of_node[n->id] : 0;
}

static td_status find_frames(compiler *c) {
  td_program *p = c->p;
  for (size_t i = 0; i < c->g->node_count; i++)
    if (!c->g->nodes[i]->is_removed && changes_frame(c->g->nodes[i])) p->has_frames = true;
  if (p->has_frames) {
    TD_TRY(td_graph_frames(c->g, &c->scratch, &c->frames));
    p->frame_count = (uint32_t)c->frames.count;
  } else {
    p->frame_count = 1;
  }
  p->frames = td_arena_array(&p->arena, td_pframe, p->frame_count);
  p->frames[0].parent = -1;
  p->frames[0].parallel_iterations = 1;
  for (uint32_t i = 1; i < p->frame_count; i++) {
    const td_frame_info *info = &c->frames.frames[i];
    p->frames[i].name = td_arena_str(&p->arena, info->frame_name);
    p->frames[i].parent = info->parent;
    p->frames[i].parallel_iterations = (uint32_t)TD_MIN(TD_MAX(info->parallel_iterations, 1), 1 << 20);
  }
  return TD_STATUS_OK;
}

/* Orders nodes by frame, then id, so that those of a frame are neighbours. */
static td_status order_nodes(compiler *c) {
  td_program *p = c->p;
  uint32_t total = 0;
  for (size_t i = 0; i < c->g->node_count; i++) {
    const td_node *n = c->g->nodes[i];
    if (n->is_removed) continue;
    p->frames[frame_of(c, n)].count++;
    total++;
  }
  uint32_t *next = td_arena_array(&c->scratch, uint32_t, p->frame_count);
  for (uint32_t f = 0, first = 0; f < p->frame_count; f++) {
    p->frames[f].first = next[f] = first;
    first += p->frames[f].count;
  }
  p->node_count = total;
  p->nodes = td_arena_array(&p->arena, td_pnode, total);
  p->infos = td_arena_array(&p->arena, td_pnode_info, total);
  c->nodes = td_arena_array(&c->scratch, td_node *, total);
  c->index_of = td_arena_array(&c->scratch, uint32_t, c->g->node_count);
  for (size_t i = 0; i < c->g->node_count; i++) {
    td_node *n = c->g->nodes[i];
    if (n->is_removed) continue;
    uint32_t at = next[frame_of(c, n)]++;
    c->nodes[at] = n;
    c->index_of[i] = at;
  }
  return TD_STATUS_OK;
}

/* ---- kernels ---- */

static bool has_function_attr(const td_node *n) {
  for (size_t i = 0; i < n->def.attr_count; i++)
    if (n->def.attrs[i].value && n->def.attrs[i].value->value_case == PB__ATTR_VALUE__VALUE_FUNC) return true;
  return false;
}

/* Per-session kernels: those with state, but not calls, whose functions belong to one graph (unless they say that
 * they retain those), and not what only moves values. */
static bool is_kept(const td_node *n) {
  if (!(n->op->flags & TD_OP_STATEFUL)) return false;
  if (n->kind == TD_NODE_SEND || n->kind == TD_NODE_RECV) return false;
  if (n->def.op.size && n->def.op.data[0] == '_') return false;
  if (!has_function_attr(n)) return true;
  const td_kernel_def *k = td_kernel_find(&n->def, TD_STR("CPU"));
  return k && (k->flags & TD_KERNEL_KEPT);
}

/* A node whose op is a function of the library runs as a call of it. */
static td_status bind_call(compiler *c, const td_node *n, td_pnode *pn) {
  td_arena *a = &c->scratch;
  td_attr *own = td_arena_array(a, td_attr, n->def.attr_count);
  size_t count = 0;
  for (size_t i = 0; i < n->def.attr_count; i++)
    if (!td_str_starts(n->def.attrs[i].name, TD_STR("_"))) own[count++] = n->def.attrs[i];
  td_attr attrs[] = {{TD_STR("Tin"), td_attr_value_types(a, n->input_types, (size_t)n->input_count)},
                     {TD_STR("Tout"), td_attr_value_types(a, n->output_types, (size_t)n->output_count)},
                     {TD_STR("f"), td_attr_value_func(a, n->def.op, own, count)}};
  td_node_def def = {
      .name = n->def.name, .op = TD_STR("StatefulPartitionedCall"), .attrs = attrs, .attr_count = TD_COUNT(attrs)};
  td_kernel_options o = {
      .node = &def, .device = c->options->device, .functions = c->options->functions, .session = c->options->session};
  TD_TRY(td_kernel_create(&o, &pn->kernel));
  pn->kernel->op = td_arena_str(&pn->kernel->arena, n->def.op); /* as labels and errors name it */
  return TD_STATUS_OK;
}

static td_status bind_kernel(compiler *c, const td_node *n, td_pnode *pn) {
  if (c->g->library && td_library_find(c->g->library, n->def.op)) return bind_call(c, n, pn);
  td_kernel_options o = {.node = &n->def,
                         .device = c->options->device,
                         .functions = c->options->functions,
                         .session = c->options->session,
                         .op = n->op};
  if (c->options->kernels && is_kept(n)) return td_kernel_cache_get(c->options->kernels, n, &o, &pn->kernel);
  return td_kernel_create(&o, &pn->kernel);
}

static td_status number_arg(compiler *c, const td_node *n, td_pnode *pn, int *count) {
  TD_TRY(td_attr_int(&n->def, "index", &pn->index));
  if (pn->index < 0 || pn->index > 65535)
    return td_invalid_argument("%.*s has index %lld, which is not in [0, 65536)", TD_STR_ARG(n->def.op),
                               (long long)pn->index);
  *count = TD_MAX(*count, (int)pn->index + 1);
  return TD_STATUS_OK;
}

static td_pnode_info *info_of(const compiler *c, const td_pnode *pn) { return &c->p->infos[pn - c->p->nodes]; }

static td_status make_merge(compiler *c, const td_node *n, td_pnode *pn) {
  td_pnode_info *info = info_of(c, pn);
  bool is_index_read = false;
  for (const td_edge *e = n->out_edges; e; e = e->next_out)
    if (e->src_slot == 1) is_index_read = true;
  pn->exec = TD_EXEC_MERGE;
  pn->merge = c->p->frames[info->frame].merge_count++;
  if (!is_index_read) return TD_STATUS_OK;
  pn->flags |= TD_PN_INDEXED;
  info->merge_indices = td_arena_array(&c->p->arena, td_tensor *, pn->input_count);
  for (uint32_t i = 0; i < pn->input_count; i++) {
    TD_TRY(td_tensor_create_dims(TD_INT32, 0, NULL, &info->merge_indices[i]));
    *TD_DATA(info->merge_indices[i], int32_t) = (int32_t)i;
  }
  return TD_STATUS_OK;
}

/* `in_refs` is still this file's to write: the node is being made. */
static void keep_refs(td_pnode *pn) {
  pn->flags |= TD_PN_KEEPS_REF;
  for (uint32_t i = 0; i < pn->input_count; i++) ((uint8_t *)pn->in_refs)[i] &= (uint8_t)~TD_IN_DEREF;
}

static td_status classify(compiler *c, const td_node *n, td_pnode *pn) {
  const td_kernel *k = pn->kernel;
  uint32_t kf = k->def->flags;
  if (kf & TD_KERNEL_DEAD_AWARE) pn->flags |= TD_PN_DEAD_AWARE;
  if (n->kind == TD_NODE_SEND || n->kind == TD_NODE_RECV) pn->flags |= TD_PN_TRANSFER;
  if (n->kind == TD_NODE_CONTROL_TRIGGER) pn->flags |= TD_PN_NEVER_DEAD;
  if (n->kind == TD_NODE_ENTER) {
    pn->flags |= TD_PN_ENTER;
    pn->child_frame = -1;
  }
  if (n->kind == TD_NODE_EXIT) pn->flags |= TD_PN_EXIT;
  if (n->kind == TD_NODE_NEXT_ITERATION) pn->flags |= TD_PN_NEXT;
  const Pb__AttrValue *to_client = n->kind == TD_NODE_SEND ? td_attr_find(&n->def, "client_terminated") : NULL;
  if (to_client && to_client->value_case == PB__ATTR_VALUE__VALUE_B && to_client->b) pn->flags |= TD_PN_COPY;
  if (kf & TD_KERNEL_TAKES_REF && pn->in_refs && !(pn->flags & TD_PN_COPY)) keep_refs(pn);
  if (n->op->flags & TD_OP_ALLOWS_UNINITIALIZED) pn->flags |= TD_PN_MAY_BE_UNINITIALIZED;
  pn->exec = k->compute_async ? TD_EXEC_ASYNC : TD_EXEC_KERNEL;
  if (n->kind == TD_NODE_MERGE) return make_merge(c, n, pn);
  if (td_str_is(n->def.op, "Switch")) pn->exec = TD_EXEC_SWITCH;
  if (td_str_is(n->def.op, "_Arg") || td_str_is(n->def.op, "_DeviceArg")) {
    pn->exec = TD_EXEC_ARG;
    return number_arg(c, n, pn, &c->p->arg_count);
  }
  if (td_str_is(n->def.op, "_Retval") || td_str_is(n->def.op, "_DeviceRetval")) {
    pn->exec = TD_EXEC_RETVAL;
    return number_arg(c, n, pn, &c->p->result_count);
  }
  if (kf & TD_KERNEL_NOTHING && !n->input_count && !n->output_count) {
    pn->exec = TD_EXEC_NOTHING;
  } else if (kf & TD_KERNEL_FORWARDS && n->input_count == 1 && n->output_count == 1) {
    pn->exec = TD_EXEC_FORWARD;
  } else if (kf & TD_KERNEL_CONSTANT && n->output_count == 1) {
    pn->exec = TD_EXEC_CONSTANT;
    pn->value = *(td_tensor **)k->state;
  }
  return TD_STATUS_OK;
}

/* "name" or "name:k", as the input would be written. */
static td_str input_name(td_arena *a, const td_edge *e) {
  const td_node *src = e->src;
  if (!e->src_slot) return td_arena_str(a, src->def.name);
  char *text = td_arena_printf(a, "%.*s:%d", TD_STR_ARG(src->def.name), e->src_slot);
  return td_str_of(text);
}

static td_status make_node(compiler *c, uint32_t at) {
  td_program *p = c->p;
  const td_node *n = c->nodes[at];
  td_pnode *pn = &p->nodes[at];
  td_pnode_info *info = &p->infos[at];
  td_pframe *frame = &p->frames[frame_of(c, n)];
  info->name = td_arena_str(&p->arena, n->def.name);
  info->label = label_of(c, n);
  if (c->function.size) {
    char *text = td_arena_printf(&p->arena, "{{function_node %.*s}}{{node %.*s}}", TD_STR_ARG(c->function),
                                 TD_STR_ARG(info->label));
    info->label = td_str_of(text);
  }
  info->frame = frame_of(c, n);
  pn->input_count = (uint32_t)n->input_count;
  pn->output_count = (uint32_t)n->output_count;
  p->max_outputs = TD_MAX(p->max_outputs, pn->output_count);
  pn->slot = frame->slot_count;
  frame->slot_count += pn->input_count;
  uint8_t *refs = NULL;
  td_str *names = NULL;
  for (int i = 0; i < n->input_count; i++) {
    const td_edge *e = n->in[i];
    if (!e) return td_invalid_argument("Incomplete graph, missing %d inputs for %.*s", 1, TD_STR_ARG(n->def.name));
    if (!td_dtype_is_ref(e->src->output_types[e->src_slot])) {
      if (td_dtype_is_ref(n->input_types[i]))
        return td_invalid_argument("Input %d of node %.*s was passed %s from %.*s:%d incompatible with expected %s.", i,
                                   TD_STR_ARG(n->def.name), td_dtype_name(e->src->output_types[e->src_slot]),
                                   TD_STR_ARG(e->src->def.name), e->src_slot, td_dtype_name(n->input_types[i]));
      continue;
    }
    if (!refs) {
      refs = td_arena_array(&p->arena, uint8_t, pn->input_count);
      names = td_arena_array(&p->arena, td_str, pn->input_count);
    }
    refs[i] = (uint8_t)(TD_IN_REF | (td_dtype_is_ref(n->input_types[i]) ? 0 : TD_IN_DEREF));
    names[i] = input_name(&p->arena, e);
  }
  pn->in_refs = refs;
  info->input_names = names;
  if (refs) pn->flags |= TD_PN_REFS;
  TD_TRY(bind_kernel(c, n, pn));
  return classify(c, n, pn);
}

/* ---- edges and pending counts ---- */

static td_status wrong_frame(const td_node *src, const td_node *dst) {
  if (src->kind == TD_NODE_EXIT) return td_invalid_argument("Invalid Exit op: Cannot find a corresponding Enter op.");
  return td_invalid_argument("{{node %.*s}} has inputs from different frames, one of them {{node %.*s}}.",
                             TD_STR_ARG(dst->def.name), TD_STR_ARG(src->def.name));
}

/* That an edge leads to the frame that its source sends to: the executor relies on it. */
static td_status check_frame(compiler *c, const td_node *src, td_pnode *ps, const td_node *dst, const td_pnode *pd) {
  const td_pframe *frames = c->p->frames;
  uint32_t from = info_of(c, ps)->frame, to = info_of(c, pd)->frame;
  switch (src->kind) {
    case TD_NODE_ENTER:
      if (ps->child_frame < 0) ps->child_frame = (int32_t)to;
      if (ps->child_frame != (int32_t)to || frames[to].parent != (int32_t)from) return wrong_frame(src, dst);
      return TD_STATUS_OK;
    case TD_NODE_EXIT:
      return frames[from].parent != (int32_t)to ? wrong_frame(src, dst) : TD_STATUS_OK;
    default:
      return from != to ? wrong_frame(src, dst) : TD_STATUS_OK;
  }
}

/* Kernels hear of inputs that never change. */
static void tell_constants(compiler *c, uint32_t at) {
  const td_pnode *pn = &c->p->nodes[at];
  if (pn->exec != TD_EXEC_CONSTANT) return;
  for (const td_edge *e = c->nodes[at]->out_edges; e; e = e->next_out) {
    const td_kernel *k = c->p->nodes[c->index_of[e->dst->id]].kernel;
    if (e->src_slot == 0 && k->def->learn_constant && !k->is_stateful)
      k->def->learn_constant(k->state, e->dst_slot, pn->value);
  }
}

static td_status make_edges(compiler *c, uint32_t at, uint32_t *next, int64_t *last) {
  td_program *p = c->p;
  const td_node *n = c->nodes[at];
  td_pnode *pn = &p->nodes[at];
  for (int i = 0; i < n->output_count; i++) last[i] = -1;
  pn->edge = *next;
  for (int control = 0; control < 2; control++) { /* data edges first */
    for (const td_edge *e = n->out_edges; e; e = e->next_out) {
      if ((e->src_slot == TD_CONTROL_SLOT) != control) continue;
      uint32_t dst = c->index_of[e->dst->id];
      td_pnode *pd = &p->nodes[dst];
      TD_TRY(check_frame(c, n, pn, e->dst, pd));
      td_pedge *pe = &p->edges[*next];
      *pe = (td_pedge){
          .dst = dst, .pend = dst - p->frames[p->infos[dst].frame].first, .flags = control ? TD_PE_CONTROL : 0};
      if (pd->exec == TD_EXEC_MERGE) pe->flags |= TD_PE_MERGE;
      if (!control) {
        pe->out = (uint16_t)e->src_slot;
        pe->slot = pd->slot + (uint32_t)e->dst_slot;
        if (td_dtype_is_ref(n->output_types[e->src_slot])) pe->flags |= TD_PE_REF;
        last[e->src_slot] = *next;
      }
      ++*next;
    }
  }
  pn->edge_count = *next - pn->edge;
  for (int i = 0; i < n->output_count; i++) {
    if (last[i] >= 0)
      p->edges[last[i]].flags |= TD_PE_LAST;
    else
      pn->flags |= TD_PN_UNUSED;
  }
  return TD_STATUS_OK;
}

static void count_special(td_program *p) {
  for (uint32_t i = 0; i < p->node_count; i++) {
    td_pnode *n = &p->nodes[i];
    td_pframe *own = &p->frames[p->infos[i].frame];
    if (n->flags & TD_PN_EXIT) own->exit_count++;
    if (n->flags & TD_PN_NEXT) own->next_count++;
    if (n->flags & TD_PN_ENTER && n->child_frame >= 0) {
      p->frames[n->child_frame].enter_count++;
      if (n->flags & TD_PN_INVARIANT) p->frames[n->child_frame].invariant_count++;
    }
  }
}

static uint32_t pending_of(const td_node *n) {
  uint32_t controls = 0, data = 0;
  for (const td_edge *e = n->in_edges; e; e = e->next_in) {
    if (e->dst_slot == TD_CONTROL_SLOT)
      controls++;
    else
      data++;
  }
  return n->kind == TD_NODE_MERGE ? 2 * controls + 1 : controls + data;
}

static td_status make_templates(compiler *c) {
  td_program *p = c->p;
  for (uint32_t f = 0; f < p->frame_count; f++) {
    td_pframe *frame = &p->frames[f];
    uint32_t *pending = td_arena_array(&p->arena, uint32_t, frame->count);
    uint32_t *roots = td_arena_array(&p->arena, uint32_t, f ? 0 : frame->count);
    uint8_t *refs = NULL;
    for (uint32_t i = 0; i < frame->count; i++) {
      const td_pnode *pn = &p->nodes[frame->first + i];
      const td_node *n = c->nodes[frame->first + i];
      pending[i] = pending_of(n);
      if (!n->in_edges && !f) roots[frame->root_count++] = frame->first + i;
      if (!pn->in_refs) continue;
      if (!refs) refs = td_arena_array(&p->arena, uint8_t, frame->slot_count);
      for (uint32_t k = 0; k < pn->input_count; k++) refs[pn->slot + k] = pn->in_refs[k] & TD_IN_REF;
    }
    frame->pending = pending;
    frame->slot_refs = refs;
    frame->roots = roots;
  }
  return TD_STATUS_OK;
}

/* Marks the nodes that have one node to tell. */
static void find_single_edges(td_program *p) {
  p->signals = td_arena_array(&p->arena, uint32_t, p->node_count);
  for (uint32_t i = 0; i < p->node_count; i++) {
    td_pnode *n = &p->nodes[i];
    p->signals[i] = (uint32_t)TD_NO_NODE;
    if (n->edge_count != 1 || n->flags & TD_PN_FRAME_CHANGE) continue;
    const td_pedge *e = &p->edges[n->edge];
    if (e->flags & TD_PE_MERGE) continue;
    n->flags |= TD_PN_ONE_EDGE;
    if (p->frames[p->infos[i].frame].pending[e->pend] == 1) n->flags |= TD_PN_SOLE_EDGE;
    n->next = e->dst;
    if (n->flags & TD_PN_SOLE_EDGE && n->exec == TD_EXEC_NOTHING) p->signals[i] = n->next;
  }
}

static td_status check_node(const compiler *c, const td_node *n) {
  if (n->kind == TD_NODE_EXIT && !frame_of(c, n))
    return td_invalid_argument("Invalid Exit op: Cannot find a corresponding Enter op.");
  if (n->kind == TD_NODE_NEXT_ITERATION && !frame_of(c, n))
    return td_invalid_argument("Invalid NextIteration op: Cannot find a corresponding Enter op.");
  return TD_STATUS_OK;
}

static td_status compile(compiler *c) {
  td_program *p = c->p;
  td_graph_read_late(c->g, &c->scratch);
  TD_TRY(find_frames(c));
  TD_TRY(order_nodes(c));
  size_t edges = 0;
  for (uint32_t i = 0; i < p->node_count; i++) {
    const td_node *n = c->nodes[i];
    if (n->kind == TD_NODE_SEND || n->kind == TD_NODE_RECV) p->has_transfers = true;
    td_status s = check_node(c, n);
    if (!s) s = make_node(c, i);
    if (!s && n->kind == TD_NODE_ENTER) {
      bool invariant = false;
      s = td_attr_bool(&n->def, "is_constant", &invariant);
      if (invariant) p->nodes[i].flags |= TD_PN_INVARIANT;
    }
    if (s) return at_node(c, n, s);
    for (const td_edge *e = n->out_edges; e; e = e->next_out) edges++;
  }
  if (p->node_count >= TD_PENDING_FIRED / 4 || edges >= TD_PENDING_FIRED / 4)
    return td_resource_exhausted("A graph of %u nodes and %zu edges is too large", p->node_count, edges);
  p->edge_count = (uint32_t)edges;
  p->edges = td_arena_array(&p->arena, td_pedge, edges);
  int64_t *last = td_arena_array(&c->scratch, int64_t, p->max_outputs + 1);
  uint32_t next = 0;
  for (uint32_t i = 0; i < p->node_count; i++) TD_TRY(at_node(c, c->nodes[i], make_edges(c, i, &next, last)));
  for (uint32_t i = 0; i < p->node_count; i++) tell_constants(c, i);
  count_special(p);
  TD_TRY(make_templates(c));
  find_single_edges(p);
  if (p->has_frames) td_walk_make_plans(p, &c->scratch);
  return TD_STATUS_OK;
}

td_status td_program_create_for(td_graph *g, const td_program_options *options, td_str function, td_program **out) {
  td_program *p = td_new(td_program);
  atomic_init(&p->refs, 1);
  pthread_mutex_init(&p->lock, NULL);
  p->device = td_device_retain(options->device);
  p->is_function = function.size;
  compiler c = {.p = p, .g = g, .options = options, .function = function};
  td_status status = compile(&c);
  td_arena_deinit(&c.scratch);
  if (status)
    td_program_release(p);
  else
    *out = p;
  return status;
}

td_status td_program_create(td_graph *g, const td_program_options *options, td_program **out) {
  return td_program_create_for(g, options, TD_STR(""), out);
}

td_program *td_program_retain(td_program *p) {
  atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
  return p;
}

void td_program_release(td_program *p) {
  /* acq_rel: the last owner sees what the others did */
  if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1) return;
  td_executor_free_spares(p);
  for (uint32_t i = 0; i < p->node_count; i++) {
    td_pnode *n = &p->nodes[i];
    td_tensor **indices = p->infos[i].merge_indices;
    for (uint32_t k = 0; indices && k < n->input_count; k++) td_tensor_release(indices[k]);
    td_kernel_release(n->kernel);
  }
  td_device_release(p->device);
  pthread_mutex_destroy(&p->lock);
  td_arena_deinit(&p->arena);
  td_free(p);
}

size_t td_program_node_count(const td_program *p) { return p->node_count; }
int td_program_arg_count(const td_program *p) { return p->arg_count; }
int td_program_result_count(const td_program *p) { return p->result_count; }
