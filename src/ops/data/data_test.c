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
#include "framework/device.h"
#include "ops/data/iterator.h"
#include "ops/data/optional.h"
#include "ops/testing.h"
#include "tensor/tensor_proto.h"

#include "ops/data/data_harness.inc"

/* ---- tests ---- */

static void sources_and_choices(void **state) {
  expect(range_of(0, 5, 1), "0 1 2 3 4");
  expect(range_of(5, 0, -2), "5 3 1");
  expect(range_of(INT64_MAX - 1, INT64_MAX, 1), "9223372036854775806");
  expect(counted("TakeDataset", range_of(0, 9, 1), 3), "0 1 2");
  expect(counted("TakeDataset", range_of(0, 2, 1), -1), "0 1");
  expect(counted("SkipDataset", range_of(0, 5, 1), 3), "3 4");
  expect(counted("SkipDataset", range_of(0, 5, 1), -1), "");
  expect(counted("RepeatDataset", range_of(0, 2, 1), 3), "0 1 0 1 0 1");
  expect(counted("RepeatDataset", range_of(0, 0, 1), -1), "");
  expect(counted("TakeDataset", counted("RepeatDataset", range_of(0, 2, 1), -1), 5), "0 1 0 1 0");
  expect(op("ConcatenateDataset", ONE_INT, range_of(0, 2, 1), range_of(7, 9, 1), NULL), "0 1 7 8");
  expect(op("ZipDataset", "N: 2; output_types: [int64, int64]; output_shapes: [unknown, unknown]", range_of(0, 3, 1),
            range_of(5, 7, 1), NULL),
         "0/5 1/6");
  expect(op("ShardDataset", ONE_INT, range_of(0, 8, 1), number(3), number(1), NULL), "1 4 7");
  expect(op("TensorSliceDataset", "Toutput_types: [int32]; output_shapes: [[2]]",
            td_test_tensor(TD_INT32, "[2,2]", "1 2 3 4"), NULL),
         "1 2 3 4");
}

static void batches(void **state) {
  expect(op("BatchDatasetV2", "output_types: [int64]; output_shapes: [[?]]", range_of(0, 5, 1), number(2),
            boolean(false), NULL),
         "0 1 2 3 4");
  expect(op("BatchDatasetV2", "output_types: [int64]; output_shapes: [[?]]", range_of(0, 5, 1), number(2),
            boolean(true), NULL),
         "0 1 2 3");
  expect(
      op("UnbatchDataset", ONE_INT,
         op("BatchDataset", "output_types: [int64]; output_shapes: [[?]]", range_of(0, 5, 1), number(2), NULL), NULL),
      "0 1 2 3 4");
  td_tensor *in[] = {range_of(0, 5, 1), number(0)};
  td_assert_run_fails(&(td_op_run){.op = "BatchDataset", .attrs = ONE_INT, .device = device, .in = in, .in_count = 2},
                      TD_INVALID_ARGUMENT, "Batch size must be greater than zero.");
  td_tensor_release(in[0]);
  td_tensor_release(in[1]);
}

static void functions_of_elements(void **state) {
  for (int k = 0; k < 2; k++) {
    on_pool = k;
    expect(with_function("MapDataset", "square", range_of(0, 5, 1)), "0 1 4 9 16");
    expect(with_function("MapDataset", "fails_on_odd", range_of(0, 4, 1)), "0 !odd: 1 2 !odd: 3");
    expect(with_function("MapDataset", "stops_at_3", range_of(0, 9, 1)), "0 1 2");
    expect(with_function("FilterDataset", "is_even", range_of(0, 7, 1)), "0 2 4 6");
    expect(with_function("TakeWhileDataset", "is_even", range_of(0, 7, 1)), "0");
    expect(with_function("FlatMapDataset", "count_up", range_of(0, 4, 1)), "0 0 1 0 1 2");
    expect(op("IgnoreErrorsDataset", ONE_INT, with_function("MapDataset", "fails_on_odd", range_of(0, 7, 1)), NULL),
           "0 2 4 6");
    expect(op("InterleaveDataset", "f: 'count_up'; Targuments: []; " ONE_INT, range_of(1, 5, 1), number(2), number(2),
              NULL),
           "0 0 1 0 1 2 0 1 2 3");
    expect(op("ScanDataset", "f: 'sum'; Tstate: [int64]; Targuments: []; " ONE_INT, range_of(0, 2, 1), number(5), NULL),
           "!The scan function returned 1 components, expected 2. !The scan function returned 1 components, expected "
           "2.");
    td_tensor *total = op("ReduceDataset", "f: 'sum'; Tstate: [int64]; Targuments: []; " ONE_INT, range_of(0, 101, 1),
                          number(0), NULL);
    assert_int_equal(*TD_DATA(total, int64_t), 5050);
    td_tensor_release(total);
  }
  on_pool = false;
  expect_all_released();
}

static void ahead(void **state) {
  for (int k = 0; k < 2; k++) {
    on_pool = k;
    expect(op("PrefetchDataset", ONE_INT, range_of(0, 6, 1), number(2), NULL), "0 1 2 3 4 5");
    expect(parallel_map("square", range_of(0, 6, 1), 3), "0 1 4 9 16 25");
    expect(parallel_map("fails_on_odd", range_of(0, 3, 1), 2), "0 !odd: 1 2");
    expect(op("ParallelInterleaveDatasetV2", "f: 'count_up'; Targuments: []; " ONE_INT, range_of(1, 5, 1), number(2),
              number(2), number(2), NULL),
           "0 0 1 0 1 2 0 1 2 3");
    expect(op("MapAndBatchDataset", "f: 'square'; Targuments: []; output_types: [int64]; output_shapes: [[?]]",
              range_of(0, 5, 1), number(3), number(2), boolean(false), NULL),
           "0 1 4 9 16");
  }
  on_pool = false;
  expect_all_released();
}

static void windows_and_caches(void **state) {
  td_tensor *w = op("WindowDataset", "output_types: [variant]; output_shapes: [unknown]", range_of(0, 5, 1), number(2),
                    number(2), number(1), boolean(false), NULL);
  td_driver *d = drive(w, NULL);
  td_element *e;
  assert_null(next(d, &e));
  expect(td_tensor_retain(e->values[0]), "0 1");
  td_element_free(e);
  td_driver_release(d);
  expect(counted("RepeatDataset", op("CacheDataset", ONE_INT, range_of(0, 3, 1), empty_string(), NULL), 1), "0 1 2");
}

/* The first iterator leaves the cache, the others read it; one at a time writes. */
static void caches_in_files(void **state) {
  char folder[] = "/tmp/data_test_XXXXXX", name[64], path[128];
  assert_non_null(mkdtemp(folder));
  snprintf(name, sizeof name, "%s/cache", folder);
  expect(op("CacheDataset", ONE_INT, range_of(0, 4, 1), text_tensor(name), NULL), "0 1 2 3");
  expect(op("CacheDataset", ONE_INT, range_of(0, 0, 1), text_tensor(name), NULL), "0 1 2 3");
  td_driver *wrong = drive(op("CacheDataset", "output_types: [float]; output_shapes: [unknown]",
                              op("TensorDataset", "Toutput_types: [float]; output_shapes: [unknown]",
                                 td_test_tensor(TD_FLOAT, "[]", "1"), NULL),
                              text_tensor(name), NULL),
                           NULL);
  char *got = some_of(wrong, 1);
  assert_string_equal(got, "!The cache has a int64 under       0_0 where the dataset has a float");
  td_free(got);
  td_driver_release(wrong);
  for (const char *const *end = (const char *const[]){".index", ".data-00000-of-00001", NULL}; *end; end++) {
    snprintf(path, sizeof path, "%s%s", name, *end);
    assert_int_equal(unlink(path), 0);
  }
  td_tensor *d = op("CacheDataset", ONE_INT, range_of(0, 4, 1), text_tensor(name), NULL);
  td_driver *first = drive(td_tensor_retain(d), pool), *second = drive(d, pool);
  td_element *e;
  assert_null(next(first, &e));
  td_element_free(e);
  td_status s = next(second, &e);
  assert_int_equal(td_status_code(s), TD_ALREADY_EXISTS);
  td_status_free(s);
  td_driver_release(first);
  s = TD_STATUS_OK;
  do { /* what the driver held goes on the thread that ended its last request */
    td_status_free(s);
    s = next(second, &e);
  } while (td_status_code(s) == TD_ALREADY_EXISTS);
  assert_null(s);
  td_element_free(e);
  td_driver_release(second);
  while (rmdir(folder)) usleep(1000); /* nothing of a cache that is not whole remains */
}

/* An iterator over `d`, which it releases, cannot be made. */
static void expect_refused(td_tensor *d, const char *text) {
  td_tensor *it = op("IteratorV2", "shared_name: 'refused'; container: ''; " ONE_INT, NULL), *in[] = {d, it};
  td_assert_run_fails(&(td_op_run){.op = "MakeIterator", .device = device, .in = in, .in_count = 2},
                      TD_INVALID_ARGUMENT, text);
  td_tensor_release(d);
  td_tensor_release(it);
}

static td_tensor *asserting(td_tensor *d, const char *shape, const char *names) {
  return op("AssertNextDataset", ONE_INT, d, td_test_tensor(TD_STRING, shape, names), NULL);
}

static void what_comes_next(void **state) {
  td_tensor *d = asserting(range_of(0, 9, 1), "[2]", "Take PrefetchV2");
  expect(op("PrefetchDataset", ONE_INT, counted("TakeDataset", d, 2), number(2), NULL), "0 1");
  expect_refused(counted("TakeDataset", asserting(range_of(0, 9, 1), "[1]", "Whoops"), 2),
                 "Asserted Whoops transformation at offset 0 but encountered Take transformation instead.");
  expect_refused(counted("SkipDataset", counted("TakeDataset", asserting(range_of(0, 9, 1), "[2]", "Take Skip"), 2), 0),
                 "Asserted next 2 transformations but encountered only 1.");
}

static void shuffling(void **state) {
  expect(counted("TakeDataset",
                 op("ShuffleDataset", "reshuffle_each_iteration: false; " ONE_INT, range_of(0, 100, 1), number(10),
                    number(87654321), number(3), NULL),
                 10),
         "7 4 2 3 11 1 12 9 13 16");
  td_tensor *t = op("ShuffleDataset", ONE_INT, range_of(0, 100, 1), number(10), number(87654321), number(3), NULL);
  td_driver *d = drive(counted("TakeDataset", t, 10), pool);
  char *got = all_of(d);
  assert_string_equal(got, "4 1 0 9 12 13 10 15 14 17");
  td_free(got);
  td_driver_release(d);
}

static void groups(void **state) {
  expect(op("GroupByWindowDataset",
            "key_func: 'parity'; window_size_func: 'two'; reduce_func: 'second'; Tkey_func_other_arguments: []; "
            "Treduce_func_other_arguments: []; Twindow_size_func_other_arguments: []; " ONE_INT,
            range_of(0, 5, 1), NULL),
         "0 2 1 3 4");
  expect(op("GroupByReducerDataset",
            "key_func: 'parity'; init_func: 'two'; reduce_func: 'sum'; finalize_func: 'square'; "
            "Tkey_func_other_arguments: []; Tinit_func_other_arguments: []; Treduce_func_other_arguments: []; "
            "Tfinalize_func_other_arguments: []; " ONE_INT,
            range_of(0, 5, 1), NULL),
         "64 36");
  expect(op("DirectedInterleaveDataset", "N: 2; " ONE_INT,
            op("TensorSliceDataset", "Toutput_types: [int64]; output_shapes: [unknown]",
               td_test_tensor(TD_INT64, "[4]", "0 1 1 0"), NULL),
            range_of(0, 9, 1), range_of(5, 6, 1), NULL),
         "0 5 1");
  expect(
      op("RebatchDataset", ONE_INT, op("BatchDataset", ONE_INT, range_of(0, 5, 1), number(5), NULL), number(2), NULL),
      "0 1 2 3 4");
  td_tensor *rows =
      op("MapDefun", "f: 'square'; Targuments: [int64]; Tcaptured: []; output_types: [int64]; output_shapes: [unknown]",
         td_test_tensor(TD_INT64, "[3]", "1 2 3"), NULL);
  td_assert_tensor(rows, TD_INT64, "[3]", "1 4 9", 0);
  td_tensor_release(rows);
}

static void records_of_files(void **state) {
  char path[] = "/tmp/data_test_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  static const char content[] = "a,b\n1,2\n,\"4\"\r\n5,x\n7";
  assert_int_equal(write(fd, content, sizeof content - 1), sizeof content - 1);
  close(fd);
  expect(op("CSVDataset", "output_types: [int64, int64]; output_shapes: [unknown, unknown]", text_tensor(path),
            empty_string(), number(64), boolean(true), text_tensor(","), boolean(true), empty_string(),
            td_test_tensor(TD_INT64, "[0]", ""), number(9), number(8), NULL),
         "1/2 9/4 !Field 1 in record is not a valid int64: x !Expect 2 fields but have 1 in record");
  unlink(path);
  expect(op("TextLineDataset", "", text_tensor("/nowhere/at/all"), empty_string(), number(0), NULL),
         "!/nowhere/at/all; No such file or directory");
}

/* ---- cancellation and ends ---- */

static void *cancel_soon(void *arg) {
  usleep(2000);
  td_cancellation_cancel(arg);
  return NULL;
}

static void *cancel_three_blocked(void *arg) {
  while (atomic_load(&blocked_calls) < 3) usleep(100);
  td_cancellation_cancel(arg);
  return NULL;
}

static void expect_cancelled_by(td_driver *d, void *(*canceller)(void *cancellation)) {
  td_cancellation *c = td_cancellation_create();
  pthread_t thread;
  asked a;
  td_element *e;
  pthread_create(&thread, NULL, canceller, c);
  ask(d, &a, c);
  td_status s = answer(&a, &e);
  assert_int_equal(td_status_code(s), TD_CANCELLED);
  assert_null(e);
  td_status_free(s);
  pthread_join(thread, NULL);
  td_cancellation_release(c);
}

static void expect_cancelled(td_driver *d) { expect_cancelled_by(d, cancel_soon); }

static void cancellation(void **state) {
  /* a function that waits; a buffer whose elements never come; a search that never ends */
  td_driver *d = drive(with_function("MapDataset", "blocks", range_of(0, 5, 1)), pool);
  expect_cancelled(d);
  expect_cancelled(d);
  td_driver_release(d);
  d = drive(parallel_map("blocks", range_of(0, 5, 1), 2), pool);
  expect_cancelled(d);
  expect_cancelled(d);
  td_driver_release(d);
  d = drive(with_function("FilterDataset", "never", counted("RepeatDataset", range_of(0, 5, 1), -1)), pool);
  expect_cancelled(d);
  expect_cancelled(d);
  td_driver_release(d);
  d = drive(op("PrefetchDataset", ONE_INT, with_function("MapDataset", "blocks", range_of(0, 5, 1)), number(3), NULL),
            pool);
  expect_cancelled(d);
  td_driver_release(d);
}

/* Requests of one iterator are served in order; one that is cancelled while it waits takes nothing. */
static void queued_requests(void **state) {
  td_driver *d = drive(op("PrefetchDataset", ONE_INT,
                          op("ConcatenateDataset", ONE_INT, range_of(0, 2, 1),
                             with_function("MapDataset", "blocks", range_of(0, 1, 1)), NULL),
                          number(1), NULL),
                       pool);
  asked a[4];
  td_cancellation *c[4];
  td_element *e;
  for (int i = 0; i < 4; i++) {
    c[i] = td_cancellation_create();
    ask(d, &a[i], c[i]);
  }
  for (int i = 0; i < 2; i++) {
    assert_null(answer(&a[i], &e));
    assert_int_equal(*TD_DATA(e->values[0], int64_t), i);
    td_element_free(e);
  }
  for (int i = 3; i >= 2; i--) {
    td_cancellation_cancel(c[i]);
    td_status s = answer(&a[i], &e);
    assert_int_equal(td_status_code(s), TD_CANCELLED);
    td_status_free(s);
  }
  for (int i = 0; i < 4; i++) td_cancellation_release(c[i]);
  td_driver_release(d);
}

/* Iterators that go while others work for them. */
static void ends_while_working(void **state) {
  for (int i = 0; i < 50; i++) {
    on_pool = i % 2;
    td_driver *d =
        drive(op("PrefetchDataset", ONE_INT, parallel_map("square", counted("RepeatDataset", range_of(0, 5, 1), -1), 3),
                 number(4), NULL),
              pool);
    for (int k = 0; k < i % 7; k++) {
      td_element *e;
      assert_null(next(d, &e));
      td_element_free(e);
    }
    td_driver_release(d);
  }
  on_pool = false;
  atomic_store(&blocked_calls, 0);
  td_driver *d = drive(parallel_map("blocks", range_of(0, 5, 1), 3), pool);
  expect_cancelled_by(d, cancel_three_blocked);
  td_driver_release(d);
  expect_all_released();
}

static void depth_is_bounded(void **state) {
  td_tensor *d = range_of(0, 3, 1);
  for (int i = 1; i < TD_DATASET_MAX_DEPTH; i++) d = counted("TakeDataset", d, 9);
  td_tensor *in[] = {d, number(0)};
  td_assert_run_fails(&(td_op_run){.op = "TakeDataset", .attrs = ONE_INT, .device = device, .in = in, .in_count = 2},
                      TD_INVALID_ARGUMENT, "nested more than 1000 deep");
  td_tensor_release(in[1]);
  expect(d, "0 1 2");
}

/* ---- ops ---- */

static void iterators(void **state) {
  td_tensor *it = op("IteratorV2", "shared_name: 'it'; container: ''; " ONE_INT, NULL);
  td_op_run get = {.op = "IteratorGetNext", .attrs = ONE_INT, .device = device, .in = &it, .in_count = 1};
  td_assert_run_fails(&get, TD_FAILED_PRECONDITION, "GetNext() failed because the iterator has not been initialized.");
  td_tensor *wrong = op("TensorDataset", "Toutput_types: [float]; output_shapes: [unknown]",
                        td_test_tensor(TD_FLOAT, "[]", "1"), NULL),
            *in[] = {wrong, it};
  td_op_run make = {.op = "MakeIterator", .device = device, .in = in, .in_count = 2};
  td_assert_run_fails(&make, TD_INVALID_ARGUMENT, "Data type mismatch at component 0: expected int64 but got float.");
  td_tensor_release(wrong);
  for (int round = 0; round < 2; round++) {
    in[0] = range_of(round, 2, 1);
    assert_null(td_op_test_run(&make));
    td_tensor_release(in[0]);
    for (int64_t i = round; i < 2; i++) {
      assert_null(td_op_test_run(&get));
      assert_int_equal(*TD_DATA(get.out[0], int64_t), i);
      td_tensor_release(get.out[0]);
      get.out[0] = NULL;
    }
    td_assert_run_fails(&get, TD_OUT_OF_RANGE, "End of sequence");
  }
  td_tensor *text = op("IteratorToStringHandle", NULL, td_tensor_retain(it), NULL);
  td_tensor *again = op("IteratorFromStringHandleV2", ONE_INT, td_tensor_retain(text), NULL);
  assert_string_equal(TD_DATA(again, td_resource_handle *)[0]->name, "it");
  td_tensor_release(again);
  td_assert_run_fails(&(td_op_run){.op = "IteratorFromStringHandleV2",
                                   .attrs = "output_types: [int32]; output_shapes: [unknown]",
                                   .device = device,
                                   .in = &text,
                                   .in_count = 1},
                      TD_INVALID_ARGUMENT, "Data type mismatch");
  td_tensor_release(text);
  td_tensor *o = op("IteratorGetNextAsOptional", ONE_INT, td_tensor_retain(it), NULL);
  td_tensor *has = op("OptionalHasValue", NULL, o, NULL);
  assert_false(*TD_DATA(has, uint8_t));
  td_tensor_release(has);
  td_tensor_release(it);
}

static void optionals(void **state) {
  td_tensor *o =
      op("OptionalFromValue", "Toutput_types: [int64, float]", number(7), td_test_tensor(TD_FLOAT, "[2]", "1 2"), NULL);
  td_strbuf bytes = {0};
  td_tensor *copy;
  assert_null(td_tensor_encode(o, &bytes));
  assert_null(td_tensor_decode(td_strbuf_view(&bytes), &copy));
  td_strbuf_deinit(&bytes);
  td_tensor *in[] = {copy};
  td_op_run get = {.op = "OptionalGetValue",
                   .attrs = "output_types: [int64, float]; output_shapes: [unknown, [2]]",
                   .device = device,
                   .in = in,
                   .in_count = 1};
  assert_null(td_op_test_run(&get));
  assert_int_equal(*TD_DATA(get.out[0], int64_t), 7);
  td_assert_tensor(get.out[1], TD_FLOAT, "[2]", "1 2", 0);
  td_tensor_release(get.out[0]);
  td_tensor_release(get.out[1]);
  td_tensor *zeros = op("ZerosLike", "T: variant", copy, NULL);
  td_tensor *twice = op("AddN", "N: 2; T: variant", td_tensor_retain(o), o, NULL);
  in[0] = twice;
  get.out[0] = get.out[1] = NULL;
  assert_null(td_op_test_run(&get));
  assert_int_equal(*TD_DATA(get.out[0], int64_t), 14);
  td_tensor_release(get.out[0]);
  td_tensor_release(get.out[1]);
  td_tensor_release(twice);
  td_tensor_release(zeros);
  in[0] = op("OptionalNone", NULL, NULL);
  get.out[0] = get.out[1] = NULL;
  td_assert_run_fails(&get, TD_INVALID_ARGUMENT, "The given optional does not have a value.");
  td_tensor_release(in[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sources_and_choices),
      cmocka_unit_test(batches),
      cmocka_unit_test(functions_of_elements),
      cmocka_unit_test(ahead),
      cmocka_unit_test(windows_and_caches),
      cmocka_unit_test(caches_in_files),
      cmocka_unit_test(what_comes_next),
      cmocka_unit_test(shuffling),
      cmocka_unit_test(groups),
      cmocka_unit_test(records_of_files),
      cmocka_unit_test(cancellation),
      cmocka_unit_test(queued_requests),
      cmocka_unit_test(ends_while_working),
      cmocka_unit_test(depth_is_bounded),
      cmocka_unit_test(iterators),
      cmocka_unit_test(optionals),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
