/* Colocation sets of the placer: union-find over nodes, with the constraints of each set at its root. */
#include "graph/colocation.h"

#include "base/log.h"
#include "base/mem.h"
#include "framework/kernel.h"
#include "graph/internal.h"

/* ---- specs ---- */

static bool asks_for_nothing(const td_device_name *n) {
  return !n->job[0] && !n->type[0] && n->replica < 0 && n->task < 0 && n->id < 0;
}

const td_place_spec *td_place_spec_of(td_placer *p, const td_device_name *name) {
  if (asks_for_nothing(name)) return NULL;
  char text[TD_DEVICE_NAME_MAX];
  td_device_name_format(name, text);
  td_place_spec *spec = td_map_get(&p->specs_by_text, td_str_of(text));
  if (spec) return spec;
  spec = td_arena_new(&p->arena, td_place_spec);
  spec->name = *name;
  spec->text = td_arena_str(&p->arena, td_str_of(text));
  td_map_put(&p->specs_by_text, spec->text, spec);
  return spec;
}

const td_place_spec *td_place_spec_of_device(td_placer *p, int device) {
  if (!p->device_specs[device]) p->device_specs[device] = td_place_spec_of(p, &p->sorted[device]->parsed);
  return p->device_specs[device];
}

bool td_place_spec_parse(td_placer *p, td_str text, const td_place_spec **out) {
  *out = NULL;
  if (!text.size) return true;
  td_place_spec *known = td_map_get(&p->specs_by_text, text);
  if (known) {
    *out = known == &p->anything ? NULL : known;
    return true;
  }
  td_device_name name;
  if (!td_device_name_parse(text, &name)) return false;
  *out = td_place_spec_of(p, &name);
  if (!td_map_get(&p->specs_by_text, text)) td_map_put(&p->specs_by_text, text, *out ? (void *)*out : &p->anything);
  return true;
}

static td_str text_of(const td_place_spec *s) { return s ? s->text : TD_STR(""); }

static td_status merge(td_placer *p, const td_place_spec *a, const td_place_spec *b, bool soft,
                       const td_place_spec **out) {
  *out = a ? a : b;
  if (!a || !b || a == b) return TD_STATUS_OK;
  td_device_name name = a->name;
  TD_TRY(td_device_name_merge(&name, &b->name, soft));
  *out = td_place_spec_of(p, &name);
  return TD_STATUS_OK;
}

static bool compatible(td_placer *p, const td_place_spec *a, const td_place_spec *b) {
  const td_place_spec *merged;
  td_status s = merge(p, a, b, false, &merged);
  bool ok = !s;
  td_status_free(s);
  return ok;
}

/* `s` with every part that `wins` has replaced by that. */
static const td_place_spec * override(td_placer *p, const td_place_spec *s, const td_place_spec *wins) {
  if (!s || !wins || s == wins) return wins ? wins : s;
  td_device_name name = wins->name;
  const td_device_name *rest = &s->name;
  if (!name.job[0]) memcpy(name.job, rest->job, sizeof name.job);
  if (!name.type[0]) memcpy(name.type, rest->type, sizeof name.type);
  if (name.replica < 0) name.replica = rest->replica;
  if (name.task < 0) name.task = rest->task;
  if (name.id < 0) name.id = rest->id;
  return td_place_spec_of(p, &name);
}

/* ---- single nodes ---- */

static uint32_t type_bit(const td_placer *p, const char *type) {
  for (int i = 0; i < p->type_count; i++)
    if (td_str_is(p->types[i], type)) return 1u << i;
  return 0;
}

static bool is_elsewhere(const td_placer *p, const td_place_spec *s) {
  if (!s) return false;
  const td_device_name *a = &p->own, *b = &s->name;
  return (a->job[0] && b->job[0] && strcmp(a->job, b->job)) ||
         (a->replica >= 0 && b->replica >= 0 && a->replica != b->replica) ||
         (a->task >= 0 && b->task >= 0 && a->task != b->task);
}

/* Types of devices that can run `n`. Only the own kernels are known, and those are for CPUs: a node that asks for
 * another type by name is believed. */
static uint32_t supported_types(const td_placer *p, const td_node *n, const td_place_spec *asked) {
  if (!td_op_find(n->def.op)) return p->all_types; /* a function of the library */
  uint32_t types = td_kernel_find(&n->def, TD_STR("CPU")) ? p->cpu : 0;
  if (asked && asked->name.type[0] && !td_str_is(TD_STR("CPU"), asked->name.type))
    types |= type_bit(p, asked->name.type);
  if (types || td_kernel_any_for_op(n->def.op) || !is_elsewhere(p, asked)) return types;
  return asked->name.type[0] ? type_bit(p, asked->name.type) : p->all_types;
}

static td_status no_kernel(const td_placer *p, const td_node *n) {
  td_strbuf attrs = {0}, devices = {0};
  for (size_t i = 0; i < n->def.attr_count && i < 50; i++) {
    const td_attr *a = &n->def.attrs[i];
    td_strbuf_printf(&attrs, "%s%.*s", attrs.size ? ", " : "", TD_STR_ARG(a->name));
    if (a->value->value_case == PB__ATTR_VALUE__VALUE_TYPE)
      td_strbuf_printf(&attrs, "=DT_%s", td_dtype_name(a->value->type));
    if (a->value->value_case == PB__ATTR_VALUE__VALUE_I) td_strbuf_printf(&attrs, "=%lld", (long long)a->value->i);
  }
  for (int i = 0; i < p->type_count; i++) td_strbuf_printf(&devices, "%s%.*s", i ? ", " : "", TD_STR_ARG(p->types[i]));
  td_status s = td_invalid_argument(
      "No OpKernel was registered to support Op '%.*s' used by {{node %.*s}}with these attrs: [%s]\nRegistered "
      "devices: "
      "[%s]\nRegistered kernels:\n%s",
      TD_STR_ARG(n->def.op), TD_STR_ARG(n->def.name), td_strbuf_cstr(&attrs), td_strbuf_cstr(&devices),
      td_kernel_any_for_op(n->def.op) ? "  device='CPU', for other types\n" : "  <no registered kernels>\n");
  td_strbuf_deinit(&attrs);
  td_strbuf_deinit(&devices);
  return s;
}

static td_status init_assigned(td_placer *p, const td_node *n, td_place_member *m) {
  const td_place_device **device = td_map_get(&p->device_index, n->device);
  if (!device) return td_internal("Assigned device '%.*s' does not match any device.", TD_STR_ARG(n->device));
  int index = (int)(device - p->sorted);
  p->device_of[n->id] = index;
  m->types |= 1u << p->type_of[index];
  m->assigned = m->requested = td_place_spec_of_device(p, index);
  return TD_STATUS_OK;
}

/* Nodes that make a ref or a handle: what they ask for binds the users of it too. */
static bool makes_resource(const td_node *n) {
  return n->input_count == 0 && n->output_count == 1 &&
         (td_dtype_is_ref(n->output_types[0]) || n->output_types[0] == TD_RESOURCE);
}

static td_status init_member(td_placer *p, const td_node *n) {
  td_place_member *m = &p->members[n->id];
  const td_place_spec *asked;
  *m = (td_place_member){.parent = n->id};
  if (!td_place_spec_parse(p, n->def.device, &asked))
    return td_invalid_argument("Malformed device specification '%.*s' in node: {{node %.*s}}",
                               TD_STR_ARG(n->def.device), TD_STR_ARG(n->def.name));
  m->types = supported_types(p, n, asked);
  if (n->device.size) return init_assigned(p, n, m);
  if (!m->types) return no_kernel(p, n);
  m->requested = asked;
  if (makes_resource(n)) m->resource = asked;
  return TD_STATUS_OK;
}

/* ---- joining sets ---- */

int td_place_root(td_placer *p, int node) {
  int root = node;
  while (p->members[root].parent != root) root = p->members[root].parent;
  while (p->members[node].parent != root) {
    int next = p->members[node].parent;
    p->members[node].parent = root;
    node = next;
  }
  return root;
}

void td_place_describe(td_placer *p, int root, td_strbuf *out) {
  enum { MOST = 50 };
  size_t members = 0;
  td_strbuf_puts(out,
                 "\nColocation Debug Info:\nColocation members, user-requested devices, and framework assigned "
                 "devices, if any:");
  for (size_t i = 0; i < p->g->node_count; i++) {
    const td_node *n = p->g->nodes[i];
    if (n->is_removed || td_place_root(p, n->id) != root || ++members > MOST) continue;
    td_strbuf_printf(out, "\n  %.*s (%.*s) %.*s", TD_STR_ARG(n->def.name), TD_STR_ARG(n->def.op),
                     TD_STR_ARG(n->def.device));
    if (n->device.size) td_strbuf_printf(out, " framework assigned device=%.*s", TD_STR_ARG(n->device));
  }
  if (members > MOST) td_strbuf_printf(out, "\n  and %zu more", members - MOST);
  td_strbuf_puts(out, "\n");
}

static td_status no_common_type(td_placer *p, const td_node *x, const td_node *y) {
  td_strbuf info = {0};
  td_place_describe(p, td_place_root(p, x->id), &info);
  td_place_describe(p, td_place_root(p, y->id), &info);
  td_status s = td_invalid_argument(
      "Cannot colocate nodes {{colocation_node %.*s}} and {{colocation_node %.*s}} because no device type supports "
      "both of "
      "those nodes and the other nodes colocated with them.%s",
      TD_STR_ARG(x->def.name), TD_STR_ARG(y->def.name), td_strbuf_cstr(&info));
  td_strbuf_deinit(&info);
  return s;
}

static td_status merge_devices(td_placer *p, const td_place_member *into, const td_place_member *from,
                               td_place_member *out) {
  *out = *into;
  TD_TRY(merge(p, into->assigned, from->assigned, false, &out->assigned));
  TD_TRY(merge(p, into->resource, from->resource, false, &out->resource));
  TD_TRY(merge(p, into->requested, from->requested, p->options->allow_soft_placement, &out->requested));
  out->requested = override(p, override(p, out->requested, out->assigned), out->resource);
  return TD_STATUS_OK;
}

static td_status join(td_placer *p, const td_node *x, const td_node *y) {
  int a = td_place_root(p, x->id), b = td_place_root(p, y->id);
  if (a == b) return TD_STATUS_OK;
  if (p->members[a].rank < p->members[b].rank) {
    int swap = a;
    a = b;
    b = swap;
  }
  td_place_member merged;
  td_status s = merge_devices(p, &p->members[a], &p->members[b], &merged);
  if (s)
    return td_status_prepend(s, "Cannot colocate nodes {{colocation_node %.*s}} and {{colocation_node %.*s}}: ",
                             TD_STR_ARG(x->def.name), TD_STR_ARG(y->def.name));
  merged.types &= p->members[b].types;
  if (!merged.types) return no_common_type(p, x, y);
  if (merged.rank == p->members[b].rank) merged.rank++;
  p->members[a] = merged;
  p->members[b].parent = a;
  return TD_STATUS_OK;
}

/* Ops that hand resources on to where they belong instead of using them. */
static bool is_exempt(const td_node *n) {
  static const char *const names[] = {
      "DeleteMultiDeviceIterator",
      "ExperimentalGroupByReducerDataset",
      "ExperimentalGroupByWindowDataset",
      "ExperimentalMapAndBatchDataset",
      "ExperimentalMapDataset",
      "ExperimentalParallelInterleaveDataset",
      "ExperimentalScanDataset",
      "ExperimentalTakeWhileDataset",
      "FilterDataset",
      "FlatMapDataset",
      "GeneratorDataset",
      "GroupByReducerDataset",
      "GroupByWindowDataset",
      "IdentityN",
      "InterleaveDataset",
      "LegacyParallelInterleaveDatasetV2",
      "MapAndBatchDataset",
      "MapDataset",
      "ParallelFilterDataset",
      "ParallelInterleaveDataset",
      "ParallelInterleaveDatasetV2",
      "ParallelInterleaveDatasetV3",
      "ParallelInterleaveDatasetV4",
      "ParallelMapDataset",
      "ParallelMapDatasetV2",
      "PartitionedCall",
      "ReduceDataset",
      "ScanDataset",
      "StatefulPartitionedCall",
      "TakeWhileDataset",
  };
  size_t low = 0, high = TD_COUNT(names);
  while (low < high) {
    size_t middle = (low + high) / 2;
    int c = td_str_cmp(n->def.op, td_str_of(names[middle]));
    if (!c) return true;
    if (c < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return false;
}

static td_status incompatible_edge(const char *what, const td_place_spec *a, const td_place_spec *b, const td_node *src,
                                   const td_node *dst) {
  return td_invalid_argument(
      "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible %s "
      "devices: %.*s vs %.*s. The edge src node is %.*s , and the dst node is %.*s",
      what, TD_STR_ARG(text_of(a)), TD_STR_ARG(text_of(b)), TD_STR_ARG(src->def.name), TD_STR_ARG(dst->def.name));
}

/* The owner of a ref or resource decides where its user goes. */
static td_status join_edge(td_placer *p, const td_node *src, const td_node *dst) {
  const td_place_member *s = &p->members[td_place_root(p, src->id)];
  td_place_member *d = &p->members[td_place_root(p, dst->id)];
  if (s == d) return TD_STATUS_OK;
  if (!compatible(p, s->assigned, d->assigned))
    return incompatible_edge("assigned", s->assigned, d->assigned, src, dst);
  if (!compatible(p, s->resource, d->resource))
    return incompatible_edge("resource", s->resource, d->resource, src, dst);
  if (!compatible(p, s->requested, d->requested)) {
    if (p->options->log_placement)
      td_info(
          "Ignoring device specification %.*s for node '%.*s' because the input edge from '%.*s' is a reference "
          "connection and already has a device field set to %.*s",
          TD_STR_ARG(text_of(d->requested)), TD_STR_ARG(dst->def.name), TD_STR_ARG(src->def.name),
          TD_STR_ARG(text_of(s->requested)));
    d->requested = override(p, override(p, s->requested, d->assigned), d->resource);
  }
  td_status status = join(p, src, dst);
  if (!status) return TD_STATUS_OK;
  status =
      td_status_prepend(status,
                        "Nodes were connected by a reference connection (requiring them to be on the same device), "
                        "but the two nodes were assigned two different devices: ");
  return td_graph_attach(status, dst->def.name);
}

static td_status join_edges(td_placer *p) {
  for (size_t i = 0; i < p->g->node_count; i++) {
    const td_node *dst = p->g->nodes[i];
    if (dst->is_removed) continue;
    int exempt = -1;
    for (int k = 0; k < dst->input_count; k++) {
      int type = dst->input_types[k];
      if (!dst->in[k] || (type != TD_RESOURCE && !td_dtype_is_ref(type))) continue;
      if (exempt < 0) exempt = is_exempt(dst);
      if (!exempt) TD_TRY(join_edge(p, dst->in[k]->src, dst));
    }
  }
  return TD_STATUS_OK;
}

static td_status join_group(td_placer *p, td_map *groups, td_node *n, td_str group) {
  td_node *first = td_map_insert(groups, group, n);
  if (!first) return TD_STATUS_OK;
  td_status s = join(p, n, first);
  if (!s || !p->options->allow_soft_placement) return td_graph_attach(s, n->def.name);
  if (p->options->log_placement)
    td_info(
        "Ignoring request to colocate node '%.*s' with nodes in colocation group '%.*s' because soft placement is on "
        "and an attempt at doing so resulted in the following error: %s",
        TD_STR_ARG(n->def.name), TD_STR_ARG(group), td_status_message(s));
  td_status_free(s);
  return TD_STATUS_OK;
}

static td_status join_groups(td_placer *p) {
  td_map groups = {0};
  td_status status = TD_STATUS_OK;
  td_map_reserve(&groups, p->g->node_count);
  for (size_t i = 0; i < p->g->node_count && !status; i++) {
    td_node *n = p->g->nodes[i];
    if (n->is_removed) continue;
    bool has_group = false;
    const Pb__AttrValue *v = td_attr_find(&n->def, "_class");
    if (v && v->value_case == PB__ATTR_VALUE__VALUE_LIST) {
      for (size_t k = 0; k < v->list->n_s && !status; k++) {
        td_str group = td_str_n(v->list->s[k].data, v->list->s[k].len);
        if (!td_str_starts(group, TD_STR("loc:@"))) continue;
        has_group = true;
        status = join_group(p, &groups, n, td_str_n(group.data + 5, group.size - 5));
      }
    }
    if (!has_group && !status) status = join_group(p, &groups, n, n->def.name);
  }
  td_map_deinit(&groups);
  return status;
}

td_status td_place_colocate(td_placer *p) {
  for (size_t i = 0; i < p->g->node_count; i++) {
    const td_node *n = p->g->nodes[i];
    if (n->is_removed) continue;
    td_status s = init_member(p, n);
    if (s) return td_graph_attach(s, n->def.name);
  }
  TD_TRY(join_edges(p));
  return join_groups(p);
}
