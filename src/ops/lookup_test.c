#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/testing.h"

static int setup(void **state) {
  *state = td_test_device();
  return 0;
}
static int teardown(void **state) {
  td_device_release(*state);
  return 0;
}

/* Every tensor that a test makes, so that a test may write its inputs in place. */
static td_tensor *made[4096];
static size_t made_count;
static td_tensor *keep(td_tensor *t) {
  if (t) made[made_count++] = t;
  return t;
}
static void drop_all(void) {
  while (made_count) td_tensor_release(made[--made_count]);
}
static int teardown_all(void **state) {
  drop_all();
  return teardown(state);
}

static td_tensor *ints(const char *shape, const char *values) { return keep(td_test_tensor(TD_INT64, shape, values)); }
static td_tensor *floats(const char *shape, const char *values) {
  return keep(td_test_tensor(TD_FLOAT, shape, values));
}
static td_tensor *strings(const char *shape, const char *values) {
  return keep(td_test_tensor(TD_STRING, shape, values));
}

static td_tensor *second; /* output of the last run() */

static td_tensor *run(td_device *d, const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *c) {
  td_op_run r = {.op = op, .attrs = attrs, .in = (td_tensor *[]){a, b, c}, .in_count = c ? 3 : b ? 2 : a ? 1 : 0};
  r.device = d;
  td_assert_runs(&r);
  second = r.out_count > 1 ? keep(r.out[1]) : NULL;
  return r.out_count ? keep(r.out[0]) : NULL;
}
static void fails(td_device *d, const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *c,
                  td_code code, const char *text) {
  td_op_run r = {.op = op, .attrs = attrs, .in = (td_tensor *[]){a, b, c}, .in_count = c ? 3 : b ? 2 : a ? 1 : 0};
  r.device = d;
  td_assert_run_fails(&r, code, text);
}
static void has_size(td_device *d, td_tensor *h, const char *size) {
  td_assert_tensor(run(d, "LookupTableSizeV2", "", h, NULL, NULL), TD_INT64, "[]", size, 0);
}

#define HASH "key_dtype: string; value_dtype: int64; shared_name: 'h'"
#define FIND "Tin: string; Tout: int64"

static void test_hash_table(void **state) {
  td_device *d = *state;
  td_tensor *h = run(d, "HashTableV2", HASH, NULL, NULL, NULL), *minus = ints("[]", "-1");
  fails(d, "LookupTableFindV2", FIND, h, strings("[]", "a"), minus, TD_FAILED_PRECONDITION, "Table not initialized.");
  fails(d, "LookupTableExportV2", "Tkeys: string; Tvalues: int64", h, NULL, NULL, TD_ABORTED,
        "HashTable is not initialized.");
  has_size(d, h, "0");
  const char *init = "Tkey: string; Tval: int64";
  fails(d, "InitializeTableV2", init, h, strings("[2]", "a a"), ints("[2]", "0 1"), TD_FAILED_PRECONDITION,
        "HashTable has different value for same key. Key a has 0 and trying to add value 1");
  fails(d, "InitializeTableV2", init, h, strings("[2]", "a b"), ints("[3]", "0 1 2"), TD_INVALID_ARGUMENT,
        "Keys and values must have the same size 2 vs 3");
  fails(d, "InitializeTableV2", init, h, strings("[]", "a"), ints("[]", "0"), TD_INVALID_ARGUMENT,
        "Keys must be a vector, but received shape[]");
  run(d, "InitializeTableV2", init, h, strings("[3]", "brain salad surgery"), ints("[3]", "0 1 2"));
  run(d, "InitializeTableV2", init, h, strings("[3]", "brain salad surgery"), ints("[3]", "0 1 2"));
  fails(d, "InitializeTableV2", init, h, strings("[1]", "x"), ints("[1]", "0"), TD_FAILED_PRECONDITION,
        "Table was already initialized with different data.");
  has_size(d, h, "3");
  td_assert_tensor(run(d, "LookupTableFindV2", FIND, h, strings("[2,2]", "salad brain tank surgery"), minus), TD_INT64,
                   "[2,2]", "1 0 -1 2", 0);
  td_assert_tensor(run(d, "LookupTableExportV2", "Tkeys: string; Tvalues: int64", h, NULL, NULL), TD_STRING, "[3]",
                   "brain salad surgery", 0);
  td_assert_tensor(second, TD_INT64, "[3]", "0 1 2", 0);
  fails(d, "LookupTableInsertV2", FIND, h, strings("[1]", "x"), ints("[1]", "0"), TD_UNIMPLEMENTED,
        "Insert not supported by InitializableLookupTable implementations");
  fails(d, "LookupTableFindV2", "Tin: int64; Tout: int64", h, ints("[]", "1"), minus, TD_INVALID_ARGUMENT,
        "Signature mismatch, have: resource, int64, int64->int64 expected: resource, string, int64->int64");
  fails(d, "HashTableV2", "key_dtype: int64; value_dtype: float; shared_name: 'h'", NULL, NULL, NULL,
        TD_INVALID_ARGUMENT, "Conflicting key/value dtypes int64->float with string-int64 for table h");
}

static void test_mutable(void **state) {
  td_device *d = *state;
  td_tensor *h = run(d, "MutableHashTableV2", HASH, NULL, NULL, NULL), *minus = ints("[]", "-1");
  fails(d, "InitializeTableV2", "Tkey: string; Tval: int64", h, strings("[1]", "x"), ints("[1]", "0"),
        TD_INVALID_ARGUMENT, "is not initializable");
  run(d, "LookupTableInsertV2", FIND, h, strings("[4]", "a b c a"), ints("[4]", "1 2 3 4"));
  has_size(d, h, "3");
  run(d, "LookupTableRemoveV2", "Tin: string", h, strings("[2]", "b nothing"), NULL);
  td_assert_tensor(run(d, "LookupTableFindV2", FIND, h, strings("[3]", "a b c"), minus), TD_INT64, "[3]", "4 -1 3", 0);
  fails(d, "LookupTableInsertV2", FIND, h, strings("[2]", "x y"), ints("[1]", "0"), TD_INVALID_ARGUMENT,
        "Expected shape [2] for value, got [1]");
  fails(d, "LookupTableFindV2", FIND, h, strings("[1]", "x"), ints("[1]", "0"), TD_INVALID_ARGUMENT,
        "Expected shape [] for default value, got [1]");
  run(d, "LookupTableImportV2", FIND, h, strings("[1]", "z"), ints("[1]", "9"));
  td_assert_tensor(run(d, "LookupTableExportV2", "Tkeys: string; Tvalues: int64", h, NULL, NULL), TD_STRING, "[1]", "z",
                   0);
  fails(d, "LookupTableExportV2", "Tkeys: string; Tvalues: float", h, NULL, NULL, TD_INVALID_ARGUMENT,
        "cannot be exported as string and float");
}

/* Against a plain array: what was put in last is found, whatever was removed in between. */
static void test_mutable_many(void **state) {
  td_device *d = *state;
  td_tensor *h =
      run(d, "MutableHashTableV2", "key_dtype: int64; value_dtype: int64; shared_name: 'm'", NULL, NULL, NULL);
  td_tensor *minus = ints("[]", "-1"), *key, *value;
  int64_t model[64];
  memset(model, -1, sizeof model);
  srand(1);
  for (int round = 0; round < 3000; round++) {
    int k = rand() % 64;
    td_op_run r = {.device = d, .in = (td_tensor *[]){h, NULL, NULL}};
    assert_null(td_tensor_create_dims(TD_INT64, 0, NULL, &key));
    assert_null(td_tensor_create_dims(TD_INT64, 0, NULL, &value));
    TD_DATA(key, int64_t)[0] = (int64_t)k << 40;
    TD_DATA(value, int64_t)[0] = round;
    bool insert = rand() % 2;
    model[k] = insert ? round : -1;
    r.in[1] = key;
    r.in[2] = value;
    r.in_count = insert ? 3 : 2;
    r.op = insert ? "LookupTableInsertV2" : "LookupTableRemoveV2";
    r.attrs = insert ? "Tin: int64; Tout: int64" : "Tin: int64";
    assert_null(td_op_test_run(&r));
    td_tensor_release(value);
    td_tensor_release(key);
  }
  assert_null(td_tensor_create_dims(TD_INT64, 1, (int64_t[]){64}, &key));
  keep(key);
  for (int k = 0; k < 64; k++) TD_DATA(key, int64_t)[k] = (int64_t)k << 40;
  td_tensor *found = run(d, "LookupTableFindV2", "Tin: int64; Tout: int64", h, key, minus);
  assert_memory_equal(found->data, model, sizeof model);
}

static void test_tensors(void **state) {
  td_device *d = *state;
  const char *attrs = "key_dtype: string; value_dtype: int64; value_shape: [2]; shared_name: 't'";
  td_tensor *h = run(d, "MutableHashTableOfTensorsV2", attrs, NULL, NULL, NULL), *minus = ints("[2]", "-1 -2");
  run(d, "LookupTableInsertV2", FIND, h, strings("[2]", "a b"), ints("[2,2]", "1 2 3 4"));
  td_assert_tensor(run(d, "LookupTableFindV2", FIND, h, strings("[3]", "b x a"), minus), TD_INT64, "[3,2]",
                   "3 4 -1 -2 1 2", 0);
  td_assert_tensor(run(d, "LookupTableFindV2", FIND, h, strings("[]", "b"), minus), TD_INT64, "[2]", "3 4", 0);
  run(d, "LookupTableRemoveV2", "Tin: string", h, strings("[1]", "a"), NULL);
  run(d, "LookupTableExportV2", "Tkeys: string; Tvalues: int64", h, NULL, NULL);
  td_assert_tensor(second, TD_INT64, "[1,2]", "3 4", 0);
  fails(d, "LookupTableFindV2", FIND, h, strings("[]", "b"), ints("[]", "1"), TD_INVALID_ARGUMENT,
        "Expected shape [2] for default value, got []");
  fails(d, "MutableHashTableOfTensorsV2", "key_dtype: string; value_dtype: int64; shared_name: 'n'", NULL, NULL, NULL,
        TD_INVALID_ARGUMENT, "Default value must be a vector, got shape []");
}

#define DENSE "key_dtype: int64; value_dtype: int64; initial_num_buckets: 4; shared_name: 'd'"
#define PAIR  "Tin: int64; Tout: int64"

static void test_dense(void **state) {
  td_device *d = *state;
  td_tensor *h = run(d, "MutableDenseHashTableV2", DENSE, ints("[]", "0"), ints("[]", "-1"), NULL);
  td_tensor *minus = ints("[]", "-5");
  run(d, "LookupTableInsertV2", PAIR, h, ints("[3]", "11 12 13"), ints("[3]", "1 2 3"));
  run(d, "LookupTableRemoveV2", "Tin: int64", h, ints("[1]", "12"), NULL);
  /* TensorFlow's layout: 11 & 3 = 3, 12 & 3 = 0, 13 & 3 = 1 */
  td_tensor *keys = run(d, "LookupTableExportV2", "Tkeys: int64; Tvalues: int64", h, NULL, NULL), *values = second;
  td_assert_tensor(keys, TD_INT64, "[4,1]", "-1 13 0 11", 0);
  td_assert_tensor(values, TD_INT64, "[4,1]", "2 3 0 1", 0);
  for (int i = 0; i < 50; i++) {
    char k[16], v[16];
    snprintf(k, sizeof k, "%d", 100 + i * 4);
    snprintf(v, sizeof v, "%d", i);
    run(d, "LookupTableInsertV2", PAIR, h, ints("[1]", k), ints("[1]", v));
  }
  has_size(d, h, "52");
  td_assert_tensor(keys, TD_INT64, "[4,1]", "-1 13 0 11", 0); /* an export does not change */
  td_assert_tensor(run(d, "LookupTableFindV2", PAIR, h, ints("[4]", "100 13 12 296"), minus), TD_INT64, "[4]",
                   "0 3 -5 49", 0);
  run(d, "LookupTableImportV2", PAIR, h, keys, values);
  has_size(d, h, "2");
  td_assert_tensor(run(d, "LookupTableFindV2", PAIR, h, ints("[3]", "11 12 13"), minus), TD_INT64, "[3]", "1 -5 3", 0);
  fails(d, "LookupTableFindV2", PAIR, h, ints("[1]", "0"), minus, TD_INVALID_ARGUMENT,
        "Using the empty_key as a table key is not allowed");
  fails(d, "LookupTableInsertV2", PAIR, h, ints("[1]", "-1"), ints("[1]", "1"), TD_INVALID_ARGUMENT,
        "Using the deleted_key as a table key is not allowed");
  fails(d, "LookupTableImportV2", PAIR, h, ints("[3,1]", "1 2 3"), ints("[3,1]", "1 2 3"), TD_INVALID_ARGUMENT,
        "Number of buckets must be a power of 2, got: 3");
  fails(d, "LookupTableImportV2", PAIR, h, ints("[0,1]", ""), ints("[0,1]", ""), TD_INVALID_ARGUMENT,
        "Number of buckets must be a power of 2, got: 0");
}

/* Buckets that are all deleted: a missing key is still found missing, and room is still found. */
static void test_dense_worn(void **state) {
  td_device *d = *state;
  td_tensor *h = run(d, "MutableDenseHashTableV2", DENSE, ints("[]", "0"), ints("[]", "-1"), NULL);
  for (int i = 1; i < 40; i++) {
    char k[16];
    snprintf(k, sizeof k, "%d", i);
    run(d, "LookupTableInsertV2", PAIR, h, ints("[1]", k), ints("[1]", k));
    run(d, "LookupTableRemoveV2", "Tin: int64", h, ints("[1]", k), NULL);
  }
  td_assert_tensor(run(d, "LookupTableFindV2", PAIR, h, ints("[1]", "7"), ints("[]", "-5")), TD_INT64, "[1]", "-5", 0);
  has_size(d, h, "0");
}

static void test_dense_vectors(void **state) {
  td_device *d = *state;
  const char *attrs =
      "key_dtype: string; value_dtype: float; value_shape: [2]; initial_num_buckets: 8; shared_name: 'v'";
  const char *types = "Tin: string; Tout: float";
  td_tensor *h = run(d, "MutableDenseHashTableV2", attrs, strings("[2]", "e e"), strings("[2]", "x x"), NULL);
  run(d, "LookupTableInsertV2", types, h, strings("[2,2]", "a b c d"), floats("[2,2]", "1 2 3 4"));
  td_assert_tensor(run(d, "LookupTableFindV2", types, h, strings("[2,2]", "c d a c"), floats("[2]", "8 9")), TD_FLOAT,
                   "[2,2]", "3 4 8 9", 0);
  fails(d, "LookupTableFindV2", types, h, strings("[1,3]", "a b c"), floats("[2]", "8 9"), TD_INVALID_ARGUMENT,
        "Input key shape [1,3] must end with the table's key shape [2]");
  fails(d, "LookupTableFindV2", types, h, strings("[2]", "a b"), floats("[2]", "8 9"), TD_INVALID_ARGUMENT,
        "Expected key shape [2,2] got [2]");
}

static void test_dense_errors(void **state) {
  td_device *d = *state;
  td_tensor *zero = ints("[]", "0"), *one = ints("[]", "1");
  const char *types = "key_dtype: int64; value_dtype: int64; shared_name: 'e'; ";
  const struct {
    const char *attrs;
    td_tensor *empty, *deleted;
    td_code code;
    const char *text;
  } cases[] = {
      {"initial_num_buckets: 12", zero, one, TD_INVALID_ARGUMENT,
       "Number of buckets must be at least 4 and a power of 2, got: 12"},
      {"initial_num_buckets: -4", zero, one, TD_INVALID_ARGUMENT, "at least 4 and a power of 2, got: -4"},
      {"initial_num_buckets: 4611686018427387904", zero, one, TD_INVALID_ARGUMENT, ""},
      {"max_load_factor: 1.5", zero, one, TD_INVALID_ARGUMENT, "max_load_factor must be between 0 and 1, got: 1.5"},
      {"value_shape: [2,2]", zero, one, TD_INVALID_ARGUMENT,
       "Empty value must be a scalar or a vector, got shape [2,2]"},
      {"", ints("[1,1]", "0"), one, TD_INVALID_ARGUMENT, "Empty key must be a scalar or a vector, got shape [1,1]"},
      {"", ints("[2]", "0 0"), one, TD_INVALID_ARGUMENT,
       "Empty and deleted keys must have same shape, got shapes: [2] and []"},
      {"", zero, ints("[]", "0"), TD_INVALID_ARGUMENT, "Empty and deleted keys cannot be equal"},
  };
  for (size_t i = 0; i < TD_COUNT(cases); i++) {
    char attrs[256];
    snprintf(attrs, sizeof attrs, "%s%s", types, cases[i].attrs);
    td_op_run r = {.op = "MutableDenseHashTableV2",
                   .attrs = attrs,
                   .device = d,
                   .in_count = 2,
                   .in = (td_tensor *[]){cases[i].empty, cases[i].deleted}};
    td_status s = td_op_test_run(&r);
    assert_non_null(s);
    if (cases[i].text[0]) assert_int_equal(td_status_code(s), cases[i].code);
    if (!strstr(td_status_message(s), cases[i].text)) fail_msg("%s", td_status_message(s));
    td_status_free(s);
  }
}

static void write_file(char *path, const char *text) {
  strcpy(path, "/tmp/lookup_test_XXXXXX");
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  close(fd);
}
static td_tensor *path_tensor(const char *path) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_STRING, 0, NULL, &t));
  assert_null(td_string_set(t->data, td_str_of(path)));
  return keep(t);
}

static void test_file(void **state) {
  td_device *d = *state;
  char path[64];
  write_file(path, "brain\r\nsalad\nsurgery");
  td_tensor *h = run(d, "HashTableV2", HASH, NULL, NULL, NULL), *name = path_tensor(path);
  const char *op = "InitializeTableFromTextFileV2";
  fails(d, op, "key_index: -2; value_index: -1; vocab_size: 4", h, name, NULL, TD_INVALID_ARGUMENT,
        "expected 4 but got 3");
  fails(d, op, "key_index: 1; value_index: -1", h, name, NULL, TD_INVALID_ARGUMENT,
        "line 0 (brain) : expected 1 got 1");
  fails(d, op, "key_index: -2; value_index: 0", h, name, NULL, TD_INVALID_ARGUMENT,
        "Field brain in line 0 is not a valid int64.");
  fails(d, op, "key_index: -1; value_index: -1", h, name, NULL, TD_INVALID_ARGUMENT,
        "Key index for line number requires table key dtype of int64, got string");
  fails(d, op, "key_index: -2; value_index: -2", h, name, NULL, TD_INVALID_ARGUMENT,
        "Value index for whole line requires table value dtype of string, got int64");
  fails(d, op, "key_index: -2; value_index: -1", h, path_tensor("/tmp/no such file"), NULL, TD_NOT_FOUND,
        "/tmp/no such file; No such file or directory");
  fails(d, op, "key_index: -2; value_index: -1", h, path_tensor("/tmp"), NULL, TD_FAILED_PRECONDITION,
        "Is a directory");
  fails(d, op, "key_index: -2; value_index: -1", h, path_tensor(""), NULL, TD_INVALID_ARGUMENT,
        "filename cannot be empty.");
  fails(d, op, "key_index: -2; value_index: -1; delimiter: 'ab'", h, name, NULL, TD_INVALID_ARGUMENT,
        "delimiter should be only 1 char");
  run(d, op, "key_index: -2; value_index: -1", h, name, NULL);
  run(d, op, "key_index: -2; value_index: -1; vocab_size: 1", h, name, NULL); /* again: nothing happens */
  has_size(d, h, "3");
  td_assert_tensor(run(d, "LookupTableFindV2", FIND, h, strings("[2]", "surgery tank"), ints("[]", "-1")), TD_INT64,
                   "[2]", "2 -1", 0);
  unlink(path);
}

static void test_file_columns(void **state) {
  td_device *d = *state;
  char path[64];
  write_file(path, "0,a,1.5\n1,b,-2\n");
  const char *attrs = "key_dtype: string; value_dtype: float; shared_name: 'c'";
  td_tensor *h = run(d, "HashTableV2", attrs, NULL, NULL, NULL);
  run(d, "InitializeTableFromTextFileV2", "key_index: 1; value_index: 2; delimiter: ','", h, path_tensor(path), NULL);
  td_assert_tensor(run(d, "LookupTableFindV2", "Tin: string; Tout: float", h, strings("[2]", "a b"), floats("[]", "0")),
                   TD_FLOAT, "[2]", "1.5 -2", 0);
  unlink(path);
  write_file(path, "a\n\nb\n");
  h = run(d, "HashTableV2", "key_dtype: string; value_dtype: int64; shared_name: 'q'", NULL, NULL, NULL);
  fails(d, "InitializeTableFromTextFileV2", "key_index: -2; value_index: -1", h, path_tensor(path), NULL,
        TD_INVALID_ARGUMENT, "empty line found at position 3.");
  unlink(path);
}

/* The first generation: tables travel as Ref(string). */
static void test_refs(void **state) {
  td_device *d = *state;
  td_kernel *kernel = NULL;
  td_op_run r = {
      .op = "MutableHashTable", .attrs = "key_dtype: string; value_dtype: int64", .device = d, .kernel = &kernel};
  assert_null(td_op_test_run(&r));
  td_variable *refs[] = {r.out_refs[0], NULL, NULL};
  td_op_run insert = {.op = "LookupTableInsert",
                      .attrs = FIND,
                      .device = d,
                      .refs = refs,
                      .in_count = 3,
                      .in = (td_tensor *[]){NULL, strings("[1]", "a"), ints("[1]", "7")}};
  assert_null(td_op_test_run(&insert));
  td_op_run find = {.op = "LookupTableFind",
                    .attrs = FIND,
                    .device = d,
                    .refs = refs,
                    .in_count = 3,
                    .in = (td_tensor *[]){NULL, strings("[2]", "a b"), ints("[]", "-1")}};
  assert_null(td_op_test_run(&find));
  td_assert_tensor(keep(find.out[0]), TD_INT64, "[2]", "7 -1", 0);
  td_kernel_release(kernel); /* the table was the kernel's own */
  td_assert_run_fails(&find, TD_NOT_FOUND, "does not exist");
  td_variable_release(refs[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_hash_table, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_mutable, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_mutable_many, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_tensors, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_dense, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_dense_worn, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_dense_vectors, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_dense_errors, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_file, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_file_columns, setup, teardown_all),
      cmocka_unit_test_setup_teardown(test_refs, setup, teardown_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
