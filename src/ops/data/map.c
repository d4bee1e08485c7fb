/* Datasets that call a function for each element, one at a time: Map, Filter, TakeWhile, Scan. */
#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/families.h"

typedef struct mapped {
  td_dataset base;
  td_captured f;
  bool preserves_cardinality;
  td_element *initial; /* Scan's state at the start */
} mapped;

static void mapped_destroy(td_dataset *d) {
  td_captured_deinit(&((mapped *)d)->f);
  td_element_free(((mapped *)d)->initial);
}

typedef struct map_iterator {
  td_iterator base;
  td_iterator *input;
  td_data_call call;
  td_element *kept; /* Filter: the element that is judged; Scan: the state */
  enum { START, PULLED, CALLED } phase;
  bool is_over;
} map_iterator;

static td_status map_start(td_iterator *it) {
  const mapped *d = (const mapped *)it->dataset;
  if (d->initial) ((map_iterator *)it)->kept = td_element_copy(d->initial);
  return td_iterator_create_input(it, 0, &((map_iterator *)it)->input);
}

static void map_stop(td_iterator *it) {
  map_iterator *m = (map_iterator *)it;
  td_iterator_destroy(m->input);
  td_data_call_deinit(&m->call);
  td_element_free(m->kept);
}

static td_status map_archive(td_iterator *it, td_archive *a) {
  map_iterator *m = (map_iterator *)it;
  TD_TRY(td_archive_bool(a, &m->is_over));
  return td_archive_input(a, it, 0, &m->input);
}

/* ---- Map ---- */

static td_next map_advance(td_iterator *it) {
  map_iterator *m = (map_iterator *)it;
  const mapped *d = (const mapped *)it->dataset;
  td_status s;
  switch (m->phase) {
    case START:
      m->phase = PULLED;
      return td_iterator_pull(it, m->input);
    case PULLED:
      m->phase = START;
      if (td_iterator_ended(m->input)) return td_iterator_pass(it, m->input);
      m->phase = CALLED;
      if (td_iterator_call(it, &m->call, &d->f, td_iterator_take(m->input)) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
      break;
    case CALLED:
      break;
  }
  m->phase = START;
  td_element *e = td_data_call_take(&m->call, &s);
  return s ? td_iterator_call_failed(it, s, d->preserves_cardinality) : td_iterator_give(it, e);
}

static const td_dataset_ops map_ops = {.name = "Map",
                                       .iterator_size = sizeof(map_iterator),
                                       .start = map_start,
                                       .advance = map_advance,
                                       .stop = map_stop,
                                       .archive = map_archive,
                                       .destroy = mapped_destroy,
                                       .cardinality = td_dataset_input_cardinality};

/* ---- Filter, TakeWhile ---- */

/* Takes the call's outcome: 1 yes, 0 no, -1 failed with *status. */
static int verdict(td_data_call *call, const char *what, td_status *status) {
  td_element *e = td_data_call_take(call, status);
  int yes = -1;
  if (*status) return -1;
  if (e->count != 1 || e->values[0]->dtype != TD_BOOL || e->values[0]->count != 1)
    *status = td_invalid_argument("%s must return a scalar bool.", what);
  else
    yes = *TD_DATA(e->values[0], uint8_t) != 0;
  td_element_free(e);
  return yes;
}

/* Pulls an element and asks the predicate, which `what` names in errors: gives the element on a yes; a no frees it and
 * is told by *refused. */
static td_next judge(td_iterator *it, const char *what, bool *refused) {
  map_iterator *m = (map_iterator *)it;
  td_status s;
  *refused = false;
  if (m->phase == START) {
    m->phase = PULLED;
    return td_iterator_pull(it, m->input);
  }
  if (m->phase == PULLED) {
    m->phase = START;
    if (td_iterator_ended(m->input)) return td_iterator_pass(it, m->input);
    m->kept = td_iterator_take(m->input);
    m->phase = CALLED;
    td_element *args = td_element_copy(m->kept);
    if (td_iterator_call(it, &m->call, &((const mapped *)it->dataset)->f, args) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
  }
  m->phase = START;
  int yes = verdict(&m->call, what, &s);
  td_element *e = m->kept;
  m->kept = NULL;
  if (yes > 0) return td_iterator_give(it, e);
  td_element_free(e);
  if (yes < 0) return td_iterator_call_failed(it, s, false);
  *refused = true;
  return TD_NEXT_READY;
}

static td_next filter_advance(td_iterator *it) {
  for (;;) {
    bool refused;
    td_next next = judge(it, "Filter predicate `f`", &refused);
    if (!refused) return next;
  }
}

static const td_dataset_ops filter_ops = {.name = "Filter",
                                          .iterator_size = sizeof(map_iterator),
                                          .start = map_start,
                                          .advance = filter_advance,
                                          .stop = map_stop,
                                          .archive = map_archive,
                                          .destroy = mapped_destroy};

static td_next take_while_advance(td_iterator *it) {
  map_iterator *m = (map_iterator *)it;
  if (m->is_over) return td_iterator_give(it, NULL);
  td_next next = judge(it, "`predicate`", &m->is_over);
  return m->is_over ? td_iterator_give(it, NULL) : next;
}

static const td_dataset_ops take_while_ops = {.name = "TakeWhile",
                                              .iterator_size = sizeof(map_iterator),
                                              .start = map_start,
                                              .advance = take_while_advance,
                                              .stop = map_stop,
                                              .archive = map_archive,
                                              .destroy = mapped_destroy};

/* ---- Scan: the function takes state and element, and gives new state and output ---- */

static td_next scan_end(td_iterator *it) {
  map_iterator *m = (map_iterator *)it;
  const mapped *d = (const mapped *)it->dataset;
  td_status s;
  int states = d->initial->count, width = d->base.spec.width;
  td_element *all = td_data_call_take(&m->call, &s);
  if (s) return td_iterator_call_failed(it, s, d->preserves_cardinality);
  if (all->count != states + width) {
    s = td_invalid_argument("The scan function returned %d components, expected %d.", all->count, states + width);
    td_element_free(all);
    return td_iterator_fail(it, s);
  }
  for (int i = 0; i < states && !s; i++)
    if (all->values[i]->dtype != d->initial->values[i]->dtype)
      s = td_invalid_argument("Got wrong type for scan_func return value %d (expected %s, got %s).", i,
                              td_dtype_name(d->initial->values[i]->dtype), td_dtype_name(all->values[i]->dtype));
  if (s) {
    td_element_free(all);
    return td_iterator_fail(it, s);
  }
  td_element_free(m->kept);
  m->kept = td_element_of(states, all->values);
  td_element *e = td_element_of(width, all->values + states);
  td_free(all);
  return td_iterator_give(it, e);
}

static td_next scan_advance(td_iterator *it) {
  map_iterator *m = (map_iterator *)it;
  const mapped *d = (const mapped *)it->dataset;
  if (m->phase == START) {
    m->phase = PULLED;
    return td_iterator_pull(it, m->input);
  }
  if (m->phase == PULLED) {
    m->phase = START;
    if (td_iterator_ended(m->input)) return td_iterator_pass(it, m->input);
    td_element *x = td_iterator_take(m->input), *args = td_element_create(m->kept->count + x->count);
    for (int i = 0; i < m->kept->count; i++) args->values[i] = td_tensor_retain(m->kept->values[i]);
    for (int i = 0; i < x->count; i++) args->values[m->kept->count + i] = x->values[i];
    td_free(x);
    m->phase = CALLED;
    if (td_iterator_call(it, &m->call, &d->f, args) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
  }
  m->phase = START;
  return scan_end(it);
}

static td_status scan_archive(td_iterator *it, td_archive *a) {
  map_iterator *m = (map_iterator *)it;
  const td_element *initial = ((const mapped *)it->dataset)->initial;
  TD_TRY(td_archive_element(a, NULL, &m->kept));
  if (!m->kept || m->kept->count != initial->count) return td_archive_invalid("a scan's state has other parts");
  for (int i = 0; i < initial->count; i++)
    if (m->kept->values[i]->dtype != initial->values[i]->dtype)
      return td_archive_invalid("a scan's state has other types");
  return map_archive(it, a);
}

static int64_t scan_cardinality(const td_dataset *d) {
  return ((const mapped *)d)->preserves_cardinality ? td_dataset_input_cardinality(d) : TD_CARDINALITY_UNKNOWN;
}

static const td_dataset_ops scan_ops = {.name = "Scan",
                                        .iterator_size = sizeof(map_iterator),
                                        .start = map_start,
                                        .advance = scan_advance,
                                        .stop = map_stop,
                                        .archive = scan_archive,
                                        .destroy = mapped_destroy,
                                        .cardinality = scan_cardinality};

/* ---- kernels ---- */

typedef struct map_kernel {
  td_dataset_kernel common; /* first */
  bool preserves_cardinality;
  int state_begin, state_end; /* Scan: inputs */
} map_kernel;

static td_status create_map(td_kernel_builder *b, void *state) {
  TD_TRY(td_dataset_kernel_create_f(b, state));
  return td_attr_bool(b->node, "preserve_cardinality", &((map_kernel *)state)->preserves_cardinality);
}

static td_status create_scan(td_kernel_builder *b, void *state) {
  map_kernel *k = state;
  TD_TRY(create_map(b, state));
  return td_node_input_range(b->node, b->op, "initial_state", &k->state_begin, &k->state_end);
}

static td_status make(td_kernel_ctx *ctx, const td_dataset_ops *ops, mapped **out) {
  const td_dataset_kernel *k = ctx->state;
  td_dataset *input, *d;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_dataset_create(ops, sizeof(mapped), &k->spec, &input, 1, &d));
  *out = (mapped *)d;
  td_captured_init(&(*out)->f, ctx, 0);
  return TD_STATUS_OK;
}

static td_status compute_map(td_kernel_ctx *ctx) {
  mapped *d;
  TD_TRY(make(ctx, &map_ops, &d));
  d->preserves_cardinality = ((map_kernel *)ctx->state)->preserves_cardinality;
  return td_out_dataset(ctx, TD_STATUS_OK, &d->base);
}

static td_status compute_filter(td_kernel_ctx *ctx) {
  mapped *d;
  TD_TRY(make(ctx, &filter_ops, &d));
  return td_out_dataset(ctx, TD_STATUS_OK, &d->base);
}

static td_status compute_take_while(td_kernel_ctx *ctx) {
  mapped *d;
  TD_TRY(make(ctx, &take_while_ops, &d));
  return td_out_dataset(ctx, TD_STATUS_OK, &d->base);
}

static td_status compute_scan(td_kernel_ctx *ctx) {
  const map_kernel *k = ctx->state;
  mapped *d;
  TD_TRY(make(ctx, &scan_ops, &d));
  d->preserves_cardinality = k->preserves_cardinality;
  d->initial = td_element_create(k->state_end - k->state_begin);
  for (int i = 0; i < d->initial->count; i++) d->initial->values[i] = td_tensor_retain(td_in(ctx, k->state_begin + i));
  return td_out_dataset(ctx, TD_STATUS_OK, &d->base);
}

#define MAP_INPUTS "input_dataset: variant; other_arguments: Targuments"
#define MAP_ATTRS                                                                                           \
  "f: func; Targuments: list(type) >= 0; " TD_DATASET_TYPES                                                 \
  "; use_inter_op_parallelism: bool = true; preserve_cardinality: bool = false; force_synchronous: bool = " \
  "false" TD_DATASET_META
#define PREDICATE_ATTRS "predicate: func; Targuments: list(type) >= 0; " TD_DATASET_TYPES TD_DATASET_META
#define SCAN_INPUTS     "input_dataset: variant; initial_state: Tstate; other_arguments: Targuments"
#define SCAN_ATTRS                                                                   \
  "f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0; " TD_DATASET_TYPES \
  "; preserve_cardinality: bool = false; use_default_device: bool = true" TD_DATASET_META

static const td_op_spec ops[] = {
    {"ExperimentalMapDataset", MAP_INPUTS, "handle: variant", MAP_ATTRS, 0},
    {"ExperimentalScanDataset", SCAN_INPUTS, "handle: variant", SCAN_ATTRS, 0},
    {"ExperimentalTakeWhileDataset", MAP_INPUTS, "handle: variant", PREDICATE_ATTRS, 0},
    {"FilterDataset", MAP_INPUTS, "handle: variant", PREDICATE_ATTRS, 0},
    {"MapDataset", MAP_INPUTS, "handle: variant", MAP_ATTRS, 0},
    {"ParallelFilterDataset", MAP_INPUTS "; num_parallel_calls: int64", "handle: variant",
     "predicate: func; deterministic: string = 'default'; Targuments: list(type) >= 0; " TD_DATASET_TYPES
         TD_DATASET_META,
     0},
    {"ScanDataset", SCAN_INPUTS, "handle: variant", SCAN_ATTRS, 0},
    {"TakeWhileDataset", MAP_INPUTS, "handle: variant", PREDICATE_ATTRS, 0},
};

#define MAP_KERNEL(name, create_fn, compute_fn)                                               \
  {                                                                                           \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(map_kernel), .create = create_fn, \
    .destroy = td_dataset_kernel_destroy, .compute = compute_fn                               \
  }

static const td_kernel_def kernels[] = {
    MAP_KERNEL("ExperimentalMapDataset", create_map, compute_map),
    MAP_KERNEL("ExperimentalScanDataset", create_scan, compute_scan),
    TD_DATASET_KERNEL("ExperimentalTakeWhileDataset", td_dataset_kernel_create_predicate, compute_take_while),
    TD_DATASET_KERNEL("FilterDataset", td_dataset_kernel_create_predicate, compute_filter),
    MAP_KERNEL("MapDataset", create_map, compute_map),
    TD_DATASET_KERNEL("ParallelFilterDataset", td_dataset_kernel_create_predicate, compute_filter),
    MAP_KERNEL("ScanDataset", create_scan, compute_scan),
    TD_DATASET_KERNEL("TakeWhileDataset", td_dataset_kernel_create_predicate, compute_take_while),
};

TD_FAMILY(data_map, ops, kernels);
