/* CSVDataset: records of comma-separated fields, read and parsed in one pass; fields may be quoted, with line ends
 * inside. Reading blocks, so it happens on the pool. */
#include "base/mem.h"
#include "checkpoint/input.h"
#include "ops/data/archive.h"
#include "ops/families.h"
#include "ops/text_number.h"

enum { CHUNK = 16 << 10, MAX_FIELD = 1 << 30 };

typedef struct csv {
  td_dataset base;
  char **names;
  size_t *name_sizes;
  int64_t file_count;
  td_compression compression;
  size_t buffer_size;
  bool has_header, use_quotes;
  char delimiter;
  char *na_value;
  size_t na_size;
  int64_t *columns; /* those that are wanted, rising; NULL: all */
  int64_t column_count;
  int64_t *excluded; /* those that are not wanted, rising; only where `columns` is NULL */
  int64_t excluded_count;
  td_element *defaults; /* one value, or none: the field is required */
} csv;

typedef struct csv_iterator {
  td_iterator base;
  td_input *in;
  int64_t file;
  size_t at, size; /* of the chunk */
  bool is_over;    /* the file has no more than the chunk */
  int64_t resumes; /* where in the file to go on, before it has been opened; 0: at its beginning */
  td_status error; /* of the file system */
  td_strbuf field;
  char chunk[CHUNK];
} csv_iterator;

static void csv_destroy(td_dataset *base) {
  csv *d = (csv *)base;
  for (int64_t i = 0; i < d->file_count; i++) td_free(d->names[i]);
  td_free(d->names);
  td_free(d->name_sizes);
  td_free(d->na_value);
  td_free(d->columns);
  td_free(d->excluded);
  td_element_free(d->defaults);
}

static void csv_stop(td_iterator *it) {
  csv_iterator *c = (csv_iterator *)it;
  td_input_close(c->in);
  td_status_free(c->error);
  td_strbuf_deinit(&c->field);
}

/* ---- characters ---- */

/* The next one without taking it; -1 at the end, or after an error of the file system. */
static int peek(csv_iterator *c) {
  if (c->at < c->size) return (unsigned char)c->chunk[c->at];
  if (c->is_over) return -1;
  c->at = c->size = 0;
  c->error = td_input_read(c->in, c->chunk, CHUNK, &c->size);
  if (c->error) c->size = 0;
  if (c->size < CHUNK) c->is_over = true;
  return c->size ? (unsigned char)c->chunk[0] : -1;
}

static bool is_line_end(int ch) { return ch == '\n' || ch == '\r'; }

/* Takes "\n", "\r" or "\r\n". */
static void take_line_end(csv_iterator *c) {
  int ch = peek(c);
  if (!is_line_end(ch)) return;
  c->at++;
  if (ch == '\r' && peek(c) == '\n') c->at++;
}

static void skip_line(csv_iterator *c) {
  while (peek(c) >= 0 && !is_line_end(peek(c))) c->at++;
  take_line_end(c);
}

/* ---- fields: into c->field; what follows (delimiter, line end, end of file) is not taken ---- */

static td_status add_char(csv_iterator *c, int ch) {
  if (c->field.size >= MAX_FIELD) return td_resource_exhausted("A field is longer than %d bytes", MAX_FIELD);
  td_strbuf_putc(&c->field, (char)ch);
  return TD_STATUS_OK;
}

static td_status quoted_field(const csv *d, csv_iterator *c) {
  c->at++;
  for (;;) {
    int ch = peek(c);
    if (ch < 0) return td_invalid_argument("Reached end of file without closing quoted field in record");
    c->at++;
    if (ch == '"') {
      int after = peek(c);
      if (after < 0 || after == d->delimiter || is_line_end(after)) return TD_STATUS_OK;
      if (after != '"') return td_invalid_argument("Quote inside a string has to be escaped by another quote");
      c->at++;
    }
    TD_TRY(add_char(c, ch));
  }
}

static td_status plain_field(const csv *d, csv_iterator *c) {
  for (int ch = peek(c); ch >= 0 && ch != d->delimiter && !is_line_end(ch); ch = peek(c)) {
    if (ch == '"' && d->use_quotes) return td_invalid_argument("Unquoted fields cannot have quotes inside");
    TD_TRY(add_char(c, ch));
    c->at++;
  }
  return TD_STATUS_OK;
}

static td_status read_field(const csv *d, csv_iterator *c) {
  c->field.size = 0;
  return d->use_quotes && peek(c) == '"' ? quoted_field(d, c) : plain_field(d, c);
}

static td_status convert(const csv *d, int i, td_str text, td_tensor **out) {
  td_dtype type = d->base.spec.types[i];
  td_tensor *fallback = d->defaults->values[i];
  bool is_missing = !text.size || td_str_eq(text, td_str_n(d->na_value, d->na_size));
  if (is_missing && !fallback->count) return td_invalid_argument("Field %d is required but missing in record!", i);
  TD_TRY(td_tensor_create_dims(type, 0, NULL, out));
  td_status s = TD_STATUS_OK;
  if (is_missing)
    td_tensor_copy_elements(*out, 0, fallback, 0, 1);
  else if (type == TD_STRING)
    s = td_string_set(TD_DATA(*out, td_string), text);
  else if (!td_text_number(text, type, (*out)->data))
    s = td_invalid_argument("Field %d in record is not a valid %s: %.*s", i, td_dtype_name(type), TD_STR_ARG(text));
  if (s) {
    td_tensor_release(*out);
    *out = NULL;
  }
  return s;
}

/* ---- records ---- */

static bool is_wanted(const csv *d, int64_t column, int filled) {
  if (d->columns) return filled < d->column_count && d->columns[filled] == column;
  int64_t earlier = column - filled; /* wanted so far: the others were excluded */
  return earlier >= d->excluded_count || d->excluded[earlier] != column;
}

static td_status parse_record(const csv *d, csv_iterator *c, td_element *e) {
  int filled = 0;
  for (int64_t column = 0;; column++) {
    TD_TRY(read_field(d, c));
    if (is_wanted(d, column, filled)) {
      if (filled >= e->count) return td_invalid_argument("Expect %d fields but have more in record", e->count);
      TD_TRY(convert(d, filled, td_strbuf_view(&c->field), &e->values[filled]));
      filled++;
    }
    if (peek(c) != d->delimiter) break;
    c->at++;
  }
  if (filled < e->count) return td_invalid_argument("Expect %d fields but have %d in record", e->count, filled);
  return TD_STATUS_OK;
}

static void close_file(csv_iterator *c) {
  td_input_close(c->in);
  c->in = NULL;
  c->file++;
}

static td_status open_file(const csv *d, csv_iterator *c) {
  c->at = c->size = 0;
  c->is_over = false;
  TD_TRY(td_input_open(td_str_n(d->names[c->file], d->name_sizes[c->file]), d->compression, d->buffer_size, &c->in));
  int64_t resumes = c->resumes;
  c->resumes = 0;
  if (resumes) return td_input_seek(c->in, (uint64_t)resumes);
  if (!d->has_header) return TD_STATUS_OK;
  if (peek(c) < 0 && !c->error) return td_invalid_argument("Can't read header of file");
  skip_line(c);
  return TD_STATUS_OK;
}

static td_next next_record(td_iterator *it) {
  csv_iterator *c = (csv_iterator *)it;
  const csv *d = (const csv *)it->dataset;
  td_element *e = td_element_create(d->base.spec.width);
  td_status s = parse_record(d, c, e);
  if (c->error) { /* rather than what follows from it */
    td_status_free(s);
    s = c->error;
    c->error = NULL;
  }
  if (s)
    skip_line(c);
  else
    take_line_end(c);
  if (!s) return td_iterator_give(it, e);
  td_element_free(e);
  return td_iterator_fail(it, s);
}

static td_next csv_advance(td_iterator *it) {
  csv_iterator *c = (csv_iterator *)it;
  const csv *d = (const csv *)it->dataset;
  if (c->file >= d->file_count) return td_iterator_give(it, NULL);
  if (td_iterator_costs(it, SIZE_MAX) == TD_NEXT_HOP) return TD_NEXT_HOP;
  for (; c->file < d->file_count; close_file(c)) {
    td_status s = c->in ? TD_STATUS_OK : open_file(d, c);
    if (!s && peek(c) >= 0) return next_record(it);
    if (!s) s = c->error;
    c->error = NULL;
    if (!s) continue;
    close_file(c);
    return td_iterator_fail(it, s);
  }
  return td_iterator_give(it, NULL);
}

static td_status csv_archive(td_iterator *it, td_archive *a) {
  csv_iterator *c = (csv_iterator *)it;
  if (a->is_writing && c->in) c->resumes = (int64_t)td_input_tell(c->in) - (int64_t)(c->size - c->at);
  td_status s = td_archive_int(a, &c->file, 0, ((const csv *)it->dataset)->file_count);
  if (!s) s = td_archive_int(a, &c->resumes, 0, INT64_MAX);
  if (a->is_writing && c->in) c->resumes = 0;
  return s;
}

static const td_dataset_ops csv_ops = {.name = "CSV",
                                       .iterator_size = sizeof(csv_iterator),
                                       .advance = csv_advance,
                                       .stop = csv_stop,
                                       .archive = csv_archive,
                                       .destroy = csv_destroy};

/* ---- kernel ---- */

static td_status read_names(const td_tensor *names, csv *d) {
  if (names->rank > 1) return td_invalid_argument("`filenames` must be a scalar or a vector.");
  d->names = td_new_array(char *, (size_t)names->count + 1);
  d->name_sizes = td_new_array(size_t, (size_t)names->count + 1);
  for (; d->file_count < names->count; d->file_count++) {
    td_str name = td_string_view(TD_DATA(names, td_string) + d->file_count);
    d->names[d->file_count] = td_strndup(name.data, name.size);
    d->name_sizes[d->file_count] = name.size;
  }
  return TD_STATUS_OK;
}

static td_status read_format(td_kernel_ctx *ctx, csv *d) {
  td_str text;
  int64_t size;
  TD_TRY(td_in_text(ctx, 1, "compression_type", &text));
  if (!td_compression_parse(text, &d->compression))
    return td_invalid_argument("Unsupported compression_type: %.*s.", TD_STR_ARG(text));
  TD_TRY(td_in_int(ctx, 2, "buffer_size", &size));
  if (size <= 0) return td_invalid_argument("buffer_size should be positive");
  d->buffer_size = (size_t)TD_MIN(size, (int64_t)TD_INPUT_BUFFER);
  TD_TRY(td_in_bool(ctx, 3, "header", &d->has_header));
  TD_TRY(td_in_text(ctx, 4, "field_delim", &text));
  if (text.size != 1) return td_invalid_argument("field_delim should be only 1 char");
  d->delimiter = text.data[0];
  TD_TRY(td_in_bool(ctx, 5, "use_quote_delim", &d->use_quotes));
  TD_TRY(td_in_text(ctx, 6, "na_value", &text));
  d->na_value = td_strndup(text.data, text.size);
  d->na_size = text.size;
  return TD_STATUS_OK;
}

/* A rising list of columns; *out stays NULL for an empty one. */
static td_status read_list(const td_tensor *t, const char *name, int64_t **out, int64_t *count) {
  if (t->rank != 1) return td_invalid_argument("%s must be a vector", name);
  if (!t->count) return TD_STATUS_OK;
  *count = t->count;
  *out = td_new_array(int64_t, (size_t)t->count);
  for (int64_t i = 0; i < t->count; i++) {
    (*out)[i] = TD_DATA(t, int64_t)[i];
    if ((*out)[i] < 0) return td_invalid_argument("%s should be non-negative indices", name);
    if (i && (*out)[i] <= (*out)[i - 1]) return td_invalid_argument("%s should be strictly increasing indices", name);
  }
  return TD_STATUS_OK;
}

static td_status read_columns(td_kernel_ctx *ctx, csv *d) {
  int excluded_at = 8 + d->base.spec.width;
  TD_TRY(read_list(td_in(ctx, 7), "select_cols", &d->columns, &d->column_count));
  if (d->columns && d->column_count != d->base.spec.width)
    return td_invalid_argument("select_cols should match output size");
  if (ctx->kernel->input_count <= excluded_at) return TD_STATUS_OK;
  TD_TRY(read_list(td_in(ctx, excluded_at), "exclude_cols", &d->excluded, &d->excluded_count));
  return d->columns && d->excluded ? td_invalid_argument("Either select_cols or exclude_cols should be empty")
                                   : TD_STATUS_OK;
}

static td_status read_defaults(td_kernel_ctx *ctx, csv *d) {
  int n = d->base.spec.width;
  d->defaults = td_element_create(n);
  for (int i = 0; i < n; i++) {
    td_tensor *t = td_in(ctx, 8 + i);
    if (t->rank > 1) return td_invalid_argument("Each record default should be at most rank 1");
    if (t->count > 1)
      return td_invalid_argument("There should only be 1 default per field but field %d has %lld", i,
                                 (long long)t->count);
    if (t->dtype != d->base.spec.types[i])
      return td_invalid_argument("Record default %d has type %s, its field %s", i, td_dtype_name(t->dtype),
                                 td_dtype_name(d->base.spec.types[i]));
    d->defaults->values[i] = td_tensor_retain(t);
  }
  return TD_STATUS_OK;
}

static td_status compute(td_kernel_ctx *ctx) {
  td_dataset *base;
  TD_TRY(td_dataset_create(&csv_ops, sizeof(csv), &((td_dataset_kernel *)ctx->state)->spec, NULL, 0, &base));
  csv *d = (csv *)base;
  td_status s = read_names(td_in(ctx, 0), d);
  if (!s) s = read_format(ctx, d);
  if (!s) s = read_columns(ctx, d);
  if (!s) s = read_defaults(ctx, d);
  return td_out_dataset(ctx, s, base);
}

#define CSV_IN                                                                                           \
  "filenames: string; compression_type: string; buffer_size: int64; header: bool; field_delim: string; " \
  "use_quote_delim: bool; na_value: string; select_cols: int64; record_defaults: output_types"
#define CSV_ATTRS \
  "output_types: list(type) in {float, double, int32, int64, string} >= 1; output_shapes: list(shape) >= 1"

static const td_op_spec ops[] = {
    {"CSVDataset", CSV_IN, "handle: variant", CSV_ATTRS, TD_OP_STATEFUL},
    {"CSVDatasetV2", CSV_IN "; exclude_cols: int64", "handle: variant", CSV_ATTRS, TD_OP_STATEFUL},
    {"ExperimentalCSVDataset", CSV_IN, "handle: variant", CSV_ATTRS, TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("CSVDataset", td_dataset_kernel_create, compute),
    TD_DATASET_KERNEL("CSVDatasetV2", td_dataset_kernel_create, compute),
    TD_DATASET_KERNEL("ExperimentalCSVDataset", td_dataset_kernel_create, compute),
};

TD_FAMILY(data_csv, ops, kernels);
