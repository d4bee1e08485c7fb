/* Strings taken apart and put together: StringSplit, StringSplitV2, ReduceJoin, StringFormat. */
#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"

static td_str text_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

/* ---- splitting ---- */

/* The parts of all strings, one after the other; borrowed from the input. */
typedef struct parts {
  td_str *items;
  int64_t count, capacity;
} parts;

static td_status add_part(parts *p, const char *data, size_t size) {
  if (p->count == p->capacity) {
    int64_t capacity = p->capacity ? p->capacity * 2 : 64;
    td_str *items = td_try_malloc((size_t)capacity * sizeof *items);
    if (!items) return td_resource_exhausted("OOM when splitting into %lld strings", (long long)capacity);
    if (p->count) memcpy(items, p->items, (size_t)p->count * sizeof *items);
    td_free(p->items);
    p->items = items;
    p->capacity = capacity;
  }
  p->items[p->count++] = (td_str){data, size};
  return TD_STATUS_OK;
}

typedef struct split {
  bool skip_empty;  /* StringSplit */
  int64_t maxsplit; /* StringSplitV2; <= 0 but not 0: no limit */
} split;

static td_status split_create(td_kernel_builder *b, void *state) {
  return td_attr_bool(b->node, "skip_empty", &((split *)state)->skip_empty);
}
static td_status split_v2_create(td_kernel_builder *b, void *state) {
  return td_attr_int(b->node, "maxsplit", &((split *)state)->maxsplit);
}

/* At every byte that is one of the delimiter's; an empty delimiter parts all bytes. */
static td_status split_bytes(const split *st, td_str s, td_str delimiters, parts *out) {
  if (!s.size) return TD_STATUS_OK;
  if (!delimiters.size) {
    for (size_t i = 0; i < s.size; i++) TD_TRY(add_part(out, s.data + i, 1));
    return TD_STATUS_OK;
  }
  size_t begin = 0;
  for (size_t i = 0; i <= s.size; i++) {
    if (i < s.size && !memchr(delimiters.data, s.data[i], delimiters.size)) continue;
    if (i > begin || !st->skip_empty) TD_TRY(add_part(out, s.data + begin, i - begin));
    begin = i + 1;
  }
  return TD_STATUS_OK;
}

static td_str skip_blanks(td_str s) {
  while (s.size && isspace((unsigned char)s.data[0])) s = (td_str){s.data + 1, s.size - 1};
  return s;
}

/* As Python's str.split() does. */
static td_status split_blanks(const split *st, td_str s, parts *out) {
  s = skip_blanks(s);
  for (int64_t n = 0; s.size;) {
    size_t size = 0;
    while (size < s.size && !isspace((unsigned char)s.data[size])) size++;
    TD_TRY(add_part(out, s.data, size));
    s = skip_blanks((td_str){s.data + size, s.size - size});
    if (st->maxsplit > 0 && ++n == st->maxsplit) return add_part(out, s.data, s.size);
  }
  return TD_STATUS_OK;
}

static td_status split_separator(const split *st, td_str s, td_str separator, parts *out) {
  if (!st->maxsplit) return add_part(out, s.data, s.size);
  if (!separator.size) return split_blanks(st, s, out);
  for (int64_t n = 0;;) {
    const char *at = s.size ? memmem(s.data, s.size, separator.data, separator.size) : NULL;
    if (!at) return add_part(out, s.data, s.size);
    size_t size = (size_t)(at - s.data);
    TD_TRY(add_part(out, s.data, size));
    s = (td_str){at + separator.size, s.size - size - separator.size};
    if (st->maxsplit > 0 && ++n == st->maxsplit) return add_part(out, s.data, s.size);
  }
}

/* The sparse tensor of `parts`, of which string `i` has those before ends[i]. */
static td_status out_parts(td_kernel_ctx *ctx, const parts *p, const int64_t *ends, int64_t strings) {
  td_tensor *indices, *values, *shape;
  int64_t widest = 0, c = 0;
  TD_TRY(td_out_alloc_dims(ctx, 0, 2, (int64_t[]){p->count, 2}, &indices));
  TD_TRY(td_out_alloc_dims(ctx, 1, 1, &p->count, &values));
  TD_TRY(td_out_alloc_dims(ctx, 2, 1, (int64_t[]){2}, &shape));
  for (int64_t i = 0; i < strings; i++) {
    int64_t first = c;
    for (; c < ends[i]; c++) {
      TD_DATA(indices, int64_t)[2 * c] = i;
      TD_DATA(indices, int64_t)[2 * c + 1] = c - first;
      TD_TRY(td_string_set(TD_DATA(values, td_string) + c, p->items[c]));
    }
    widest = TD_MAX(widest, c - first);
  }
  TD_DATA(shape, int64_t)[0] = strings;
  TD_DATA(shape, int64_t)[1] = widest;
  return TD_STATUS_OK;
}

static td_status split_compute(td_kernel_ctx *ctx) {
  const td_tensor *in = td_in(ctx, 0), *by = td_in(ctx, 1);
  bool v2 = td_str_is(ctx->kernel->op, "StringSplitV2");
  if (in->rank != 1) return td_invalid_argument("input must be a vector, got shape: %s", TD_SHOW(in));
  if (by->rank) return td_invalid_argument("%s must be a scalar, got shape: %s", v2 ? "sep" : "delimiter", TD_SHOW(by));
  parts p = {0};
  int64_t *ends = td_try_malloc((size_t)in->count * sizeof *ends + 1);
  td_status status =
      ends ? TD_STATUS_OK : td_resource_exhausted("OOM when splitting %lld strings", (long long)in->count);
  for (int64_t i = 0; i < in->count && !status; i++) {
    status = v2 ? split_separator(ctx->state, text_at(in, i), text_at(by, 0), &p)
                : split_bytes(ctx->state, text_at(in, i), text_at(by, 0), &p);
    ends[i] = p.count;
  }
  if (!status) status = out_parts(ctx, &p, ends, in->count);
  td_free(ends);
  td_free(p.items);
  return status;
}

/* ---- ReduceJoin ---- */

typedef struct join {
  char *separator;
  size_t size;
  bool keep_dims;
} join;

static td_status join_create(td_kernel_builder *b, void *state) {
  join *j = state;
  td_str separator;
  TD_TRY(td_attr_bool(b->node, "keep_dims", &j->keep_dims));
  TD_TRY(td_attr_str(b->node, "separator", &separator));
  j->separator = td_strndup(separator.data, separator.size);
  j->size = separator.size;
  return TD_STATUS_OK;
}
static void join_destroy(void *state) { td_free(((join *)state)->separator); }

/* Some dimensions of a tensor and how far apart their elements lie. */
typedef struct axes {
  int rank;
  int64_t sizes[TD_MAX_RANK], strides[TD_MAX_RANK], count;
} axes;

static void add_axis(axes *a, const td_tensor *t, int axis) {
  int64_t stride = 1;
  for (int k = axis + 1; k < t->rank; k++) stride *= t->dims[k];
  a->sizes[a->rank] = t->dims[axis];
  a->strides[a->rank++] = stride;
  a->count *= t->dims[axis];
}

static int64_t place_of(const axes *a, int64_t i) {
  int64_t at = 0;
  for (int k = a->rank - 1; k >= 0; k--) {
    at += i % a->sizes[k] * a->strides[k];
    i /= a->sizes[k];
  }
  return at;
}

static td_status find_axes(const td_tensor *t, const td_tensor *indices, bool keep_dims, axes *reduced, axes *kept,
                           td_shape *out) {
  bool is_reduced[TD_MAX_RANK] = {false};
  for (int64_t i = 0; i < indices->count; i++) {
    int32_t axis = TD_DATA(indices, int32_t)[i];
    if (axis < -t->rank || axis >= t->rank) {
      return td_error(TD_OUT_OF_RANGE, "Invalid reduction dimension %d for input with %d dimension(s)", axis, t->rank);
    }
    int at = axis < 0 ? axis + t->rank : axis;
    if (is_reduced[at]) return td_invalid_argument("Duplicate reduction dimension %d", axis);
    is_reduced[at] = true;
  }
  /* The dimension that is named first changes fastest. */
  for (int64_t i = indices->count - 1; i >= 0; i--) {
    int32_t axis = TD_DATA(indices, int32_t)[i];
    add_axis(reduced, t, axis < 0 ? axis + t->rank : axis);
  }
  for (int k = 0; k < t->rank; k++) {
    if (!is_reduced[k]) add_axis(kept, t, k);
    if (!is_reduced[k] || keep_dims) out->dims[out->rank++] = is_reduced[k] ? 1 : t->dims[k];
  }
  return TD_STATUS_OK;
}

static td_status reduce_join_compute(td_kernel_ctx *ctx) {
  const join *j = ctx->state;
  const td_tensor *t = td_in(ctx, 0);
  axes reduced = {.count = 1}, kept = {.count = 1};
  td_shape shape = {.rank = 0};
  td_tensor *out;
  TD_TRY(find_axes(t, td_in(ctx, 1), j->keep_dims, &reduced, &kept, &shape));
  TD_TRY(td_out_alloc(ctx, 0, &shape, &out));
  if (!reduced.count) return TD_STATUS_OK; /* all empty */
  td_status status = TD_STATUS_OK;
  td_strbuf b = {0};
  for (int64_t i = 0; i < out->count && !status; i++) {
    int64_t at = place_of(&kept, i);
    b.size = 0;
    for (int64_t k = 0; k < reduced.count; k++) {
      if (k) td_strbuf_append(&b, td_str_n(j->separator, j->size));
      td_strbuf_append(&b, text_at(t, at + place_of(&reduced, k)));
    }
    status = td_string_set(TD_DATA(out, td_string) + i, td_strbuf_view(&b));
  }
  td_strbuf_deinit(&b);
  return status;
}

/* ---- StringFormat ---- */

typedef struct format {
  char *text, *placeholder;
  td_str template;
  size_t placeholder_size;
  int64_t summarize;
} format;

static td_str next_piece(td_str *rest, const format *f) { /* up to the next placeholder, which it skips */
  const char *at =
      f->placeholder_size && rest->size ? memmem(rest->data, rest->size, f->placeholder, f->placeholder_size) : NULL;
  td_str piece = {rest->data, at ? (size_t)(at - rest->data) : rest->size};
  size_t used = piece.size + (at ? f->placeholder_size : 0);
  *rest = at ? (td_str){rest->data + used, rest->size - used} : (td_str){NULL, 0};
  return piece;
}

static td_status format_create(td_kernel_builder *b, void *state) {
  format *f = state;
  td_str placeholder;
  TD_TRY(td_attr_str(b->node, "template", &f->template));
  TD_TRY(td_attr_str(b->node, "placeholder", &placeholder));
  TD_TRY(td_attr_int(b->node, "summarize", &f->summarize));
  f->text = td_strndup(f->template.data, f->template.size);
  f->template.data = f->text;
  f->placeholder = td_strndup(placeholder.data, placeholder.size);
  f->placeholder_size = placeholder.size;
  long long count = -1;
  for (td_str rest = f->template; rest.data; count++) next_piece(&rest, f);
  if (count == b->input_count) return TD_STATUS_OK;
  return td_invalid_argument("num placeholders in template and num inputs must match: %lld vs. %d", count,
                             b->input_count);
}
static void format_destroy(void *state) {
  td_free(((format *)state)->text);
  td_free(((format *)state)->placeholder);
}

/* One element as a tensor of its own prints. */
static void show_element(td_tensor *flat, int64_t i, td_strbuf *b) {
  td_tensor *one = td_tensor_slice(flat, i, i + 1), *scalar = td_tensor_reshape(one, 0, NULL);
  char *text = td_tensor_summarize(scalar, 1);
  bool quoted = flat->dtype == TD_STRING;
  if (quoted) td_strbuf_putc(b, '"');
  td_strbuf_puts(b, text);
  if (quoted) td_strbuf_putc(b, '"');
  td_free(text);
  td_tensor_release(scalar);
  td_tensor_release(one);
}

static void show_spacing(int dim, int rank, td_strbuf *b) {
  if (dim == rank - 1) {
    td_strbuf_putc(b, ' ');
    return;
  }
  for (int k = 0; k < rank - dim - 1; k++) td_strbuf_putc(b, '\n');
  for (int k = 0; k <= dim; k++) td_strbuf_putc(b, ' ');
}

/* From dimension `dim` on, `ends` entries at either end of each. */
static void show_from(const td_tensor *t, td_tensor *flat, int dim, int64_t ends, int64_t at, td_strbuf *b) {
  if (dim == t->rank) {
    show_element(flat, at, b);
    return;
  }
  int64_t n = t->dims[dim], step = 1;
  for (int k = dim + 1; k < t->rank; k++) step *= t->dims[k];
  td_strbuf_putc(b, '[');
  bool cuts = ends < n - ends;
  for (int64_t i = 0; i < n; i++) {
    if (i) show_spacing(dim, t->rank, b);
    if (cuts && i == ends) {
      td_strbuf_puts(b, "...");
      i = n - ends - 1;
      continue;
    }
    show_from(t, flat, dim + 1, ends, at + step * i, b);
  }
  td_strbuf_putc(b, ']');
}

static void show(td_tensor *t, int64_t summarize, td_strbuf *b) {
  td_tensor *flat = td_tensor_reshape(t, 1, &t->count);
  if (summarize < 0) summarize = t->count;
  if (t->count || t->rank == 1)
    show_from(t, flat, 0, TD_MIN(summarize, t->count), 0, b);
  else
    td_strbuf_puts(b, "[]");
  td_tensor_release(flat);
}

static td_status format_compute(td_kernel_ctx *ctx) {
  const format *f = ctx->state;
  td_tensor *out;
  td_str rest = f->template;
  td_strbuf b = {0};
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  td_strbuf_append(&b, next_piece(&rest, f));
  for (int i = 0; i < ctx->kernel->input_count; i++) {
    show(td_in(ctx, i), f->summarize, &b);
    td_strbuf_append(&b, next_piece(&rest, f));
  }
  td_status status = td_string_set(out->data, td_strbuf_view(&b));
  td_strbuf_deinit(&b);
  return status;
}

static const td_op_spec ops[] = {
    {"ReduceJoin", "inputs: string; reduction_indices: int32", "output: string",
     "keep_dims: bool = false; separator: string = ''", 0},
    {"StringFormat", "inputs: T", "output: string",
     "T: list(type) >= 0; template: string = '%s'; placeholder: string = '%s'; summarize: int = 3", 0},
    {"StringSplit", "input: string; delimiter: string", "indices: int64; values: string; shape: int64",
     "skip_empty: bool = true", 0},
    {"StringSplitV2", "input: string; sep: string", "indices: int64; values: string; shape: int64",
     "maxsplit: int = -1", 0},
};

static const td_kernel_def kernels[] = {
    {.op = "ReduceJoin",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(join),
     .create = join_create,
     .destroy = join_destroy,
     .compute = reduce_join_compute},
    {.op = "StringFormat",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(format),
     .create = format_create,
     .destroy = format_destroy,
     .compute = format_compute},
    {.op = "StringSplit",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(split),
     .create = split_create,
     .compute = split_compute},
    {.op = "StringSplitV2",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(split),
     .create = split_v2_create,
     .compute = split_compute},
};

TD_FAMILY(string_split, ops, kernels);
