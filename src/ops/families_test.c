/* The registry as a whole: every family registers, and no two kernels claim one case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/families.h"

static void test_registry(void **state) {
  td_status s = td_ops_register();
  if (s) fail_msg("%s", td_status_message(s));
  s = td_registry_check();
  if (s) fail_msg("%s", td_status_message(s));
}

int main(void) {
  static const struct CMUnitTest tests[] = {cmocka_unit_test(test_registry)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
