/* DecodeCSV: records of fields (RFC 4180, with TensorFlow's rules about line ends), a tensor a column. */
#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "ops/text_number.h"

typedef struct csv {
  char delimiter;
  bool quotes, selects;
  td_str na;        /* as good as nothing; own */
  int64_t *columns; /* for each output: which field; increasing; own */
  int count;
} csv;

static td_str text_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

static td_status select_columns(csv *c, const Pb__AttrValue__ListValue *list) {
  c->selects = list->n_i;
  if (c->selects && list->n_i != (size_t)c->count)
    return td_invalid_argument("select_cols should match output size: %zu columns, %d outputs", list->n_i, c->count);
  for (int i = 0; i < c->count; i++) {
    c->columns[i] = c->selects ? list->i[i] : i;
    if (c->columns[i] < 0) return td_invalid_argument("select_cols should be non-negative indices");
    if (i && c->columns[i] <= c->columns[i - 1])
      return td_invalid_argument("select_cols should be strictly increasing indices");
  }
  return TD_STATUS_OK;
}

static td_status csv_create(td_kernel_builder *b, void *state) {
  csv *c = state;
  td_str delimiter, na;
  const Pb__AttrValue__ListValue *columns;
  TD_TRY(td_attr_str(b->node, "field_delim", &delimiter));
  TD_TRY(td_attr_bool(b->node, "use_quote_delim", &c->quotes));
  TD_TRY(td_attr_str(b->node, "na_value", &na));
  TD_TRY(td_attr_list(b->node, "select_cols", &columns));
  if (delimiter.size != 1) return td_invalid_argument("field_delim should be only 1 char");
  c->delimiter = delimiter.data[0];
  c->na = td_str_n(td_strndup(na.data, na.size), na.size);
  c->count = b->output_count;
  c->columns = td_new_array(int64_t, (size_t)c->count + 1);
  return select_columns(c, columns);
}

static void csv_destroy(void *state) {
  csv *c = state;
  td_free((char *)c->na.data);
  td_free(c->columns);
}

/* ---- fields ---- */

typedef struct record {
  const csv *csv;
  const char *next, *end;
  bool more;         /* a delimiter came last: another field follows, if only an empty one */
  td_strbuf *quoted; /* where a field with quotes is put together */
} record;

static bool is_line_end(char c) { return c == '\n' || c == '\r'; }

static td_status plain_field(record *r, td_str *field) {
  const char *begin = r->next;
  for (; r->next < r->end && *r->next != r->csv->delimiter; r->next++) {
    if ((r->csv->quotes && *r->next == '"') || is_line_end(*r->next))
      return td_invalid_argument("Unquoted fields cannot have quotes/CRLFs inside");
  }
  *field = td_str_n(begin, (size_t)(r->next - begin));
  return TD_STATUS_OK;
}

static td_status quoted_field(record *r, td_str *field) {
  td_strbuf *b = r->quoted;
  const char *p = r->next + 1;
  b->size = 0;
  if (!td_strbuf_try_reserve(b, (size_t)(r->end - p))) return td_resource_exhausted("No memory for a field");
  for (; p < r->end - 1 && (*p != '"' || p[1] != r->csv->delimiter); p++) {
    if (*p == '"' && *++p != '"')
      return td_invalid_argument("Quote inside a string has to be escaped by another quote");
    td_strbuf_putc(b, *p);
  }
  if (p >= r->end || *p != '"' || (p != r->end - 1 && p[1] != r->csv->delimiter))
    return td_invalid_argument("Quoted field has to end with quote followed by delim or end");
  r->next = p + 1;
  *field = td_strbuf_view(b);
  return TD_STATUS_OK;
}

/* The next field; *end: there is none. */
static td_status next_field(record *r, td_str *field, bool *end) {
  *end = false;
  while (r->next < r->end && is_line_end(*r->next)) r->next++;
  if (r->next == r->end) {
    *end = !r->more;
    *field = TD_STR("");
    r->more = false;
    return TD_STATUS_OK;
  }
  if (r->csv->quotes && *r->next == '"')
    TD_TRY(quoted_field(r, field));
  else
    TD_TRY(plain_field(r, field));
  r->more = r->next < r->end && *r->next == r->csv->delimiter && r->next + 1 == r->end;
  if (r->next < r->end) r->next++;
  return TD_STATUS_OK;
}

/* ---- values ---- */

static td_status set_value(td_kernel_ctx *ctx, int f, int64_t i, td_str field) {
  const csv *c = ctx->state;
  td_tensor *out = ctx->out[f].tensor;
  const td_tensor *value = td_in(ctx, f + 1);
  td_dtype type = (td_dtype)out->dtype;
  if (!field.size || td_str_eq(field, c->na)) {
    if (value->count != 1)
      return td_invalid_argument("Field %d is required but missing in record %lld!", f, (long long)i);
    td_tensor_copy_elements(out, i, value, 0, 1);
    return TD_STATUS_OK;
  }
  if (type == TD_STRING) return td_string_set(TD_DATA(out, td_string) + i, field);
  if (td_text_number(field, type, (char *)out->data + (size_t)i * td_dtype_size(type))) return TD_STATUS_OK;
  return td_invalid_argument("Field %d in record %lld is not a valid %s: %.*s", f, (long long)i, td_dtype_name(type),
                             (int)TD_MIN(field.size, (size_t)1024), field.data);
}

static td_status decode_record(td_kernel_ctx *ctx, int64_t i, td_str text, td_strbuf *quoted) {
  const csv *c = ctx->state;
  record r = {.csv = c, .next = text.data, .end = text.data + text.size, .quoted = quoted};
  int64_t count = 0;
  int f = 0;
  td_str field;
  bool end;
  for (;; count++) {
    if (c->selects && f == c->count) return TD_STATUS_OK; /* nothing behind the last column is looked at */
    TD_TRY(next_field(&r, &field, &end));
    if (end) break;
    if (f < c->count && count == c->columns[f]) {
      TD_TRY(set_value(ctx, f, i, field));
      f++;
    }
  }
  if (c->selects ? f == c->count : count == c->count) return TD_STATUS_OK;
  return td_invalid_argument("Expect %d fields but have %lld in record %lld", c->count,
                             (long long)(c->selects ? f : count), (long long)i);
}

static td_status count_fields(const csv *c, td_str text, td_strbuf *quoted, int64_t *count) {
  record r = {.csv = c, .next = text.data, .end = text.data + text.size, .quoted = quoted};
  td_str field;
  bool end;
  for (*count = 0;; ++*count) {
    TD_TRY(next_field(&r, &field, &end));
    if (end) return TD_STATUS_OK;
  }
}

static td_status csv_compute(td_kernel_ctx *ctx) {
  const csv *c = ctx->state;
  const td_tensor *records = td_in(ctx, 0);
  td_strbuf quoted = {0};
  td_status status = TD_STATUS_OK;
  for (int f = 0; f < c->count; f++) {
    const td_tensor *value = td_in(ctx, f + 1);
    td_tensor *out;
    if (value->rank > 1) return td_invalid_argument("Each record default should be at most rank 1");
    if (value->count > 1)
      return td_invalid_argument("There should only be 1 default per field but field %d has %lld", f,
                                 (long long)value->count);
    TD_TRY(td_out_alloc_like(ctx, f, records, &out));
  }
  for (int64_t i = 0; i < records->count && !status; i++) {
    int64_t fields;
    status = decode_record(ctx, i, text_at(records, i), &quoted);
    if (!status || c->selects) continue;
    /* How many there are matters more than what is in one. */
    td_status other = count_fields(c, text_at(records, i), &quoted, &fields);
    if (!other && fields != c->count)
      other = td_invalid_argument("Expect %d fields but have %lld in record %lld", c->count, (long long)fields,
                                  (long long)i);
    if (!other) continue;
    td_status_free(status);
    status = other;
  }
  td_strbuf_deinit(&quoted);
  return status;
}

static const td_op_spec ops[] = {
    {"DecodeCSV", "records: string; record_defaults: OUT_TYPE", "output: OUT_TYPE",
     "OUT_TYPE: list(type) in {float, double, int32, int64, string} >= 1; field_delim: string = ','; "
     "use_quote_delim: bool = true; na_value: string = ''; select_cols: list(int) = []",
     0},
};

static const td_kernel_def kernels[] = {
    {.op = "DecodeCSV",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(csv),
     .create = csv_create,
     .destroy = csv_destroy,
     .compute = csv_compute},
};

TD_FAMILY(csv, ops, kernels);
