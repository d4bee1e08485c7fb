#include "base/status.h"
#include "base/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void test_ok(void **state) {
  must_say(TD_STATUS_OK, TD_OK, "");
  assert_null(td_status_retain(NULL));
  assert_null(td_status_append(NULL, "%d", 1));
  assert_null(td_status_prepend(NULL, "%d", 1));
  assert_null(td_status_derive(NULL));
  assert_false(td_status_is_derived(NULL));
}

static void test_messages(void **state) {
  must_say(td_not_found("%s %d", "node", 7), TD_NOT_FOUND, "node 7");
  must_say(td_error(TD_UNAVAILABLE, "%s", ""), TD_UNAVAILABLE, "");
  must_say(td_error_bytes(TD_ABORTED, NULL, 0), TD_ABORTED, "");
  /* the formatting buffer's edges */
  for (int n = 510; n < 516; n++) {
    td_status s = td_internal("%*d", n, 5);
    assert_int_equal(strlen(td_status_message(s)), n);
    assert_int_equal(td_status_message(s)[n - 1], '5');
    td_status_free(s);
  }
  enum { BIG = 1 << 20 };
  char *big = malloc(BIG + 1);
  memset(big, 'x', BIG);
  big[BIG] = '\0';
  must_say(td_internal("%s", big), TD_INTERNAL, big);
  must_say(td_error_bytes(TD_INTERNAL, big, BIG), TD_INTERNAL, big);
  free(big);
  /* a peer's bytes: nothing in them is a format, and a NUL ends them */
  must_say(td_error_bytes(TD_INTERNAL, "%s%n\0tail", 9), TD_INTERNAL, "%s%n");
  must_say(td_error_bytes((td_code)77, "x", 1), (td_code)77, "x"); /* a code we do not know travels on */
}

static void test_annotate(void **state) {
  td_status s = td_not_found("b");
  s = td_status_prepend(s, "a%d ", 1);
  s = td_status_append(s, " %s", "c");
  must_say(s, TD_NOT_FOUND, "a1 b c");
  s = td_status_derive(td_aborted("x"));
  s = td_status_append(s, "y");
  assert_true(td_status_is_derived(s));
  must_say(s, TD_ABORTED, "xy");
  /* another owner's view does not change */
  s = td_aborted("x");
  td_status other = td_status_retain(s);
  s = td_status_append(s, "y");
  must_say(other, TD_ABORTED, "x");
  must_say(s, TD_ABORTED, "xy");
  s = td_aborted("x");
  other = td_status_retain(s);
  s = td_status_derive(s);
  assert_true(td_status_is_derived(s));
  assert_false(td_status_is_derived(other));
  s = td_status_derive(s);
  must_say(s, TD_ABORTED, "x");
  td_status_free(other);
}

static void merge(td_status a, td_status b, const char *wanted) {
  td_status_merge(&a, b);
  must_say(a, td_status_code(a), wanted);
}

static void test_merge(void **state) {
  merge(NULL, NULL, "");
  merge(NULL, td_internal("b"), "b");
  merge(td_internal("a"), NULL, "a");
  merge(td_internal("a"), td_internal("b"), "a");
  merge(td_status_derive(td_internal("a")), td_internal("b"), "b"); /* a root error wins over its consequences */
  merge(td_internal("a"), td_status_derive(td_internal("b")), "a");
  merge(td_status_derive(td_internal("a")), td_status_derive(td_internal("b")), "a");
  merge(NULL, td_status_derive(td_internal("b")), "b");
}

static void test_names(void **state) {
  assert_string_equal(td_code_name(TD_OK), "OK");
  assert_string_equal(td_code_name(TD_INVALID_ARGUMENT), "Invalid argument");
  assert_string_equal(td_code_name(TD_UNAUTHENTICATED), "Unauthenticated");
  assert_string_equal(td_code_name((td_code)17), "Unknown");
  assert_string_equal(td_code_name((td_code)-1), "Unknown");
}

static void *share(void *arg) {
  for (int i = 0; i < 2000; i++) {
    td_status s = td_status_retain(arg);
    if (strcmp(td_status_message(s), "shared")) abort();
    s = td_status_append(s, " %d", i);
    td_status_free(s);
  }
  td_status_free(arg);
  return NULL;
}

static void test_threads(void **state) {
  td_status s = td_internal("shared");
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    td_status own = td_status_retain(s);
    assert_int_equal(pthread_create(&threads[i], NULL, share, own), 0);
  }
  td_status_free(s);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ok),    cmocka_unit_test(test_messages), cmocka_unit_test(test_annotate),
      cmocka_unit_test(test_merge), cmocka_unit_test(test_names),    cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
