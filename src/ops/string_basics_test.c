#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "ops/testing.h"

static td_tensor *text(const char *s) { /* a scalar, blanks and all */
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_STRING, 0, NULL, &t));
  assert_null(td_string_set(t->data, td_str_of(s)));
  return t;
}
static td_tensor *words(const char *shape, const char *values) { return td_test_tensor(TD_STRING, shape, values); }
static td_tensor *ints(const char *shape, const char *values) { return td_test_tensor(TD_INT32, shape, values); }

/* Runs an op on inputs that it releases. */
static void start(td_op_run *r, const char *op, const char *attrs, td_tensor **in, int n) {
  *r = (td_op_run){.op = op, .attrs = attrs, .in = in, .in_count = n};
}
static void release(td_tensor **in, int n) {
  for (int i = 0; i < n; i++) td_tensor_release(in[i]);
}
static td_op_run run(const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *c) {
  td_op_run r;
  td_tensor *in[] = {a, b, c};
  int n = c ? 3 : b ? 2 : a ? 1 : 0;
  start(&r, op, attrs, in, n);
  td_assert_runs(&r);
  release(in, n);
  return r;
}
static void gives(const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *c, td_dtype type,
                  const char *shape, const char *values) {
  td_op_run r = run(op, attrs, a, b, c);
  td_assert_tensor(r.out[0], type, shape, values, 1e-6);
  release(r.out, r.out_count);
}
static void gives_text(const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *c, const char *want) {
  td_op_run r = run(op, attrs, a, b, c);
  td_str got = td_string_view(TD_DATA(r.out[0], td_string));
  assert_int_equal(got.size, strlen(want));
  assert_memory_equal(got.data, want, got.size);
  release(r.out, r.out_count);
}
static void fails(const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *c, td_code code,
                  const char *what) {
  td_op_run r;
  td_tensor *in[] = {a, b, c};
  int n = c ? 3 : b ? 2 : a ? 1 : 0;
  start(&r, op, attrs, in, n);
  td_assert_run_fails(&r, code, what);
  release(in, n);
}

static void test_numbers(void **state) {
  (void)state;
  gives("StringToNumber", "out_type: float", words("[4]", "1.5 -2 inf 1e3"), NULL, NULL, TD_FLOAT, "[4]",
        "1.5 -2 inf 1000");
  gives("StringToNumber", "out_type: int32", words("[2]", "-2147483648 +7"), NULL, NULL, TD_INT32, "[2]",
        "-2147483648 7");
  gives("StringToNumber", "out_type: int64", text("  -9223372036854775808 "), NULL, NULL, TD_INT64, "[]",
        "-9223372036854775808");
  const char *bad[] = {"", " ", "x", "2147483648", "1.0", "-", "+-1", "99999999999999999999999"};
  for (size_t i = 0; i < TD_COUNT(bad); i++) {
    fails("StringToNumber", "out_type: int32", text(bad[i]), NULL, NULL, TD_INVALID_ARGUMENT,
          "StringToNumberOp could not correctly convert string: ");
  }
  fails("StringToNumber", "out_type: uint32", text("-1"), NULL, NULL, TD_INVALID_ARGUMENT, "convert string: -1");
}

static void test_letters(void **state) {
  (void)state;
  gives("StringLength", "", words("[2]", "abc \xc3\xa9"), NULL, NULL, TD_INT32, "[2]", "3 2");
  gives("StringLength", "unit: 'UTF8_CHAR'", words("[2]", "abc \xc3\xa9"), NULL, NULL, TD_INT32, "[2]", "3 1");
  gives_text("StringLower", "", text("ABz\xc3\x89"), NULL, NULL, "abz\xc3\x89");
  gives_text("StringUpper", "", text("abZ@{"), NULL, NULL, "ABZ@{");
  gives_text("StringLower", "encoding: 'utf-8'", text("AB\xc3\x89\xff"), NULL, NULL, "ab\xc3\xa9\xef\xbf\xbd");
  gives_text("StringStrip", "", text(" \t a b\n"), NULL, NULL, "a b");
  gives_text("StringStrip", "", text("  "), NULL, NULL, "");
}

static void test_substr(void **state) {
  (void)state;
  gives("Substr", "T: int32", words("[2]", "hello world"), ints("[]", "1"), ints("[]", "3"), TD_STRING, "[2]",
        "ell orl");
  gives("Substr", "T: int32", words("[2]", "hello world"), ints("[2]", "-2 0"), ints("[2]", "99 2"), TD_STRING, "[2]",
        "lo wo");
  gives("Substr", "T: int32", words("[1,2]", "hello world"), ints("[2,1]", "0 1"), ints("[2,1]", "1 2"), TD_STRING,
        "[2,2]", "h w el or");
  gives_text("Substr", "T: int32; unit: 'UTF8_CHAR'", text("a\xc3\xa9z"), ints("[]", "-2"), ints("[]", "1"),
             "\xc3\xa9");
  fails("Substr", "T: int32", text("abc"), ints("[]", "4"), ints("[]", "1"), TD_INVALID_ARGUMENT,
        "pos 4 out of range for string b'abc' at index 0");
  fails("Substr", "T: int32", text("abc"), ints("[]", "-2147483648"), ints("[]", "-2147483648"), TD_INVALID_ARGUMENT,
        "pos -2147483648 out of range");
  fails("Substr", "T: int32", words("[2]", "a b"), ints("[3]", "0 0 0"), ints("[3]", "0 0 0"), TD_INVALID_ARGUMENT,
        "Incompatible shapes: [2] vs. [3]");
  fails("Substr", "T: int32", text("abc"), ints("[]", "0"), ints("[1]", "1"), TD_INVALID_ARGUMENT, "same shape");
}

static void test_codes(void **state) {
  (void)state;
  gives("EncodeBase64", "", words("[3]", "a ab abc"), NULL, NULL, TD_STRING, "[3]", "YQ YWI YWJj");
  gives("EncodeBase64", "pad: true", words("[3]", "a ab abc"), NULL, NULL, TD_STRING, "[3]", "YQ== YWI= YWJj");
  gives("DecodeBase64", "", words("[4]", "YQ== YWI= YWJj YQ"), NULL, NULL, TD_STRING, "[4]", "a ab abc a");
  gives_text("DecodeBase64", "", text(""), NULL, NULL, "");
  fails("DecodeBase64", "", text("YQ="), NULL, NULL, TD_INVALID_ARGUMENT, "Invalid character found in base64.");
  fails("DecodeBase64", "", text("YWJjY"), NULL, NULL, TD_INVALID_ARGUMENT, "cannot be 1 modulo 4");
  gives("DecodeRaw", "out_type: uint8", words("[2]", "AB CD"), NULL, NULL, TD_UINT8, "[2,2]", "65 66 67 68");
  gives("DecodeRaw", "out_type: int16; little_endian: false", words("[1]", "AB"), NULL, NULL, TD_INT16, "[1,1]",
        "16706");
  fails("DecodeRaw", "out_type: int16", words("[1]", "ABC"), NULL, NULL, TD_INVALID_ARGUMENT,
        "Input to DecodeRaw has length 3 that is not a multiple of 2, the size of int16");
  fails("DecodeRaw", "out_type: uint8", words("[2]", "A BC"), NULL, NULL, TD_INVALID_ARGUMENT,
        "element 1 has size 1 != 2");
  /* TensorFlow's values */
  gives("StringToHashBucketStrong", "num_buckets: 10; key: [98765, 132]", words("[3]", "a b c"), NULL, NULL, TD_INT64,
        "[3]", "4 2 8");
}

static void test_split(void **state) {
  (void)state;
  td_op_run r = run("StringSplit", "", words("[2]", "a,b,,c d"), text(","), NULL);
  td_assert_tensor(r.out[0], TD_INT64, "[4,2]", "0 0 0 1 0 2 1 0", 0);
  td_assert_tensor(r.out[1], TD_STRING, "[4]", "a b c d", 0);
  td_assert_tensor(r.out[2], TD_INT64, "[2]", "2 3", 0);
  release(r.out, r.out_count);
  r = run("StringSplitV2", "maxsplit: 1", words("[1]", "a<>b<>c"), text("<>"), NULL);
  td_assert_tensor(r.out[1], TD_STRING, "[2]", "a b<>c", 0);
  release(r.out, r.out_count);
  fails("StringSplit", "", text("a"), text(","), NULL, TD_INVALID_ARGUMENT, "input must be a vector, got shape: []");
  fails("StringSplitV2", "", words("[1]", "a"), words("[1]", ","), NULL, TD_INVALID_ARGUMENT,
        "sep must be a scalar, got shape: [1]");
  r = run("StringSplitV2", "", words("[0]", ""), text(""), NULL);
  td_assert_tensor(r.out[2], TD_INT64, "[2]", "0 0", 0);
  release(r.out, r.out_count);
}

static void test_join(void **state) {
  (void)state;
  gives("ReduceJoin", "separator: '-'", words("[2,2]", "a b c d"), ints("[1]", "0"), NULL, TD_STRING, "[2]", "a-c b-d");
  gives("ReduceJoin", "keep_dims: true", words("[2,2]", "a b c d"), ints("[1]", "-1"), NULL, TD_STRING, "[2,1]",
        "ab cd");
  gives("ReduceJoin", "", words("[2,2]", "a b c d"), ints("[2]", "1 0"), NULL, TD_STRING, "[]", "abcd");
  gives("ReduceJoin", "", words("[2,2]", "a b c d"), ints("[2]", "0 1"), NULL, TD_STRING, "[]", "acbd");
  fails("ReduceJoin", "", words("[2]", "a b"), ints("[1]", "1"), NULL, TD_OUT_OF_RANGE,
        "Invalid reduction dimension 1 for input with 1 dimension(s)");
  fails("ReduceJoin", "", words("[2]", "a b"), ints("[2]", "0 -1"), NULL, TD_INVALID_ARGUMENT,
        "Duplicate reduction dimension -1");
}

static void test_format(void **state) {
  (void)state;
  gives_text("StringFormat", "T: [int32]; template: 'x {} y'; placeholder: '{}'", ints("[2,2]", "1 2 3 4"), NULL, NULL,
             "x [[1 2]\n [3 4]] y");
  gives_text("StringFormat", "T: [int32]; template: '%s'; summarize: 1", ints("[4]", "1 2 3 4"), NULL, NULL,
             "[1 ... 4]");
  gives_text("StringFormat", "T: [string]; template: '%s'", text("a"), NULL, NULL, "\"a\"");
  fails("StringFormat", "T: [int32]; template: 'none'", ints("[]", "1"), NULL, NULL, TD_INVALID_ARGUMENT,
        "num placeholders in template and num inputs must match: 0 vs. 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers), cmocka_unit_test(test_letters), cmocka_unit_test(test_substr),
      cmocka_unit_test(test_codes),   cmocka_unit_test(test_split),   cmocka_unit_test(test_join),
      cmocka_unit_test(test_format),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
