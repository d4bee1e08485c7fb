/* Readers and files as values. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"
#include "checkpoint/record.h"
#include "framework/cancellation.h"
#include "framework/device.h"
#include "ops/testing.h"

static char dir[] = "/tmp/td-reader-XXXXXX";
static td_device *device;
static td_pool *pool;

static int setup(void **state) {
  device = td_test_device();
  pool = td_pool_create("test", "", 2);
  return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  td_pool_destroy(pool);
  td_device_release(device);
  return system(command);
}

static char *write_text(const char *name, td_str text) { /* the path, td_free()d by the caller */
  char *path = td_asprintf("%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(fwrite(text.data, 1, text.size, f), text.size);
  fclose(f);
  return path;
}

static td_tensor *make(const char *op, const char *attrs) {
  td_op_run run = {.op = op, .attrs = attrs, .device = device};
  td_assert_runs(&run);
  return run.out[0];
}

static td_tensor *text(td_str s) {
  td_tensor *t;
  assert_null(td_tensor_create_dims(TD_STRING, 0, NULL, &t));
  assert_null(td_string_set(TD_DATA(t, td_string), s));
  return t;
}

static void enqueue(td_tensor *q, const char *value) {
  td_tensor *in[] = {q, text(td_str_of(value))};
  td_op_run run = {.op = "QueueEnqueueV2", .attrs = "Tcomponents: [string]", .device = device, .in = in, .in_count = 2};
  assert_null(td_op_test_run(&run));
  td_tensor_release(in[1]);
}

static void close_queue(td_tensor *q) {
  td_op_run run = {.op = "QueueCloseV2", .device = device, .in = &q, .in_count = 1};
  assert_null(td_op_test_run(&run));
}

/* ReaderReadV2, or for n >= 0 ReaderReadUpToV2: "key=value key=value", or the error's text; td_free()d by the caller.
 */
static char *read_records(td_tensor *reader, td_tensor *queue, int n, td_step *step, td_code *code) {
  td_tensor *in[] = {reader, queue, td_test_tensor(TD_INT64, "[]", "0")};
  *TD_DATA(in[2], int64_t) = n;
  td_op_run run = {.op = n < 0 ? "ReaderReadV2" : "ReaderReadUpToV2",
                   .device = device,
                   .in = in,
                   .in_count = n < 0 ? 2 : 3,
                   .step = step};
  td_status s = td_op_test_run(&run);
  td_strbuf b = {0};
  *code = td_status_code(s);
  if (s) td_strbuf_puts(&b, td_status_message(s));
  for (int64_t i = 0; !s && i < run.out[0]->count; i++) {
    td_str key = td_string_view(TD_DATA(run.out[0], td_string) + i);
    td_str value = td_string_view(TD_DATA(run.out[1], td_string) + i);
    if (td_str_starts(key, td_str_of(dir))) key = td_str_n(key.data + strlen(dir) + 1, key.size - strlen(dir) - 1);
    td_strbuf_printf(&b, "%s%.*s=%.*s", i ? " " : "", TD_STR_ARG(key), TD_STR_ARG(value));
  }
  td_status_free(s);
  for (int i = 0; i < run.out_count; i++) td_tensor_release(run.out[i]);
  td_tensor_release(in[2]);
  return td_strbuf_take(&b);
}

static void expect(td_tensor *reader, td_tensor *queue, int n, const char *want) {
  td_step step = {.id = 1, .pool = pool};
  td_code code;
  char *got = read_records(reader, queue, n, &step, &code);
  if (!strstr(got, want) || (code == TD_OK && strcmp(got, want))) fail_msg("\"%s\", not \"%s\"", got, want);
  td_free(got);
}

static td_tensor *files_queue(const char *name, char *const *paths, int count) {
  char attrs[128];
  snprintf(attrs, sizeof attrs, "component_types: [string]; shapes: [[]]; shared_name: '%s'", name);
  td_tensor *q = make("FIFOQueueV2", attrs);
  for (int i = 0; i < count; i++) enqueue(q, paths[i]);
  close_queue(q);
  return q;
}

#define NO_MORE "is closed and has insufficient elements"

static void lines(void **state) {
  char *paths[] = {write_text("a", TD_STR("head\r\none\ntwo")), write_text("empty", TD_STR("")),
                   write_text("b", TD_STR("head\nthree\n\n"))};
  td_tensor *q = files_queue("lines", paths, 3),
            *r = make("TextLineReaderV2", "skip_header_lines: 1; shared_name: 'l'");
  expect(r, q, -1, "a:2=one");
  expect(r, q, 10, "a:3=two");
  expect(r, q, 0, "");
  expect(r, q, 10, "b:2=three b:3=");
  expect(r, q, 10, NO_MORE);
  td_op_run count = {.op = "ReaderNumRecordsProducedV2", .device = device, .in = &r, .in_count = 1};
  assert_null(td_op_test_run(&count));
  td_assert_tensor(count.out[0], TD_INT64, "[]", "4", 0);
  td_tensor_release(count.out[0]);
  count.op = "ReaderNumWorkUnitsCompletedV2";
  assert_null(td_op_test_run(&count));
  td_assert_tensor(count.out[0], TD_INT64, "[]", "3", 0);
  td_tensor_release(count.out[0]);
  td_op_run save = {.op = "ReaderSerializeStateV2", .device = device, .in = &r, .in_count = 1};
  td_assert_run_fails(&save, TD_UNIMPLEMENTED, "SerializeState");
  td_tensor_release(q);
  td_tensor_release(r);
  for (size_t i = 0; i < TD_COUNT(paths); i++) td_free(paths[i]);
}

static void fixed_lengths(void **state) {
  static const struct {
    const char *attrs, *want;
  } cases[] = {
      {"record_bytes: 3", "f:0=HHa f:1=bcd f:2=efg f:3=hij"}, /* what is too short for a record is dropped */
      {"record_bytes: 3; header_bytes: 2; footer_bytes: 2", "f:0=abc f:1=def f:2=ghi"},
      {"record_bytes: 5; header_bytes: 2; footer_bytes: 2", "f:0=abcde f:1=fghij"},
      {"record_bytes: 3; header_bytes: 2; footer_bytes: 2; hop_bytes: 2", "f:0=abc f:1=cde f:2=efg f:3=ghi"},
      {"record_bytes: 3; header_bytes: 2; footer_bytes: 2; hop_bytes: 5", "f:0=abc f:1=fgh"},
      {"record_bytes: 4611686018427387904; hop_bytes: 9223372036854775807", NO_MORE},
      {"record_bytes: 3; header_bytes: 100", "ends within its header of 100 bytes"},
  };
  char *path = write_text("f", TD_STR("HHabcdefghijFF"));
  for (size_t i = 0; i < TD_COUNT(cases); i++) {
    char name[32];
    snprintf(name, sizeof name, "fixed%zu", i);
    td_tensor *q = files_queue(name, &path, 1);
    char *attrs = td_asprintf("%s; shared_name: '%s'", cases[i].attrs, name);
    td_tensor *r = make("FixedLengthRecordReaderV2", attrs);
    expect(r, q, 100, cases[i].want);
    td_free(attrs);
    td_tensor_release(q);
    td_tensor_release(r);
  }
  td_free(path);
  td_op_run bad = {.op = "FixedLengthRecordReaderV2", .attrs = "record_bytes: 3; hop_bytes: -1", .device = device};
  td_assert_run_fails(&bad, TD_INVALID_ARGUMENT, "hop_bytes must be >= 0 not -1");
}

static void records(void **state) {
  td_strbuf file = {0};
  td_record_append(&file, TD_STR("first"));
  td_record_append(&file, TD_STR(""));
  size_t whole = file.size;
  td_record_append(&file, TD_STR("cut off"));
  char *paths[] = {write_text("r", td_str_n(file.data, whole)), write_text("cut", td_str_n(file.data, file.size - 1))};
  td_tensor *q = files_queue("records", paths, 2), *r = make("TFRecordReaderV2", "shared_name: 'r'");
  expect(r, q, 5, "r:0=first r:21=");
  expect(r, q, 2, "cut:0=first cut:21=");
  expect(r, q, -1, "truncated record at 49 in");
  td_tensor_release(q);
  td_tensor_release(r);
  td_strbuf_deinit(&file);
  for (size_t i = 0; i < TD_COUNT(paths); i++) td_free(paths[i]);
}

static void restore_fails(td_tensor *r, td_str state_text, const char *want) {
  td_tensor *in[] = {r, text(state_text)};
  td_op_run run = {.op = "ReaderRestoreStateV2", .name = "n", .device = device, .in = in, .in_count = 2};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, want);
  td_tensor_release(in[1]);
}

static void states(void **state) {
  char *names[] = {"x", "y", "z"};
  td_tensor *q = files_queue("states", names, 3), *r = make("IdentityReaderV2", "shared_name: 'i'");
  expect(r, q, 2, "x=x");
  td_op_run save = {.op = "ReaderSerializeStateV2", .device = device, .in = &r, .in_count = 1};
  assert_null(td_op_test_run(&save));
  td_str saved = td_string_view(TD_DATA(save.out[0], td_string));
  assert_memory_equal(saved.data, "\x08\1\x10\1\x18\1\"\1x", saved.size);
  restore_fails(r, td_str_n(saved.data, saved.size - 1), "Could not parse state for IdentityReader 'node': \\010\\001");
  restore_fails(r, TD_STR("\x08\2\x10\1"), "Inconsistent work started vs. finished");
  restore_fails(r, TD_STR("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"), "Unexpected negative value");
  td_tensor *in[] = {r, save.out[0]};
  td_op_run restore = {.op = "ReaderRestoreStateV2", .device = device, .in = in, .in_count = 2};
  assert_null(td_op_test_run(&restore));
  td_tensor_release(save.out[0]);
  assert_null(td_op_test_run(&save));
  assert_int_equal(td_string_view(TD_DATA(save.out[0], td_string)).size, 9);
  td_tensor_release(save.out[0]);
  td_tensor_release(q);
  td_tensor_release(r);
}

static void queues_that_do_not_fit(void **state) {
  td_tensor *r = make("WholeFileReaderV2", "shared_name: 'w'");
  td_tensor *ints = make("FIFOQueueV2", "component_types: [int32]; shared_name: 'ints'");
  td_tensor *two = make("FIFOQueueV2", "component_types: [string, string]; shared_name: 'two'");
  expect(r, ints, -1, "Expected queue with single string component");
  expect(r, two, -1, "Expected single component queue");
  expect(r, r, -1, "wrong type");
  expect(r, two, 3, "Expected single component queue");
  td_tensor_release(r);
  td_tensor_release(ints);
  td_tensor_release(two);
}

/* ---- waiting ---- */

typedef struct party {
  td_tensor *reader, *queue;
  td_step step;
  pthread_t thread;
  td_code code;
  char *got;
} party;

static void *read_main(void *arg) {
  party *p = arg;
  p->got = read_records(p->reader, p->queue, -1, &p->step, &p->code);
  return NULL;
}

/* Readers wait for names and for each other; every second one is cancelled meanwhile. */
static void waiting(void **state) {
  enum { PARTIES = 16 };
  td_tensor *q = make("FIFOQueueV2", "component_types: [string]; shared_name: 'waiting'");
  td_tensor *r = make("IdentityReaderV2", "shared_name: 'waiting'");
  party parties[PARTIES];
  int served = 0;
  for (int i = 0; i < PARTIES; i++) {
    parties[i] =
        (party){.reader = r, .queue = q, .step = {.id = 1, .pool = pool, .cancellation = td_cancellation_create()}};
    pthread_create(&parties[i].thread, NULL, read_main, &parties[i]);
  }
  for (int i = 0; i < PARTIES; i += 2) td_cancellation_cancel(parties[i].step.cancellation);
  for (int i = 0; i < PARTIES; i += 2) pthread_join(parties[i].thread, NULL);
  for (int i = 0; i < PARTIES; i += 2) {
    assert_int_equal(parties[i].code, TD_CANCELLED);
    enqueue(q, "name");
  }
  for (int i = 1; i < PARTIES; i += 2) {
    pthread_join(parties[i].thread, NULL);
    served += parties[i].code == TD_OK && !strcmp(parties[i].got, "name=name");
  }
  assert_int_equal(served, PARTIES / 2);
  for (int i = 0; i < PARTIES; i++) {
    td_cancellation_release(parties[i].step.cancellation);
    td_free(parties[i].got);
  }
  td_tensor_release(q);
  td_tensor_release(r);
}

/* ---- files as values ---- */

static void files(void **state) {
  char *path = td_asprintf("%s/new/folder/file", dir), *pattern = td_asprintf("%s/new/*/f*", dir);
  td_tensor *in[] = {text(td_str_of(path)), text(TD_STR("con\0tents")), text(td_str_of(pattern))};
  td_op_run write = {.op = "WriteFile", .device = device, .in = in, .in_count = 2};
  assert_null(td_op_test_run(&write));
  td_op_run read = {.op = "ReadFile", .device = device, .in = in, .in_count = 1};
  assert_null(td_op_test_run(&read));
  assert_true(td_str_eq(td_string_view(TD_DATA(read.out[0], td_string)), TD_STR("con\0tents")));
  td_op_run match = {.op = "MatchingFiles", .device = device, .in = &in[2], .in_count = 1};
  assert_null(td_op_test_run(&match));
  td_assert_tensor(match.out[0], TD_STRING, "[1]", path, 0);
  td_tensor_release(read.out[0]);
  td_tensor_release(match.out[0]);
  td_op_run bad = {.op = "ReadFile", .device = device, .in = &in[2], .in_count = 1};
  td_assert_run_fails(&bad, TD_NOT_FOUND, "f*; No such file or directory");
  for (size_t i = 0; i < TD_COUNT(in); i++) td_tensor_release(in[i]);
  td_free(path);
  td_free(pattern);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines),   cmocka_unit_test(fixed_lengths), cmocka_unit_test(records),
      cmocka_unit_test(states),  cmocka_unit_test(files),         cmocka_unit_test(queues_that_do_not_fit),
      cmocka_unit_test(waiting),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
