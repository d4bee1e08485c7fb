#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tensor/tensor_proto.h"
#include "tensor/tensor_stream.h"

static td_tensor *sequence(int64_t n) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_INT32, 1, &n, &t));
  for (int64_t i = 0; i < n; i++) TD_DATA(t, int32_t)[i] = (int32_t)(i * 7);
  return t;
}

/* Streams `bytes` in pieces of `piece`, landing them where the stream says if `land`. */
static td_status stream(td_str bytes, size_t piece, bool land, td_tensor **out, size_t *landed) {
  td_tensor_stream s;
  td_tensor_stream_init(&s, bytes.size);
  td_status status = TD_STATUS_OK;
  *landed = 0;
  for (size_t at = 0; at < bytes.size && !status;) {
    size_t room, n = TD_MIN(piece, bytes.size - at);
    void *window = land ? td_tensor_stream_window(&s, &room) : NULL;
    if (window) {
      n = TD_MIN(n, room);
      memcpy(window, bytes.data + at, n);
      td_tensor_stream_landed(&s, n);
      *landed += n;
    } else {
      status = td_tensor_stream_feed(&s, bytes.data + at, n);
    }
    at += n;
    if (!status) assert_int_equal(td_tensor_stream_left(&s), bytes.size - at);
  }
  if (!status) status = td_tensor_stream_finish(&s, out);
  td_tensor_stream_deinit(&s);
  return status;
}

static void whole_tensors(void **state) {
  const int64_t counts[] = {0, 1, 1000, 1024, 5000, 100000};
  const size_t pieces[] = {1, 7, 255, 4096, 1 << 20};
  for (int c = 0; c < 6; c++) {
    td_tensor *t = sequence(counts[c]);
    td_strbuf b = {0};
    assert_null(td_tensor_encode(t, &b));
    for (int p = 0; p < 5; p++) {
      for (int land = 0; land < 2; land++) {
        td_tensor *got = NULL;
        size_t landed;
        assert_null(stream(td_strbuf_view(&b), pieces[p], land, &got, &landed));
        assert_true(td_tensor_same_shape(t, got));
        assert_memory_equal(t->data, got->data, t->size);
        if (land && counts[c] == 100000 && p < 4) assert_true(landed > 390000);
        td_tensor_release(got);
      }
    }
    td_strbuf_deinit(&b);
    td_tensor_release(t);
  }
}

static void other_forms(void **state) {
  td_strbuf b = {0}; /* content before shape; a long string; a list */
  td_tensor *t = sequence(2000), *got = NULL;
  td_strbuf_append(&b, TD_STR("\x22\xc0\x3e"));
  td_strbuf_append(&b, td_str_n(t->data, t->size));
  td_strbuf_append(&b, TD_STR("\x08\x03\x12\x05\x12\x03\x08\xd0\x0f"));
  size_t landed;
  assert_null(stream(td_strbuf_view(&b), 100, true, &got, &landed));
  assert_int_equal(landed, 0);
  assert_memory_equal(t->data, got->data, t->size);
  td_tensor_release(got);
  td_tensor_release(t);
  td_strbuf_deinit(&b);
  td_strbuf_append(&b, TD_STR("\x08\x07\x12\x00\x22\x92\x4e\x90\x4e"));
  for (int i = 0; i < 10000; i++) td_strbuf_putc(&b, 's');
  assert_null(stream(td_strbuf_view(&b), 100, true, &got, &landed));
  assert_int_equal(TD_DATA(got, td_string)->size, 10000);
  td_tensor_release(got);
  td_strbuf_deinit(&b);
  td_strbuf_append(&b, TD_STR("\x08\x01\x12\x05\x12\x03\x08\xe8\x07\x2a\xc0\x3e"));
  for (int i = 0; i < 8000; i++) td_strbuf_putc(&b, 0);
  assert_null(stream(td_strbuf_view(&b), 3, true, &got, &landed));
  assert_int_equal(got->count, 1000);
  td_tensor_release(got);
  td_strbuf_deinit(&b);
}

static void expect_error(td_strbuf *b, const char *text) {
  td_tensor *got = NULL;
  size_t landed;
  td_status s = stream(td_strbuf_view(b), 64, true, &got, &landed);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  assert_non_null(strstr(td_status_message(s), text));
  td_status_free(s);
  td_strbuf_deinit(b);
}

static void malformed_streams(void **state) {
  td_strbuf b = {0};
  td_strbuf_append(&b, TD_STR("\x08\x03\x12\x05\x12\x03\x08\xd0\x0f\x22\x90\x4e")); /* 10,000 bytes for 8,000 */
  for (int i = 0; i < 10000; i++) td_strbuf_putc(&b, 0);
  expect_error(&b, "does not fit");
  td_strbuf_append(&b, TD_STR("\x08\x03\x12\x05\x12\x03\x08\xd0\x0f\x22\xc0\x3e")); /* cut short */
  for (int i = 0; i < 7000; i++) td_strbuf_putc(&b, 0);
  expect_error(&b, "Malformed");
  for (int i = 0; i < 7000; i++) td_strbuf_append(&b, TD_STR("\x18\x01"));
  expect_error(&b, "unknown type");
  for (int i = 0; i < 7000; i++) td_strbuf_putc(&b, (char)0xff);
  expect_error(&b, "Malformed");
  td_tensor_stream s;
  td_tensor *got;
  td_tensor_stream_init(&s, 10000);
  assert_null(td_tensor_stream_feed(&s, "\x08\x01", 2));
  td_status status = td_tensor_stream_finish(&s, &got);
  assert_string_equal(td_status_message(status), "TensorProto ends 9998 bytes too early");
  td_status_free(status);
  td_tensor_stream_deinit(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_tensors),
      cmocka_unit_test(other_forms),
      cmocka_unit_test(malformed_streams),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
