#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "proto/wire.h"

static void varints_round_trip(void **state) {
  const uint64_t values[] = {0, 1, 127, 128, 300, 16383, 16384, UINT32_MAX, 1ull << 56, INT64_MAX, UINT64_MAX};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    td_strbuf b = {0};
    td_wire_put_varint(&b, values[i]);
    assert_int_equal(b.size, td_wire_varint_size(values[i]));
    td_wire w = td_wire_of(td_strbuf_view(&b));
    uint64_t got;
    assert_true(td_wire_read_varint(&w, &got));
    assert_true(got == values[i]);
    assert_int_equal(td_wire_left(&w), 0);
    w = td_wire_of((td_str){b.data, b.size - 1}); /* cut off: nothing is consumed */
    assert_false(td_wire_read_varint(&w, &got));
    assert_int_equal(td_wire_left(&w), b.size - 1);
    td_strbuf_deinit(&b);
  }
}

static void long_varints_are_refused(void **state) {
  uint64_t got;
  td_wire w = td_wire_of(TD_STR("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"));
  assert_false(td_wire_read_varint(&w, &got));
  w = td_wire_of(TD_STR("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
  assert_true(td_wire_read_varint(&w, &got));
  assert_true(got == UINT64_MAX);
}

static void fields_round_trip(void **state) {
  td_strbuf b = {0};
  td_wire_put_uint(&b, 1, 0); /* left out */
  td_wire_put_uint(&b, 1, (uint64_t)-5);
  td_wire_put_bytes(&b, 2, TD_STR("a\0b"));
  td_wire_put_bytes(&b, 3, TD_STR(""));
  td_wire_put_fixed64(&b, 4, 0x1122334455667788);
  td_wire_put_fixed32(&b, 5000, 0x3fc00000);
  td_wire w = td_wire_of(td_strbuf_view(&b));
  td_wire_field f;
  bool bad;
  assert_true(td_wire_next(&w, &f, &bad));
  assert_true(f.number == 1 && f.type == TD_WIRE_VARINT && (int64_t)f.value == -5);
  assert_true(td_wire_next(&w, &f, &bad));
  assert_true(f.number == 2 && f.type == TD_WIRE_BYTES && td_str_eq(f.bytes, TD_STR("a\0b")));
  assert_true(td_wire_next(&w, &f, &bad));
  assert_true(f.number == 3 && f.bytes.size == 0);
  assert_true(td_wire_next(&w, &f, &bad));
  assert_true(f.type == TD_WIRE_FIXED64 && f.value == 0x1122334455667788);
  assert_true(td_wire_next(&w, &f, &bad));
  assert_true(f.number == 5000 && f.type == TD_WIRE_FIXED32 && td_wire_float(&f) == 1.5f);
  assert_false(td_wire_next(&w, &f, &bad));
  assert_false(bad);
  td_strbuf_deinit(&b);
}

static void malformed_fields(void **state) {
  const td_str cases[] = {
      TD_STR("\x0a\x05"
             "abcd"),                     /* length past the end */
      TD_STR("\x0a"),                     /* no length */
      TD_STR("\x0b\x0c"),                 /* a group */
      TD_STR("\x02\x00"),                 /* field number 0 */
      TD_STR("\x0d\x01\x02\x03"),         /* short fixed32 */
      TD_STR("\x09\x01\x02\x03"),         /* short fixed64 */
      TD_STR("\x0e\x00"),                 /* wire type 6 */
      TD_STR("\x88\x80\x80\x80\x10\x00"), /* tag past 32 bits */
      TD_STR("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    td_wire w = td_wire_of(cases[i]);
    td_wire_field f;
    bool bad;
    assert_false(td_wire_next(&w, &f, &bad));
    assert_true(bad);
    assert_ptr_equal(w.next, cases[i].data);
  }
}

/* In any two pieces a head reads as in one. */
static void heads_in_pieces(void **state) {
  td_strbuf b = {0};
  td_wire_put_uint(&b, 1, 300);
  td_wire_put_header(&b, 536870911, 5000000000u);
  td_wire_put_tag(&b, 16, TD_WIRE_FIXED32);
  td_wire_put_uint(&b, 2, UINT64_MAX);
  for (size_t cut = 0; cut <= b.size; cut++) {
    const uint8_t *bytes = (const uint8_t *)b.data;
    td_wire pieces[2] = {{bytes, bytes + cut}, {bytes + cut, bytes + b.size}};
    td_wire_head h = {0};
    td_wire_field f, all[4];
    int count = 0;
    for (int i = 0; i < 2; i++)
      while (td_wire_head_read(&h, &pieces[i], &f) == TD_WIRE_HEAD_WHOLE && count < 4) all[count++] = f;
    assert_int_equal(count, 4);
    assert_int_equal(h.size, 0);
    assert_int_equal(all[0].value, 300);
    assert_int_equal(all[1].number, 536870911);
    assert_int_equal(all[1].value, 5000000000u);
    assert_int_equal(all[2].type, TD_WIRE_FIXED32);
    assert_true(all[3].value == UINT64_MAX);
  }
  td_strbuf_deinit(&b);
  const char *const bad[] = {"\x0c", "\x80\x80\x80\x80\x80", "\x07", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"};
  for (size_t i = 0; i < TD_COUNT(bad); i++) {
    for (size_t cut = 0; cut < strlen(bad[i]); cut++) {
      td_wire_head h = {0};
      td_wire_field f;
      td_wire first = td_wire_of(td_str_n(bad[i], cut)), rest = td_wire_of(td_str_of(bad[i] + cut));
      if (td_wire_head_read(&h, &first, &f) != TD_WIRE_HEAD_BAD)
        assert_int_equal(td_wire_head_read(&h, &rest, &f), TD_WIRE_HEAD_BAD);
    }
  }
}

static void header_sizes(void **state) {
  const size_t sizes[] = {0, 1, 127, 128, 1 << 20};
  for (size_t i = 0; i < 5; i++) {
    td_strbuf b = {0};
    td_wire_put_header(&b, 16, sizes[i]);
    assert_int_equal(b.size, td_wire_header_size(16, sizes[i]));
    td_strbuf_deinit(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(varints_round_trip), cmocka_unit_test(long_varints_are_refused),
      cmocka_unit_test(fields_round_trip),  cmocka_unit_test(malformed_fields),
      cmocka_unit_test(heads_in_pieces),    cmocka_unit_test(header_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
