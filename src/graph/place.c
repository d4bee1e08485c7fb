/* The placer: one pass over the nodes in graph order, generators last. */
#include "graph/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "graph/colocation.h"
#include "graph/internal.h"

/* ---- devices ---- */

static int by_name(const void *a, const void *b) {
  const td_place_device *x = *(const td_place_device *const *)a, *y = *(const td_place_device *const *)b;
  return td_str_cmp(x->name, y->name);
}

static int type_number(td_placer *p, td_str type) {
  int i = 0;
  while (i < p->type_count && !td_str_eq(p->types[i], type)) i++;
  if (i < p->type_count) return i;
  if (p->type_count == TD_PLACE_MAX_TYPES) return TD_PLACE_MAX_TYPES - 1; /* more kinds than anybody has: one bucket */
  p->types[p->type_count] = type;
  return p->type_count++;
}

static td_status init(td_placer *p) {
  size_t n = p->options->device_count, nodes = p->g->node_count;
  if (!n) return td_failed_precondition("No devices are registered");
  p->type_count = 1;
  p->types[0] = TD_STR("CPU");
  p->cpu = 1;
  p->sorted = td_arena_array(&p->arena, const td_place_device *, n);
  p->type_of = td_arena_array(&p->arena, int, n);
  for (size_t i = 0; i < n; i++) p->sorted[i] = &p->options->devices[i];
  qsort(p->sorted, n, sizeof *p->sorted, by_name);
  for (size_t i = 0; i < n; i++) {
    p->type_of[i] = type_number(p, p->sorted[i]->type);
    p->all_types |= 1u << p->type_of[i];
    td_map_put(&p->device_index, p->sorted[i]->name, &p->sorted[i]);
  }
  if (!p->options->own_task_device.size || !td_device_name_parse(p->options->own_task_device, &p->own))
    p->own = (td_device_name){.replica = -1, .task = -1, .id = -1};
  p->device_specs = td_arena_array(&p->arena, const td_place_spec *, n);
  p->members = td_arena_array(&p->arena, td_place_member, nodes);
  p->device_of = td_arena_array(&p->arena, int, nodes);
  for (size_t i = 0; i < nodes; i++) p->device_of[i] = -1;
  return TD_STATUS_OK;
}

/* ---- candidates ---- */

static bool has_type(const td_place_spec *spec) { return spec && spec->name.type[0]; }

static const td_place_choice *choose(td_placer *p, const td_place_spec *spec, uint32_t types) {
  if (!has_type(spec)) types &= p->cpu; /* other types only when asked for by name */
  td_place_spec *at = spec ? (td_place_spec *)spec : &p->anything;
  for (const td_place_choice *c = at->choices; c; c = c->next)
    if (c->types == types) return c;
  td_place_choice *c = td_arena_new(&p->arena, td_place_choice);
  c->types = types;
  c->devices = td_arena_array(&p->arena, int, p->options->device_count);
  for (size_t i = 0; i < p->options->device_count; i++) {
    if (!(types >> p->type_of[i] & 1)) continue;
    if (spec && !td_device_name_matches(&spec->name, &p->sorted[i]->parsed)) continue;
    c->devices[c->count++] = (int)i;
  }
  c->next = at->choices;
  at->choices = c;
  return c;
}

static bool is_candidate(const td_place_choice *c, int device) {
  if (device < 0) return false;
  int low = 0, high = c->count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (c->devices[middle] < device)
      low = middle + 1;
    else
      high = middle;
  }
  return low < c->count && c->devices[low] == device;
}

/* What is asked for without type and id, unless something that must not move has fixed them. */
static const td_place_spec *softened(td_placer *p, const td_place_member *m, bool keep_resource) {
  td_device_name name = m->requested->name;
  const td_place_spec *resource = keep_resource ? m->resource : NULL;
  if (!has_type(m->assigned) && !has_type(resource)) name.type[0] = '\0';
  if (!(m->assigned && m->assigned->name.id >= 0) && !(resource && resource->name.id >= 0)) name.id = -1;
  return td_place_spec_of(p, &name);
}

static const td_place_choice *choose_softly(td_placer *p, const td_node *n, const td_place_member *m) {
  const td_place_choice *c = choose(p, softened(p, m, true), m->types);
  if (c->count) return c;
  c = choose(p, softened(p, m, false), m->types);
  if (c->count)
    td_warn("Failed to place the graph without changing the devices of some resources; first met at node '%.*s'",
            TD_STR_ARG(n->def.name));
  return c;
}

/* ---- failures ---- */

static void list_devices(const td_placer *p, td_strbuf *out) {
  for (size_t i = 0; i < p->options->device_count && i < 1000; i++)
    td_strbuf_printf(out, "%s%.*s", i ? ", " : "", TD_STR_ARG(p->sorted[i]->name));
}

static td_status no_device(td_placer *p, const td_node *n, int root) {
  const td_place_member *m = &p->members[root];
  td_str asked_text = n->def.device;
  const td_place_spec *asked;
  td_strbuf devices = {0}, info = {0};
  td_status s;
  list_devices(p, &devices);
  td_place_describe(p, root, &info);
  bool own_request = td_place_spec_parse(p, asked_text, &asked) && asked && asked == m->requested;
  if (!m->requested) {
    s = td_invalid_argument(
        "Node had no OpKernel registered to support this operation: Operation was %.*s and inputs were [...].\n%s",
        TD_STR_ARG(n->def.op), td_strbuf_cstr(&info));
  } else if (!own_request) {
    s = td_invalid_argument(
        "Could not satisfy explicit device specification '%.*s' because the node {{colocation_node %.*s}} was "
        "colocated "
        "with a group of nodes that required incompatible device '%.*s'. All available devices [%s]. %s",
        TD_STR_ARG(asked_text), TD_STR_ARG(n->def.name), TD_STR_ARG(m->requested->text), td_strbuf_cstr(&devices),
        td_strbuf_cstr(&info));
  } else if (!choose(p, asked, p->all_types)->count) {
    s = td_invalid_argument(
        "{{node %.*s}} was explicitly assigned to %.*s but available devices are [ %s ]. Make sure the device "
        "specification refers to a valid device.%s",
        TD_STR_ARG(n->def.name), TD_STR_ARG(asked_text), td_strbuf_cstr(&devices),
        strcasecmp(asked->name.type, "gpu") ? ""
                                            : " The requested device appears to be a GPU, but CUDA is not enabled.");
  } else if (has_type(asked)) {
    s = td_invalid_argument(
        "Could not satisfy explicit device specification '%.*s' because no supported kernel for %s devices is "
        "available.%s\nOp: %.*s\nRegistered kernels:\n  device='CPU'\n",
        TD_STR_ARG(asked_text), asked->name.type, td_strbuf_cstr(&info), TD_STR_ARG(n->def.op));
  } else {
    s = td_invalid_argument("Could not satisfy explicit device specification '%.*s%s", TD_STR_ARG(asked_text),
                            td_strbuf_cstr(&info));
  }
  td_strbuf_deinit(&devices);
  td_strbuf_deinit(&info);
  s = td_status_prepend(s, "Cannot assign a device for operation %.*s: ", TD_STR_ARG(n->def.name));
  return td_graph_attach(s, n->def.name);
}

/* ---- decisions ---- */

static td_status candidates(td_placer *p, const td_node *n, const td_place_choice **out) {
  int root = td_place_root(p, n->id);
  td_place_member *m = &p->members[root];
  if (!m->choice) {
    m->choice = choose(p, m->requested, m->types);
    if (!m->choice->count && m->requested && p->options->allow_soft_placement) m->choice = choose_softly(p, n, m);
    if (!m->choice->count) {
      m->choice = NULL;
      return no_device(p, n, root);
    }
  }
  *out = m->choice;
  return TD_STATUS_OK;
}

/* From now on the whole set of `n` is bound to this device. */
static void assign(td_placer *p, const td_node *n, int device) {
  td_place_member *m = &p->members[td_place_root(p, n->id)];
  p->device_of[n->id] = device;
  m->assigned = m->requested = td_place_spec_of_device(p, device);
  if (m->resource) m->resource = m->assigned;
  m->types |= 1u << p->type_of[device];
  m->choice = NULL;
}

static bool is_metadata(const td_node *n) {
  return td_str_is(n->def.op, "Shape") || td_str_is(n->def.op, "Size") || td_str_is(n->def.op, "Rank");
}

/* The device on which all consumers sit; -1: there is none. */
static int consumers_device(const td_placer *p, const td_node *n) {
  if (!n->out_edges) return -1;
  int device = p->device_of[n->out_edges->dst->id];
  for (const td_edge *e = n->out_edges; e; e = e->next_out)
    if (p->device_of[e->dst->id] != device) return -1;
  return device;
}

/* TensorFlow inlines calls, so that what a body does with a resource happens where that is. Here the call goes there.
 */
static int resource_device(td_placer *p, const td_node *n) {
  if (!td_str_is(n->def.op, "PartitionedCall") && !td_str_is(n->def.op, "StatefulPartitionedCall")) return -1;
  for (int k = 0; k < n->input_count; k++) {
    const td_place_choice *c = NULL;
    if (n->input_types[k] != TD_RESOURCE || !n->in[k]) continue;
    const td_node *owner = n->in[k]->src;
    if (p->device_of[owner->id] >= 0) return p->device_of[owner->id];
    td_status_free(candidates(p, owner, &c)); /* an error is reported when its turn comes */
    return c ? c->devices[0] : -1;
  }
  return -1;
}

static td_status decide(td_placer *p, const td_node *n) {
  const td_place_choice *c = NULL;
  int device = -1;
  TD_TRY(candidates(p, n, &c));
  if (td_node_is_generator(n))
    device = consumers_device(p, n);
  else if (is_metadata(n) && n->in_edges)
    device = p->device_of[n->in_edges->src->id];
  else
    device = resource_device(p, n);
  assign(p, n, is_candidate(c, device) ? device : c->devices[0]);
  return TD_STATUS_OK;
}

static td_status place(td_placer *p) {
  td_graph *g = p->g;
  TD_TRY(init(p));
  TD_TRY(td_place_colocate(p));
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    if (n->is_removed) continue;
    if (p->device_of[i] >= 0)
      assign(p, n, p->device_of[i]);
    else if (!td_node_is_generator(n))
      TD_TRY(decide(p, n));
  }
  for (size_t i = 0; i < g->node_count; i++)
    if (!g->nodes[i]->is_removed && p->device_of[i] < 0) TD_TRY(decide(p, g->nodes[i]));
  return TD_STATUS_OK;
}

/* Writes the decisions into the graph. */
static void commit(td_placer *p) {
  td_graph *g = p->g;
  td_str *names = td_arena_array(&p->arena, td_str, p->options->device_count);
  for (size_t i = 0; i < g->node_count; i++) {
    td_node *n = g->nodes[i];
    if (n->is_removed) continue;
    int d = p->device_of[i];
    if (!n->device.size) {
      if (!names[d].data) names[d] = td_arena_str(&g->arena, p->sorted[d]->name);
      n->device = names[d];
    }
    if (!p->options->log_placement) continue;
    printf("%.*s: (%.*s): %.*s\n", TD_STR_ARG(n->def.name), TD_STR_ARG(n->def.op), TD_STR_ARG(n->device));
    td_info("%.*s: (%.*s): %.*s", TD_STR_ARG(n->def.name), TD_STR_ARG(n->def.op), TD_STR_ARG(n->device));
  }
}

td_status td_graph_place(td_graph *g, const td_place_options *options) {
  td_placer p = {.g = g, .options = options};
  td_status status = place(&p);
  if (!status) commit(&p);
  td_map_deinit(&p.device_index);
  td_map_deinit(&p.specs_by_text);
  td_arena_deinit(&p.arena);
  return status;
}
