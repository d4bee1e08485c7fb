/* Strings: StringJoin, AsString, RegexFullMatch, StaticRegexFullMatch, StringToHashBucket, StringToHashBucketFast. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <complex.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/fingerprint.h"
#include "ops/move.h"
#include "tensor/number.h"

static const td_string *string_at(const td_tensor *t, int64_t i) { return TD_DATA(t, td_string) + i; }

/* ---- StringJoin ---- */

typedef struct join {
  char *separator;
  size_t size;
} join;

static td_status join_create(td_kernel_builder *b, void *state) {
  join *j = state;
  td_str separator;
  TD_TRY(td_attr_str(b->node, "separator", &separator));
  j->separator = td_strndup(separator.data, separator.size);
  j->size = separator.size;
  return TD_STATUS_OK;
}
static void join_destroy(void *state) { td_free(((join *)state)->separator); }

/* The strings at position `i` of all inputs (scalars: their only one), joined into *out. */
static td_status join_at(td_kernel_ctx *ctx, const join *j, int64_t i, td_string *out) {
  int n = ctx->kernel->input_count;
  size_t size = 0;
  bool fits = true;
  for (int k = 0; k < n && fits; k++) {
    const td_tensor *t = td_in(ctx, k);
    fits = td_add_size(size, string_at(t, t->rank ? i : 0)->size, &size) && (!k || td_add_size(size, j->size, &size));
  }
  if (!fits) return td_resource_exhausted("The joined string is too long");
  if (!size) return TD_STATUS_OK;
  char *data = td_try_malloc(size), *p = data;
  if (!data) return td_resource_exhausted("OOM when joining a string of %zu bytes", size);
  for (int k = 0; k < n; k++) {
    const td_tensor *t = td_in(ctx, k);
    const td_string *s = string_at(t, t->rank ? i : 0);
    if (k && j->size) p = mempcpy(p, j->separator, j->size);
    if (s->size) p = mempcpy(p, s->data, s->size);
  }
  td_string_take(out, data, size);
  return TD_STATUS_OK;
}

static td_status string_join_compute(td_kernel_ctx *ctx) {
  const td_tensor *like = NULL;
  td_tensor *out;
  for (int k = 0; k < ctx->kernel->input_count; k++) {
    const td_tensor *t = td_in(ctx, k);
    if (!t->rank) continue;
    if (like && !td_tensor_same_shape(like, t)) {
      return td_invalid_argument("Input shapes do not match: %s vs. %s", TD_SHOW(like), TD_SHOW(t));
    }
    like = t;
  }
  TD_TRY(td_out_alloc_dims(ctx, 0, like ? like->rank : 0, like ? like->dims : NULL, &out));
  for (int64_t i = 0; i < out->count; i++) TD_TRY(join_at(ctx, ctx->state, i, TD_DATA(out, td_string) + i));
  return TD_STATUS_OK;
}

/* ---- AsString ---- */

typedef struct format {
  char text[64]; /* for one number, as printf takes it */
} format;

enum { FORMAT_LIMIT = 1 << 16 }; /* of width and precision: what one number may take */

static td_status format_flags(const td_node_def *n, char *out, size_t size) {
  int64_t width, precision;
  td_str fill;
  TD_TRY(td_attr_int(n, "width", &width));
  TD_TRY(td_attr_int(n, "precision", &precision));
  TD_TRY(td_attr_str(n, "fill", &fill));
  if (fill.size > 1) return td_invalid_argument("Fill string must be one or fewer characters");
  if (fill.size && !strchr(" +-0#", fill.data[0])) {
    return td_invalid_argument("Fill argument not supported: \"%.*s\"", TD_STR_ARG(fill));
  }
  if (width > FORMAT_LIMIT || precision > FORMAT_LIMIT) {
    return td_invalid_argument("width %lld or precision %lld is too large", (long long)width, (long long)precision);
  }
  int at = snprintf(out, size, "%%%.*s", TD_STR_ARG(fill));
  if (width > -1) at += snprintf(out + at, size - (size_t)at, "%lld", (long long)width);
  if (precision > -1) snprintf(out + at, size - (size_t)at, ".%lld", (long long)precision);
  return TD_STATUS_OK;
}

static td_status format_create(td_kernel_builder *b, void *state) {
  format *f = state;
  td_dtype type = td_dtype_base(b->input_types[0]);
  bool scientific, shortest, floating = td_dtype_in(type, TD_SET_FLOATING | TD_SET_COMPLEX);
  int64_t precision;
  TD_TRY(td_attr_bool(b->node, "scientific", &scientific));
  TD_TRY(td_attr_bool(b->node, "shortest", &shortest));
  TD_TRY(td_attr_int(b->node, "precision", &precision));
  if (!floating && (scientific || shortest)) {
    return td_invalid_argument("scientific and shortest format not supported for datatype %s", td_dtype_name(type));
  }
  if (!floating && precision >= 0) {
    return td_invalid_argument("precision not supported for datatype %s", td_dtype_name(type));
  }
  if (scientific && shortest) return td_invalid_argument("Cannot select both scientific and shortest notation");
  TD_TRY(format_flags(b->node, f->text, sizeof f->text - 8));
  const char *conversion = floating                             ? (shortest     ? "g"
                                                                   : scientific ? "e"
                                                                                : "f")
                           : td_dtype_in(type, TD_SET_UNSIGNED) ? "llu"
                           : type == TD_STRING                  ? "s"
                                                                : "lld";
  strcat(f->text, conversion);
  return TD_STATUS_OK;
}

static void print_at(const format *f, const td_tensor *t, int64_t i, td_strbuf *b) {
  if (t->dtype == TD_BOOL) {
    td_strbuf_puts(b, TD_DATA(t, uint8_t)[i] ? "true" : "false");
  } else if (td_dtype_in((td_dtype)t->dtype, TD_SET_COMPLEX)) {
    td_complex128 z = td_tensor_complex_at(t, i);
    td_strbuf_putc(b, '(');
    td_strbuf_printf(b, f->text, creal(z));
    td_strbuf_putc(b, ',');
    td_strbuf_printf(b, f->text, cimag(z));
    td_strbuf_putc(b, ')');
  } else if (td_dtype_in((td_dtype)t->dtype, TD_SET_FLOATING)) {
    td_strbuf_printf(b, f->text, td_tensor_real_at(t, i));
  } else {
    td_strbuf_printf(b, f->text, (long long)td_tensor_integer_at(t, i));
  }
}

static td_status as_string_compute(td_kernel_ctx *ctx) {
  const td_tensor *t = td_in(ctx, 0);
  if (t->dtype == TD_STRING) {
    td_out_forward(ctx, 0, 0);
    return TD_STATUS_OK;
  }
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  td_strbuf b = {0};
  td_status status = TD_STATUS_OK;
  for (int64_t i = 0; i < t->count && !status; i++) {
    b.size = 0;
    print_at(ctx->state, t, i, &b);
    status = td_string_set(TD_DATA(out, td_string) + i, td_strbuf_view(&b));
  }
  td_strbuf_deinit(&b);
  return status;
}

/* ---- RegexFullMatch ---- */

/* TensorFlow uses RE2, whose patterns PCRE2 takes; what RE2 promises - time linear in the text - PCRE2 replaces by
 * limits on its backtracking. */
typedef struct regex {
  pcre2_code *code;
  pcre2_match_context *limits;
} regex;

enum { PATTERN_LIMIT = 1 << 16, MATCH_LIMIT = 2000000, HEAP_LIMIT_KB = 16384 };

static void regex_deinit(regex *r) {
  pcre2_code_free(r->code);
  pcre2_match_context_free(r->limits);
}

static td_status regex_init(regex *r, td_str pattern) {
  int error;
  size_t where;
  int shown = (int)TD_MIN(pattern.size, 256);
  if (pattern.size > PATTERN_LIMIT) {
    return td_invalid_argument("Invalid pattern: %.*s..., error: pattern of %zu bytes is too long", shown, pattern.data,
                               pattern.size);
  }
  r->code = pcre2_compile((PCRE2_SPTR)pattern.data, pattern.size,
                          PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C |
                              PCRE2_UTF | PCRE2_MATCH_INVALID_UTF,
                          &error, &where, NULL);
  if (!r->code) {
    unsigned char text[256];
    pcre2_get_error_message(error, text, sizeof text);
    return td_invalid_argument("Invalid pattern: %.*s, error: %s at %zu", shown, pattern.data, (char *)text, where);
  }
  r->limits = pcre2_match_context_create(NULL);
  if (!r->limits) return td_resource_exhausted("OOM when compiling a pattern");
  pcre2_set_match_limit(r->limits, MATCH_LIMIT);
  pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KB);
  return TD_STATUS_OK;
}

static td_status regex_match(const regex *r, const td_tensor *in, td_tensor *out) {
  pcre2_match_data *data = pcre2_match_data_create_from_pattern(r->code, NULL);
  if (!data) return td_resource_exhausted("OOM when matching a pattern");
  td_status status = TD_STATUS_OK;
  for (int64_t i = 0; i < in->count && !status; i++) {
    td_str s = td_string_view(string_at(in, i));
    int rc = pcre2_match(r->code, (PCRE2_SPTR)s.data, s.size, 0, 0, data, r->limits);
    TD_DATA(out, uint8_t)[i] = rc >= 0;
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
      unsigned char text[256];
      pcre2_get_error_message(rc, text, sizeof text);
      status = td_resource_exhausted("Matching a string of %zu bytes failed: %s", s.size, (char *)text);
    }
  }
  pcre2_match_data_free(data);
  return status;
}

static td_status static_regex_create(td_kernel_builder *b, void *state) {
  td_str pattern;
  TD_TRY(td_attr_str(b->node, "pattern", &pattern));
  return regex_init(state, pattern);
}
static void static_regex_destroy(void *state) { regex_deinit(state); }

static td_status static_regex_compute(td_kernel_ctx *ctx) {
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, td_in(ctx, 0), &out));
  return regex_match(ctx->state, td_in(ctx, 0), out);
}

static td_status regex_compute(td_kernel_ctx *ctx) {
  const td_tensor *pattern = td_in(ctx, 1);
  if (pattern->rank) return td_invalid_argument("Pattern must be scalar, but received %s", TD_SHOW(pattern));
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, td_in(ctx, 0), &out));
  regex r = {0};
  td_status status = regex_init(&r, td_string_view(string_at(pattern, 0)));
  if (!status) status = regex_match(&r, td_in(ctx, 0), out);
  regex_deinit(&r);
  return status;
}

/* ---- hash buckets ---- */

typedef struct buckets {
  uint64_t count;
  uint64_t (*hash)(const void *data, size_t size);
} buckets;

static td_status buckets_create(td_kernel_builder *b, void *state) {
  buckets *s = state;
  int64_t n;
  TD_TRY(td_attr_int(b->node, "num_buckets", &n));
  if (n < 1) return td_invalid_argument("num_buckets must be at least 1, got %lld", (long long)n);
  s->count = (uint64_t)n;
  s->hash = td_str_is(b->node->op, "StringToHashBucket") ? td_hash64 : td_fingerprint64;
  return TD_STATUS_OK;
}

static td_status buckets_compute(td_kernel_ctx *ctx) {
  const buckets *s = ctx->state;
  const td_tensor *t = td_in(ctx, 0);
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, t, &out));
  for (int64_t i = 0; i < t->count; i++) {
    td_str v = td_string_view(string_at(t, i));
    TD_DATA(out, int64_t)[i] = (int64_t)(s->hash(v.data, v.size) % s->count);
  }
  return TD_STATUS_OK;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {"AsString", "input: T", "output: string",
     "T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, complex64, "
     "complex128, bool, variant, string}; precision: int = -1; scientific: bool = false; shortest: bool = false; "
     "width: int = -1; fill: string = ''",
     0},
    {"RegexFullMatch", "input: string; pattern: string", "output: bool", NULL, 0},
    {"StaticRegexFullMatch", "input: string", "output: bool", "pattern: string", 0},
    {"StringJoin", "inputs: N * string", "output: string", "N: int >= 0; separator: string = ''", 0},
    {"StringToHashBucket", "string_tensor: string", "output: int64", "num_buckets: int >= 1", 0},
    {"StringToHashBucketFast", "input: string", "output: int64", "num_buckets: int >= 1", 0},
};

static const td_kernel_def kernels[] = {
    {.op = "AsString",
     .types = {{"T", TD_SET_NUMBER | TD_SET(TD_BOOL) | TD_SET(TD_STRING)}},
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(format),
     .create = format_create,
     .compute = as_string_compute},
    {.op = "RegexFullMatch", .cost = TD_COST_EXPENSIVE, .compute = regex_compute},
    {.op = "StaticRegexFullMatch",
     .cost = TD_COST_EXPENSIVE,
     .state_size = sizeof(regex),
     .create = static_regex_create,
     .destroy = static_regex_destroy,
     .compute = static_regex_compute},
    {.op = "StringJoin",
     .state_size = sizeof(join),
     .create = join_create,
     .destroy = join_destroy,
     .compute = string_join_compute},
    {.op = "StringToHashBucket", .state_size = sizeof(buckets), .create = buckets_create, .compute = buckets_compute},
    {.op = "StringToHashBucketFast",
     .state_size = sizeof(buckets),
     .create = buckets_create,
     .compute = buckets_compute},
};

TD_FAMILY(strings, ops, kernels);
