#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "rpc/codec.h"
#include "rpc/inflate.h"

static void percent_round_trip(void **state) {
  static const char *const CASES[] = {"",    " ",       " blank: ", "plain text", "100 %", "p\xc3\xa4th\n\t\x7f",
                                      "%41", "\xff\xfe"};
  for (size_t i = 0; i < TD_COUNT(CASES); i++) {
    td_strbuf e = {0}, d = {0};
    td_percent_encode(&e, td_str_of(CASES[i]), TD_RPC_TRAILERS_MAX);
    for (size_t k = 0; k < e.size; k++) assert_in_range(e.data[k], 0x20, 0x7e);
    assert_true(!e.size || (e.data[0] != ' ' && e.data[e.size - 1] != ' '));
    td_percent_decode(&d, td_strbuf_view(&e));
    assert_true(td_str_is(td_strbuf_view(&d), CASES[i]));
    td_strbuf_deinit(&e);
    td_strbuf_deinit(&d);
  }
}

static void percent_decode_is_lenient(void **state) {
  td_strbuf d = {0};
  td_percent_decode(&d, TD_STR("a%4"));
  td_percent_decode(&d, TD_STR("%zz%e4%"));
  assert_string_equal(td_strbuf_cstr(&d), "a%4%zz\xe4%");
  td_strbuf_deinit(&d);
}

static void long_messages_are_cut(void **state) {
  char text[9000];
  memset(text, 'x', sizeof text);
  td_strbuf e = {0};
  td_percent_encode(&e, td_str_n(text, sizeof text), TD_RPC_TRAILERS_MAX);
  assert_int_equal(e.size, 3072 + strlen(" ... [truncated]"));
  assert_true(td_str_ends(td_strbuf_view(&e), TD_STR(" ... [truncated]")));
  td_strbuf_deinit(&e);
  for (size_t i = 0; i + 3 <= sizeof text; i += 3) memcpy(text + i, "\xe6\x97\xa5", 3);
  td_percent_encode(&e, td_str_n(text, sizeof text), TD_RPC_TRAILERS_MAX);
  assert_true(e.size <= TD_RPC_TRAILERS_MAX);
  assert_int_equal((e.size - strlen(" ... [truncated]")) % 9, 0); /* whole characters */
  td_strbuf_deinit(&e);
}

static void timeouts(void **state) {
  static const struct {
    uint64_t ns;
    const char *text;
  } CASES[] = {{1, "1n"},
               {99999999, "99999999n"},
               {100000000, "100000u"},
               {100000001, "100001u"},
               {5000000000, "5000000u"},
               {UINT64_MAX, "5124096H"}};
  for (size_t i = 0; i < TD_COUNT(CASES); i++) {
    char out[16];
    size_t n = td_timeout_format(CASES[i].ns, out);
    assert_true(td_str_is(td_str_n(out, n), CASES[i].text));
    uint64_t back;
    assert_true(td_timeout_parse(td_str_n(out, n), &back));
    assert_true(back >= CASES[i].ns);
  }
  uint64_t ns;
  static const char *const BAD[] = {"", "1", "S", "-1S", "123456789S", "1x", "1.5S", " 1S"};
  for (size_t i = 0; i < TD_COUNT(BAD); i++) assert_false(td_timeout_parse(td_str_of(BAD[i]), &ns));
  assert_true(td_timeout_parse(TD_STR("99999999H"), &ns));
  assert_int_equal(ns, UINT64_MAX);
}

static void base64(void **state) {
  char bytes[64];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 37 + 200);
  for (size_t n = 0; n <= sizeof bytes; n++) {
    td_strbuf e = {0}, d = {0};
    td_base64_encode(&e, td_str_n(bytes, n));
    assert_true(td_base64_decode(&d, td_strbuf_view(&e)));
    assert_true(td_str_eq(td_strbuf_view(&d), td_str_n(bytes, n)));
    td_strbuf_deinit(&e);
    td_strbuf_deinit(&d);
  }
  td_strbuf d = {0};
  assert_true(td_base64_decode(&d, TD_STR("QQ==")));
  assert_string_equal(td_strbuf_cstr(&d), "A");
  assert_false(td_base64_decode(&d, TD_STR("Q")));
  assert_false(td_base64_decode(&d, TD_STR("Q*==")));
  td_strbuf_deinit(&d);
}

static td_str deflate_bytes(const char *data, size_t size, int window_bits, char *out, size_t capacity) {
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = (Bytef *)data;
  z.avail_in = (uInt)size;
  z.next_out = (Bytef *)out;
  z.avail_out = (uInt)capacity;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  td_str r = td_str_n(out, z.total_out);
  deflateEnd(&z);
  return r;
}

static void inflate_both_encodings(void **state) {
  enum { SIZE = 1 << 20 };
  char *data = td_calloc(1, SIZE), *packed = td_malloc(SIZE);
  for (int i = 0; i < SIZE; i++) data[i] = (char)(i / 1000);
  for (int gzip = 0; gzip < 2; gzip++) {
    td_encoding encoding = gzip ? TD_ENCODING_GZIP : TD_ENCODING_DEFLATE;
    td_str in = deflate_bytes(data, SIZE, gzip ? 31 : 15, packed, SIZE);
    char *out = NULL;
    size_t size = 0;
    assert_null(td_inflate(encoding, in, SIZE, &out, &size));
    assert_int_equal(size, SIZE);
    assert_memory_equal(out, data, SIZE);
    td_free(out);
    td_status s = td_inflate(encoding, in, SIZE - 1, &out, &size); /* one byte too many */
    assert_int_equal(td_status_code(s), TD_RESOURCE_EXHAUSTED);
    td_status_free(s);
    s = td_inflate(encoding, td_str_n(in.data, in.size - 9), SIZE, &out, &size); /* cut off */
    assert_int_equal(td_status_code(s), TD_INTERNAL);
    td_status_free(s);
    packed[in.size] = 0; /* bytes behind the end */
    s = td_inflate(encoding, td_str_n(in.data, in.size + 1), SIZE, &out, &size);
    assert_int_equal(td_status_code(s), TD_INTERNAL);
    td_status_free(s);
    packed[in.size / 2] ^= 0x55; /* broken */
    s = td_inflate(encoding, in, SIZE, &out, &size);
    assert_non_null(s); /* what breaks first depends on the bit */
    td_status_free(s);
  }
  td_free(data);
  td_free(packed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(percent_round_trip),
      cmocka_unit_test(percent_decode_is_lenient),
      cmocka_unit_test(long_messages_are_cut),
      cmocka_unit_test(timeouts),
      cmocka_unit_test(base64),
      cmocka_unit_test(inflate_both_encodings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
