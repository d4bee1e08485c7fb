#include "base/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check(bool is_right, td_status s, const char *want, const char *text, const char *file, int line) {
  if (is_right) return;
  print_error("ERROR: got %s: %s; want %s%s%s\n", td_code_name(td_status_code(s)), td_status_message(s), want,
              text ? ": " : "", text ? text : "");
  _fail(file, line);
}

void td_must_(td_status s, const char *file, int line) { check(!s, s, "OK", NULL, file, line); }

void td_must_fail_(td_status s, td_code code, const char *text, const char *file, int line) {
  bool is_right = td_status_code(s) == code && strstr(td_status_message(s), text);
  check(is_right, s, td_code_name(code), text, file, line);
  td_status_free(s);
}

void td_must_say_(td_status s, td_code code, const char *text, const char *file, int line) {
  bool is_right = td_status_code(s) == code && !strcmp(td_status_message(s), text);
  check(is_right, s, td_code_name(code), text, file, line);
  td_status_free(s);
}
