#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/testing.h"
#include "framework/session_state.h"

static bool is_fetched(void *arg, td_str node) { return td_str_is(node, arg); }

static td_tensor *scalar(float value) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_FLOAT, 0, NULL, &t));
  TD_DATA(t, float)[0] = value;
  return t;
}

static void put(td_session_state *s, int64_t step, const char *node, float value, const char *handle) {
  td_tensor *t = scalar(value);
  td_strbuf b = {0};
  assert_null(td_session_state_put(s, step, td_str_of(node), TD_STR("/dev"), t, &b));
  assert_string_equal(td_strbuf_cstr(&b), handle);
  td_strbuf_deinit(&b);
  td_tensor_release(t);
}

static void is_invalid(td_status s, const char *text) { must_say(s, TD_INVALID_ARGUMENT, text); }

static void test_what_was_fetched_stays(void **state) {
  td_session_state *s = td_session_state_create();
  td_tensor *t;
  put(s, 1, "a", 1, "a;0;/dev");
  put(s, 1, "b", 2, "b;1;/dev");
  put(s, 2, "a", 3, "a;2;/dev"); /* another step, which still runs at the end */
  is_invalid(td_session_state_get(s, TD_STR("a;0;/dev"), &t),
             "The tensor with handle 'a;0;/dev' is not in the session store.");
  td_session_state_end_step(s, 1, is_fetched, "a");
  assert_null(td_session_state_get(s, TD_STR("a;0;/dev"), &t));
  assert_true(TD_DATA(t, float)[0] == 1);
  td_tensor_release(t);
  is_invalid(td_session_state_get(s, TD_STR("b;1;/dev"), &t),
             "The tensor with handle 'b;1;/dev' is not in the session store.");
  assert_null(td_session_state_delete(s, TD_STR("a;0;/dev")));
  is_invalid(td_session_state_delete(s, TD_STR("a;0;/dev")),
             "Failed to delete a tensor with handle 'a;0;/dev' in the session store.");
  td_session_state_destroy(s);
}

static void test_once_per_node_and_step(void **state) {
  td_session_state *s = td_session_state_create();
  td_tensor *t = scalar(1);
  td_strbuf b = {0};
  put(s, 1, "a", 1, "a;0;/dev");
  is_invalid(td_session_state_put(s, 1, TD_STR("a"), TD_STR("/dev"), t, &b),
             "Failed to add a tensor with name 'a' to the tensor store.");
  assert_int_equal(b.size, 0);
  put(s, 1, "aa", 1, "aa;1;/dev");
  td_tensor_release(t);
  td_session_state_destroy(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_was_fetched_stays),
      cmocka_unit_test(test_once_per_node_and_step),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
