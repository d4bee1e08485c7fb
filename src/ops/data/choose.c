/* Datasets that choose among others: DirectedInterleave (by the elements of a selector), ChooseFastest (all give the
 * same elements, so the first will do), Random (numbers without end), Unique. */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/random.h"
#include "ops/data/archive.h"
#include "ops/families.h"

/* ---- DirectedInterleave ---- */

typedef struct directed {
  td_dataset base; /* inputs: the selector, then those it selects from */
  bool stops_on_empty;
} directed;

typedef struct directed_iterator {
  td_iterator base;
  td_iterator **inputs; /* NULL: exhausted */
  int open, selected;   /* how many are not exhausted; 0: the selector is pulled */
  bool is_asked;
} directed_iterator;

static td_status directed_start(td_iterator *it) {
  directed_iterator *d = (directed_iterator *)it;
  d->inputs = td_new_array(td_iterator *, (size_t)it->dataset->input_count);
  for (int i = 0; i < it->dataset->input_count; i++) TD_TRY(td_iterator_create_input(it, i, &d->inputs[i]));
  d->open = it->dataset->input_count - 1;
  return TD_STATUS_OK;
}

static void directed_stop(td_iterator *it) {
  directed_iterator *d = (directed_iterator *)it;
  for (int i = 0; d->inputs && i < it->dataset->input_count; i++) td_iterator_destroy(d->inputs[i]);
  td_free(d->inputs);
}

static td_status read_selection(td_iterator *it, int *out) {
  td_element *e = td_iterator_take(((directed_iterator *)it)->inputs[0]);
  int64_t n = it->dataset->input_count - 1, value = -1;
  td_status s = TD_STATUS_OK;
  if (e->count != 1 || e->values[0]->dtype != TD_INT64 || e->values[0]->rank)
    s = td_invalid_argument("Selector dataset must produce scalars of type int64");
  else
    value = *TD_DATA(e->values[0], int64_t);
  if (!s && (value < 0 || value >= n))
    s = td_invalid_argument("Selector index out of range: %lld >= %lld", (long long)value, (long long)n);
  td_element_free(e);
  if (!s) *out = (int)value + 1;
  return s;
}

static td_next directed_advance(td_iterator *it) {
  directed_iterator *d = (directed_iterator *)it;
  for (;;) {
    if (!d->open) return td_iterator_give(it, NULL);
    if (!d->is_asked) {
      d->is_asked = true;
      return td_iterator_pull(it, d->inputs[d->selected]);
    }
    d->is_asked = false;
    td_iterator *from = d->inputs[d->selected];
    if (!d->selected) { /* the selector's */
      if (td_iterator_ended(from)) return td_iterator_pass(it, from);
      td_status s = read_selection(it, &d->selected);
      if (s) return td_iterator_fail(it, s);
      if (!d->inputs[d->selected]) d->selected = 0;
      continue;
    }
    int selected = d->selected;
    d->selected = 0;
    if (!td_iterator_ended(from) || from->status) return td_iterator_pass(it, from);
    td_iterator_destroy(from);
    d->inputs[selected] = NULL;
    d->open = ((const directed *)it->dataset)->stops_on_empty ? 0 : d->open - 1;
  }
}

static td_status directed_archive(td_iterator *it, td_archive *a) {
  directed_iterator *d = (directed_iterator *)it;
  int64_t open = d->open;
  TD_TRY(td_archive_int(a, &open, 0, it->dataset->input_count - 1));
  d->open = (int)open;
  for (int i = 0; i < it->dataset->input_count; i++) TD_TRY(td_archive_input(a, it, i, &d->inputs[i]));
  return d->inputs[0] ? TD_STATUS_OK : td_archive_invalid("a selector is missing");
}

static const td_dataset_ops directed_ops = {.name = "DirectedInterleave",
                                            .iterator_size = sizeof(directed_iterator),
                                            .start = directed_start,
                                            .advance = directed_advance,
                                            .stop = directed_stop,
                                            .archive = directed_archive};

typedef struct directed_kernel {
  td_dataset_kernel common; /* first */
  bool stops_on_empty;
} directed_kernel;

static td_status create_directed(td_kernel_builder *b, void *state) {
  TD_TRY(td_dataset_kernel_create(b, state));
  return td_attr_find(b->node, "stop_on_empty_dataset")
             ? td_attr_bool(b->node, "stop_on_empty_dataset", &((directed_kernel *)state)->stops_on_empty)
             : TD_STATUS_OK;
}

/* All inputs are datasets; all but the selector must be alike. */
static td_status in_datasets(td_kernel_ctx *ctx, int first, td_dataset ***out) {
  int n = ctx->kernel->input_count;
  td_dataset **all = td_new_array(td_dataset *, (size_t)n);
  td_status s = TD_STATUS_OK;
  for (int i = 0; i < n && !s; i++) {
    s = td_in_dataset(ctx, i, &all[i]);
    if (!s && i > first) s = td_data_spec_check(&all[first]->spec, &all[i]->spec);
  }
  if (s)
    td_free(all);
  else
    *out = all;
  return s;
}

static td_status compute_directed(td_kernel_ctx *ctx) {
  const directed_kernel *k = ctx->state;
  td_dataset **all, *d = NULL;
  TD_TRY(in_datasets(ctx, 1, &all));
  td_status s = td_dataset_create(&directed_ops, sizeof(directed), &k->common.spec, all, ctx->kernel->input_count, &d);
  td_free(all);
  if (!s) ((directed *)d)->stops_on_empty = k->stops_on_empty;
  return td_out_dataset(ctx, s, d);
}

static td_status compute_fastest(td_kernel_ctx *ctx) {
  td_dataset **all;
  TD_TRY(in_datasets(ctx, 0, &all));
  td_dataset *d = td_dataset_retain(all[0]);
  td_free(all);
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

/* ---- Random ---- */

typedef struct random_numbers {
  td_dataset base;
  uint64_t seed, seed2;
} random_numbers;

typedef struct random_iterator {
  td_iterator base;
  td_philox_words words;
} random_iterator;

static td_status random_start(td_iterator *it) {
  const random_numbers *d = (const random_numbers *)it->dataset;
  ((random_iterator *)it)->words = td_philox_words_of(td_philox_from_seeds(d->seed, d->seed2));
  return TD_STATUS_OK;
}

static td_next random_advance(td_iterator *it) {
  td_tensor *t;
  td_status s = td_tensor_create_dims(TD_INT64, 0, NULL, &t);
  if (s) return td_iterator_fail(it, s);
  *TD_DATA(t, int64_t) = td_philox_word(&((random_iterator *)it)->words);
  return td_iterator_give(it, td_element_of(1, &t));
}

static int64_t random_cardinality(const td_dataset *d) {
  (void)d;
  return TD_CARDINALITY_INFINITE;
}

static td_status random_archive(td_iterator *it, td_archive *a) {
  return td_archive_words(a, &((random_iterator *)it)->words);
}

static const td_dataset_ops random_ops = {.name = "Random",
                                          .iterator_size = sizeof(random_iterator),
                                          .start = random_start,
                                          .advance = random_advance,
                                          .archive = random_archive,
                                          .cardinality = random_cardinality};

static td_status compute_random(td_kernel_ctx *ctx) {
  int64_t seed, seed2;
  td_dataset *d;
  td_dtype type = TD_INT64;
  td_partial_shape scalar = {0};
  TD_TRY(td_in_int(ctx, 0, "seed", &seed));
  TD_TRY(td_in_int(ctx, 1, "seed2", &seed2));
  TD_TRY(td_dataset_create(&random_ops, sizeof(random_numbers), &(td_data_spec){1, &type, &scalar}, NULL, 0, &d));
  bool any = !seed && !seed2;
  ((random_numbers *)d)->seed = any ? td_random_u64_nonzero() : (uint64_t)seed;
  ((random_numbers *)d)->seed2 = any ? td_random_u64_nonzero() : (uint64_t)seed2;
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

/* ---- Unique: elements of one component that were not there before ---- */

typedef struct unique_iterator {
  td_iterator base;
  td_iterator *input;
  td_map seen; /* bytes -> themselves, own */
  bool is_asked;
} unique_iterator;

static td_status unique_start(td_iterator *it) {
  return td_iterator_create_input(it, 0, &((unique_iterator *)it)->input);
}

static void unique_stop(td_iterator *it) {
  unique_iterator *u = (unique_iterator *)it;
  void *bytes;
  for (size_t i = 0; td_map_next(&u->seen, &i, NULL, &bytes);) td_free(bytes);
  td_map_deinit(&u->seen);
  td_iterator_destroy(u->input);
}

/* What tells one element from another: its shape is left out, as in TensorFlow. */
static void identity(const td_tensor *t, td_strbuf *out) {
  if (t->dtype != TD_STRING) {
    td_strbuf_append(out, td_str_n(t->data, t->size));
    return;
  }
  for (int64_t i = 0; i < t->count; i++) {
    td_str s = td_string_view(TD_DATA(t, td_string) + i);
    td_strbuf_append(out, td_str_n(&s.size, sizeof s.size));
    td_strbuf_append(out, s);
  }
}

/* True: they are new. Takes them. */
static bool remember_bytes(unique_iterator *u, td_strbuf *bytes) {
  size_t size = bytes->size;
  char *own = td_strbuf_take(bytes);
  if (td_map_get(&u->seen, td_str_n(own, size))) {
    td_free(own);
    return false;
  }
  td_map_put(&u->seen, td_str_n(own, size), own);
  return true;
}

static bool remember(unique_iterator *u, const td_tensor *t) {
  td_strbuf bytes = {0};
  identity(t, &bytes);
  return remember_bytes(u, &bytes);
}

static td_next unique_advance(td_iterator *it) {
  unique_iterator *u = (unique_iterator *)it;
  if (u->is_asked) {
    u->is_asked = false;
    if (td_iterator_ended(u->input)) return td_iterator_pass(it, u->input);
    td_element *e = td_iterator_take(u->input);
    if (e->count == 1 && remember(u, e->values[0])) return td_iterator_give(it, e);
    td_element_free(e);
  }
  u->is_asked = true;
  return td_iterator_pull(it, u->input);
}

static td_status unique_archive(td_iterator *it, td_archive *a) {
  unique_iterator *u = (unique_iterator *)it;
  size_t count = u->seen.count, at = 0;
  td_str key;
  void *value;
  TD_TRY(td_archive_count(a, &count));
  for (size_t i = 0; i < count; i++) {
    td_strbuf bytes = {0};
    if (a->is_writing && td_map_next(&u->seen, &at, &key, &value)) td_strbuf_append(&bytes, key);
    td_status s = td_archive_bytes(a, &bytes);
    if (!s && !a->is_writing) remember_bytes(u, &bytes);
    td_strbuf_deinit(&bytes);
    if (s) return s;
  }
  return td_archive_input(a, it, 0, &u->input);
}

static const td_dataset_ops unique_ops = {.name = "Unique",
                                          .iterator_size = sizeof(unique_iterator),
                                          .start = unique_start,
                                          .advance = unique_advance,
                                          .stop = unique_stop,
                                          .archive = unique_archive};

static td_status compute_unique(td_kernel_ctx *ctx) {
  td_dataset *input, *d;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  if (input->spec.width != 1) return td_invalid_argument("UniqueDataset only supports inputs with a single component.");
  td_dtype type = input->spec.types[0];
  if (type != TD_INT32 && type != TD_INT64 && type != TD_STRING)
    return td_invalid_argument(
        "UniqueDataset only supports inputs with a single `tf.int32`, `tf.int64`, or `tf.string` component.");
  TD_TRY(td_dataset_create(&unique_ops, sizeof(td_dataset), &((td_dataset_kernel *)ctx->state)->spec, &input, 1, &d));
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

#define DIRECTED_IN "selector_input_dataset: variant; data_input_datasets: N * variant"
#define FASTEST     "N: int >= 2; num_experiments: int; " TD_DATASET_TYPES
#define RANDOM_IN   "seed: int64; seed2: int64"

static const td_op_spec ops[] = {
    {"ChooseFastestDataset", "input_datasets: N * variant", "handle: variant", FASTEST, 0},
    {"DirectedInterleaveDataset", DIRECTED_IN, "handle: variant",
     TD_DATASET_TYPES "; N: int >= 1; stop_on_empty_dataset: bool = false", 0},
    {"ExperimentalChooseFastestDataset", "input_datasets: N * variant", "handle: variant", FASTEST, 0},
    {"ExperimentalDirectedInterleaveDataset", DIRECTED_IN, "handle: variant", TD_DATASET_TYPES "; N: int >= 1", 0},
    {"ExperimentalRandomDataset", RANDOM_IN, "handle: variant", TD_DATASET_TYPES, TD_OP_STATEFUL},
    {"ExperimentalUniqueDataset", "input_dataset: variant", "handle: variant", TD_DATASET_TYPES, 0},
    {"RandomDataset", RANDOM_IN, "handle: variant", TD_DATASET_TYPES TD_DATASET_META, TD_OP_STATEFUL},
    {"UniqueDataset", "input_dataset: variant", "handle: variant", TD_DATASET_TYPES TD_DATASET_META, 0},
};

#define DIRECTED(name)                                                                                   \
  {                                                                                                      \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(directed_kernel), .create = create_directed, \
    .destroy = td_dataset_kernel_destroy, .compute = compute_directed                                    \
  }

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("ChooseFastestDataset", td_dataset_kernel_create, compute_fastest),
    DIRECTED("DirectedInterleaveDataset"),
    TD_DATASET_KERNEL("ExperimentalChooseFastestDataset", td_dataset_kernel_create, compute_fastest),
    DIRECTED("ExperimentalDirectedInterleaveDataset"),
    TD_DATASET_KERNEL("ExperimentalRandomDataset", td_dataset_kernel_create, compute_random),
    TD_DATASET_KERNEL("ExperimentalUniqueDataset", td_dataset_kernel_create, compute_unique),
    TD_DATASET_KERNEL("RandomDataset", td_dataset_kernel_create, compute_random),
    TD_DATASET_KERNEL("UniqueDataset", td_dataset_kernel_create, compute_unique),
};

TD_FAMILY(data_choose, ops, kernels);
