#include "framework/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Frame ids of both dialects, as seen on the wire between TensorFlow servers. */
static void test_frame_ids(void **state) {
  td_strbuf path = {0}, inner = {0};
  td_frame_id root = {0, 0, 0};
  td_frame_id loop = td_frame_child(root, TD_STR(""), TD_STR("lp/while_context"), &path);
  assert_string_equal(td_strbuf_cstr(&path), ";0;lp/while_context");
  assert_true(loop.id_1x == 337914165076196879ull);
  assert_true(loop.id_2x == 2414045154581136951ull);
  assert_int_equal(loop.iter, 0);
  /* a nested loop depends on the iteration that enters it */
  loop.iter = 7;
  td_strbuf_puts(&inner, "kept:");
  td_frame_id a = td_frame_child(loop, td_strbuf_view(&path), TD_STR("in"), &inner);
  assert_string_equal(td_strbuf_cstr(&inner), "kept:;0;lp/while_context;7;in");
  td_str text = TD_STR(";0;lp/while_context;7;in");
  assert_true(a.id_1x == td_hash64(text.data, text.size)); /* the child's path alone */
  loop.iter = 8;
  td_strbuf_deinit(&inner);
  td_frame_id b = td_frame_child(loop, td_strbuf_view(&path), TD_STR("in"), &inner);
  assert_true(a.id_1x != b.id_1x && a.id_2x != b.id_2x);
  td_strbuf_deinit(&inner);
  td_strbuf_deinit(&path);
}

/* Names are bytes: empty, with NULs, at the far iterations. */
static void test_odd_names(void **state) {
  td_strbuf path = {0};
  td_frame_id parent = {1, 2, INT64_MAX};
  td_frame_id a = td_frame_child(parent, TD_STR(""), TD_STR("x\0y"), &path);
  assert_int_equal(path.size, 1 + 19 + 1 + 3);
  td_strbuf_deinit(&path);
  td_frame_id b = td_frame_child(parent, TD_STR(""), TD_STR("x\0z"), &path);
  assert_true(a.id_1x != b.id_1x && a.id_2x != b.id_2x);
  td_strbuf_deinit(&path);
  (void)td_frame_child((td_frame_id){0, 0, INT64_MIN}, (td_str){NULL, 0}, (td_str){NULL, 0}, &path);
  assert_string_equal(td_strbuf_cstr(&path), ";-9223372036854775808;");
  td_strbuf_deinit(&path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_frame_ids), cmocka_unit_test(test_odd_names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
