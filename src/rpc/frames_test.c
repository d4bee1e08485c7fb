/* The frames that pass before nghttp2 sees them, however the bytes come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <nghttp2/nghttp2.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "rpc/frames.h"

enum { IGNORED = 0xfa };

static void put(td_strbuf *b, int type, int flags, uint32_t stream, size_t size) {
  unsigned char head[TD_FRAME_HEAD] = {
      0, (unsigned char)(size >> 8),   (unsigned char)size,  (unsigned char)type, (unsigned char)flags, 0,
      0, (unsigned char)(stream >> 8), (unsigned char)stream};
  td_strbuf_append(b, td_str_n(head, sizeof head));
  for (size_t i = 0; i < size; i++) td_strbuf_putc(b, (char)i);
}

/* A client's connection; `reset` is the type that the reset of stream 5, which never began, is to have. */
static void conversation(td_strbuf *b, int reset) {
  td_strbuf_puts(b, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  put(b, NGHTTP2_SETTINGS, 0, 0, 12);
  put(b, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, 300);
  put(b, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, 20);
  put(b, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 3, 7);
  put(b, NGHTTP2_RST_STREAM, 0, 3, 4);
  put(b, reset, 0, 5, 4);
  put(b, NGHTTP2_RST_STREAM, 0, 6, 4); /* no client's stream */
  put(b, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 7, 0);
  put(b, NGHTTP2_DATA, 0, 7, 5);
}

/* What passes of `bytes` when it comes in pieces of `first`, then `then`, then `then`, ... */
static void pass(td_frames *f, td_str bytes, size_t first, size_t then, td_strbuf *out) {
  for (size_t at = 0, n = first; at < bytes.size; at += n, n = then) {
    n = TD_MIN(n, bytes.size - at);
    unsigned char *piece = td_malloc(n + 1); /* of its own: what lies behind it is out of bounds */
    memcpy(piece, bytes.data + at, n);
    struct iovec spans[2];
    int count = td_frames_follow(f, piece, n, 0, spans);
    assert_in_range(count, 0, 2);
    for (int i = 0; i < count; i++) td_strbuf_append(out, td_str_n(spans[i].iov_base, spans[i].iov_len));
    td_free(piece);
  }
}

static void any_split_passes_the_same(void **state) {
  td_strbuf bytes = {0}, expected = {0};
  conversation(&bytes, NGHTTP2_RST_STREAM);
  conversation(&expected, IGNORED);
  for (size_t first = 1; first <= bytes.size; first++) {
    static const size_t THEN[] = {1, 2, 8, 9, 13, 1000};
    for (size_t i = 0; i < TD_COUNT(THEN); i++) {
      td_frames f;
      td_frames_init(&f, true, 0);
      td_strbuf got = {0};
      pass(&f, td_strbuf_view(&bytes), first, THEN[i], &got);
      assert_true(td_str_eq(td_strbuf_view(&got), td_strbuf_view(&expected)));
      assert_int_equal(f.data_seen, 2);
      assert_int_equal(f.data[1], 7);
      assert_int_equal(f.left, 0);
      td_strbuf_deinit(&got);
    }
  }
  td_strbuf_deinit(&bytes);
  td_strbuf_deinit(&expected);
}

/* With no call before it, it is the protocol error that it looks like; and servers have no such excuse. */
static void other_early_resets_stay(void **state) {
  for (int server = 0; server < 2; server++) {
    td_frames f;
    td_frames_init(&f, server, 0);
    td_strbuf bytes = {0}, got = {0};
    if (server) td_strbuf_puts(&bytes, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    put(&bytes, NGHTTP2_SETTINGS, 0, 0, 0);
    if (!server) put(&bytes, NGHTTP2_HEADERS, 0, 1, 3);
    put(&bytes, NGHTTP2_RST_STREAM, 0, 3, 4);
    pass(&f, td_strbuf_view(&bytes), 50, 50, &got);
    assert_true(td_str_eq(td_strbuf_view(&got), td_strbuf_view(&bytes)));
    td_strbuf_deinit(&bytes);
    td_strbuf_deinit(&got);
  }
}

static void budgets_refill(void **state) {
  td_frames f;
  td_frames_init(&f, true, 0);
  f.magic_left = 0;
  td_strbuf ping = {0};
  put(&ping, NGHTTP2_PING, 0, 0, 8);
  struct iovec spans[2];
  int sent = 0;
  while (td_frames_follow(&f, (unsigned char *)ping.data, ping.size, 0, spans) == 1) sent++;
  assert_int_equal(sent, 10000);
  f.left = 0; /* as if the refused one had passed */
  assert_int_equal(td_frames_follow(&f, (unsigned char *)ping.data, ping.size, 1000000000, spans), 1);
  td_strbuf_deinit(&ping);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_split_passes_the_same),
      cmocka_unit_test(other_early_resets_stay),
      cmocka_unit_test(budgets_refill),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
