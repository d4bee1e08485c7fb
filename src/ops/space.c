/* Blocks of space moved into depth or batch and back: SpaceToDepth, DepthToSpace, SpaceToBatch(ND),
 * BatchToSpace(ND). */
#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"

typedef struct block {
  int64_t size;
} block;

static td_status block_create(td_kernel_builder *b, void *state) {
  int64_t *size = &((block *)state)->size;
  TD_TRY(td_attr_int(b->node, "block_size", size));
  if (*size <= 1) return td_invalid_argument("Block size should be > 1, but was: %lld", (long long)*size);
  return TD_STATUS_OK;
}

/* ---- depth ---- */

static td_status depth_create(td_kernel_builder *b, void *state) {
  td_str format;
  TD_TRY(td_attr_str(b->node, "data_format", &format));
  if (!td_str_is(format, "NHWC")) {
    return td_invalid_argument("Only NHWC data_format supported on CPU. Got %.*s", TD_STR_ARG(format));
  }
  return block_create(b, state);
}

/* The loops over [batch, height, i, width, j, depth]: blocks of size x size pixels of the wide tensor (`wide`) are
 * pixels of the deep one. */
static void depth_loops(td_move *m, const int64_t *wide, int64_t size, bool to_depth) {
  int64_t h = wide[1] / size, w = wide[2] / size, c = wide[3], wide_strides[4], deep_strides[4];
  td_strides(4, wide, wide_strides);
  td_strides(4, (int64_t[]){wide[0], h, w, size * size * c}, deep_strides);
  const int64_t counts[] = {wide[0], h, size, w, size, c};
  const int64_t in_wide[] = {wide_strides[0],        wide_strides[1] * size, wide_strides[1],
                             wide_strides[2] * size, wide_strides[2],        1};
  const int64_t in_deep[] = {deep_strides[0], deep_strides[1], size * c, deep_strides[2], c, 1};
  m->rank = 0;
  for (int i = 0; i < 6; i++) {
    td_move_add(m, counts[i], to_depth ? in_wide[i] : in_deep[i], to_depth ? in_deep[i] : in_wide[i]);
  }
}

static td_status space_to_depth_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  int64_t size = ((const block *)ctx->state)->size;
  if (t->rank != 4) return td_invalid_argument("Input rank should be 4 instead of %d", t->rank);
  const int64_t *d = t->dims;
  if (d[2] % size || d[1] % size) {
    return td_invalid_argument("Image width %lld and height %lld should be divisible by block_size: %lld",
                               (long long)d[2], (long long)d[1], (long long)size);
  }
  int64_t dims[4] = {d[0], d[1] / size, d[2] / size};
  if (__builtin_mul_overflow(size, size, &dims[3]) || __builtin_mul_overflow(dims[3], d[3], &dims[3])) {
    return td_invalid_argument("Block size %lld is too large for depth %lld", (long long)size, (long long)d[3]);
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 4, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  td_move m;
  depth_loops(&m, d, size, true);
  td_move_run(ctx, &m, t, 0, out, 0);
  return TD_STATUS_OK;
}

static td_status depth_to_space_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  int64_t size = ((const block *)ctx->state)->size, square;
  if (t->rank != 4) return td_invalid_argument("Input rank should be: 4 instead of: %d", t->rank);
  const int64_t *d = t->dims;
  int64_t dims[4] = {d[0]};
  if (__builtin_mul_overflow(size, size, &square) || __builtin_mul_overflow(d[1], size, &dims[1]) ||
      __builtin_mul_overflow(d[2], size, &dims[2])) {
    return td_invalid_argument("Block size %lld is too large for input %s", (long long)size, TD_SHOW(t));
  }
  if (d[3] % square) {
    return td_invalid_argument("Input depth dimension %lld should be divisible by: %lld", (long long)d[3],
                               (long long)square);
  }
  dims[3] = d[3] / square;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 4, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  td_move m;
  depth_loops(&m, dims, size, false);
  td_move_run(ctx, &m, t, 0, out, 0);
  return TD_STATUS_OK;
}

/* ---- batch ---- */

/* Space, [batch, size.., rest..], against blocks, [product(block) * batch, blocks.., rest..]: element
 * (p * batch + b, j..) of the blocks is element (b, j * block + p - before) of the space, where that lies inside. */
typedef struct batching {
  int n; /* block dimensions */
  int64_t block[TD_MAX_RANK], before[TD_MAX_RANK], product;
} batching;

static td_status batching_block(const td_tensor *t, const td_tensor *block, const td_tensor *edges, const char *name,
                                batching *s) {
  if (block->rank != 1) return td_invalid_argument("block_shape rank should be 1 instead of %d", block->rank);
  if (t->rank < 1 + block->count) {
    return td_invalid_argument("input rank should be >= %lld instead of %d", (long long)block->count + 1, t->rank);
  }
  s->n = (int)block->count;
  if (edges->rank != 2 || edges->dims[0] != s->n || edges->dims[1] != 2) {
    return td_invalid_argument("%s should have shape [%d, 2] instead of %s", name, s->n, TD_SHOW(edges));
  }
  s->product = 1;
  for (int i = 0; i < s->n; i++) {
    s->block[i] = td_tensor_int_at(block, i);
    if (s->block[i] <= 0 || __builtin_mul_overflow(s->product, s->block[i], &s->product)) {
      return td_invalid_argument("Product of block sizes must be positive, got %lld at block_shape[%d]",
                                 (long long)s->block[i], i);
    }
  }
  return TD_STATUS_OK;
}

/* One position inside the block, `p` (vector) and `index` (row-major): its loops. False when it touches nothing. */
static bool batching_loops(const batching *s, const td_tensor *space, const td_tensor *blocks, const int64_t *p,
                           int64_t index, bool to_blocks, td_move *m, int64_t *space_at, int64_t *blocks_at) {
  int64_t space_strides[TD_MAX_RANK], blocks_strides[TD_MAX_RANK];
  td_strides(space->rank, space->dims, space_strides);
  td_strides(blocks->rank, blocks->dims, blocks_strides);
  m->rank = 0;
  *space_at = 0;
  *blocks_at = index * space->dims[0] * blocks_strides[0];
  for (int d = 0; d < space->rank; d++) {
    int64_t n = space->dims[d], in_space = space_strides[d], in_blocks = blocks_strides[d];
    if (d >= 1 && d <= s->n) {
      int64_t step = s->block[d - 1], first = p[d - 1] - s->before[d - 1]; /* place of block 0 */
      int64_t begin = first >= 0 ? 0 : (step - 1 - first) / step;
      int64_t end = first >= n ? 0 : (n - first + step - 1) / step;
      end = TD_MIN(end, blocks->dims[d]);
      n = end - begin;
      if (n <= 0) return false;
      *space_at += (begin * step + first) * in_space;
      *blocks_at += begin * in_blocks;
      in_space = n > 1 ? in_space * step : 0;
    }
    td_move_add(m, n, to_blocks ? in_space : in_blocks, to_blocks ? in_blocks : in_space);
  }
  return true;
}

static void batching_run(td_kernel_ctx *ctx, const batching *s, const td_tensor *in, td_tensor *out, bool to_blocks) {
  int64_t p[TD_MAX_RANK] = {0};
  for (int64_t index = 0; index < s->product; index++) {
    td_move m;
    int64_t space_at, blocks_at;
    if (batching_loops(s, to_blocks ? in : out, to_blocks ? out : in, p, index, to_blocks, &m, &space_at, &blocks_at)) {
      td_move_run(ctx, &m, in, to_blocks ? space_at : blocks_at, out, to_blocks ? blocks_at : space_at);
    }
    for (int d = s->n - 1; d >= 0 && ++p[d] == s->block[d]; d--) p[d] = 0;
  }
}

static td_status space_to_batch(td_kernel_ctx *ctx, const td_tensor *block, const td_tensor *paddings) {
  const td_tensor *t = td_in(ctx, 0);
  batching s;
  TD_TRY(batching_block(t, block, paddings, "paddings", &s));
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < t->rank; d++) dims[d] = t->dims[d];
  for (int i = 0; i < s.n; i++) {
    int64_t before = td_tensor_int_at(paddings, 2 * i), after = td_tensor_int_at(paddings, 2 * i + 1), padded;
    if (before < 0 || after < 0) return td_invalid_argument("Paddings must be non-negative");
    if (__builtin_add_overflow(before, after, &padded) || __builtin_add_overflow(padded, t->dims[i + 1], &padded)) {
      return td_invalid_argument("padded_shape[%d] exceeds 2**63 - 1", i);
    }
    if (padded % s.block[i]) {
      return td_invalid_argument("padded_shape[%d]=%lld is not divisible by block_shape[%d]=%lld", i, (long long)padded,
                                 i, (long long)s.block[i]);
    }
    s.before[i] = before;
    dims[i + 1] = padded / s.block[i];
  }
  if (__builtin_mul_overflow(dims[0], s.product, &dims[0])) {
    return td_invalid_argument("The batch dimension exceeds 2**63 - 1");
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, dims, &out));
  if (!out->count) return TD_STATUS_OK;
  if (t->count != out->count) td_zero_elements(out, 0, out->count);
  if (t->count) batching_run(ctx, &s, t, out, true);
  return TD_STATUS_OK;
}

static td_status batch_to_space(td_kernel_ctx *ctx, const td_tensor *block, const td_tensor *crops) {
  const td_tensor *t = td_in(ctx, 0);
  batching s;
  TD_TRY(batching_block(t, block, crops, "crops", &s));
  int64_t dims[TD_MAX_RANK];
  for (int d = 0; d < t->rank; d++) dims[d] = t->dims[d];
  if (t->dims[0] % s.product) {
    return td_invalid_argument("Input batch dimension (%lld) is not divisible by product of block sizes (%lld)",
                               (long long)t->dims[0], (long long)s.product);
  }
  dims[0] = t->dims[0] / s.product;
  for (int i = 0; i < s.n; i++) {
    int64_t before = td_tensor_int_at(crops, 2 * i), after = td_tensor_int_at(crops, 2 * i + 1), size;
    if (before < 0 || after < 0) return td_invalid_argument("Crops must be non-negative");
    if (__builtin_mul_overflow(t->dims[i + 1], s.block[i], &size)) {
      return td_invalid_argument("cropped_shape[%d] exceeds 2**63 - 1", i);
    }
    size = before > size || after > size - before ? -1 : size - before - after;
    if (size < 0) return td_invalid_argument("cropped_shape[%d]=%lld must be non-negative", i, (long long)size);
    s.before[i] = before;
    dims[i + 1] = size;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, t->rank, dims, &out));
  if (out->count) batching_run(ctx, &s, t, out, false);
  return TD_STATUS_OK;
}

static td_status space_to_batch_nd_compute(td_kernel_ctx *ctx) {
  return space_to_batch(ctx, td_in(ctx, 1), td_in(ctx, 2));
}
static td_status batch_to_space_nd_compute(td_kernel_ctx *ctx) {
  return batch_to_space(ctx, td_in(ctx, 1), td_in(ctx, 2));
}

/* The old forms: images, blocks of size x size. */
static td_status with_square_block(td_kernel_ctx *ctx,
                                   td_status (*fn)(td_kernel_ctx *, const td_tensor *, const td_tensor *)) {
  const td_tensor *t = td_in(ctx, 0);
  if (t->rank != 4) return td_invalid_argument("Input rank should be: 4instead of: %d", t->rank);
  int64_t size = ((const block *)ctx->state)->size, two = 2;
  td_tensor *square;
  TD_TRY(td_tensor_create_dims(TD_INT64, 1, &two, &square));
  TD_DATA(square, int64_t)[0] = TD_DATA(square, int64_t)[1] = size;
  td_status status = fn(ctx, square, td_in(ctx, 1));
  td_tensor_release(square);
  return status;
}

static td_status space_to_batch_compute(td_kernel_ctx *ctx) { return with_square_block(ctx, space_to_batch); }
static td_status batch_to_space_compute(td_kernel_ctx *ctx) { return with_square_block(ctx, batch_to_space); }

/* ---- tables ---- */

#define DEPTH_ATTRS "T: type; block_size: int >= 2; data_format: string in {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
#define INDEX_ATTRS(name) \
  "T: type; Tblock_shape: type in {int32, int64} = int32; " name ": type in {int32, int64} = int32"
static const td_op_spec ops[] = {
    {"BatchToSpace", "input: T; crops: Tidx", "output: T",
     "T: type; block_size: int >= 2; Tidx: type in {int32, int64} = int32", 0},
    {"BatchToSpaceND", "input: T; block_shape: Tblock_shape; crops: Tcrops", "output: T", INDEX_ATTRS("Tcrops"), 0},
    {"DepthToSpace", "input: T", "output: T", DEPTH_ATTRS, 0},
    {"SpaceToBatch", "input: T; paddings: Tpaddings", "output: T",
     "T: type; Tpaddings: type in {int32, int64} = int32; block_size: int >= 2", 0},
    {"SpaceToBatchND", "input: T; block_shape: Tblock_shape; paddings: Tpaddings", "output: T",
     INDEX_ATTRS("Tpaddings"), 0},
    {"SpaceToDepth", "input: T", "output: T", DEPTH_ATTRS, 0},
};

#define WITH_BLOCK(name, create_, function) \
  { .op = name, .state_size = sizeof(block), .create = create_, .compute = function }
static const td_kernel_def kernels[] = {
    WITH_BLOCK("BatchToSpace", block_create, batch_to_space_compute),
    {.op = "BatchToSpaceND", .compute = batch_to_space_nd_compute},
    WITH_BLOCK("DepthToSpace", depth_create, depth_to_space_compute),
    WITH_BLOCK("SpaceToBatch", block_create, space_to_batch_compute),
    {.op = "SpaceToBatchND", .compute = space_to_batch_nd_compute},
    WITH_BLOCK("SpaceToDepth", depth_create, space_to_depth_compute),
};

TD_FAMILY(space, ops, kernels);
