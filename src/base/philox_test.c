#include "base/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The known answers of the generator's authors (Random123, kat_vectors). */
static void test_known_answers(void **state) {
  static const struct {
    td_philox p;
    uint32_t want[4];
  } cases[] = {
      {{{0, 0, 0, 0}, {0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < TD_COUNT(cases); i++) {
    td_philox p = cases[i].p;
    uint32_t got[4];
    td_philox_next(&p, got);
    assert_memory_equal(got, cases[i].want, sizeof got);
  }
}

static void check_fill(td_philox p, size_t steps) {
  uint32_t *filled = td_new_array(uint32_t, 4 * steps + 1), one[4];
  filled[4 * steps] = 42;
  td_philox q = p;
  td_philox_fill(&p, filled, steps);
  for (size_t i = 0; i < steps; i++) {
    td_philox_next(&q, one);
    assert_memory_equal(filled + 4 * i, one, sizeof one);
  }
  assert_memory_equal(&p, &q, sizeof p);
  assert_int_equal(filled[4 * steps], 42);
  td_free(filled);
}

static void test_fill_is_next_repeated(void **state) {
  td_philox p = td_philox_from_seeds(5, 7);
  for (size_t steps = 0; steps < 70; steps++) check_fill(p, steps);
  check_fill(p, 1000);
  /* carries from word to word, in all places of a block */
  for (uint32_t below = 0; below < 40; below++) {
    td_philox q = {{0u - below, ~0u, ~0u, 9}, {1, 2}};
    check_fill(q, 100);
  }
}

static void test_fill_at_is_next_of_each(void **state) {
  td_philox p = {{0u - 5000, ~0u, 3, 9}, {1, 2}}; /* the later ones carry */
  uint32_t at[50] = {0}, filled[4 * 50 + 1], one[4];
  for (size_t count = 0; count <= TD_COUNT(at); count++) {
    for (size_t i = 0; i < count; i++) at[i] = (uint32_t)(i * i * 7 % 300 * (i < 30 ? 10 : 40));
    filled[4 * count] = 42;
    td_philox_fill_at(&p, at, filled, count);
    for (size_t i = 0; i < count; i++) {
      td_philox q = td_philox_at(&p, at[i]);
      td_philox_next(&q, one);
      assert_memory_equal(filled + 4 * i, one, sizeof one);
    }
    assert_int_equal(filled[4 * count], 42);
  }
}

static void test_skip_is_next_repeated(void **state) {
  td_philox p = td_philox_from_seeds(1, UINT64_MAX), q = p;
  uint32_t one[4];
  for (int i = 0; i < 1000; i++) td_philox_next(&p, one);
  td_philox_skip(&q, 1000);
  assert_memory_equal(&p, &q, sizeof p);
  td_philox_skip(&q, UINT64_MAX); /* carries into the upper half: 2^64 steps in all, and back one */
  td_philox_skip(&q, 1);
  assert_int_equal(q.counter[0], 1000);
  assert_int_equal(q.counter[1], 0);
  assert_int_equal(q.counter[2], 0);
  assert_int_equal(q.counter[3], 0);
  td_philox at = td_philox_at(&p, 3);
  assert_int_equal(at.counter[0], 1003);
}

static void test_numbers(void **state) {
  assert_true(td_philox_float(0) == 0.0f);
  assert_true(td_philox_float(~0u) < 1.0f && td_philox_float(~0u) > 0.9999f);
  assert_true(td_philox_double(0, 0) == 0.0);
  assert_true(td_philox_double(~0u, ~0u) < 1.0);
  assert_true(td_philox_double(0x80000, 0) == 0.5);
  td_philox p = td_philox_from_seeds(5, 7);
  td_philox_words w = td_philox_words_of(p);
  uint32_t two[8];
  td_philox_fill(&p, two, 2);
  for (int i = 0; i < 8; i++) assert_int_equal(td_philox_word(&w), two[i]);
}

static void test_stateless_seeds(void **state) { /* StatelessRandomGetKeyCounter of TensorFlow 2.15.1 for [3, 4] */
  td_philox p = td_philox_from_stateless_seeds(3, 4);
  assert_true((p.key[0] | (uint64_t)p.key[1] << 32) == UINT64_C(5186321457711525117));
  assert_true((p.counter[2] | (uint64_t)p.counter[3] << 32) == UINT64_C(2956673722964415482));
  assert_int_equal(p.counter[0] | p.counter[1], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_known_answers),         cmocka_unit_test(test_fill_is_next_repeated),
      cmocka_unit_test(test_skip_is_next_repeated), cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_stateless_seeds),       cmocka_unit_test(test_fill_at_is_next_of_each),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
