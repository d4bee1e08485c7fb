#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/testing.h"
#include "proto/wire.h"

enum { BYTES = 1, FLOATS = 2, INTS = 3 };

/* Appends a Feature as field `number`. */
static void put_feature(td_strbuf *out, uint32_t number, uint32_t kind, td_str list) {
  td_strbuf feature = {0};
  td_wire_put_bytes(&feature, kind, list);
  td_wire_put_bytes(out, number, td_strbuf_view(&feature));
  td_strbuf_deinit(&feature);
}

/* Appends a map's entry to the part `part` of a SequenceExample: 1 the context, 2 the lists. Takes `value`. */
static void put_entry(td_strbuf *example, uint32_t part, const char *key, td_strbuf *value) {
  td_strbuf entry = {0}, map = {0};
  td_wire_put_bytes(&entry, 1, td_str_of(key));
  td_strbuf_append(&entry, td_strbuf_view(value));
  td_wire_put_bytes(&map, 1, td_strbuf_view(&entry));
  td_wire_put_bytes(example, part, td_strbuf_view(&map));
  td_strbuf_deinit(value);
  td_strbuf_deinit(&entry);
  td_strbuf_deinit(&map);
}

static void put_context(td_strbuf *example, const char *key, uint32_t kind, td_str list) {
  td_strbuf value = {0};
  put_feature(&value, 2, kind, list);
  put_entry(example, 1, key, &value);
}

static void put_list(td_strbuf *example, const char *key, uint32_t kind, const td_str *lists, int n) {
  td_strbuf list = {0}, value = {0};
  for (int i = 0; i < n; i++) put_feature(&list, 1, kind, lists[i]);
  td_wire_put_bytes(&value, 2, td_strbuf_view(&list));
  td_strbuf_deinit(&list);
  put_entry(example, 2, key, &value);
}

static td_tensor *text(td_str s) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_STRING, 0, NULL, &t));
  assert_null(td_string_set(TD_DATA(t, td_string), s));
  return t;
}

#define ATTRS                                                                                    \
  "Ncontext_sparse: 1; Ncontext_dense: 1; Nfeature_list_sparse: 1; Nfeature_list_dense: 1; "     \
  "context_sparse_types: [string]; Tcontext_dense: [int64]; feature_list_dense_types: [float]; " \
  "context_dense_shapes: [[]]; feature_list_sparse_types: [int64]; feature_list_dense_shapes: [[]]"

/* ParseSingleSequenceExample of "name" (sparse) and "id" (default 5), "ids" (sparse) and "levels". `optional`: lists
 * that may be missing. */
static td_status parse(td_str example, const char *optional, td_op_run *run) {
  td_tensor *in[] = {text(example),
                     *optional ? td_test_tensor(TD_STRING, "[1]", optional) : td_test_tensor(TD_STRING, "[0]", ""),
                     td_test_tensor(TD_STRING, "[]", "name"),
                     td_test_tensor(TD_STRING, "[]", "id"),
                     td_test_tensor(TD_STRING, "[]", "ids"),
                     td_test_tensor(TD_STRING, "[]", "levels"),
                     td_test_tensor(TD_INT64, "[]", "5"),
                     td_test_tensor(TD_STRING, "[]", "me")};
  *run = (td_op_run){.op = "ParseSingleSequenceExample", .attrs = ATTRS, .in = in, .in_count = 8};
  td_status s = td_op_test_run(run);
  for (int i = 0; i < 8; i++) td_tensor_release(in[i]);
  run->in = NULL;
  return s;
}

static void expect_error(td_strbuf *example, const char *optional, const char *message) {
  td_op_run run;
  td_status s = parse(td_strbuf_view(example), optional, &run);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  if (!strstr(td_status_message(s), message)) fail_msg("%s", td_status_message(s));
  td_status_free(s);
  td_strbuf_deinit(example);
}

static void drop(td_op_run *run) {
  for (int i = 0; i < run->out_count; i++) td_tensor_release(run->out[i]);
}

#define ONE_FLOAT TD_STR("\x0a\x04\0\0\x80\x3f")
#define TWO_FLOAT TD_STR("\x0a\x04\0\0\0\x40")

static void whole(void **state) {
  td_strbuf example = {0};
  td_op_run run;
  put_context(&example, "id", INTS, TD_STR("\x0a\x01\x09"));
  put_context(&example, "name", BYTES, TD_STR("\x0a\x01x\x0a\x02yz"));
  put_list(&example, "levels", FLOATS, (td_str[]){ONE_FLOAT, TWO_FLOAT}, 2);
  put_list(&example, "ids", INTS, (td_str[]){TD_STR("\x0a\x02\x01\x02"), TD_STR(""), TD_STR("\x08\x07")}, 3);
  assert_null(parse(td_strbuf_view(&example), "", &run));
  td_assert_tensor(run.out[0], TD_INT64, "[2,1]", "0 1", 0);
  td_assert_tensor(run.out[1], TD_STRING, "[2]", "x yz", 0);
  td_assert_tensor(run.out[2], TD_INT64, "[1]", "2", 0);
  td_assert_tensor(run.out[3], TD_INT64, "[]", "9", 0);
  td_assert_tensor(run.out[4], TD_INT64, "[3,2]", "0 0 0 1 2 0", 0);
  td_assert_tensor(run.out[5], TD_INT64, "[3]", "1 2 7", 0);
  td_assert_tensor(run.out[6], TD_INT64, "[2]", "3 2", 0);
  td_assert_tensor(run.out[7], TD_FLOAT, "[2]", "1 2", 0);
  drop(&run);
  td_strbuf_deinit(&example);
}

static void what_is_missing(void **state) {
  td_strbuf example = {0};
  td_op_run run;
  assert_null(parse(td_strbuf_view(&example), "levels", &run));
  td_assert_tensor(run.out[1], TD_STRING, "[0]", "", 0);
  td_assert_tensor(run.out[3], TD_INT64, "[]", "5", 0);
  td_assert_tensor(run.out[5], TD_INT64, "[0]", "", 0);
  td_assert_tensor(run.out[7], TD_FLOAT, "[0]", "", 0);
  drop(&run);
  expect_error(&example, "", "levels");
}

static void what_does_not_fit(void **state) {
  td_strbuf example = {0};
  put_list(&example, "levels", INTS, (td_str[]){TD_STR("\x08\x07")}, 1);
  expect_error(&example, "", "levels");
  put_list(&example, "levels", FLOATS, (td_str[]){TD_STR("")}, 1);
  expect_error(&example, "", "levels");
  put_context(&example, "id", FLOATS, ONE_FLOAT);
  expect_error(&example, "levels", "id");
  td_strbuf_append(&example, TD_STR("\x0a\x7f"));
  expect_error(&example, "levels", "Could not parse example input");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(whole), cmocka_unit_test(what_is_missing),
                                     cmocka_unit_test(what_does_not_fit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
