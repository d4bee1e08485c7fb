#include "framework/rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/mem.h"

#define SRC "/job:ps/replica:0/task:1/device:CPU:0"
#define DST "/job:worker/replica:0/task:0/device:CPU:0"

static void test_round_trip(void **state) {
  td_arena arena = {0};
  td_rendezvous_key made, parsed;
  td_frame_id frame = {.id_1x = 337914165076196879ull, .id_2x = UINT64_MAX, .iter = 12}, got;
  td_rendezvous_key_make(&arena, TD_STR(SRC), 0x1fe8c0de, TD_STR(DST), TD_STR("edge_7_x:0"), &made);
  assert_string_equal(made.text.data, SRC ";000000001fe8c0de;" DST ";edge_7_x:0");
  assert_true(td_str_is(made.src_device, SRC) && td_str_is(made.dst_device, DST) && td_str_is(made.edge, "edge_7_x:0"));
  td_strbuf wire = {0};
  td_rendezvous_key_format(made.text, frame, false, &wire);
  assert_string_equal(wire.data, SRC ";000000001fe8c0de;" DST ";edge_7_x:0;337914165076196879:12");
  assert_null(td_rendezvous_key_parse(td_strbuf_view(&wire), &parsed, &got));
  assert_true(td_str_eq(parsed.text, made.text) && parsed.hash == made.hash);
  assert_true(td_str_is(parsed.src_device, SRC) && td_str_is(parsed.dst_device, DST));
  assert_true(td_str_is(parsed.edge, "edge_7_x:0") && parsed.src_incarnation == 0x1fe8c0de);
  assert_true(got.id_1x == frame.id_1x && got.id_2x == frame.id_1x && got.iter == 12);
  td_strbuf_deinit(&wire);
  td_rendezvous_key_format(made.text, frame, true, &wire);
  assert_null(td_rendezvous_key_parse(td_strbuf_view(&wire), &parsed, &got));
  assert_true(got.id_2x == UINT64_MAX);
  td_strbuf_deinit(&wire);
  td_arena_deinit(&arena);
}

/* Names from a client's graph are bytes: with NULs in them, empty, long. */
static void test_make_from_bytes(void **state) {
  td_arena arena = {0};
  td_rendezvous_key k, other;
  td_rendezvous_key_make(&arena, TD_STR("a\0b"), UINT64_MAX, TD_STR("\0"), TD_STR("e\0f"), &k);
  assert_int_equal(k.text.size, 3 + 18 + 1 + 1 + 3);
  assert_memory_equal(k.text.data, "a\0b;ffffffffffffffff;\0;e\0f", k.text.size + 1);
  assert_true(td_str_eq(k.src_device, TD_STR("a\0b")) && td_str_eq(k.dst_device, TD_STR("\0")));
  assert_true(td_str_eq(k.edge, TD_STR("e\0f")));
  td_rendezvous_key_make(&arena, TD_STR("a\0b"), UINT64_MAX, TD_STR("\0"), TD_STR("e\0g"), &other);
  assert_true(k.hash != other.hash);
  td_rendezvous_key_make(&arena, (td_str){NULL, 0}, 0, (td_str){NULL, 0}, (td_str){NULL, 0}, &k);
  assert_string_equal(k.text.data, ";0000000000000000;;");
  td_arena_deinit(&arena);
}

static void check_refused(td_str text) {
  /* a copy of exactly its size: a read past the end shows */
  char *copy = td_malloc(text.size);
  if (text.size) memcpy(copy, text.data, text.size);
  td_rendezvous_key key;
  td_frame_id frame;
  td_status s = td_rendezvous_key_parse((td_str){copy, text.size}, &key, &frame);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  assert_memory_equal(td_status_message(s), "Invalid  rendezvous key: ", 25);
  td_status_free(s);
  td_free(copy);
}

static void test_parse_refuses(void **state) {
  static const char good[] = SRC ";1f;" DST ";e;0:0";
  static const char *const bad[] = {
      "",
      ";",
      ";;;;",
      ";;;;:",
      "x",
      SRC,
      SRC ";1f;" DST,
      SRC ";1f;" DST ";e",
      SRC ";1f;" DST ";e;0",
      SRC ";1f;" DST ";e;0:",
      SRC ";1f;" DST ";e;:0",
      SRC ";1f;" DST ";;0:0",
      SRC ";1f;" DST ";e;0:0;",
      SRC ";1f;" DST ";e;0:0;x",
      SRC ";1f;" DST ";e;-1:0",
      SRC ";1f;" DST ";e;0:9223372036854775808",
      SRC ";1f;" DST ";e;18446744073709551616:0",
      SRC ";;" DST ";e;0:0",
      SRC ";1g;" DST ";e;0:0",
      SRC ";11111111111111111;" DST ";e;0:0",
      "/job:ps;1f;" DST ";e;0:0",
      ";1f;" DST ";e;0:0",
      SRC ";1f;nonsense;e;0:0",
      SRC ";1f;" DST ";e;0:0:0",
  };
  td_rendezvous_key key;
  td_frame_id frame;
  assert_null(td_rendezvous_key_parse(td_str_of(good), &key, &frame));
  assert_null(td_rendezvous_key_parse(TD_STR(SRC ";1f;" DST ";e;18446744073709551615:-1"), &key, &frame));
  for (size_t i = 0; i < TD_COUNT(bad); i++) check_refused(td_str_of(bad[i]));
  for (size_t n = 0; n + 1 < sizeof good; n++) check_refused((td_str){good, n});
  check_refused((td_str){good, sizeof good}); /* with its NUL */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_make_from_bytes),
      cmocka_unit_test(test_parse_refuses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
