/* DecodeJSONExample: Examples written as JSON into their bytes, by protobuf's rules for JSON: names in either spelling,
 * 64-bit integers also as strings, bytes in Base64. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/move.h"
#include "proto/wire.h"

enum { BYTES = 1, FLOATS = 2, INTS = 3 };

static td_status bad(const char *what, const char *name) {
  return td_invalid_argument("Error while parsing JSON: %s: %.64s", what, name);
}

static bool is_named(const char *name, const char *camel, const char *snake) {
  return !strcmp(name, camel) || !strcmp(name, snake);
}

/* ---- values ---- */

static td_status put_float(const json_t *v, td_strbuf *list) {
  float f;
  uint32_t bits;
  if (json_is_number(v)) {
    f = (float)json_number_value(v);
  } else if (json_is_string(v)) {
    const char *text = json_string_value(v);
    char *end;
    f = strtof(text, &end);
    if (!*text || *end) return bad("no float", text);
  } else {
    return bad("a float_list holds something else", "value");
  }
  memcpy(&bits, &f, sizeof bits);
  td_strbuf_append(list, td_str_n(&bits, sizeof bits));
  return TD_STATUS_OK;
}

static td_status put_int(const json_t *v, td_strbuf *list) {
  int64_t i;
  if (json_is_integer(v)) {
    i = json_integer_value(v);
  } else if (json_is_real(v)) {
    double d = json_real_value(v);
    if (!(d >= -0x1p63 && d < 0x1p63) || d != floor(d)) return bad("no 64-bit integer", "value");
    i = (int64_t)d;
  } else if (!json_is_string(v) || !td_str_to_i64(td_str_n(json_string_value(v), json_string_length(v)), &i)) {
    return bad("no 64-bit integer", json_is_string(v) ? json_string_value(v) : "value");
  }
  td_wire_put_varint(list, (uint64_t)i);
  return TD_STATUS_OK;
}

/* -1: not of the alphabet. */
static int sextet(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

static td_status put_bytes(const json_t *v, td_strbuf *list) {
  td_strbuf bytes = {0};
  uint32_t bits = 0;
  int held = 0;
  if (!json_is_string(v)) return bad("a bytes_list holds something else", "value");
  td_str s = td_str_n(json_string_value(v), json_string_length(v));
  for (int k = 0; k < 2 && s.size && s.data[s.size - 1] == '='; k++) s.size--;
  for (size_t i = 0; i < s.size; i++) {
    int value = sextet(s.data[i]);
    if (value < 0 || s.size % 4 == 1) {
      td_strbuf_deinit(&bytes);
      return bad("no Base64", json_string_value(v));
    }
    bits = bits << 6 | (uint32_t)value;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    td_strbuf_putc(&bytes, (char)(bits >> held));
  }
  td_wire_put_bytes(list, 1, td_strbuf_view(&bytes));
  td_strbuf_deinit(&bytes);
  return TD_STATUS_OK;
}

/* ---- messages ---- */

/* The only member that an object may have, NULL if it has none. */
static td_status only_member(json_t *object, const char *name, json_t **out) {
  const char *key;
  json_t *v;
  *out = NULL;
  if (!json_is_object(object)) return bad("no object where there should be one, above", name);
  json_object_foreach(object, key, v) {
    if (strcmp(key, name) != 0) return bad("unknown name", key);
    if (!json_is_null(v)) *out = v;
  }
  return TD_STATUS_OK;
}

/* Appends a Feature of that kind. */
static td_status put_list(json_t *message, int kind, td_strbuf *feature) {
  td_strbuf list = {0}, packed = {0};
  json_t *values;
  td_status s = only_member(message, "value", &values);
  if (!s && values && !json_is_array(values)) s = bad("no list", "value");
  for (size_t i = 0; !s && i < json_array_size(values); i++) {
    const json_t *v = json_array_get(values, i);
    s = kind == BYTES ? put_bytes(v, &list) : kind == FLOATS ? put_float(v, &packed) : put_int(v, &packed);
  }
  if (packed.size) td_wire_put_bytes(&list, 1, td_strbuf_view(&packed));
  if (!s) td_wire_put_bytes(feature, (uint32_t)kind, td_strbuf_view(&list));
  td_strbuf_deinit(&packed);
  td_strbuf_deinit(&list);
  return s;
}

static td_status put_feature(json_t *message, td_strbuf *feature) {
  const char *key;
  json_t *v;
  if (!json_is_object(message)) return bad("no object where there should be one", "feature");
  json_object_foreach(message, key, v) {
    int kind = is_named(key, "bytesList", "bytes_list")   ? BYTES
               : is_named(key, "floatList", "float_list") ? FLOATS
               : is_named(key, "int64List", "int64_list") ? INTS
                                                          : 0;
    if (!kind) return bad("unknown name", key);
    if (json_is_null(v)) continue;
    if (feature->size) return bad("a feature has two kinds of values", key);
    TD_TRY(put_list(v, kind, feature));
  }
  return TD_STATUS_OK;
}

static td_status put_entry(const char *name, json_t *message, td_strbuf *features) {
  td_strbuf entry = {0}, feature = {0};
  td_status s = put_feature(message, &feature);
  td_wire_put_bytes(&entry, 1, td_str_of(name));
  td_wire_put_bytes(&entry, 2, td_strbuf_view(&feature));
  if (!s) td_wire_put_bytes(features, 1, td_strbuf_view(&entry));
  td_strbuf_deinit(&entry);
  td_strbuf_deinit(&feature);
  return s;
}

static td_status put_example(json_t *root, td_strbuf *out) {
  json_t *features, *map, *v;
  const char *name;
  td_strbuf bytes = {0};
  TD_TRY(only_member(root, "features", &features));
  if (!features) return TD_STATUS_OK;
  TD_TRY(only_member(features, "feature", &map));
  if (map && !json_is_object(map)) return bad("no object", "feature");
  td_status s = TD_STATUS_OK;
  json_object_foreach(map, name, v) {
    if (!s) s = put_entry(name, v, &bytes);
  }
  if (!s) td_wire_put_bytes(out, 1, td_strbuf_view(&bytes));
  td_strbuf_deinit(&bytes);
  return s;
}

static td_status decode(td_str text, td_string *to) {
  json_error_t error;
  td_strbuf bytes = {0};
  json_t *root = json_loadb(text.data ? text.data : "", text.size, 0, &error);
  if (!root) return bad("malformed", error.text);
  td_status s = put_example(root, &bytes);
  json_decref(root);
  if (!s) s = td_string_set(to, td_strbuf_view(&bytes));
  td_strbuf_deinit(&bytes);
  return s;
}

static td_status compute(td_kernel_ctx *ctx) {
  const td_tensor *in = td_in(ctx, 0);
  td_tensor *out;
  TD_TRY(td_out_alloc_like(ctx, 0, in, &out));
  for (int64_t i = 0; i < in->count; i++)
    TD_TRY(decode(td_string_view(TD_DATA(in, td_string) + i), TD_DATA(out, td_string) + i));
  return TD_STATUS_OK;
}

static const td_op_spec ops[] = {
    {"DecodeJSONExample", "json_examples: string", "binary_examples: string", NULL, 0},
};

static const td_kernel_def kernels[] = {
    {.op = "DecodeJSONExample", .cost = TD_COST_EXPENSIVE, .compute = compute},
};

TD_FAMILY(example_json, ops, kernels);
