#include "ops/conv_run.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "ops/loops/loops.h"

/* One call, shared by its pieces. */
typedef struct job {
  const td_conv *c;
  const char *input, *filter, *grad; /* what the direction reads */
  char *out;                         /* what it writes */
  size_t size;                       /* of an element */
  int64_t depth;                     /* filter entries behind one output value, within a group */
  int64_t positions, per_image;      /* output positions */
  int64_t unit, pieces;              /* images or positions in a piece */
  char *partial;                     /* to the filter: pieces' own sums but the first's */
  pthread_mutex_t lock;
  td_status status; /* guarded by lock: the first failure */
} job;

static void fail(job *j, td_status s) {
  if (!s) return;
  pthread_mutex_lock(&j->lock);
  td_status_merge(&j->status, s);
  pthread_mutex_unlock(&j->lock);
}

td_status td_conv_check(const td_conv *c) {
  int64_t sizes[] = {c->batch, c->dim[0].out, c->dim[1].out, c->dim[0].filter, c->dim[1].filter, c->in_c, c->out_c};
  double total = 8;
  for (size_t i = 0; i < TD_COUNT(sizes); i++) total *= (double)TD_MAX(sizes[i], 1);
  /* columns are made in blocks, but their rows must be countable */
  if (total < 9e18) return TD_STATUS_OK;
  return td_invalid_argument(
      "convolution is too large: %lld images of %lld x %lld outputs, filter %lld x %lld x %lld x %lld",
      (long long)sizes[0], (long long)sizes[1], (long long)sizes[2], (long long)sizes[3], (long long)sizes[4],
      (long long)sizes[5], (long long)sizes[6]);
}

static void job_init(job *j, const td_conv *c) {
  *j = (job){.c = c, .size = td_dtype_size(c->dtype), .per_image = c->dim[0].out * c->dim[1].out};
  j->depth = c->dim[0].filter * c->dim[1].filter * (c->in_c / c->groups);
  j->positions = c->batch * j->per_image;
  pthread_mutex_init(&j->lock, NULL);
}

static td_status job_end(job *j) {
  pthread_mutex_destroy(&j->lock);
  return j->status;
}

static double total_ns(const job *j) {
  double rate = j->c->dtype == TD_FLOAT ? 50 : j->c->dtype == TD_DOUBLE ? 20 : 2;
  return (double)j->positions * (double)j->depth * (double)j->c->out_c / j->c->groups / rate + 1000;
}

static void run(td_kernel_ctx *ctx, job *j, void (*fn)(void *, int64_t, int64_t)) {
  td_ctx_parallel_for(ctx, j->pieces, total_ns(j) / (double)TD_MAX(j->pieces, 1), fn, j);
}

/* ---- columns ---- */

/* No window reaches outside a single pixel: the input is already the matrix. */
static bool is_pointwise(const td_conv *c) {
  for (int i = 0; i < 2; i++) {
    const td_window_dim *d = &c->dim[i];
    if (d->filter != 1 || d->stride != 1 || d->before || d->after) return false;
  }
  return c->groups == 1;
}

/* Output positions whose columns fill about 256 KiB. */
static int64_t rows_per_block(const job *j) {
  int64_t rows = (256 << 10) / (j->depth * (int64_t)j->size);
  return TD_MAX(TD_MIN(rows, j->positions), 1);
}

typedef struct cursor {
  int64_t image, row, column;
} cursor;

static cursor cursor_at(const job *j, int64_t position) {
  int64_t in_image = position % j->per_image, columns = j->c->dim[1].out;
  return (cursor){position / j->per_image, in_image / columns, in_image % columns};
}

static void cursor_next(const job *j, cursor *at) {
  if (++at->column < j->c->dim[1].out) return;
  at->column = 0;
  if (++at->row < j->c->dim[0].out) return;
  at->row = 0;
  at->image++;
}

/* Writes the windows of positions [begin, begin + n) of group g, one a row. */
static void gather(const job *j, int64_t begin, int64_t n, int64_t g, char *columns) {
  const td_conv *c = j->c;
  const td_window_dim *h = &c->dim[0], *w = &c->dim[1];
  size_t pixel = (size_t)c->in_c * j->size, part = pixel / (size_t)c->groups;
  cursor at = cursor_at(j, begin);
  for (int64_t i = 0; i < n; i++, cursor_next(j, &at)) {
    const char *image = j->input + (size_t)(at.image * h->in * w->in) * pixel + (size_t)g * part;
    int64_t y = at.row * h->stride - h->before, x0 = at.column * w->stride - w->before;
    for (int64_t fy = 0; fy < h->filter; fy++, y += h->dilation) {
      if (y < 0 || y >= h->in) {
        memset(columns, 0, part * (size_t)w->filter);
        columns += part * (size_t)w->filter;
        continue;
      }
      const char *line = image + (size_t)(y * w->in) * pixel;
      if (w->dilation == 1 && c->groups == 1 && x0 >= 0 && x0 + w->filter <= w->in) {
        memcpy(columns, line + (size_t)x0 * pixel, part * (size_t)w->filter);
        columns += part * (size_t)w->filter;
        continue;
      }
      int64_t x = x0;
      for (int64_t fx = 0; fx < w->filter; fx++, x += w->dilation, columns += part) {
        if (x < 0 || x >= w->in)
          memset(columns, 0, part);
        else
          memcpy(columns, line + (size_t)x * pixel, part);
      }
    }
  }
}

static void add(td_dtype t, char *to, const char *from, int64_t n) {
  switch (t) {
    case TD_FLOAT:
      for (int64_t i = 0; i < n; i++) ((float *)(void *)to)[i] += ((const float *)(const void *)from)[i];
      break;
    case TD_DOUBLE:
      for (int64_t i = 0; i < n; i++) ((double *)(void *)to)[i] += ((const double *)(const void *)from)[i];
      break;
    default:
      for (int64_t i = 0; i < n; i++) ((uint32_t *)(void *)to)[i] += ((const uint32_t *)(const void *)from)[i];
  }
}

/* The reverse: adds each row to its window of the input's gradient. */
static void scatter(const job *j, int64_t begin, int64_t n, int64_t g, const char *columns) {
  const td_conv *c = j->c;
  const td_window_dim *h = &c->dim[0], *w = &c->dim[1];
  int64_t part = c->in_c / c->groups;
  size_t pixel = (size_t)c->in_c * j->size;
  bool lines = w->dilation == 1 && c->groups == 1; /* a window's line is contiguous on both sides */
  cursor at = cursor_at(j, begin);
  for (int64_t i = 0; i < n; i++, cursor_next(j, &at)) {
    char *image = j->out + (size_t)(at.image * h->in * w->in) * pixel + (size_t)(g * part) * j->size;
    int64_t y = at.row * h->stride - h->before;
    for (int64_t fy = 0; fy < h->filter; fy++, y += h->dilation) {
      int64_t x = at.column * w->stride - w->before;
      if (lines) {
        int64_t from = TD_MAX(x, (int64_t)0), count = TD_MIN(x + w->filter, w->in) - from;
        if (y >= 0 && y < h->in && count > 0)
          add(c->dtype, image + (size_t)(y * w->in + from) * pixel, columns + (size_t)(from - x) * pixel, count * part);
        columns += (size_t)w->filter * pixel;
        continue;
      }
      for (int64_t fx = 0; fx < w->filter; fx++, x += w->dilation, columns += (size_t)part * j->size) {
        if (y < 0 || y >= h->in || x < 0 || x >= w->in) continue;
        add(c->dtype, image + (size_t)(y * w->in + x) * pixel, columns, part);
      }
    }
  }
}

static td_status scratch(const job *j, int64_t rows, td_tensor **out) {
  return td_tensor_create_dims(TD_UINT8, 2, (const int64_t[]){rows, j->depth * (int64_t)j->size}, out);
}

/* ---- forward ---- */

static void forward_columns(const job *j, int64_t begin, int64_t n, char *columns) {
  const td_conv *c = j->c;
  bool direct = is_pointwise(c);
  int64_t out_part = c->out_c / c->groups;
  for (int64_t g = 0; g < c->groups; g++) {
    if (!direct) gather(j, begin, n, g, columns);
    td_gemm m = {.dtype = c->dtype,
                 .ta = 'N',
                 .tb = 'N',
                 .m = n,
                 .n = out_part,
                 .k = j->depth,
                 .a = direct ? j->input + (size_t)(begin * c->in_c) * j->size : columns,
                 .lda = j->depth,
                 .b = j->filter + (size_t)(g * out_part) * j->size,
                 .ldb = c->out_c,
                 .c = j->out + (size_t)(begin * c->out_c + g * out_part) * j->size,
                 .ldc = c->out_c};
    td_gemm_run(c->heavy, &m);
  }
}

static void finish_rows(const job *j, int64_t begin, int64_t end) {
  if (j->c->epilogue) td_epilogue_run((void *)(uintptr_t)j->c->epilogue, begin, end, 0, j->c->out_c);
}

static void forward_piece(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  td_tensor *columns = NULL;
  int64_t block = rows_per_block(j);
  td_status s = is_pointwise(j->c) ? TD_STATUS_OK : scratch(j, block, &columns);
  if (!s) {
    int64_t from = begin * j->unit, to = TD_MIN(end * j->unit, j->positions);
    for (int64_t at = from; at < to; at += block) {
      int64_t n = TD_MIN(block, to - at);
      forward_columns(j, at, n, columns ? columns->data : NULL);
      finish_rows(j, at, at + n);
    }
  }
  td_tensor_release(columns);
  fail(j, s);
}

static td_heavy_conv heavy_of(const td_conv *c, int64_t batch) {
  const td_window_dim *h = &c->dim[0], *w = &c->dim[1];
  return (td_heavy_conv){.batch = batch,
                         .in_h = h->in,
                         .in_w = w->in,
                         .in_c = c->in_c,
                         .out_h = h->out,
                         .out_w = w->out,
                         .out_c = c->out_c,
                         .filter_h = h->filter,
                         .filter_w = w->filter,
                         .stride_h = h->stride,
                         .stride_w = w->stride,
                         .dilation_h = h->dilation,
                         .dilation_w = w->dilation,
                         .pad_top = h->before,
                         .pad_bottom = h->after,
                         .pad_left = w->before,
                         .pad_right = w->after};
}

/* oneDNN's case: float, one group, sizes that it holds in 32 bits, and padding that it accepts. */
static bool heavy_fits(const job *j) {
  const td_conv *c = j->c;
  if (!c->heavy || c->dtype != TD_FLOAT || c->groups != 1) return false;
  int64_t sizes[] = {c->batch, c->in_c, c->out_c};
  for (size_t i = 0; i < TD_COUNT(sizes); i++) {
    if (sizes[i] > 1 << 24) return false;
  }
  for (int i = 0; i < 2; i++) {
    const td_window_dim *d = &c->dim[i];
    if (d->in > 1 << 20 || d->filter > 1 << 12 || d->stride > 1 << 12 || d->dilation > 1 << 12) return false;
    if (d->before + d->after > 1 << 16 || d->before >= d->filter * d->dilation) return false;
  }
  return (double)j->positions * (double)j->depth * (double)c->out_c > 20000;
}

/* Images in a piece: enough work to be worth a hand-over, at most 32 pieces. */
static void split_images(job *j) {
  double ns = total_ns(j);
  int64_t pieces = (int64_t)(ns / 100000) + 1;
  pieces = TD_MIN(TD_MIN(pieces, 32), j->c->batch);
  j->unit = (j->c->batch + pieces - 1) / pieces;
  j->pieces = (j->c->batch + j->unit - 1) / j->unit;
}

static void forward_heavy(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  const td_conv *c = j->c;
  size_t in = (size_t)(c->dim[0].in * c->dim[1].in * c->in_c), out = (size_t)(j->per_image * c->out_c);
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * j->unit, n = TD_MIN(j->unit, c->batch - from);
    td_heavy_conv p = heavy_of(c, n);
    if (c->heavy->conv_forward(&p, (const float *)(const void *)j->input + (size_t)from * in,
                               (const float *)(const void *)j->filter, (float *)(void *)j->out + (size_t)from * out)) {
      finish_rows(j, from * j->per_image, (from + n) * j->per_image);
    } else {
      job rest = *j;
      rest.unit = j->unit * j->per_image;
      rest.status = NULL;
      pthread_mutex_init(&rest.lock, NULL);
      forward_piece(&rest, i, i + 1);
      fail(j, job_end(&rest));
    }
  }
}

td_status td_conv_forward(td_kernel_ctx *ctx, const td_conv *c, const void *input, const void *filter, void *output) {
  job j;
  job_init(&j, c);
  j.input = input;
  j.filter = filter;
  j.out = output;
  if (j.positions && c->out_c && heavy_fits(&j)) {
    split_images(&j);
    run(ctx, &j, forward_heavy);
  } else if (j.positions && c->out_c) {
    j.unit = j.depth ? rows_per_block(&j) : j.positions;
    if (!j.depth) j.size = 1; /* nothing to multiply: zeros */
    if (!j.depth) memset(output, 0, (size_t)(j.positions * c->out_c) * td_dtype_size(c->dtype));
    j.pieces = j.depth ? (j.positions + j.unit - 1) / j.unit : 0;
    run(ctx, &j, forward_piece);
    if (!j.depth) finish_rows(&j, 0, j.positions);
  }
  return job_end(&j);
}

/* ---- to the input ---- */

static void input_images(job *j, int64_t from, int64_t to) {
  const td_conv *c = j->c;
  td_tensor *columns = NULL;
  int64_t block = rows_per_block(j), out_part = c->out_c / c->groups, last = to * j->per_image;
  size_t image = (size_t)(c->dim[0].in * c->dim[1].in * c->in_c) * j->size;
  td_status s = scratch(j, block, &columns);
  if (!s) {
    memset(j->out + (size_t)from * image, 0, image * (size_t)(to - from));
    for (int64_t at = from * j->per_image; at < last; at += block) {
      int64_t n = TD_MIN(block, last - at);
      for (int64_t g = 0; g < c->groups; g++) {
        td_gemm m = {.dtype = c->dtype,
                     .ta = 'N',
                     .tb = 'T',
                     .m = n,
                     .n = j->depth,
                     .k = out_part,
                     .a = j->grad + (size_t)(at * c->out_c + g * out_part) * j->size,
                     .lda = c->out_c,
                     .b = j->filter + (size_t)(g * out_part) * j->size,
                     .ldb = c->out_c,
                     .c = columns->data,
                     .ldc = j->depth};
        td_gemm_run(c->heavy, &m);
        scatter(j, at, n, g, columns->data);
      }
    }
  }
  td_tensor_release(columns);
  fail(j, s);
}

static void input_piece(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  const td_conv *c = j->c;
  size_t in = (size_t)(c->dim[0].in * c->dim[1].in * c->in_c), out = (size_t)(j->per_image * c->out_c);
  /* few channels: oneDNN vectorises over them, columns do better */
  bool heavy = heavy_fits(j) && c->in_c >= 8;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * j->unit, n = TD_MIN(j->unit, c->batch - from);
    td_heavy_conv p = heavy_of(c, n);
    if (!heavy || !c->heavy->conv_backward_input(&p, (const float *)(const void *)j->grad + (size_t)from * out,
                                                 (const float *)(const void *)j->filter,
                                                 (float *)(void *)j->out + (size_t)from * in))
      input_images(j, from, from + n);
  }
}

td_status td_conv_backward_input(td_kernel_ctx *ctx, const td_conv *c, const void *grad, const void *filter,
                                 void *input_grad) {
  job j;
  job_init(&j, c);
  j.grad = grad;
  j.filter = filter;
  j.out = input_grad;
  int64_t inputs = c->batch * c->dim[0].in * c->dim[1].in * c->in_c;
  if (!inputs) return job_end(&j);
  if (!j.positions || !c->out_c || !j.depth) {
    memset(input_grad, 0, (size_t)inputs * j.size);
    return job_end(&j);
  }
  split_images(&j);
  run(ctx, &j, input_piece);
  return job_end(&j);
}

/* ---- to the filter ---- */

static void filter_images(job *j, int64_t from, int64_t to, char *sum) {
  const td_conv *c = j->c;
  td_tensor *columns = NULL;
  bool direct = is_pointwise(c);
  int64_t block = rows_per_block(j), out_part = c->out_c / c->groups, first = from * j->per_image,
          last = to * j->per_image;
  td_status s = direct ? TD_STATUS_OK : scratch(j, block, &columns);
  for (int64_t at = first; !s && at < last; at += block) {
    int64_t n = TD_MIN(block, last - at);
    for (int64_t g = 0; g < c->groups; g++) {
      if (!direct) gather(j, at, n, g, columns->data);
      td_gemm m = {.dtype = c->dtype,
                   .ta = 'T',
                   .tb = 'N',
                   .accumulate = at > first,
                   .m = j->depth,
                   .n = out_part,
                   .k = n,
                   .a = direct ? j->input + (size_t)(at * c->in_c) * j->size : columns->data,
                   .lda = j->depth,
                   .b = j->grad + (size_t)(at * c->out_c + g * out_part) * j->size,
                   .ldb = c->out_c,
                   .c = sum + (size_t)(g * out_part) * j->size,
                   .ldc = c->out_c};
      td_gemm_run(c->heavy, &m);
    }
  }
  td_tensor_release(columns);
  fail(j, s);
}

static void filter_piece(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  const td_conv *c = j->c;
  size_t in = (size_t)(c->dim[0].in * c->dim[1].in * c->in_c), out = (size_t)(j->per_image * c->out_c);
  size_t filter = (size_t)(j->depth * c->out_c) * j->size;
  bool heavy = heavy_fits(j);
  for (int64_t i = begin; i < end; i++) {
    int64_t from = i * j->unit, n = TD_MIN(j->unit, c->batch - from);
    char *sum = i ? j->partial + (size_t)(i - 1) * filter : j->out;
    td_heavy_conv p = heavy_of(c, n);
    if (!heavy || !c->heavy->conv_backward_filter(&p, (const float *)(const void *)j->input + (size_t)from * in,
                                                  (const float *)(const void *)j->grad + (size_t)from * out,
                                                  (float *)(void *)sum))
      filter_images(j, from, from + n, sum);
  }
}

typedef struct partial_sums {
  td_map add;
  char *to;
  const char *from; /* the others, `stride` bytes apart */
  size_t size, stride;
  int64_t count;
} partial_sums;

/* Elements [begin, end), in blocks that stay near; the pieces in their order. */
static void add_partials(void *arg, int64_t begin, int64_t end) {
  enum { BLOCK = 2048 };
  const partial_sums *p = arg;
  for (int64_t at = begin; at < end; at += BLOCK) {
    size_t first = (size_t)at * p->size;
    for (int64_t i = 0; i < p->count; i++) {
      const char *from = p->from + (size_t)i * p->stride + first;
      td_map_binary(&p->add, p->to + first, 1, from, 1, p->to + first, TD_MIN(end - at, (int64_t)BLOCK));
    }
  }
}

static void sum_pieces(td_kernel_ctx *ctx, const job *j, int64_t filter) {
  partial_sums p = {.to = j->out, .from = j->partial, .size = j->size, .count = j->pieces - 1};
  p.stride = (size_t)filter * j->size;
  bool known = td_map_init_binary(&p.add, TD_BIN_Add, j->c->dtype, j->c->dtype, 0);
  assert(known);
  (void)known;
  td_ctx_parallel_for(ctx, filter, 0.2 * (double)p.count, add_partials, &p);
}

td_status td_conv_backward_filter(td_kernel_ctx *ctx, const td_conv *c, const void *input, const void *grad,
                                  void *filter_grad) {
  job j;
  td_tensor *partial = NULL;
  job_init(&j, c);
  j.input = input;
  j.grad = grad;
  j.out = filter_grad;
  int64_t filter = j.depth * c->out_c;
  if (!filter) return job_end(&j);
  if (!j.positions) {
    memset(filter_grad, 0, (size_t)filter * j.size);
    return job_end(&j);
  }
  split_images(&j);
  /* the partial sums must stay small beside what is summed */
  double most = TD_MIN(total_ns(&j) * 0.1, 4e6);
  while (j.pieces > 1 && (j.pieces > 8 || (double)(j.pieces * filter) > most)) {
    j.unit *= 2;
    j.pieces = (c->batch + j.unit - 1) / j.unit;
  }
  if (j.pieces > 1) {
    fail(&j, td_tensor_create_dims(TD_UINT8, 2, (const int64_t[]){j.pieces - 1, filter * (int64_t)j.size}, &partial));
    if (j.status) return job_end(&j);
    j.partial = partial->data;
  }
  run(ctx, &j, filter_piece);
  if (j.pieces > 1) sum_pieces(ctx, &j, filter);
  td_tensor_release(partial);
  return job_end(&j);
}
