/* Examples, CSV, and tensors in strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ops/testing.h"
#include "proto/wire.h"

static td_tensor *texts(int rank, const td_str *items, int64_t n) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_STRING, rank, &n, &t));
  for (int64_t i = 0; i < n; i++) assert_null(td_string_set(TD_DATA(t, td_string) + i, items[i]));
  return t;
}

static td_tensor *text(td_str s) { return texts(0, &s, 1); }

/* features {feature {key: <key> value {<kind> {<list>}}}} */
static void put_feature(td_strbuf *example, const char *key, uint32_t kind, td_str list) {
  td_strbuf feature = {0}, entry = {0}, features = {0};
  td_wire_put_bytes(&feature, kind, list);
  td_wire_put_bytes(&entry, 1, td_str_of(key));
  td_wire_put_bytes(&entry, 2, td_strbuf_view(&feature));
  td_wire_put_bytes(&features, 1, td_strbuf_view(&entry));
  td_wire_put_bytes(example, 1, td_strbuf_view(&features));
  td_strbuf_deinit(&feature);
  td_strbuf_deinit(&entry);
  td_strbuf_deinit(&features);
}

#define INTS_123 TD_STR("\x0a\x03\x01\x02\x03")
#define INTS_7   TD_STR("\x08\x07") /* not packed */
#define FLOATS   TD_STR("\x0a\x08\0\0\x80\x3f\0\0\0\x40")
#define BYTES    TD_STR("\x0a\x01x\x0a\x02yz")

#define ATTRS                                                                                              \
  "num_sparse: 1; sparse_keys: ['ints']; sparse_types: [int64]; dense_keys: ['floats', 'bytes', 'more']; " \
  "Tdense: [float, string, int64]; dense_shapes: [[2], [?], [1]]"

/* Outputs: indices, values, shape of 'ints'; 'floats', 'bytes', 'more' (which has a default). */
static td_status parse(td_str example, td_op_run *run) {
  td_tensor *in[] = {text(example), td_test_tensor(TD_FLOAT, "[0]", ""), text(TD_STR("")),
                     td_test_tensor(TD_INT64, "[1]", "-5")};
  *run = (td_op_run){.op = "ParseSingleExample", .attrs = ATTRS, .in = in, .in_count = 4};
  td_status s = td_op_test_run(run);
  for (int i = 0; i < 4; i++) td_tensor_release(in[i]);
  return s;
}

static void drop(td_op_run *run) {
  for (int i = 0; i < run->out_count; i++) td_tensor_release(run->out[i]);
}

static void single(void **state) {
  td_strbuf e = {0};
  td_op_run run;
  put_feature(&e, "floats", 2, TD_STR(""));
  put_feature(&e, "floats", 2, FLOATS); /* the last one counts */
  put_feature(&e, "ints", 3, INTS_123);
  put_feature(&e, "bytes", 1, BYTES);
  assert_null(parse(td_strbuf_view(&e), &run));
  td_assert_tensor(run.out[0], TD_INT64, "[3,1]", "0 1 2", 0);
  td_assert_tensor(run.out[1], TD_INT64, "[3]", "1 2 3", 0);
  td_assert_tensor(run.out[2], TD_INT64, "[1]", "3", 0);
  td_assert_tensor(run.out[3], TD_FLOAT, "[2]", "1 2", 0);
  td_assert_tensor(run.out[4], TD_STRING, "[2]", "x yz", 0);
  td_assert_tensor(run.out[5], TD_INT64, "[1]", "-5", 0);
  drop(&run);
  td_strbuf_deinit(&e);
}

static void expect_error(td_str example, const char *want) {
  td_op_run run;
  td_status s = parse(example, &run);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  if (!strstr(td_status_message(s), want)) fail_msg("\"%s\" lacks \"%s\"", td_status_message(s), want);
  td_status_free(s);
}

static void errors(void **state) {
  td_strbuf e = {0};
  expect_error(TD_STR(""), "Feature: floats (data type: float) is required but could not be found.");
  put_feature(&e, "floats", 3, INTS_7);
  expect_error(td_strbuf_view(&e), "Key: floats.  Data types don't match. Data type: int64 but expected type: float");
  e.size = 0;
  put_feature(&e, "floats", 2, TD_STR("\x0a\x04\0\0\0\0"));
  expect_error(td_strbuf_view(&e), "Number of float values != expected.  Values size: 1 but output shape: [2]");
  e.size = 0;
  put_feature(&e, "floats", 2, FLOATS);
  put_feature(&e, "ints", 3, TD_STR("\x0a\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")); /* more than 64 bits */
  expect_error(td_strbuf_view(&e), "Key: ints.  Can't parse serialized Example.");
  td_strbuf_deinit(&e);
}

/* Whatever is cut off or changed ends in a status or in outputs. */
static void broken_bytes(void **state) {
  td_strbuf e = {0};
  put_feature(&e, "floats", 2, FLOATS);
  put_feature(&e, "ints", 3, INTS_123);
  put_feature(&e, "bytes", 1, BYTES);
  for (size_t i = 0; i < e.size; i++) {
    for (int change = 0; change < 9; change++) {
      td_op_run run;
      char *copy = td_strndup(e.data, e.size); /* exactly these bytes, so that reading past them shows */
      if (change) copy[i] ^= (char)(1 << (change - 1));
      td_status s = parse(td_str_n(copy, change ? e.size : i), &run);
      if (!s) drop(&run);
      td_status_free(s);
      td_free(copy);
    }
  }
  td_strbuf_deinit(&e);
}

static void several(void **state) {
  td_strbuf a = {0}, b = {0};
  put_feature(&a, "s", 3, INTS_123);
  put_feature(&a, "v", 3, INTS_7);
  put_feature(&b, "r", 1, BYTES);
  put_feature(&b, "v", 3, INTS_123);
  td_str both[] = {td_strbuf_view(&a), td_strbuf_view(&b), TD_STR("")};
  td_str names[] = {TD_STR("s"), TD_STR("v"), TD_STR("r")};
  td_tensor *in[] = {texts(1, both, 3),      texts(1, NULL, 0),      texts(1, names, 1),
                     texts(1, names + 1, 1), texts(1, names + 2, 1), td_test_tensor(TD_INT64, "[]", "-1")};
  td_op_run run = {.op = "ParseExampleV2",
                   .attrs =
                       "num_sparse: 1; sparse_types: [int64]; Tdense: [int64]; dense_shapes: [[?]]; "
                       "ragged_value_types: [string]; ragged_split_types: [int32]",
                   .in = in,
                   .in_count = 6};
  assert_null(td_op_test_run(&run));
  td_assert_tensor(run.out[0], TD_INT64, "[3,2]", "0 0 0 1 0 2", 0);
  td_assert_tensor(run.out[2], TD_INT64, "[2]", "3 3", 0);
  td_assert_tensor(run.out[3], TD_INT64, "[3,3]", "7 -1 -1 1 2 3 -1 -1 -1", 0);
  td_assert_tensor(run.out[4], TD_STRING, "[2]", "x yz", 0);
  td_assert_tensor(run.out[5], TD_INT32, "[4]", "0 0 2 2", 0);
  drop(&run);
  for (int i = 0; i < 6; i++) td_tensor_release(in[i]);
  td_strbuf_deinit(&a);
  td_strbuf_deinit(&b);
}

static void csv(void **state) {
  static const struct {
    const char *record, *first, *error;
  } cases[] = {
      {"1,a", "1", NULL},
      {",a", "-1", NULL},
      {"NA,\"a,\"\"b\"", "-1", NULL},
      {"3,", "3", NULL},
      {"\r\n4,a", "4", NULL},
      {"1", NULL, "Expect 2 fields but have 1 in record 0"},
      {"x,b,c", NULL, "Expect 2 fields but have 3 in record 0"},
      {"x,b", NULL, "Field 0 in record 0 is not a valid int32: x"},
      {"1,a\"b", NULL, "Unquoted fields cannot have quotes/CRLFs inside"},
      {"1,\"a\"b\"", NULL, "Quote inside a string has to be escaped by another quote"},
      {"1,\"a", NULL, "Quoted field has to end with quote followed by delim or end"},
      {"1,\"", NULL, "Quoted field has to end with quote followed by delim or end"},
  };
  for (size_t i = 0; i < TD_COUNT(cases); i++) {
    td_tensor *in[] = {text(td_str_of(cases[i].record)), td_test_tensor(TD_INT32, "[1]", "-1"), text(TD_STR(""))};
    td_op_run run = {.op = "DecodeCSV", .attrs = "OUT_TYPE: [int32, string]; na_value: 'NA'", .in = in, .in_count = 3};
    if (cases[i].error) {
      td_assert_run_fails(&run, TD_INVALID_ARGUMENT, cases[i].error);
    } else {
      assert_null(td_op_test_run(&run));
      td_assert_tensor(run.out[0], TD_INT32, "[]", cases[i].first, 0);
      drop(&run);
    }
    for (int k = 0; k < 3; k++) td_tensor_release(in[k]);
  }
}

static void tensors_in_strings(void **state) {
  td_tensor *values[] = {td_test_tensor(TD_FLOAT, "[2,1]", "1 -2"), td_test_tensor(TD_STRING, "[2]", "a bc")};
  for (int i = 0; i < 2; i++) {
    td_op_run run = {.op = "SerializeTensor", .attrs = i ? "T: string" : "T: float", .in = &values[i], .in_count = 1};
    assert_null(td_op_test_run(&run));
    td_op_run back = {
        .op = "ParseTensor", .attrs = i ? "out_type: string" : "out_type: float", .in = run.out, .in_count = 1};
    assert_null(td_op_test_run(&back));
    td_assert_tensor(back.out[0], values[i]->dtype, i ? "[2]" : "[2,1]", i ? "a bc" : "1 -2", 0);
    drop(&back);
    back.attrs = "out_type: int32";
    td_assert_run_fails(&back, TD_INVALID_ARGUMENT, "Type mismatch between parsed tensor");
    drop(&run);
    td_tensor_release(values[i]);
  }
  td_tensor *in[] = {text(TD_STR("\1\2\3")), td_test_tensor(TD_INT32, "[]", "4")};
  td_op_run padded = {
      .op = "DecodePaddedRaw", .attrs = "out_type: int16; little_endian: false", .in = in, .in_count = 2};
  assert_null(td_op_test_run(&padded));
  td_assert_tensor(padded.out[0], TD_INT16, "[2]", "258 768", 0);
  drop(&padded);
  TD_DATA(in[1], int32_t)[0] = 3;
  td_assert_run_fails(&padded, TD_INVALID_ARGUMENT, "fixed_length (3) must be a multiple of the size of out_type (2)");
  for (int k = 0; k < 2; k++) td_tensor_release(in[k]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(single),  cmocka_unit_test(errors), cmocka_unit_test(broken_bytes),
      cmocka_unit_test(several), cmocka_unit_test(csv),    cmocka_unit_test(tensors_in_strings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
