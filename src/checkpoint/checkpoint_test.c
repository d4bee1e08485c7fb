/* Golden bytes are TensorFlow 1.15.5's. */
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

#include "base/mem.h"
#include "base/testing.h"
#include "checkpoint/bundle.h"
#include "checkpoint/checkpoint_v1.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/file.h"
#include "checkpoint/snappy.h"
#include "checkpoint/table.h"

static char dir[] = "/tmp/td-checkpoint-XXXXXX";

static int make_dir(void **state) { return mkdtemp(dir) ? 0 : -1; }
static int remove_dir(void **state) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  return system(command);
}

static char *path_of(const char *name) { /* one at a time */
  static _Thread_local char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return path;
}

static void write_file(const char *path, const void *data, size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_int_equal(write(fd, data, size), size);
  close(fd);
}

static size_t read_file(const char *path, void *to, size_t capacity) {
  int fd = open(path, O_RDONLY);
  assert_true(fd >= 0);
  ssize_t n = read(fd, to, capacity);
  close(fd);
  return (size_t)n;
}

static td_tensor *floats(int rank, const int64_t *dims, float first) {
  td_tensor *t;
  must(td_tensor_create_dims(TD_FLOAT, rank, dims, &t));
  for (int64_t i = 0; i < t->count; i++) TD_DATA(t, float)[i] = first + (float)i;
  return t;
}

static void test_crc(void **state) {
  uint8_t zeros[32] = {0};
  assert_int_equal(td_crc32c("123456789", 9), 0xe3069283);
  assert_int_equal(td_crc32c(zeros, 32), 0x8a9136aa);
  assert_int_equal(td_crc32c_extend(td_crc32c("1234", 4), "56789", 5), 0xe3069283);
  assert_int_equal(td_crc32c_unmask(td_crc32c_mask(0x12345678)), 0x12345678);
}

/* However long a piece is, and wherever it begins, its sum is that of its bytes one by one. */
static void test_crc_of_long_pieces(void **state) {
  enum { SIZE = 20000 };
  uint8_t *data = td_malloc(SIZE);
  uint32_t *of_first = td_malloc((SIZE + 1) * sizeof *of_first);
  of_first[0] = 0;
  for (int i = 0; i < SIZE; i++) {
    data[i] = (uint8_t)((unsigned)i * 2654435761u >> 24);
    of_first[i + 1] = td_crc32c_extend(of_first[i], &data[i], 1);
  }
  for (int from = 0; from < 20; from++)
    for (int size = 0; from + size <= SIZE; size += size < 40 ? 1 : 509)
      assert_int_equal(td_crc32c_extend(of_first[from], data + from, (size_t)size), of_first[from + size]);
  for (int size = 3060; size < 3090; size++) assert_int_equal(td_crc32c(data, (size_t)size), of_first[size]);
  td_free(of_first);
  td_free(data);
}

static void check_key(const char *name, const char *slice, const void *expected, size_t size) {
  td_slice s;
  td_strbuf key = {0};
  must(td_slice_parse(td_str_of(slice), &s));
  td_slice_key(td_str_of(name), &s, &key);
  assert_int_equal(key.size, size);
  assert_memory_equal(key.data, expected, size);
  td_strbuf_deinit(&key);
}

static void test_slice_keys(void **state) {
  check_key("s/p", "0,2:0,2", "\0s/p\0\1\1\2\x80\x82\x80\x82", 12);
  check_key("w", "-", "\0w\0\1\1\1\x80\x7f", 8);
  check_key("w", "64,8191", "\0w\0\1\1\1\xc0\x40\xdf\xff", 10);
  check_key("w", "8192,1048576", "\0w\0\1\1\1\xe0\x20\x00\xf0\x10\x00\x00", 13);
}

static void test_slice_texts(void **state) {
  td_shape full, part;
  td_slice s;
  must(td_shape_and_slice_parse(TD_STR("7 2 3,2:-"), &full, &s, &part));
  assert_int_equal(full.rank, 2);
  assert_int_equal(part.dims[0], 2);
  assert_int_equal(part.dims[1], 2);
  must_fail(td_shape_and_slice_parse(TD_STR("7"), &full, &s, &part), TD_INVALID_ARGUMENT, "Need least two elements");
  must_fail(td_shape_and_slice_parse(TD_STR("7 x -:-"), &full, &s, &part), TD_INVALID_ARGUMENT,
            "Non numerical dimension");
  must_fail(td_shape_and_slice_parse(TD_STR("7 2 3,5:-"), &full, &s, &part), TD_INTERNAL, "out of bounds");
  must_fail(td_shape_and_slice_parse(TD_STR("7 2 -"), &full, &s, &part), TD_INTERNAL, "Mismatching ranks");
  must_fail(td_shape_and_slice_parse(TD_STR("7 0,0"), &full, &s, &part), TD_INVALID_ARGUMENT, "positive length");
  must_fail(td_shape_and_slice_parse(TD_STR("7 9223372036854775807,2"), &full, &s, &part), TD_INVALID_ARGUMENT,
            "Extent end");
  must_fail(td_shape_and_slice_parse(TD_STR("-7 -"), &full, &s, &part), TD_INVALID_ARGUMENT, "");
  must_fail(td_shape_and_slice_parse(TD_STR("4294967296 4294967296 -:-"), &full, &s, &part), TD_INVALID_ARGUMENT, "");
}

static td_status add_numbers(td_table_builder *b, int n) {
  for (int i = 0; i < n; i++) {
    char key[32];
    int size = snprintf(key, sizeof key, "key/%06d", i);
    TD_TRY(td_table_builder_add(b, td_str_n(key, (size_t)size), td_str_n(&i, sizeof i)));
  }
  return TD_STATUS_OK;
}

static td_status count_entry(void *arg, td_str key, td_str value) {
  ++*(int *)arg;
  return TD_STATUS_OK;
}

static void test_table(void **state) {
  enum { N = 50000 }; /* several blocks */
  td_new_file file;
  td_table_builder b;
  td_table *t;
  td_str value;
  bool found;
  int seen = 0;
  must(td_new_file_open(&file, path_of("table"), TD_SYNC_FIRST));
  td_table_builder_init(&b, &file);
  must(add_numbers(&b, N));
  must_fail(td_table_builder_add(&b, TD_STR("key/000001"), TD_STR("")), TD_INTERNAL, "does not come after");
  must(td_table_builder_finish(&b));
  must(td_new_file_sync(&file));
  must(td_new_file_publish(&file));
  td_table_builder_deinit(&b);
  td_new_file_deinit(&file);
  must(td_table_open(path_of("table"), false, &t));
  for (int i = 0; i < N; i += 77) {
    char key[32];
    snprintf(key, sizeof key, "key/%06d", i);
    must(td_table_get(t, td_str_of(key), &value, &found));
    assert_true(found);
    assert_memory_equal(value.data, &i, sizeof i);
  }
  must(td_table_get(t, TD_STR("key/0000015"), &value, &found));
  assert_false(found);
  must(td_table_get(t, TD_STR("zzz"), &value, &found));
  assert_false(found);
  must(td_table_each(t, count_entry, &seen));
  assert_int_equal(seen, N);
  td_table_close(t);
}

/* One variable w = [1.5, -2]. */
static const char golden_index[] =
    "\x00\x00\x06\x08\x01\x1a\x02\x08\x01\x00\x01\x0f\x77\x08\x01\x12\x04\x12\x02\x08\x02\x28\x08\x35\x3d\x33\xc8\xf4"
    "\x00\x00\x00\x00\x01\x00\x00\x00\x00\x1d\x0b\x04\x17\x00\x00\x00\x00\x01\x00\x00\x00\x00\xc0\xf2\xa1\xb0"
    "\x00\x01\x02\x78\x00\x24\x00\x00\x00\x00\x01\x00\x00\x00\x00\xab\x30\x70\x7f\x29\x08\x36\x0e"
    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x57\xfb\x80\x8b\x24\x75\x47\xdb";

static void test_golden_bundle(void **state) {
  td_bundle_reader *r;
  td_bundle_plan *p;
  td_tensor *t;
  assert_int_equal(sizeof golden_index - 1, 121);
  write_file(path_of("golden.index"), golden_index, 121);
  write_file(path_of("golden.data-00000-of-00001"), "\0\0\xc0\x3f\0\0\0\xc0", 8);
  must(td_bundle_reader_open(td_str_of(path_of("golden")), false, &r));
  must(td_bundle_plan_create(r, TD_STR("w"), NULL, &p));
  must(td_bundle_read(p, &t));
  assert_true(TD_DATA(t, float)[0] == 1.5f && TD_DATA(t, float)[1] == -2);
  td_tensor_release(t);
  td_bundle_plan_destroy(p);
  must_fail(td_bundle_plan_create(r, TD_STR("x"), NULL, &p), TD_NOT_FOUND, "Key x not found in checkpoint");
  td_bundle_reader_close(r);
}

/* Every byte of the index changed, every length cut: an error or the right value, never a crash. */
static void test_corrupt_bundle(void **state) {
  char bytes[121];
  for (size_t i = 0; i < 2 * sizeof bytes; i++) {
    size_t size = i < sizeof bytes ? sizeof bytes : i - sizeof bytes;
    td_bundle_reader *r = NULL;
    td_bundle_plan *p = NULL;
    td_tensor *t = NULL;
    memcpy(bytes, golden_index, sizeof bytes);
    if (i < sizeof bytes) bytes[i] ^= 0x41;
    write_file(path_of("golden.index"), bytes, size);
    td_status s = td_bundle_reader_open(td_str_of(path_of("golden")), false, &r);
    if (!s) s = td_bundle_plan_create(r, TD_STR("w"), NULL, &p);
    if (!s) s = td_bundle_read(p, &t);
    if (s) {
      assert_true(td_status_code(s) == TD_DATA_LOSS || td_status_code(s) == TD_NOT_FOUND);
    } else {
      assert_true(TD_DATA(t, float)[1] == -2);
    }
    td_status_free(s);
    td_tensor_release(t);
    td_bundle_plan_destroy(p);
    td_bundle_reader_close(r);
  }
  td_bundle_reader *r;
  td_bundle_plan *p;
  td_tensor *t;
  write_file(path_of("golden.index"), golden_index, sizeof bytes);
  write_file(path_of("golden.data-00000-of-00001"), "\0\0\xc0\x3f\0\0\0\xc1", 8);
  must(td_bundle_reader_open(td_str_of(path_of("golden")), false, &r));
  must(td_bundle_plan_create(r, TD_STR("w"), NULL, &p));
  must_fail(td_bundle_read(p, &t), TD_DATA_LOSS, "Checksum does not match: stored ");
  td_bundle_plan_destroy(p);
  td_bundle_reader_close(r);
  write_file(path_of("golden.data-00000-of-00001"), "\0\0\xc0\x3f", 4);
  must(td_bundle_reader_open(td_str_of(path_of("golden")), false, &r));
  must_fail(td_bundle_plan_create(r, TD_STR("w"), NULL, &p), TD_DATA_LOSS, "offset 0");
  td_bundle_reader_close(r);
}

static void test_strings(void **state) {
  static const char *const values[] = {"ab", "", "xyz"};
  td_bundle_writer *w;
  td_bundle_reader *r;
  td_bundle_plan *p;
  td_tensor *t, *back;
  char bytes[64];
  must(td_tensor_create_dims(TD_STRING, 1, &(int64_t){3}, &t));
  for (int i = 0; i < 3; i++) must(td_string_set(TD_DATA(t, td_string) + i, td_str_of(values[i])));
  must(td_bundle_writer_create(td_str_of(path_of("new/dir/strings")), TD_SYNC_FIRST, &w));
  must(td_bundle_writer_add(w, TD_STR("s"), t));
  must_fail(td_bundle_writer_add(w, TD_STR("s"), t), TD_INVALID_ARGUMENT, "Adding duplicate key: s");
  must(td_bundle_writer_finish(w));
  td_bundle_writer_destroy(w);
  assert_int_equal(read_file(path_of("new/dir/strings.data-00000-of-00001"), bytes, sizeof bytes), 12);
  assert_memory_equal(bytes,
                      "\2\0\3\x1b\x42\x8b\xca"
                      "abxyz",
                      12);
  must(td_bundle_reader_open(td_str_of(path_of("new/dir/strings")), false, &r));
  must(td_bundle_plan_create(r, TD_STR("s"), NULL, &p));
  must(td_bundle_read(p, &back));
  for (int i = 0; i < 3; i++) assert_true(td_str_is(td_string_view(TD_DATA(back, td_string) + i), values[i]));
  td_tensor_release(back);
  td_tensor_release(t);
  td_bundle_plan_destroy(p);
  td_bundle_reader_close(r);
}

static void write_part(const char *prefix, const char *spec, const char *own) {
  td_bundle_writer *w;
  td_shape full, part;
  td_slice s;
  must(td_shape_and_slice_parse(td_str_of(spec), &full, &s, &part));
  td_tensor *t = floats(part.rank, part.dims, (float)(s.start[0] * full.dims[1])), *one = floats(0, NULL, 5);
  must(td_bundle_writer_create(td_str_of(path_of(prefix)), TD_SYNC_BEHIND, &w));
  must(td_bundle_writer_add_slice(w, TD_STR("v"), &full, &s, t));
  if (own) must(td_bundle_writer_add(w, td_str_of(own), one));
  must(td_bundle_writer_finish(w));
  td_bundle_writer_destroy(w);
  td_tensor_release(t);
  td_tensor_release(one);
}

static void check_slice(td_bundle_reader *r, const char *spec, const char *expected) {
  td_shape full, part;
  td_slice s;
  td_bundle_plan *p;
  td_tensor *t;
  td_strbuf text = {0};
  must(td_shape_and_slice_parse(td_str_of(spec), &full, &s, &part));
  must(td_bundle_plan_create(r, TD_STR("v"), &s, &p));
  must(td_bundle_read(p, &t));
  for (int64_t i = 0; i < t->count; i++) td_strbuf_printf(&text, "%g ", TD_DATA(t, float)[i]);
  assert_string_equal(td_strbuf_cstr(&text), expected);
  td_strbuf_deinit(&text);
  td_tensor_release(t);
  td_bundle_plan_destroy(p);
}

static void test_merge(void **state) {
  td_bundle_reader *r;
  td_bundle_plan *p;
  char a[256], b[256], merged[256];
  write_part("m_temp/a", "5 2 0,3:-", "a");
  write_part("m_temp/b", "5 2 3,2:-", "b");
  strcpy(a, path_of("m_temp/a"));
  strcpy(b, path_of("m_temp/b"));
  strcpy(merged, path_of("merged"));
  td_str from[] = {td_str_of(a), td_str_of(b)};
  must(td_bundle_merge(from, 2, false, td_str_of(merged), TD_SYNC_FIRST));
  assert_int_equal(access(path_of("m_temp/a.index"), F_OK), -1);
  assert_int_equal(access(path_of("merged.data-00001-of-00002"), F_OK), 0);
  must(td_bundle_reader_open(td_str_of(merged), false, &r));
  check_slice(r, "5 2 -:-", "0 1 2 3 4 5 6 7 8 9 ");
  check_slice(r, "5 2 2,2:-", "4 5 6 7 ");
  check_slice(r, "5 2 1,3:1,1", "3 5 7 ");
  must(td_bundle_plan_create(r, TD_STR("a"), NULL, &p));
  td_bundle_plan_destroy(p);
  td_bundle_reader_close(r);
  must_fail(td_bundle_merge(from, 2, false, td_str_of(merged), TD_SYNC_BEHIND), TD_NOT_FOUND,
            "No such file or directory");
  write_part("m_temp/a", "5 2 0,3:-", "same");
  write_part("m_temp/b", "5 2 3,2:-", "same");
  must_fail(td_bundle_merge(from, 2, false, td_str_of(merged), TD_SYNC_BEHIND), TD_INVALID_ARGUMENT,
            "Duplicate tensor keyed by same");
  must(td_bundle_merge(from, 1, false, td_str_of(merged), TD_SYNC_BEHIND));
  must(td_bundle_reader_open(td_str_of(merged), false, &r));
  must_fail(td_bundle_plan_create(r, TD_STR("v"), NULL, &p), TD_INVALID_ARGUMENT, "Does not have sufficient slices");
  check_slice(r, "5 2 1,2:-", "2 3 4 5 ");
  td_bundle_reader_close(r);
}

/* More files than may wait for the disk, some of them gone when their turn comes. */
static void test_many_files_behind(void **state) {
  for (int i = 0; i < 300; i++) {
    td_new_file file;
    must(td_new_file_open(&file, path_of("behind"), TD_SYNC_BEHIND));
    must(td_new_file_write(&file, &i, sizeof i));
    must(td_new_file_sync(&file));
    must(td_new_file_publish(&file));
    td_new_file_deinit(&file);
    int seen = -1;
    assert_int_equal(read_file(path_of("behind"), &seen, sizeof seen), sizeof seen);
    assert_int_equal(seen, i);
    if (i % 2) unlink(path_of("behind"));
  }
  td_file_sync_dir(td_str_of(dir), TD_SYNC_BEHIND);
}

/* A writer that is given up leaves nothing, and an older bundle as it was. */
static void test_abandoned(void **state) {
  td_bundle_writer *w;
  td_tensor *t = floats(1, &(int64_t){3}, 0);
  must(td_bundle_writer_create(td_str_of(path_of("gone/x")), TD_SYNC_FIRST, &w));
  must(td_bundle_writer_add(w, TD_STR("t"), t));
  td_bundle_writer_destroy(w);
  assert_int_equal(rmdir(path_of("gone")), 0);
  td_tensor_release(t);
  must_fail(td_bundle_writer_create(TD_STR("gs://bucket/x"), TD_SYNC_BEHIND, &w), TD_UNIMPLEMENTED,
            "File system scheme 'gs' not implemented");
  must_fail(td_bundle_writer_create(TD_STR("a\0b"), TD_SYNC_BEHIND, &w), TD_INVALID_ARGUMENT, "NUL");
}

static void test_v1(void **state) {
  td_v1_writer *w;
  td_v1_reader *r;
  td_tensor *t = floats(1, &(int64_t){2}, 1.5f), *back;
  td_shape shape;
  td_slice s;
  td_dtype dtype;
  bool found;
  char bytes[512];
  TD_DATA(t, float)[1] = -2;
  td_shape_vector(&shape, 2);
  td_slice_full(&s, 1);
  must(td_v1_writer_create(td_str_of(path_of("v1")), TD_SYNC_BEHIND, &w));
  must(td_v1_writer_add(w, TD_STR("w"), &shape, &s, t));
  must(td_v1_writer_finish(w));
  td_v1_writer_destroy(w);
  /* the entry of "" as TensorFlow writes it */
  assert_true(read_file(path_of("v1"), bytes, sizeof bytes) > 26);
  assert_memory_equal(bytes, "\0\0\x17\x0a\x15\x0a\x0f\x0a\1w\x12\4\x12\2\x08\2\x18\1\x22\2\x0a\0\x12\2\x08\1", 26);
  must(td_v1_reader_open(td_str_of(path_of("v?")), &r));
  must(td_v1_reader_lookup(r, TD_STR("w"), &dtype, &shape, &found));
  assert_true(found && dtype == TD_FLOAT && shape.dims[0] == 2);
  must(td_v1_reader_read(r, TD_STR("w"), &s, &back));
  assert_true(TD_DATA(back, float)[0] == 1.5f && TD_DATA(back, float)[1] == -2);
  td_v1_reader_close(r);
  td_tensor_release(back);
  td_tensor_release(t);
  must_fail(td_v1_reader_open(td_str_of(path_of("none*")), &r), TD_NOT_FOUND, "Failed to find any matching files for ");
  must_fail(td_v1_reader_open(td_str_of(path_of("no/ne")), &r), TD_INVALID_ARGUMENT,
            "Failed to get matching files on ");
  write_file(path_of("junk"), "junk", 4);
  must_fail(td_v1_reader_open(td_str_of(path_of("junk")), &r), TD_DATA_LOSS, "file is too short to be an sstable");
}

static void test_snappy(void **state) {
  char *out;
  size_t size;
  must(td_snappy_unpack(TD_STR("\x0c\x08"
                               "abc"
                               "\x15\x03"),
                        &out, &size)); /* a copy that repeats itself */
  assert_int_equal(size, 12);
  assert_memory_equal(out, "abcabcabcabc", 12);
  td_free(out);
  must_fail(td_snappy_unpack(TD_STR("\x0c\x08"
                                    "abc"
                                    "\x15\x04"),
                             &out, &size),
            TD_DATA_LOSS, "corrupt at its byte");
  must_fail(td_snappy_unpack(TD_STR("\x0c\x08"
                                    "ab"),
                             &out, &size),
            TD_DATA_LOSS, "corrupt at its byte");
  must_fail(td_snappy_unpack(TD_STR("\xff\xff\xff\xff\x0f"), &out, &size), TD_DATA_LOSS, "bad length");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crc),
      cmocka_unit_test(test_crc_of_long_pieces),
      cmocka_unit_test(test_slice_keys),
      cmocka_unit_test(test_slice_texts),
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_golden_bundle),
      cmocka_unit_test(test_corrupt_bundle),
      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_merge),
      cmocka_unit_test(test_abandoned),
      cmocka_unit_test(test_many_files_behind),
      cmocka_unit_test(test_v1),
      cmocka_unit_test(test_snappy),
  };
  return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
