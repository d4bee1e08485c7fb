#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"

static void test_compare(void **state) {
  td_str none = {NULL, 0};
  assert_true(td_str_eq(none, TD_STR("")));
  assert_true(td_str_eq(td_str_of(NULL), none));
  assert_false(td_str_eq(TD_STR("a\0b"), TD_STR("a\0c")));
  assert_false(td_str_is(TD_STR("a\0b"), "a"));
  assert_int_equal(td_str_cmp(none, TD_STR("")), 0);
  assert_true(td_str_cmp(TD_STR("a"), TD_STR("ab")) < 0);
  assert_true(td_str_cmp(TD_STR("\xff"), TD_STR("a")) > 0); /* bytes are unsigned */
  assert_true(td_str_starts(TD_STR("abc"), none) && td_str_starts(TD_STR("abc"), TD_STR("abc")));
  assert_false(td_str_starts(TD_STR("ab"), TD_STR("abc")));
  assert_true(td_str_ends(TD_STR("abc"), TD_STR("bc")) && td_str_ends(none, none));
  assert_false(td_str_ends(TD_STR("bc"), TD_STR("abc")));
}

static void test_split(void **state) {
  td_str rest = TD_STR("a;;b;");
  assert_true(td_str_is(td_str_split(&rest, ';'), "a"));
  assert_true(td_str_is(td_str_split(&rest, ';'), ""));
  assert_true(td_str_is(td_str_split(&rest, ';'), "b"));
  assert_non_null(rest.data); /* there is one more part, an empty one */
  assert_true(td_str_is(td_str_split(&rest, ';'), ""));
  assert_null(rest.data);
  assert_true(td_str_is(td_str_split(&rest, ';'), ""));
  assert_true(td_str_is(td_str_trim(TD_STR(" \t a b\n")), "a b"));
  assert_int_equal(td_str_trim(TD_STR(" \n ")).size, 0);
  assert_int_equal(td_str_trim((td_str){NULL, 0}).size, 0);
}

static void test_numbers(void **state) {
  int64_t i = 0;
  uint64_t u = 0;
  assert_true(td_str_to_i64(TD_STR("-9223372036854775808"), &i) && i == INT64_MIN);
  assert_true(td_str_to_i64(TD_STR("9223372036854775807"), &i) && i == INT64_MAX);
  assert_true(td_str_to_u64(TD_STR("18446744073709551615"), &u) && u == UINT64_MAX);
  assert_true(td_str_hex_to_u64(TD_STR("0123456789abcDEF"), &u) && u == 0x0123456789abcdefull);
  static const char *const bad_i64[] = {
      "",    "-",   "9223372036854775808",    "-9223372036854775809", "1 ", " 1", "+1", "--1",
      "0x1", "1e3", "99999999999999999999999"};
  for (size_t k = 0; k < TD_COUNT(bad_i64); k++) assert_false(td_str_to_i64(td_str_of(bad_i64[k]), &i));
  static const char *const bad_u64[] = {"", "-1", "18446744073709551616", "184467440737095516150", "a", "1a"};
  for (size_t k = 0; k < TD_COUNT(bad_u64); k++) assert_false(td_str_to_u64(td_str_of(bad_u64[k]), &u));
  assert_false(td_str_hex_to_u64(TD_STR("10000000000000000"), &u));
  assert_false(td_str_hex_to_u64(TD_STR("fg"), &u));
  assert_false(td_str_to_u64(TD_STR("1\0"), &u));
  assert_true(i == INT64_MAX); /* a failure leaves the output */
}

/* TensorFlow's own values: a frame id seen on the wire, and what its StringToHashBucket says for 2^63 - 1 buckets. */
static void test_hash64(void **state) {
  td_str path = TD_STR(";0;lp/while_context");
  assert_true(td_hash64(path.data, path.size) == 337914165076196879ull);
  static const struct {
    const char *text;
    uint64_t bucket;
  } known[] = {
      {"", 105434511174508092ull},
      {"a", 2996632905371535868ull},
      {"abcdefg", 2960345911509200449ull},
      {"abcdefgh", 3429851175771700306ull},
      {"abcdefghi", 6766191100966087061ull},
      {"lp/while_context", 7282731626499069496ull},
      {"The quick brown fox jumps over the lazy dog", 6299166825487821026ull},
  };
  for (size_t i = 0; i < TD_COUNT(known); i++)
    assert_true(td_hash64(known[i].text, strlen(known[i].text)) % INT64_MAX == known[i].bucket);
  /* any alignment */
  char buffer[64];
  for (int shift = 0; shift < 8; shift++) {
    memcpy(buffer + shift, path.data, path.size);
    assert_true(td_hash64(buffer + shift, path.size) == 337914165076196879ull);
  }
  (void)td_hash(NULL, 0);
}

static void test_strbuf(void **state) {
  td_strbuf b = {0};
  assert_string_equal(td_strbuf_cstr(&b), "");
  assert_int_equal(td_strbuf_view(&b).size, 0);
  td_strbuf_append(&b, (td_str){NULL, 0});
  td_strbuf_printf(&b, "%s", "");
  assert_string_equal(td_strbuf_cstr(&b), "");
  for (int i = 0; i < 1000; i++) td_strbuf_putc(&b, 'x');
  for (int size = 60; size < 70; size++) td_strbuf_printf(&b, "%*d", size, 7);
  td_strbuf_append(&b, TD_STR("a\0b"));
  td_strbuf_puts(&b, "!");
  size_t size = 1000 + 645 + 4;
  assert_int_equal(b.size, size);
  assert_memory_equal(b.data + size - 4, "a\0b!", 5);
  assert_int_equal(b.data[999], 'x');
  assert_int_equal(b.data[size - 5], '7');
  char *taken = td_strbuf_take(&b);
  assert_null(b.data);
  td_free(taken);
  taken = td_strbuf_take(&b);
  assert_string_equal(taken, "");
  td_free(taken);
  td_strbuf_deinit(&b);
  taken = td_asprintf("%s-%d", "a", 3);
  assert_string_equal(taken, "a-3");
  td_free(taken);
  /* exactly filling the capacity leaves room for the NUL */
  for (size_t n = 62; n < 67; n++) {
    td_strbuf_append(&b, (td_str){"0123456789012345678901234567890123456789012345678901234567890123456789", n});
    assert_int_equal(strlen(b.data), n);
    td_strbuf_deinit(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compare), cmocka_unit_test(test_split),  cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_hash64),  cmocka_unit_test(test_strbuf),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
