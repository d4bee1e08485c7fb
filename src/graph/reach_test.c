/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/reach.h"

#include "graph/testing.h"

#define GRAPH                          \
  "a = Placeholder() {dtype: float}\n" \
  "b = Placeholder() {dtype: float}\n" \
  "c = Neg(a) {T: float}\n"            \
  "d = Add(c, b) {T: float}\n"         \
  "e = Neg(c, ^b) {T: float}\n"

static void expect(const char *fetch, const char *const *pending, td_code code, const char *text) {
  td_graph *g = td_graph_test_graph(GRAPH);
  td_str fetches = td_str_of(fetch), names[4];
  size_t n = 0;
  for (; pending[n]; n++) names[n] = td_str_of(pending[n]);
  td_status s = td_graph_check_computable(g, &fetches, 1, names, n);
  assert_int_equal(td_status_code(s), code);
  if (s) assert_string_equal(td_status_message(s), text);
  td_status_free(s);
  td_graph_release(g);
}

#define PENDING(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LATE(t)      TD_INVALID_ARGUMENT, "Fetch " t " can't be computed from the feeds that have been fed so far."

static void test_what_is_pending_is_named(void **state) {
  expect("d:0", PENDING("b:0"), LATE("b:0"));
  expect("d", PENDING("a"), LATE("a:0"));
  expect("c:0", PENDING("b:0"), TD_OK, NULL);
  expect("d:0", (const char *const[]){NULL}, TD_OK, NULL);
}

static void test_behind_a_fed_tensor_and_a_control_edge(void **state) {
  expect("d:0", PENDING("a:0"), LATE("a:0")); /* also when c was fed */
  expect("e:0", PENDING("b:0"), TD_OK, NULL); /* only waits for b's node */
  expect("c:0", PENDING("c:0"), TD_OK, NULL);
}

static void test_unknown_names(void **state) {
  expect("d:0", PENDING("nope:0"), TD_NOT_FOUND, "Feed nope:0: not found");
  expect("nope", PENDING("a:0"), TD_NOT_FOUND, "Fetch nope: not found");
  expect("^d", PENDING("a:0"), TD_NOT_FOUND, "Fetch ^d: not found");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_pending_is_named),
      cmocka_unit_test(test_behind_a_fed_tensor_and_a_control_edge),
      cmocka_unit_test(test_unknown_names),
  };
  td_graph_test_register();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
