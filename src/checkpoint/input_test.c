/* Inputs, records, patterns of file names. Golden bytes are TensorFlow's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "base/testing.h"
#include "checkpoint/file_match.h"
#include "checkpoint/record.h"

static char dir[] = "/tmp/td-input-XXXXXX";

static int make_dir(void **state) { return mkdtemp(dir) ? 0 : -1; }
static int remove_dir(void **state) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  return system(command);
}

static td_str path_of(const char *name) { /* one at a time */
  static _Thread_local char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return td_str_of(path);
}

static void write_file(const char *name, td_str data, const char *mode) {
  FILE *f = fopen(path_of(name).data, mode);
  assert_non_null(f);
  assert_int_equal(fwrite(data.data, 1, data.size, f), data.size);
  fclose(f);
}

static td_strbuf packed(td_str data, td_compression c) {
  td_strbuf b = {0};
  z_stream z = {.next_in = (Bytef *)data.data, .avail_in = (uInt)data.size};
  assert_int_equal(
      deflateInit2(&z, 6, Z_DEFLATED, c == TD_COMPRESSION_GZIP ? MAX_WBITS + 16 : MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  assert_true(td_strbuf_try_reserve(&b, deflateBound(&z, data.size)));
  z.next_out = (Bytef *)b.data;
  z.avail_out = (uInt)b.capacity;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  b.size = z.total_out;
  deflateEnd(&z);
  return b;
}

static void expect_line(td_input *in, const char *want) {
  td_strbuf line = {0};
  bool end;
  must(td_input_line(in, &line, &end));
  assert_int_equal(end, want == NULL);
  if (want) assert_string_equal(td_strbuf_cstr(&line), want);
  td_strbuf_deinit(&line);
}

static void test_lines(void **state) {
  td_str text = TD_STR("one\r\n\ntw\ro\nlast");
  td_strbuf zlib = packed(text, TD_COMPRESSION_ZLIB), gzip = packed(text, TD_COMPRESSION_GZIP);
  td_strbuf files[] = {{.data = (char *)text.data, .size = text.size}, zlib, gzip};
  for (int c = 0; c < 3; c++) {
    for (size_t buffer = 0; buffer < 8; buffer++) { /* however small */
      td_input *in;
      write_file("lines", td_strbuf_view(&files[c]), "w");
      must(td_input_open(path_of("lines"), (td_compression)c, buffer, &in));
      expect_line(in, "one");
      expect_line(in, "");
      assert_int_equal(td_input_tell(in), 6);
      expect_line(in, "two");
      expect_line(in, "last");
      expect_line(in, NULL);
      must(td_input_seek(in, 5));
      expect_line(in, "");
      must(td_input_seek(in, 12));
      expect_line(in, "ast");
      must(td_input_seek(in, 1000));
      expect_line(in, NULL);
      td_input_close(in);
    }
  }
  td_strbuf_deinit(&zlib);
  td_strbuf_deinit(&gzip);
}

static void test_growing_file(void **state) {
  td_input *in;
  write_file("grows", TD_STR("a\n"), "w");
  must(td_input_open(path_of("grows"), TD_COMPRESSION_NONE, 0, &in));
  expect_line(in, "a");
  expect_line(in, NULL);
  write_file("grows", TD_STR("b\n"), "a");
  expect_line(in, "b");
  td_input_close(in);
}

static void test_broken_compression(void **state) {
  td_input *in;
  size_t got;
  char bytes[64];
  td_strbuf b = packed(TD_STR("some text that is packed"), TD_COMPRESSION_GZIP);
  b.data[b.size - 6] ^= 1; /* the checksum */
  write_file("broken", td_strbuf_view(&b), "w");
  must(td_input_open(path_of("broken"), TD_COMPRESSION_GZIP, 0, &in));
  must_fail(td_input_read(in, bytes, sizeof bytes, &got), TD_DATA_LOSS, "broken: inflate() failed");
  td_input_close(in);
  b.data[b.size - 6] ^= 1;
  write_file("two", td_strbuf_view(&b), "w"); /* two members */
  write_file("two", td_strbuf_view(&b), "a");
  must(td_input_open(path_of("two"), TD_COMPRESSION_GZIP, 3, &in));
  must(td_input_read(in, bytes, sizeof bytes, &got));
  assert_int_equal(got, 48);
  td_input_close(in);
  td_strbuf_deinit(&b);
}

static void test_inflate(void **state) {
  char zeros[10000] = {0};
  td_strbuf b = packed(td_str_n(zeros, sizeof zeros), TD_COMPRESSION_ZLIB), out = {0};
  must(td_inflate_bytes(td_strbuf_view(&b), TD_COMPRESSION_ZLIB, sizeof zeros, &out));
  assert_int_equal(out.size, sizeof zeros);
  must_fail(td_inflate_bytes(td_strbuf_view(&b), TD_COMPRESSION_ZLIB, 9999, &out), TD_RESOURCE_EXHAUSTED,
            "more than 9999");
  must_fail(td_inflate_bytes(td_strbuf_view(&b), TD_COMPRESSION_GZIP, 1 << 20, &out), TD_DATA_LOSS, "incorrect header");
  must_fail(td_inflate_bytes(td_str_n(b.data, b.size - 1), TD_COMPRESSION_ZLIB, 1 << 20, &out), TD_DATA_LOSS,
            "cut off");
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&out);
}

static const uint8_t golden[] = {3, 0, 0, 0, 0, 0, 0, 0, 0xb0, 0x99, 0x49, 0x0e, 'a', 'b', 'c', 0x6e, 0x57, 0xf1, 0x21};

static void test_record(void **state) {
  td_strbuf file = {0}, record = {0};
  td_input *in;
  bool end;
  td_record_append(&file, TD_STR("abc"));
  assert_int_equal(file.size, sizeof golden);
  assert_memory_equal(file.data, golden, sizeof golden);
  td_record_append(&file, TD_STR(""));
  for (size_t cut = 0; cut <= file.size; cut++) {
    write_file("records", td_str_n(file.data, cut), "w");
    must(td_input_open(path_of("records"), TD_COMPRESSION_NONE, 0, &in));
    const char *first = cut < 12    ? "truncated record at 0 in"
                        : cut == 12 ? "truncated record at 0 in"
                                    : "truncated record at 12";
    td_status s = td_record_read(in, &record, &end);
    if (!cut) {
      must(s);
      assert_true(end);
    } else if (cut < sizeof golden) {
      must_fail(s, TD_DATA_LOSS, first);
      must_fail(td_record_read(in, &record, &end), TD_DATA_LOSS, first);
      write_file("records", td_str_n(file.data + cut, file.size - cut), "a"); /* it has grown */
      must(td_record_read(in, &record, &end));
      assert_string_equal(record.data, "abc");
      must(td_record_read(in, &record, &end));
      assert_false(end);
      assert_int_equal(record.size, 0);
    } else {
      must(s);
    }
    td_input_close(in);
  }
  td_strbuf_deinit(&file);
  td_strbuf_deinit(&record);
}

static void test_corrupted_record(void **state) {
  td_strbuf record = {0};
  td_input *in;
  bool end;
  for (size_t i = 0; i < sizeof golden; i++) {
    uint8_t bytes[sizeof golden];
    memcpy(bytes, golden, sizeof golden);
    bytes[i] ^= 0x40;
    write_file("records", td_str_n(bytes, sizeof bytes), "w");
    must(td_input_open(path_of("records"), TD_COMPRESSION_NONE, 0, &in));
    must_fail(td_record_read(in, &record, &end), TD_DATA_LOSS,
              i < 12 ? "corrupted record at 0 in" : "corrupted record at 12");
    td_input_close(in);
  }
  /* a length that only promises */
  uint8_t huge[] = {0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 1, 2, 3};
  td_strbuf b = {0};
  td_record_append(&b, td_str_n(huge, 8)); /* its footer is the checksum that the header needs */
  memcpy(huge + 8, b.data + b.size - 4, 4);
  write_file("records", td_str_n(huge, sizeof huge), "w");
  must(td_input_open(path_of("records"), TD_COMPRESSION_NONE, 0, &in));
  must_fail(td_record_read(in, &record, &end), TD_DATA_LOSS, "truncated record at 12");
  td_input_close(in);
  td_strbuf_deinit(&b);
  td_strbuf_deinit(&record);
}

static void test_open_errors(void **state) {
  td_input *in;
  must_fail(td_input_open(path_of("none"), TD_COMPRESSION_NONE, 0, &in), TD_NOT_FOUND,
            "none; No such file or directory");
  must_fail(td_input_open(path_of(""), TD_COMPRESSION_NONE, 0, &in), TD_FAILED_PRECONDITION, "Is a directory");
  must_fail(td_input_open(TD_STR("s3://x"), TD_COMPRESSION_NONE, 0, &in), TD_UNIMPLEMENTED, "scheme 's3'");
  assert_int_equal(mkfifo(path_of("pipe").data, 0600), 0);
  must_fail(td_input_open(path_of("pipe"), TD_COMPRESSION_NONE, 0, &in), TD_INVALID_ARGUMENT,
            "pipe"); /* does not wait */
}

static void test_whole_file(void **state) {
  td_strbuf b = {0};
  must(td_input_whole_file(TD_STR("/proc/self/status"), &b)); /* the system says 0 bytes */
  assert_non_null(strstr(b.data, "Name:"));
  td_strbuf_deinit(&b);
}

static void expect_match(const char *pattern, const char *want) {
  td_names names = {0};
  td_strbuf text = {0};
  must(td_file_match(path_of(pattern), &names));
  td_names_sort(&names);
  for (size_t i = 0; i < names.count; i++) td_strbuf_printf(&text, " %s", names.items[i] + strlen(dir) + 1);
  assert_string_equal(td_strbuf_cstr(&text), want);
  td_strbuf_deinit(&text);
  td_names_deinit(&names);
}

static void test_match(void **state) {
  static const char *const files[] = {"m/x1", "m/x2", "m/.x3", "m/a/y", "m/a/y*", "m/a/b/z"};
  must(td_file_make_dirs(path_of("m/a/b")));
  for (size_t i = 0; i < TD_COUNT(files); i++) write_file(files[i], TD_STR(""), "w");
  expect_match("m/*", " m/.x3 m/a m/x1 m/x2");
  expect_match("m/x?", " m/x1 m/x2");
  expect_match("m/x1", " m/x1");
  expect_match("m/*/*", " m/a/b m/a/y m/a/y*");
  expect_match("?/a/*/z", " m/a/b/z");
  expect_match("m/a/y\\*", " m/a/y*");
  expect_match("m/[xa]*", " m/a m/x1 m/x2");
  expect_match("m/x1/*", "");
  expect_match("m/none", "");
  expect_match("none/*", "");
  expect_match("m//x*", "");
  td_names names = {0};
  must(td_file_match(TD_STR(""), &names));
  assert_int_equal(names.count, 0);
  td_names_deinit(&names);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lines),
      cmocka_unit_test(test_growing_file),
      cmocka_unit_test(test_broken_compression),
      cmocka_unit_test(test_inflate),
      cmocka_unit_test(test_record),
      cmocka_unit_test(test_corrupted_record),
      cmocka_unit_test(test_open_errors),
      cmocka_unit_test(test_whole_file),
      cmocka_unit_test(test_match),
  };
  return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
