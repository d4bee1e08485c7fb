/* Messages around tensors (TensorFlow's tensor_coding and message_wrappers). */
#include "cluster/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ops/testing.h"
#include "proto/wire.h"
#include "tensor/tensor_proto.h"

static td_str joined(td_payload *p, td_strbuf *out) {
  for (size_t i = 0; i < p->count; i++) td_strbuf_append(out, td_str_n(p->segments[i].data, p->segments[i].size));
  assert_int_equal(out->size, p->size);
  td_payload_deinit(p);
  return td_strbuf_view(out);
}

static td_tensor *ramp(int64_t n) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_INT32, 1, &n, &t));
  for (int32_t i = 0; i < n; i++) TD_DATA(t, int32_t)[i] = i;
  return t;
}

static void test_run_step(void **state) {
  td_arena a = {0};
  td_strbuf b = {0}, bytes = {0};
  td_payload p = {0};
  td_tensor *small = td_test_tensor(TD_FLOAT, "[2]", "1 2"), *large = ramp(5000),
            *text = td_test_tensor(TD_STRING, "[2]", "ab ''");
  td_wire_put_bytes(&b, 1, TD_STR("session"));
  td_wire_put_bytes(&b, 3, TD_STR("y:0"));
  td_wire_put_bytes(&b, 3, TD_STR("z:0"));
  td_wire_put_bytes(&b, 4, TD_STR("init"));
  td_wire_put_uint(&b, 7, 1);
  td_wire_put_uint(&b, 8, (uint64_t)-9);
  td_wire_put_fixed64(&b, 99, 1); /* unknown fields are skipped */
  td_payload_copy(&p, b.data, b.size);
  assert_null(td_payload_add_named_tensor(&p, 2, TD_STR("small"), small));
  assert_null(td_payload_add_named_tensor(&p, 2, TD_STR("large"), large));
  assert_false(td_tensor_is_exclusive(large)); /* sent by reference */
  assert_null(td_payload_add_named_tensor(&p, 2, TD_STR("text"), text));
  td_run_step_request r;
  td_str all = joined(&p, &bytes);
  assert_null(td_run_step_request_decode(all, &a, &r));
  assert_true(td_str_is(r.session, "session"));
  assert_int_equal(r.fetch_count, 2);
  assert_true(td_str_is(r.fetches[1], "z:0"));
  assert_int_equal(r.target_count, 1);
  assert_true(r.store_errors_in_body);
  assert_int_equal(r.request_id, -9);
  assert_int_equal(r.feeds.count, 3);
  assert_true(td_str_is(r.feeds.items[0].name, "small"));
  td_assert_tensor(r.feeds.items[0].tensor, TD_FLOAT, "[2]", "1 2", 0);
  assert_int_equal(r.feeds.items[1].tensor->count, 5000);
  assert_memory_equal(r.feeds.items[1].tensor->data, large->data, large->size);
  td_assert_tensor(r.feeds.items[2].tensor, TD_STRING, "[2]", "ab ''", 0);
  td_named_tensors_release(&r.feeds);
  for (size_t n = 0; n < 200; n++) { /* cut anywhere: an error or a shorter request, and nothing is lost */
    td_status_free(td_run_step_request_decode(td_str_n(all.data, n), &a, &r));
    td_named_tensors_release(&r.feeds);
  }
  td_tensor_release(small);
  td_tensor_release(large);
  td_tensor_release(text);
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&bytes);
  td_arena_deinit(&a);
}

static void test_bad_feed(void **state) {
  td_arena a = {0};
  td_strbuf b = {0}, named = {0};
  td_run_step_request r;
  td_wire_put_bytes(&named, 2, TD_STR("\x08\x63")); /* dtype 99 */
  td_wire_put_bytes(&b, 2, td_strbuf_view(&named));
  td_status s = td_run_step_request_decode(td_strbuf_view(&b), &a, &r);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  assert_non_null(strstr(td_status_message(s), "Invalid TensorProto for feed value 0"));
  td_status_free(s);
  td_named_tensors_release(&r.feeds);
  s = td_run_step_request_decode(TD_STR("\x0a\x7f"), &a, &r);
  assert_non_null(strstr(td_status_message(s), "malformed RunStepRequest at byte 0 of 2"));
  td_status_free(s);
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&named);
  td_arena_deinit(&a);
}

static void test_run_options(void **state) {
  td_strbuf b = {0}, debug = {0};
  td_run_options_view o;
  td_wire_put_uint(&b, 1, 3);
  td_wire_put_uint(&b, 2, 250);
  td_wire_put_uint(&b, 5, 1);
  assert_null(td_run_options_decode(td_strbuf_view(&b), &o));
  assert_int_equal(o.trace_level, 3);
  assert_int_equal(o.timeout_ms, 250);
  assert_true(o.output_partition_graphs);
  assert_int_equal(o.debug.size, 0);
  td_wire_put_bytes(&debug, 4, TD_STR(""));
  td_wire_put_bytes(&b, 6, td_strbuf_view(&debug));
  assert_null(td_run_options_decode(td_strbuf_view(&b), &o));
  assert_true(o.debug.size > 0);
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&debug);
}

/* The reply in pieces of every size, and into windows. */
static void receive(td_str bytes, size_t piece, bool windows, int64_t count) {
  td_recv_tensor_receiver *r = td_recv_tensor_receiver_create();
  td_receiver *base = td_recv_tensor_receiver_base(r);
  td_tensor *t;
  bool dead;
  while (bytes.size) {
    size_t n = TD_MIN(piece, bytes.size), room = n;
    void *to = windows && base->ops->window ? base->ops->window(base, &room) : NULL;
    if (to) {
      n = TD_MIN(n, room);
      memcpy(to, bytes.data, n);
      assert_null(base->ops->landed(base, n));
    } else {
      assert_null(base->ops->bytes(base, bytes.data, n));
    }
    bytes = td_str_n(bytes.data + n, bytes.size - n);
  }
  assert_null(td_recv_tensor_receiver_take(r, &t, &dead));
  if (count < 0) {
    assert_true(dead);
    assert_null(t);
  } else {
    assert_false(dead);
    assert_int_equal(t->count, count);
    for (int32_t i = 0; i < count; i++) assert_int_equal(TD_DATA(t, int32_t)[i], i);
  }
  td_tensor_release(t);
  base->ops->destroy(base);
  td_recv_tensor_receiver_release(r);
}

static void test_recv_tensor(void **state) {
  static const int64_t counts[] = {0, 1, 7, 3000, -1};
  for (size_t i = 0; i < TD_COUNT(counts); i++) {
    td_payload p = {0};
    td_strbuf bytes = {0};
    td_tensor *t = counts[i] < 0 ? NULL : ramp(counts[i]), *none;
    assert_null(td_recv_tensor_response_encode(t, !t, &p));
    td_str all = joined(&p, &bytes);
    static const size_t pieces[] = {1, 3, 64, 1 << 20};
    for (size_t k = 0; k < TD_COUNT(pieces); k++) {
      receive(all, pieces[k], false, counts[i]);
      receive(all, pieces[k], true, counts[i]);
    }
    td_recv_tensor_receiver *r = td_recv_tensor_receiver_create(); /* cut short */
    td_receiver *base = td_recv_tensor_receiver_base(r);
    td_status_free(base->ops->bytes(base, all.data, all.size - 1));
    base->ops->destroy(base);
    td_status s = td_recv_tensor_receiver_take(r, &none, &(bool){0});
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    td_status_free(s);
    td_recv_tensor_receiver_release(r);
    td_tensor_release(t);
    td_strbuf_deinit(&bytes);
  }
}

static void test_statuses(void **state) {
  assert_null(td_status_from_peer(0, TD_STR("")));
  td_status s = td_status_from_peer(TD_ABORTED, TD_STR("[_Derived_]gone"));
  assert_true(td_status_is_derived(s));
  assert_string_equal(td_status_message(s), "gone");
  char *marked = td_status_marked_message(s);
  assert_string_equal(marked, "[_Derived_]gone");
  td_free(marked);
  td_status_free(s);
  s = td_status_from_peer(4711, TD_STR("odd"));
  assert_int_equal(td_status_code(s), TD_UNKNOWN);
  assert_false(td_status_is_derived(s));
  td_status_free(s);
  assert_null(td_status_from_call(TD_STATUS_OK, TD_STR("")));
  s = td_status_from_call(td_internal("x"), TD_STR("..type.googleapis.com/tensorflow.DerivedStatus.."));
  assert_true(td_status_is_derived(s));
  td_status_free(s);
  s = td_status_from_call(td_cancelled("x"), TD_STR(""));
  assert_true(td_status_is_derived(s));
  td_status_free(s);
  s = td_status_from_call(td_internal("x"), TD_STR(""));
  assert_false(td_status_is_derived(s));
  td_status_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_run_step),    cmocka_unit_test(test_bad_feed), cmocka_unit_test(test_run_options),
      cmocka_unit_test(test_recv_tensor), cmocka_unit_test(test_statuses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
