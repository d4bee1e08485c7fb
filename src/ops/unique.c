/* Equal elements found by hashing: Unique, UniqueV2, UniqueWithCounts(V2), ListDiff. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "tensor/number.h"

/* ---- items: slices of a tensor along one dimension ---- */

/* Item i is made of elements (o * n + i) * inner + k for all o < outer, k < inner. */
typedef struct items {
  const td_tensor *t;
  int64_t outer, n, inner;
} items;

static uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

static uint64_t float_bits(double v) { /* equal numbers, equal bits: -0 is 0 */
  uint64_t u;
  v += 0.0;
  memcpy(&u, &v, sizeof u);
  return u;
}

static uint64_t element_hash(const td_tensor *t, int64_t i) {
  switch (t->dtype) {
    case TD_STRING: {
      td_str s = td_string_view(TD_DATA(t, td_string) + i);
      return td_hash(s.data, s.size);
    }
    case TD_FLOAT:
    case TD_DOUBLE:
    case TD_HALF:
    case TD_BFLOAT16:
      return float_bits(td_tensor_real_at(t, i));
    case TD_COMPLEX64:
      return mix(float_bits(TD_DATA(t, float)[2 * i])) + float_bits(TD_DATA(t, float)[2 * i + 1]);
    case TD_COMPLEX128:
      return mix(float_bits(TD_DATA(t, double)[2 * i])) + float_bits(TD_DATA(t, double)[2 * i + 1]);
    default:
      return (uint64_t)td_tensor_integer_at(t, i);
  }
}

static bool element_eq(const td_tensor *a, int64_t i, const td_tensor *b, int64_t j) {
  switch (a->dtype) {
    case TD_STRING:
      return td_str_eq(td_string_view(TD_DATA(a, td_string) + i), td_string_view(TD_DATA(b, td_string) + j));
    case TD_FLOAT:
    case TD_DOUBLE:
    case TD_HALF:
    case TD_BFLOAT16:
      return td_tensor_real_at(a, i) == td_tensor_real_at(b, j);
    case TD_COMPLEX64:
      return TD_DATA(a, float)[2 * i] == TD_DATA(b, float)[2 * j] &&
             TD_DATA(a, float)[2 * i + 1] == TD_DATA(b, float)[2 * j + 1];
    case TD_COMPLEX128:
      return TD_DATA(a, double)[2 * i] == TD_DATA(b, double)[2 * j] &&
             TD_DATA(a, double)[2 * i + 1] == TD_DATA(b, double)[2 * j + 1];
    default:
      return td_tensor_integer_at(a, i) == td_tensor_integer_at(b, j);
  }
}

static uint64_t item_hash(const items *s, int64_t i) {
  uint64_t h = 0;
  if (s->outer == 1 && s->inner == 1) return mix(element_hash(s->t, i));
  for (int64_t o = 0; o < s->outer; o++) {
    int64_t first = (o * s->n + i) * s->inner;
    for (int64_t k = 0; k < s->inner; k++) h = mix(h ^ element_hash(s->t, first + k));
  }
  return h;
}

static bool item_eq(const items *a, int64_t i, const items *b, int64_t j) {
  for (int64_t o = 0; o < a->outer; o++) {
    int64_t first = (o * a->n + i) * a->inner, second = (o * b->n + j) * b->inner;
    for (int64_t k = 0; k < a->inner; k++)
      if (!element_eq(a->t, first + k, b->t, second + k)) return false;
  }
  return true;
}

/* ---- a hash set of items ---- */

typedef struct slot {
  uint64_t hash;
  int64_t item; /* of `of`; -1: free */
  int64_t id;   /* its number among the distinct ones */
} slot;

typedef struct item_set {
  const items *of;
  slot *slots;
  uint64_t mask;
  int64_t count;
} item_set;

/* The slot of item `i` of `from`, whose hash is given, or the free one where it would stand. */
static slot *set_find(const item_set *s, const items *from, int64_t i, uint64_t hash) {
  uint64_t at = hash & s->mask;
  for (; s->slots[at].item >= 0; at = (at + 1) & s->mask)
    if (s->slots[at].hash == hash && item_eq(s->of, s->slots[at].item, from, i)) break;
  return s->slots + at;
}

/* Makes room for one more: a table grows with what is distinct, not with what comes in. Starts an empty set too. */
static td_status set_reserve(item_set *s) {
  uint64_t capacity = s->slots ? s->mask + 1 : 0;
  if ((uint64_t)s->count * 2 < capacity) return TD_STATUS_OK;
  slot *old = s->slots;
  uint64_t bigger = capacity ? capacity * 4 : 64;
  slot *slots = td_try_malloc(bigger * sizeof *slots);
  if (!slots) return td_resource_exhausted("OOM when hashing %lld elements", (long long)s->of->n);
  for (uint64_t i = 0; i < bigger; i++) slots[i].item = -1;
  s->slots = slots;
  s->mask = bigger - 1;
  for (uint64_t i = 0; i < capacity; i++) {
    if (old[i].item < 0) continue;
    uint64_t at = old[i].hash & s->mask; /* all distinct: no need to compare */
    while (slots[at].item >= 0) at = (at + 1) & s->mask;
    slots[at] = old[i];
  }
  td_free(old);
  return TD_STATUS_OK;
}

/* Adds item `i` of the set's items if it is new; *id: its number. */
static inline td_status set_add(item_set *s, int64_t i, int64_t *id) {
  TD_TRY(set_reserve(s));
  uint64_t hash = item_hash(s->of, i);
  slot *at = set_find(s, s->of, i, hash);
  if (at->item < 0) *at = (slot){.hash = hash, .item = i, .id = s->count++};
  *id = at->id;
  return TD_STATUS_OK;
}

/* ---- Unique ---- */

static void put_int(td_tensor *t, int64_t i, int64_t v) {
  if (t->dtype == TD_INT64) {
    TD_DATA(t, int64_t)[i] = v;
  } else {
    TD_DATA(t, int32_t)[i] = (int32_t)v;
  }
}

/* The same for integers in one dimension (row numbers of tables, mostly). A slot holds an element's number and half of
 * its hash; the top bits of that half place it. Multiplying by an odd number loses nothing, so that 32-bit elements
 * with equal hashes are equal; of 64-bit ones the first is looked at. */
typedef struct int_slot {
  uint32_t id; /* + 1; 0: free */
  uint32_t hash;
} int_slot;

typedef struct int_table {
  int_slot *slots;
  int bits; /* of the capacity */
  uint32_t count;
} int_table;

static td_status grow_ints(int_table *t, int bits) {
  int_slot *s = td_try_malloc(sizeof *s << bits);
  if (!s) return td_resource_exhausted("OOM when hashing %u elements", t->count);
  memset(s, 0, sizeof *s << bits);
  uint32_t mask = (uint32_t)((UINT64_C(1) << bits) - 1);
  for (uint64_t i = 0; t->slots && i < UINT64_C(1) << t->bits; i++) {
    if (!t->slots[i].id) continue;
    uint32_t at = t->slots[i].hash >> (32 - bits);
    while (s[at].id) at = (at + 1) & mask;
    s[at] = t->slots[i];
  }
  td_free(t->slots);
  t->slots = s;
  t->bits = bits;
  return TD_STATUS_OK;
}

/* A table of few elements is made large enough at once, a larger one grows with what is distinct; at most a third of it
 * is taken. Inlined: one copy for each width. */
__attribute__((always_inline)) static inline td_status number_ints(const td_tensor *t, bool wide, td_tensor *idx,
                                                                   td_tensor *firsts, int64_t *distinct) {
  enum { AT_ONCE = 1 << 13, MAX_BITS = 32 };
  int_table table = {0};
  int bits = 6;
  while (1 << bits < 3 * TD_MIN(t->count, (int64_t)AT_ONCE)) bits++;
  TD_TRY(grow_ints(&table, bits));
  int64_t *first = TD_DATA(firsts, int64_t);
  td_status status = TD_STATUS_OK;
  for (int64_t i = 0; i < t->count; i++) {
    if (table.bits < MAX_BITS && (uint64_t)table.count * 3 >> table.bits)
      TD_TRY_GOTO(grow_ints(&table, TD_MIN(table.bits + 2, (int)MAX_BITS)));
    int64_t key = wide ? TD_DATA(t, int64_t)[i] : TD_DATA(t, int32_t)[i];
    uint32_t hash = wide ? (uint32_t)mix((uint64_t)key) : (uint32_t)key * UINT32_C(0x9e3779b1);
    uint32_t mask = (uint32_t)((UINT64_C(1) << table.bits) - 1), at = hash >> (32 - table.bits);
    int_slot *s = table.slots;
    while (s[at].id && (s[at].hash != hash || (wide && TD_DATA(t, int64_t)[first[s[at].id - 1]] != key)))
      at = (at + 1) & mask;
    if (!s[at].id) {
      first[table.count] = i;
      s[at] = (int_slot){++table.count, hash};
    }
    put_int(idx, i, s[at].id - 1);
  }
  *distinct = table.count;
cleanup:
  td_free(table.slots);
  return status;
}

/* Numbers the items in order of first appearance; `idx` gets each one's number, `firsts` where each appeared. */
static td_status number_items(const items *s, td_tensor *idx, td_tensor *firsts, int64_t *distinct) {
  item_set set = {.of = s};
  td_status status = TD_STATUS_OK;
  for (int64_t i = 0; i < s->n; i++) {
    int64_t before = set.count, id = 0;
    TD_TRY_GOTO(set_add(&set, i, &id));
    if (set.count > before) TD_DATA(firsts, int64_t)[id] = i;
    put_int(idx, i, id);
  }
  *distinct = set.count;
cleanup:
  td_free(set.slots);
  return status;
}

static td_status unique_axis(const td_tensor *t, const td_tensor *axis_in, int *axis) {
  *axis = 0;
  if (axis_in) {
    if (axis_in->rank != 1) return td_invalid_argument("axis expects a 1D vector.");
    if (axis_in->count > 1) return td_invalid_argument("axis does not support input tensors larger than 1 elements");
  }
  if (!axis_in || !axis_in->count) {
    return t->rank == 1 ? TD_STATUS_OK : td_invalid_argument("unique expects a 1D vector.");
  }
  int64_t given = td_tensor_int_at(axis_in, 0), a = given < 0 ? given + t->rank : given;
  if (a < 0 || a >= t->rank) return td_invalid_argument("axis has to be between [0, %d)", t->rank);
  *axis = (int)a;
  return TD_STATUS_OK;
}

static td_status count_items(td_kernel_ctx *ctx, const td_tensor *idx, int64_t distinct) {
  td_tensor *counts;
  TD_TRY(td_out_alloc_dims(ctx, 2, 1, &distinct, &counts));
  td_zero_elements(counts, 0, distinct);
  for (int64_t i = 0; i < idx->count; i++) {
    int64_t id = td_tensor_int_at(idx, i);
    put_int(counts, id, td_tensor_int_at(counts, id) + 1);
  }
  return TD_STATUS_OK;
}

static td_status unique(td_kernel_ctx *ctx, int axis, td_tensor *firsts) {
  const td_tensor *t = td_in(ctx, 0);
  items s = {.t = t,
             .n = t->dims[axis],
             .outer = td_dims_product(t->dims, 0, axis),
             .inner = td_dims_product(t->dims, axis + 1, t->rank)};
  if (!t->count) s.outer = 0; /* items without elements are all equal */
  td_tensor *idx, *y;
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &s.n, &idx));
  int64_t distinct = 0;
  bool ints = t->rank == 1 && (t->dtype == TD_INT32 || t->dtype == TD_INT64);
  if (!ints) {
    TD_TRY(number_items(&s, idx, firsts, &distinct));
  } else if (t->dtype == TD_INT64) {
    TD_TRY(number_ints(t, true, idx, firsts, &distinct));
  } else {
    TD_TRY(number_ints(t, false, idx, firsts, &distinct));
  }
  if (ctx->kernel->output_count > 2) TD_TRY(count_items(ctx, idx, distinct));
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < t->rank; d++) dims[d] = d == axis ? distinct : t->dims[d];
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, dims, &y));
  if (!y->count) return TD_STATUS_OK;
  if (ints) {
    for (int64_t i = 0; i < distinct; i++) put_int(y, i, td_tensor_int_at(t, TD_DATA(firsts, int64_t)[i]));
    return TD_STATUS_OK;
  }
  for (int64_t o = 0; o < s.outer; o++) {
    for (int64_t i = 0; i < distinct; i++) {
      td_tensor_copy_elements(y, (o * distinct + i) * s.inner, t, (o * s.n + TD_DATA(firsts, int64_t)[i]) * s.inner,
                              s.inner);
    }
  }
  return TD_STATUS_OK;
}

static td_status unique_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  if (t->count > INT32_MAX) {
    return td_invalid_argument("unique does not support input tensors larger than %d elements", INT32_MAX);
  }
  int axis = 0;
  TD_TRY(unique_axis(t, ctx->kernel->input_count > 1 ? td_in(ctx, 1) : NULL, &axis));
  if (t->dims[axis] > INT32_MAX) {
    return td_invalid_argument("unique does not support input tensors larger than %d elements", INT32_MAX);
  }
  td_tensor *firsts;
  TD_TRY(td_tensor_create_dims(TD_INT64, 1, &t->dims[axis], &firsts));
  td_status status = unique(ctx, axis, firsts);
  td_tensor_release(firsts);
  return status;
}

/* ---- ListDiff ---- */

/* *kept: the positions of x whose elements do not occur in y. */
static td_status difference(const items *x, const items *y, td_tensor *kept, int64_t *n) {
  item_set set = {.of = y};
  int64_t id;
  td_status status = TD_STATUS_OK;
  TD_TRY_GOTO(set_reserve(&set));
  for (int64_t i = 0; i < y->n; i++) TD_TRY_GOTO(set_add(&set, i, &id));
  *n = 0;
  for (int64_t i = 0; i < x->n; i++)
    if (set_find(&set, x, i, item_hash(x, i))->item < 0) TD_DATA(kept, int64_t)[(*n)++] = i;
cleanup:
  td_free(set.slots);
  return status;
}

static td_status list_diff(td_kernel_ctx *ctx, td_tensor *kept) {
  const td_tensor *x = td_in(ctx, 0), *y = td_in(ctx, 1);
  int64_t n = 0;
  TD_TRY(difference(&(items){.t = x, .outer = 1, .n = x->count, .inner = 1},
                    &(items){.t = y, .outer = 1, .n = y->count, .inner = 1}, kept, &n));
  td_tensor *out, *idx;
  TD_TRY(td_out_alloc_dims(ctx, 0, 1, &n, &out));
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &n, &idx));
  for (int64_t i = 0; i < n; i++) {
    td_tensor_copy_elements(out, i, x, TD_DATA(kept, int64_t)[i], 1);
    put_int(idx, i, TD_DATA(kept, int64_t)[i]);
  }
  return TD_STATUS_OK;
}

static td_status list_diff_compute(td_kernel_ctx *ctx) {
  const td_tensor *x = td_in(ctx, 0), *y = td_in(ctx, 1);
  if (x->rank != 1) return td_invalid_argument("x should be a 1D vector.");
  if (y->rank != 1) return td_invalid_argument("y should be a 1D vector.");
  if (x->count > INT32_MAX) return td_invalid_argument("x too large for int32 indexing");
  td_tensor *kept;
  TD_TRY(td_tensor_create_dims(TD_INT64, 1, x->dims, &kept));
  td_status status = list_diff(ctx, kept);
  td_tensor_release(kept);
  return status;
}

/* ---- tables ---- */

#define OUT_IDX "out_idx: type in {int32, int64} = int32"
#define V2      "T: type; Taxis: type in {int32, int64} = int64; " OUT_IDX
static const td_op_spec ops[] = {
    {"ListDiff", "x: T; y: T", "out: T; idx: out_idx", "T: type; " OUT_IDX, 0},
    {"Unique", "x: T", "y: T; idx: out_idx", "T: type; " OUT_IDX, 0},
    {"UniqueV2", "x: T; axis: Taxis", "y: T; idx: out_idx", V2, 0},
    {"UniqueWithCounts", "x: T", "y: T; idx: out_idx; count: out_idx", "T: type; " OUT_IDX, 0},
    {"UniqueWithCountsV2", "x: T; axis: Taxis", "y: T; idx: out_idx; count: out_idx", V2, 0},
};

#define HASHED (TD_SET_NUMBER | TD_SET(TD_BOOL) | TD_SET(TD_STRING))
#define HASHES(name, function) \
  { .op = name, .types = {{"T", HASHED}}, .cost = TD_COST_EXPENSIVE, .compute = function }
static const td_kernel_def kernels[] = {
    HASHES("ListDiff", list_diff_compute),        HASHES("Unique", unique_compute),
    HASHES("UniqueV2", unique_compute),           HASHES("UniqueWithCounts", unique_compute),
    HASHES("UniqueWithCountsV2", unique_compute),
};

TD_FAMILY(unique, ops, kernels);
