#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/testing.h"

static td_tensor *text(const char *s) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_STRING, 0, NULL, &t));
  assert_null(td_string_set(TD_DATA(t, td_string), td_str_of(s)));
  return t;
}

static void expect(const char *json, td_str want) {
  td_tensor *in = text(json);
  td_op_run run = {.op = "DecodeJSONExample", .in = &in, .in_count = 1};
  td_assert_runs(&run);
  td_str got = td_string_view(TD_DATA(run.out[0], td_string));
  assert_int_equal(got.size, want.size);
  assert_memory_equal(got.data, want.data, want.size);
  td_tensor_release(run.out[0]);
  td_tensor_release(in);
}

static void expect_error(const char *json) {
  td_tensor *in = text(json);
  td_assert_run_fails(&(td_op_run){.op = "DecodeJSONExample", .in = &in, .in_count = 1}, TD_INVALID_ARGUMENT,
                      "Error while parsing JSON");
  td_tensor_release(in);
}

#define FEATURE(content) "{\"features\": {\"feature\": {\"k\": " content "}}}"

static void features(void **state) {
  expect("{}", TD_STR(""));
  expect("{\"features\": {}}", TD_STR("\x0a\x00"));
  expect(FEATURE("{\"int64List\": {\"value\": [1, \"-1\", 2.0]}}"),
         TD_STR("\x0a\x17\x0a\x15\x0a\x01k\x12\x10\x1a\x0e\x0a\x0c\x01"
                "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"));
  expect(FEATURE("{\"float_list\": {\"value\": [1, \"Infinity\"]}}"),
         TD_STR("\x0a\x13\x0a\x11\x0a\x01k\x12\x0c\x12\x0a\x0a\x08\0\0\x80\x3f\0\0\x80\x7f"));
  expect(FEATURE("{\"bytesList\": {\"value\": [\"aGk=\", \"_w\"]}}"),
         TD_STR("\x0a\x10\x0a\x0e\x0a\x01k\x12\x09\x0a\x07\x0a\x02hi\x0a\x01\xff"));
  expect(FEATURE("{}"), TD_STR("\x0a\x07\x0a\x05\x0a\x01k\x12\x00"));
}

static void what_is_none(void **state) {
  static const char *const texts[] = {"",
                                      "{",
                                      "[]",
                                      "{\"feature\": {}}",
                                      "{\"features\": 3}",
                                      "{\"features\": {\"feature\": []}}",
                                      FEATURE("[]"),
                                      FEATURE("{\"other\": {}}"),
                                      FEATURE("{\"int64List\": {\"value\": 1}}"),
                                      FEATURE("{\"int64List\": {\"value\": [1.5]}}"),
                                      FEATURE("{\"int64List\": {\"value\": [1e30]}}"),
                                      FEATURE("{\"int64List\": {\"value\": [\"x\"]}}"),
                                      FEATURE("{\"floatList\": {\"value\": [\"1x\"]}}"),
                                      FEATURE("{\"floatList\": {\"value\": [{}]}}"),
                                      FEATURE("{\"bytesList\": {\"value\": [\"a\"]}}"),
                                      FEATURE("{\"bytesList\": {\"value\": [\"a!bc\"]}}"),
                                      FEATURE("{\"bytesList\": {\"value\": [1]}}"),
                                      FEATURE("{\"bytesList\": {}, \"floatList\": {}}")};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) expect_error(texts[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(features), cmocka_unit_test(what_is_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
