/* Bucketize: which of the intervals between sorted boundaries each number lies in. */
#include "base/mem.h"
#include "ops/families.h"

static const td_op_spec ops[] = {
    {"Bucketize", "input: T", "output: int32", "T: type in {int32, int64, float, double}; boundaries: list(float)", 0},
};

typedef struct bucketize_state {
  float *boundaries;
  int32_t count;
} bucketize_state;

static td_status bucketize_create(td_kernel_builder *b, void *state) {
  bucketize_state *st = state;
  const Pb__AttrValue__ListValue *list;
  TD_TRY(td_attr_list(b->node, "boundaries", &list));
  for (size_t i = 1; i < list->n_f; i++)
    if (!(list->f[i - 1] <= list->f[i])) return td_invalid_argument("Expected sorted boundaries");
  st->boundaries = td_new_array(float, list->n_f + 1);
  st->count = (int32_t)list->n_f;
  if (list->n_f) memcpy(st->boundaries, list->f, list->n_f * sizeof(float));
  return TD_STATUS_OK;
}

static void bucketize_destroy(void *state) { td_free(((bucketize_state *)state)->boundaries); }

/* How many boundaries are not above `x`: the first one that is, as TensorFlow's upper_bound finds it. Numbers are held
 * against float boundaries in the type that C's comparison of the two has. */
#define BUCKETS(type)                          \
  for (int64_t i = 0; i < x->count; i++) {     \
    type v = ((const type *)x->data)[i];       \
    int32_t low = 0, high = st->count;         \
    while (low < high) {                       \
      int32_t middle = low + (high - low) / 2; \
      if (v < st->boundaries[middle])          \
        high = middle;                         \
      else                                     \
        low = middle + 1;                      \
    }                                          \
    TD_DATA(z, int32_t)[i] = low;              \
  }

static td_status bucketize_compute(td_kernel_ctx *ctx) {
  const bucketize_state *st = ctx->state;
  td_tensor *x = td_in(ctx, 0), *z;
  TD_TRY(td_out_alloc_dims(ctx, 0, x->rank, x->dims, &z));
  switch ((int)x->dtype) {
    case TD_INT32:
      BUCKETS(int32_t) break;
    case TD_INT64:
      BUCKETS(int64_t) break;
    case TD_FLOAT:
      BUCKETS(float) break;
    default:
      BUCKETS(double) break;
  }
  return TD_STATUS_OK;
}

static const td_kernel_def kernels[] = {
    {.op = "Bucketize",
     .state_size = sizeof(bucketize_state),
     .create = bucketize_create,
     .destroy = bucketize_destroy,
     .compute = bucketize_compute},
};

TD_FAMILY(bucketize, ops, kernels);
