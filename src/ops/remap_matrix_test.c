/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <unistd.h>
#include <cmocka.h>
/* clang-format on */

#include "base/mem.h"
#include "base/testing.h"
#include "checkpoint/bundle.h"
#include "ops/families.h"
#include "ops/testing.h"

static char folder[] = "/tmp/td_remap_test_XXXXXX", prefix[64], old_words[64], new_words[64];

static td_tensor *text(const char *s) { return td_test_tensor(TD_STRING, "[]", s); }

static void write_words(char *path, const char *name, const char *words) {
  snprintf(path, 64, "%s/%s", folder, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(words, f);
  fclose(f);
}

static int setup(void **state) {
  td_bundle_writer *w;
  if (!mkdtemp(folder)) return -1;
  snprintf(prefix, sizeof prefix, "%s/model", folder);
  td_tensor *m = td_test_tensor(TD_FLOAT, "[3,2]", "0 1 10 11 20 21"), *v = td_test_tensor(TD_FLOAT, "[2]", "1 2");
  assert_null(td_bundle_writer_create(td_str_of(prefix), TD_SYNC_BEHIND, &w));
  assert_null(td_bundle_writer_add(w, TD_STR("m"), m));
  assert_null(td_bundle_writer_add(w, TD_STR("v"), v));
  assert_null(td_bundle_writer_finish(w));
  td_bundle_writer_destroy(w);
  td_tensor_release(m);
  td_tensor_release(v);
  write_words(old_words, "old", "knitting\neminem\nMIT\n");
  write_words(new_words, "new", "MIT\nnobody\nknitting\neminem\n");
  return 0;
}

static int cleanup(void **state) {
  char command[96];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

static td_status generate(const char *attrs, const char *to, const char *from, td_op_run *r) {
  td_tensor *in[] = {text(to), text(from)};
  *r = (td_op_run){.op = "GenerateVocabRemapping", .attrs = attrs, .in = in, .in_count = 2};
  td_status s = td_op_test_run(r);
  for (int i = 0; i < 2; i++) td_tensor_release(in[i]);
  return s;
}

static void gives(const char *attrs, const char *shape, const char *remapping, const char *present) {
  td_op_run r;
  assert_null(generate(attrs, new_words, old_words, &r));
  td_assert_tensor(r.out[0], TD_INT64, shape, remapping, 0);
  td_assert_tensor(r.out[1], TD_INT32, "[]", present, 0);
  td_tensor_release(r.out[0]);
  td_tensor_release(r.out[1]);
}

static void test_vocabularies(void **state) {
  gives("new_vocab_offset: 0; num_new_vocab: 4", "[4]", "2 -1 0 1", "3");
  gives("new_vocab_offset: 1; num_new_vocab: 2", "[2]", "-1 0", "1");
  gives("new_vocab_offset: 0; num_new_vocab: 4; old_vocab_size: 2", "[4]", "-1 -1 0 1", "2");
  gives("new_vocab_offset: 4; num_new_vocab: 0", "[0]", "", "0");
  td_op_run r;
  must_fail(generate("new_vocab_offset: 1; num_new_vocab: 4", new_words, old_words, &r), TD_INVALID_ARGUMENT, "beyond");
  must_fail(generate("new_vocab_offset: 0; num_new_vocab: 9223372036854775807", new_words, old_words, &r),
            TD_INVALID_ARGUMENT, "beyond");
  must_fail(generate("new_vocab_offset: 0; num_new_vocab: 4", "/nonexistent", old_words, &r), TD_NOT_FOUND, "");
}

static td_status load(const char *attrs, const char *name, td_tensor *rows, td_tensor *cols, td_tensor *values,
                      td_tensor **out) {
  td_tensor *in[] = {text(prefix), text(name), rows, cols, values};
  td_op_run r = {.op = "LoadAndRemapMatrix", .attrs = attrs, .in = in, .in_count = 5};
  td_status s = td_op_test_run(&r);
  *out = r.out[0];
  for (int i = 0; i < 5; i++) td_tensor_release(in[i]);
  return s;
}

static td_tensor *ints(const char *shape, const char *values) { return td_test_tensor(TD_INT64, shape, values); }
static td_tensor *floats(const char *shape, const char *values) { return td_test_tensor(TD_FLOAT, shape, values); }

static void test_matrix(void **state) {
  static const char *const attrs[] = {"num_rows: 4; num_cols: 3", "num_rows: 4; num_cols: 3; max_rows_in_memory: 1",
                                      "num_rows: 4; num_cols: 3; max_rows_in_memory: 2"};
  td_tensor *t;
  for (size_t i = 0; i < TD_COUNT(attrs); i++) {
    assert_null(load(attrs[i], "m", ints("[4]", "2 -1 0 -1"), ints("[3]", "1 -1 0"),
                     floats("[8]", "101 102 103 104 105 106 107 108"), &t));
    td_assert_tensor(t, TD_FLOAT, "[4,3]", "21 101 20 102 103 104 1 105 0 106 107 108", 0);
    td_tensor_release(t);
  }
  assert_null(load("num_rows: 1; num_cols: 2", "m", ints("[1]", "1"), ints("[0]", ""), floats("[0]", ""), &t));
  td_assert_tensor(t, TD_FLOAT, "[1,2]", "10 11", 0);
  td_tensor_release(t);
}

static void test_errors(void **state) {
  const char *two = "num_rows: 2; num_cols: 2";
  td_tensor *t;
#define REFUSED(code, text, ...) must_fail(load(__VA_ARGS__, &t), code, text)
  REFUSED(TD_NOT_FOUND, "x", two, "x", ints("[2]", "0 1"), ints("[0]", ""), floats("[0]", ""));
  REFUSED(TD_INVALID_ARGUMENT, "rank 1", two, "v", ints("[2]", "0 1"), ints("[0]", ""), floats("[0]", ""));
  REFUSED(TD_INVALID_ARGUMENT, "num_rows=2", two, "m", ints("[3]", "0 1 2"), ints("[0]", ""), floats("[0]", ""));
  REFUSED(TD_INVALID_ARGUMENT, "num_cols=2", two, "m", ints("[2]", "0 1"), ints("[1]", "0"), floats("[0]", ""));
  REFUSED(TD_INVALID_ARGUMENT, "is 3, but there are only 3", two, "m", ints("[2]", "0 3"), ints("[0]", ""),
          floats("[0]", ""));
  REFUSED(TD_UNIMPLEMENTED, "Old ID 1 is mapped to both", two, "m", ints("[2]", "1 1"), ints("[0]", ""),
          floats("[0]", ""));
  REFUSED(TD_INVALID_ARGUMENT, "more missing values remain", two, "m", ints("[2]", "0 -1"), ints("[0]", ""),
          floats("[1]", "1"));
  REFUSED(TD_INVALID_ARGUMENT, "only 0 elements were used", two, "m", ints("[2]", "0 1"), ints("[0]", ""),
          floats("[1]", "1"));
}

int main(void) {
  if (td_ops_register()) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vocabularies),
      cmocka_unit_test(test_matrix),
      cmocka_unit_test(test_errors),
  };
  return cmocka_run_group_tests(tests, setup, cleanup);
}
