#include "runtime/function_parts.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "framework/device.h"
#include "graph/partition.h"
#include "graph/place.h"
#include "runtime/program_internal.h"

/* ---- placing ---- */

/* Whether some node asks for another device than the call's. */
static bool spreads(const td_graph *g, const td_device *device) {
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node *n = g->nodes[i];
    td_device_name asked;
    if (n->is_removed || !n->def.device.size) continue;
    if (!td_device_name_parse(n->def.device, &asked) || !td_device_name_matches(&asked, &device->parsed)) return true;
  }
  return false;
}

static td_status place(td_graph *g, const td_device *device, const td_function_places *places) {
  td_arena arena = {0};
  size_t count = (size_t)places->device_count;
  td_place_device *devices = td_arena_array(&arena, td_place_device, count);
  for (size_t i = 0; i < count; i++) {
    const td_device *d = places->devices[i];
    devices[i] = (td_place_device){td_str_of(d->name), d->parsed, TD_STR("CPU"), d->incarnation};
  }
  for (size_t i = 0; i < g->node_count; i++)
    if (!g->nodes[i]->is_removed && !g->nodes[i]->def.device.size)
      g->nodes[i]->def.device = td_arena_str(&g->arena, td_str_of(device->name));
  td_place_options options = {.devices = devices,
                              .device_count = count,
                              .own_task_device = td_str_of(device->name),
                              .allow_soft_placement = true};
  td_status s = td_graph_place(g, &options);
  td_arena_deinit(&arena);
  return s;
}

static td_device *find_device(const td_function_places *places, td_str name) {
  for (int i = 0; i < places->device_count; i++)
    if (td_str_is(name, places->devices[i]->name)) return places->devices[i];
  return NULL;
}

static uint64_t incarnation_of(void *places, td_str device) {
  const td_device *d = find_device(places, device);
  return d ? d->incarnation : 0;
}

/* ---- compiling ---- */

static td_status add_program(td_function_parts *p, td_graph *g, td_str name, const td_program_options *options) {
  td_program *program;
  TD_TRY(td_program_create_for(g, options, name, &program));
  p->programs[p->count++] = program;
  p->has_transfers |= program->has_transfers;
  p->result_count = TD_MAX(p->result_count, program->result_count);
  return TD_STATUS_OK;
}

static td_status compile_spread(td_function_parts *p, td_graph *g, td_str name, const td_program_options *options,
                                const td_function_places *places) {
  td_partition *cut = NULL;
  size_t count = 0;
  int64_t suffix = 0;
  td_partition_options how = {
      .suffix = 'F', .next_suffix = &suffix, .incarnation = incarnation_of, .arg = (void *)places};
  td_status s = place(g, options->device, places);
  if (!s) s = td_graph_partition(g, &how, &cut, &count);
  p->programs = td_new_array(td_program *, count + 1);
  for (size_t i = 0; i < count && !s; i++) {
    td_program_options o = *options;
    o.device = find_device(places, cut[i].location);
    s = o.device ? add_program(p, cut[i].graph, name, &o)
                 : td_invalid_argument("%.*s unknown device.", TD_STR_ARG(cut[i].location));
  }
  td_partitions_free(cut, count);
  return s;
}

td_status td_function_parts_create(td_function_body *body, td_str name, const td_program_options *options,
                                   const td_function_places *places, td_function_parts *out) {
  td_function_parts p = {0};
  td_status s;
  if (places && spreads(body->graph, options->device)) {
    s = compile_spread(&p, body->graph, name, options, places);
  } else {
    p.programs = td_new_array(td_program *, 1);
    s = add_program(&p, body->graph, name, options);
  }
  if (s)
    td_function_parts_deinit(&p);
  else
    *out = p;
  return s;
}

void td_function_parts_deinit(td_function_parts *p) {
  for (size_t i = 0; i < p->count; i++) td_program_release(p->programs[i]);
  td_free(p->programs);
}

/* ---- running ---- */

typedef struct run {
  td_run_options o;
  atomic_size_t pending;
  pthread_mutex_t lock;
  td_status status; /* guarded by lock until pending is 0 */
  int count;
  td_tensor *results[]; /* each of one part */
} run;

static void part_done(void *arg, td_status status, td_tensor **results, int count) {
  run *r = arg;
  for (int i = 0; i < count; i++)
    if (results[i]) r->results[i] = results[i];
  if (status) {
    pthread_mutex_lock(&r->lock);
    td_status_merge(&r->status, status);
    pthread_mutex_unlock(&r->lock);
  }
  /* acq_rel: who comes last sees what the others stored */
  if (atomic_fetch_sub_explicit(&r->pending, 1, memory_order_acq_rel) != 1) return;
  for (int i = 0; i < r->count && r->status; i++) {
    td_tensor_release(r->results[i]);
    r->results[i] = NULL;
  }
  r->o.done(r->o.arg, r->status, r->results, r->count);
  pthread_mutex_destroy(&r->lock);
  td_free(r);
}

void td_function_parts_run(td_function_parts *p, const td_run_options *options) {
  if (p->count == 1) {
    td_executor_run(p->programs[0], options);
    return;
  }
  size_t size = sizeof(run) + (size_t)p->result_count * sizeof(td_tensor *);
  run *r = td_malloc(size);
  memset(r, 0, size);
  r->o = *options;
  r->count = p->result_count;
  pthread_mutex_init(&r->lock, NULL);
  size_t n = p->count;
  td_program **programs = p->programs;
  atomic_init(&r->pending, n + 1); /* one for this loop: `r` and the parts stay until it ends */
  td_run_options o = *options;
  o.done = part_done;
  o.arg = r;
  for (size_t i = 0; i < n; i++) td_executor_run(programs[i], &o);
  part_done(r, TD_STATUS_OK, NULL, 0);
}
