/* Shuffle, ShuffleAndRepeat: a buffer that gives a random one of its elements, on TensorFlow's random streams. */
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "base/random.h"
#include "framework/device.h"
#include "ops/data/archive.h"
#include "ops/families.h"

/* Where each iterator over a dataset gets its seeds from: always the same ones, or new ones of a seeded stream. */
typedef struct seeds {
  td_resource resource;
  int64_t seed, seed2;
  bool renews;
  pthread_mutex_t lock;
  td_philox_words stream; /* guarded by lock */
} seeds;

static void seeds_destroy(td_resource *r) {
  pthread_mutex_destroy(&((seeds *)r)->lock);
  td_free(r);
}

static const td_resource_type seeds_type = {.name = "N10tensorflow4data19RandomSeedGeneratorE",
                                            .destroy = seeds_destroy};

static seeds *seeds_create(int64_t seed, int64_t seed2, bool renews) {
  seeds *s = td_new(seeds);
  td_resource_init(&s->resource, &seeds_type);
  if (!seed && !seed2) {
    seed = (int64_t)td_random_u64_nonzero();
    seed2 = (int64_t)td_random_u64_nonzero();
  }
  s->seed = seed;
  s->seed2 = seed2;
  s->renews = renews;
  s->stream = td_philox_words_of(td_philox_from_seeds((uint64_t)seed, (uint64_t)seed2));
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

static td_philox_words seeds_next(seeds *s) {
  uint64_t seed = (uint64_t)s->seed, seed2 = (uint64_t)s->seed2;
  if (s->renews) {
    pthread_mutex_lock(&s->lock);
    seed = td_philox_word(&s->stream);
    seed2 = td_philox_word(&s->stream);
    pthread_mutex_unlock(&s->lock);
  }
  return td_philox_words_of(td_philox_from_seeds(seed, seed2));
}

/* ---- the dataset ---- */

typedef struct shuffled {
  td_dataset base;
  int64_t size, epochs; /* -1: for ever */
  seeds *seeds;         /* retained */
} shuffled;

/* Elements of one epoch: [begin, end) of a count that goes on over all of them; element k lies at k modulo the size.
 * Those of an earlier epoch are given before those of a later one. */
typedef struct epoch {
  int64_t begin, end;
} epoch;

typedef struct shuffle_iterator {
  td_iterator base;
  td_iterator *input; /* NULL: no more */
  td_philox_words random;
  td_element **buffer; /* [allocated] */
  int64_t allocated, count;
  epoch *epochs;
  size_t first, epoch_count, epoch_capacity; /* of `epochs` */
  int64_t epochs_done;
  bool is_asked, is_first, is_started;
} shuffle_iterator;

static void shuffled_destroy(td_dataset *d) { td_resource_release(((shuffled *)d)->seeds); }

static void add_epoch(shuffle_iterator *s, int64_t at) {
  TD_GROW(s->epochs, s->epoch_count, s->epoch_capacity);
  s->epochs[s->epoch_count++] = (epoch){at, at};
}

static td_status shuffle_start(td_iterator *it) {
  shuffle_iterator *s = (shuffle_iterator *)it;
  s->random = seeds_next(((shuffled *)it->dataset)->seeds);
  s->is_first = true;
  add_epoch(s, 0);
  return TD_STATUS_OK;
}

static void shuffle_stop(td_iterator *it) {
  shuffle_iterator *s = (shuffle_iterator *)it;
  for (int64_t i = 0; i < s->allocated; i++) td_element_free(s->buffer[i]);
  td_free(s->buffer);
  td_free(s->epochs);
  td_iterator_destroy(s->input);
}

/* The place of element `k`. The buffer grows up to the dataset's size while nothing has been taken out. */
static td_element **place(shuffle_iterator *s, int64_t size, int64_t k) {
  if (k % size >= s->allocated) {
    int64_t n = TD_MIN(TD_MAX(s->allocated * 2, TD_MAX(k % size + 1, 16)), size);
    s->buffer = td_realloc(s->buffer, (size_t)n * sizeof *s->buffer);
    while (s->allocated < n) s->buffer[s->allocated++] = NULL;
  }
  return &s->buffer[k % size];
}

/* The input has ended: goes on to its next epoch. False: that was all. */
static bool next_epoch(td_iterator *it, td_status *status) {
  shuffle_iterator *s = (shuffle_iterator *)it;
  const shuffled *d = (const shuffled *)it->dataset;
  td_iterator_destroy(s->input);
  s->input = NULL;
  bool is_empty = s->is_first && d->epochs < 0; /* for ever over nothing */
  s->epochs_done++;
  if (is_empty || (d->epochs >= 0 && s->epochs_done >= d->epochs)) return false;
  add_epoch(s, s->epochs[s->epoch_count - 1].end);
  *status = td_iterator_create_input(it, 0, &s->input);
  return true;
}

static td_next give_one(td_iterator *it) {
  shuffle_iterator *s = (shuffle_iterator *)it;
  int64_t size = ((const shuffled *)it->dataset)->size;
  if (!s->count) return td_iterator_give(it, NULL);
  while (s->epochs[s->first].begin == s->epochs[s->first].end) {
    s->first++;
    s->random = seeds_next(((shuffled *)it->dataset)->seeds); /* as since 2.x; 1.x went on with one stream */
  }
  if (s->first > 64) { /* those that are over */
    s->epoch_count -= s->first;
    memmove(s->epochs, s->epochs + s->first, s->epoch_count * sizeof *s->epochs);
    s->first = 0;
  }
  epoch *e = &s->epochs[s->first];
  int64_t offset = td_philox_word(&s->random) % (e->end - e->begin);
  td_element **from = place(s, size, e->begin + offset), **head = place(s, size, e->begin);
  td_element *chosen = *from;
  *from = *head;
  *head = NULL;
  e->begin++;
  s->count--;
  return td_iterator_give(it, chosen);
}

static td_next shuffle_advance(td_iterator *it) {
  shuffle_iterator *s = (shuffle_iterator *)it;
  const shuffled *d = (const shuffled *)it->dataset;
  td_status status = NULL;
  if (!s->is_started) {
    s->is_started = true;
    if (d->epochs) status = td_iterator_create_input(it, 0, &s->input);
    if (status) return td_iterator_fail(it, status);
  }
  if (s->is_asked) {
    s->is_asked = false;
    if (s->input->status) return td_iterator_pass(it, s->input);
    if (!td_iterator_ended(s->input)) {
      epoch *e = &s->epochs[s->epoch_count - 1];
      *place(s, d->size, e->end++) = td_iterator_take(s->input);
      s->count++;
      s->is_first = false;
    } else if (next_epoch(it, &status) && status) {
      return td_iterator_fail(it, status);
    }
  }
  if (s->input && s->count < d->size) {
    s->is_asked = true;
    return td_iterator_pull(it, s->input);
  }
  return give_one(it);
}

/* Where seeds come from goes on, too: the iterators that come after this one shall be shuffled as without the break. */
static td_status archive_seeds(seeds *from, td_archive *a) {
  pthread_mutex_lock(&from->lock);
  td_philox_words stream = from->stream;
  int64_t seed = from->seed, seed2 = from->seed2;
  pthread_mutex_unlock(&from->lock);
  TD_TRY(td_archive_int(a, &seed, INT64_MIN, INT64_MAX));
  TD_TRY(td_archive_int(a, &seed2, INT64_MIN, INT64_MAX));
  TD_TRY(td_archive_words(a, &stream));
  if (a->is_writing) return TD_STATUS_OK;
  pthread_mutex_lock(&from->lock);
  from->seed = seed;
  from->seed2 = seed2;
  from->stream = stream;
  pthread_mutex_unlock(&from->lock);
  return TD_STATUS_OK;
}

/* One epoch's elements; they begin at `at` when they are read. */
static td_status archive_epoch(td_iterator *it, td_archive *a, epoch *e, int64_t at) {
  shuffle_iterator *s = (shuffle_iterator *)it;
  int64_t size = ((const shuffled *)it->dataset)->size;
  size_t n = (size_t)(e->end - e->begin);
  TD_TRY(td_archive_count(a, &n));
  if (a->is_writing) at = e->begin;
  if (!a->is_writing && (int64_t)n > size - s->count)
    return td_archive_invalid("a shuffle buffer has too many elements");
  for (size_t i = 0; i < n; i++) {
    td_element **to = place(s, size, at + (int64_t)i);
    TD_TRY(td_archive_element(a, &it->dataset->spec, to));
    if (!*to) return td_archive_invalid("an element is missing");
  }
  *e = (epoch){at, at + (int64_t)n};
  if (!a->is_writing) s->count += (int64_t)n;
  return TD_STATUS_OK;
}

static td_status shuffle_archive(td_iterator *it, td_archive *a) {
  shuffle_iterator *s = (shuffle_iterator *)it;
  size_t epochs = s->epoch_count - s->first;
  TD_TRY(archive_seeds(((shuffled *)it->dataset)->seeds, a));
  TD_TRY(td_archive_words(a, &s->random));
  TD_TRY(td_archive_int(a, &s->epochs_done, 0, INT64_MAX));
  TD_TRY(td_archive_bool(a, &s->is_first));
  TD_TRY(td_archive_bool(a, &s->is_started));
  TD_TRY(td_archive_input(a, it, 0, &s->input));
  TD_TRY(td_archive_count(a, &epochs));
  if (!epochs) return td_archive_invalid("a shuffle has no epoch");
  if (!a->is_writing) s->epoch_count = s->first = 0;
  for (size_t i = 0; i < epochs; i++) {
    int64_t at = !a->is_writing && i ? s->epochs[i - 1].end : 0;
    if (!a->is_writing) add_epoch(s, at);
    TD_TRY(archive_epoch(it, a, &s->epochs[s->first + i], at));
  }
  return TD_STATUS_OK;
}

static int64_t shuffle_cardinality(const td_dataset *base) {
  int64_t n = td_dataset_input_cardinality(base), epochs = ((const shuffled *)base)->epochs, all;
  if (epochs == 1) return n;
  if (!epochs || !n) return 0;
  if (epochs < 0) return TD_CARDINALITY_INFINITE;
  if (n < 0) return n;
  return __builtin_mul_overflow(n, epochs, &all) ? TD_CARDINALITY_INFINITE : all;
}

#define SHUFFLED(label)                                                                                               \
  {                                                                                                                   \
    .name = label, .iterator_size = sizeof(shuffle_iterator), .start = shuffle_start, .advance = shuffle_advance,     \
    .stop = shuffle_stop, .archive = shuffle_archive, .destroy = shuffled_destroy, .cardinality = shuffle_cardinality \
  }
static const td_dataset_ops shuffle_ops = SHUFFLED("Shuffle"), repeat_ops = SHUFFLED("ShuffleAndRepeat");

/* ---- kernels ---- */

typedef struct shuffle_kernel {
  td_dataset_kernel common; /* first */
  bool renews;
} shuffle_kernel;

static td_status create(td_kernel_builder *b, void *state) {
  shuffle_kernel *k = state;
  TD_TRY(td_dataset_kernel_create(b, state));
  k->renews = true;
  return td_attr_find(b->node, "reshuffle_each_iteration")
             ? td_attr_bool(b->node, "reshuffle_each_iteration", &k->renews)
             : TD_STATUS_OK;
}

/* Takes `from`. */
static td_status make(td_kernel_ctx *ctx, const td_dataset_ops *ops, int64_t epochs, seeds *from) {
  td_dataset *input, *d = NULL;
  int64_t size = 0;
  td_status s = td_in_dataset(ctx, 0, &input);
  if (!s) s = td_in_int(ctx, 1, "buffer_size", &size);
  if (!s && size <= 0) s = td_invalid_argument("buffer_size must be greater than zero.");
  if (!s) s = td_dataset_create(ops, sizeof(shuffled), &((td_dataset_kernel *)ctx->state)->spec, &input, 1, &d);
  if (s) {
    td_resource_release(from);
    return s;
  }
  ((shuffled *)d)->size = size;
  ((shuffled *)d)->epochs = epochs;
  ((shuffled *)d)->seeds = from;
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static td_status in_seeds(td_kernel_ctx *ctx, int at, seeds **out) {
  int64_t seed, seed2;
  TD_TRY(td_in_int(ctx, at, "seed", &seed));
  TD_TRY(td_in_int(ctx, at + 1, "seed2", &seed2));
  *out = seeds_create(seed, seed2, ((shuffle_kernel *)ctx->state)->renews);
  return TD_STATUS_OK;
}

/* A generator's handle, or one without a resource behind it (then NULL). */
static td_status find_seeds(td_kernel_ctx *ctx, int at, seeds **out) {
  td_resource_handle *h;
  void *found;
  *out = NULL;
  TD_TRY(td_handle_of(td_in(ctx, at), ctx->device, &h));
  if (td_str_is(td_str_of(h->name), "dummy")) return TD_STATUS_OK;
  TD_TRY(td_handle_lookup(td_in(ctx, at), ctx->device, &seeds_type, &found));
  *out = found;
  return TD_STATUS_OK;
}

static td_status compute_shuffle(td_kernel_ctx *ctx) {
  seeds *s;
  TD_TRY(in_seeds(ctx, 2, &s));
  return make(ctx, &shuffle_ops, 1, s);
}

static td_status compute_shuffle_v2(td_kernel_ctx *ctx) {
  seeds *s;
  TD_TRY(find_seeds(ctx, 2, &s));
  return make(ctx, &shuffle_ops, 1, s ? s : seeds_create(0, 0, true));
}

static td_status compute_shuffle_v3(td_kernel_ctx *ctx) {
  seeds *s;
  TD_TRY(find_seeds(ctx, 4, &s));
  if (!s) TD_TRY(in_seeds(ctx, 2, &s));
  return make(ctx, &shuffle_ops, 1, s);
}

static td_status compute_repeat(td_kernel_ctx *ctx) {
  int64_t count;
  seeds *s;
  TD_TRY(td_in_int(ctx, 4, "count", &count));
  if (!count || count < -1) return td_invalid_argument("count must be greater than zero or equal to -1.");
  TD_TRY(in_seeds(ctx, 2, &s));
  return make(ctx, &repeat_ops, count, s);
}

static td_status compute_generator(td_kernel_ctx *ctx) {
  static _Atomic uint64_t next; /* relaxed: numbers only have to differ */
  int64_t seed, seed2;
  bool renews = true;
  TD_TRY(td_in_int(ctx, 0, "seed", &seed));
  TD_TRY(td_in_int(ctx, 1, "seed2", &seed2));
  if (ctx->kernel->input_count > 2) TD_TRY(td_in_bool(ctx, 2, "reshuffle", &renews));
  char *name = td_asprintf("AnonymousRandomSeedGenerator%llu",
                           (unsigned long long)atomic_fetch_add_explicit(&next, 1, memory_order_relaxed));
  seeds *s = seeds_create(seed, seed2, renews);
  td_tensor *handle = NULL, *deleter = NULL;
  td_status status = td_resource_add(ctx->device->resources, TD_STR(""), td_str_of(name), &s->resource);
  if (!status) status = td_handle_create(ctx->device, TD_STR(""), td_str_of(name), &seeds_type, &handle);
  if (!status) td_out_set(ctx, 0, handle);
  if (!status) status = td_tensor_create_dims(TD_VARIANT, 0, NULL, &deleter);
  if (!status) td_out_set(ctx, 1, deleter);
  td_resource_release(s);
  td_free(name);
  return status;
}

static td_status compute_dummy(td_kernel_ctx *ctx) {
  td_tensor *handle;
  TD_TRY(td_handle_create(ctx->device, TD_STR(""), TD_STR("dummy"), &seeds_type, &handle));
  td_out_set(ctx, 0, handle);
  return TD_STATUS_OK;
}

static td_status compute_delete(td_kernel_ctx *ctx) {
  td_resource_handle *h;
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  return td_resource_delete(ctx->device->resources, td_str_of(h->container), td_str_of(h->name), &seeds_type);
}

#define RENEWS "reshuffle_each_iteration: bool = true; " TD_DATASET_TYPES TD_DATASET_META
#define SEEDED "input_dataset: variant; buffer_size: int64; seed: int64; seed2: int64"

static const td_op_spec ops[] = {
    {"AnonymousRandomSeedGenerator", "seed: int64; seed2: int64", "handle: resource; deleter: variant", NULL,
     TD_OP_STATEFUL},
    {"AnonymousSeedGenerator", "seed: int64; seed2: int64; reshuffle: bool", "handle: resource; deleter: variant", NULL,
     TD_OP_STATEFUL},
    {"DeleteRandomSeedGenerator", "handle: resource; deleter: variant", NULL, NULL, TD_OP_STATEFUL},
    {"DeleteSeedGenerator", "handle: resource; deleter: variant", NULL, NULL, TD_OP_STATEFUL},
    {"DummySeedGenerator", NULL, "handle: resource", NULL, TD_OP_STATEFUL},
    {"ShuffleAndRepeatDataset", SEEDED "; count: int64", "handle: variant", RENEWS, 0},
    {"ShuffleDataset", SEEDED, "handle: variant", RENEWS, 0},
    {"ShuffleDatasetV2", "input_dataset: variant; buffer_size: int64; seed_generator: resource", "handle: variant",
     TD_DATASET_TYPES TD_DATASET_META, TD_OP_STATEFUL},
    {"ShuffleDatasetV3", SEEDED "; seed_generator: resource", "handle: variant", RENEWS, TD_OP_STATEFUL},
};

#define KERNEL(name, fn)                                                                       \
  {                                                                                            \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(shuffle_kernel), .create = create, \
    .destroy = td_dataset_kernel_destroy, .compute = fn                                        \
  }
#define PLAIN(name, fn) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    PLAIN("AnonymousRandomSeedGenerator", compute_generator),
    PLAIN("AnonymousSeedGenerator", compute_generator),
    PLAIN("DeleteRandomSeedGenerator", compute_delete),
    PLAIN("DeleteSeedGenerator", compute_delete),
    PLAIN("DummySeedGenerator", compute_dummy),
    KERNEL("ShuffleAndRepeatDataset", compute_repeat),
    KERNEL("ShuffleDataset", compute_shuffle),
    KERNEL("ShuffleDatasetV2", compute_shuffle_v2),
    KERNEL("ShuffleDatasetV3", compute_shuffle_v3),
};

TD_FAMILY(data_shuffle, ops, kernels);
