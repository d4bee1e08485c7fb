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
#include "ops/data/archive.h"
#include "ops/data/optional.h"
#include "ops/testing.h"
#include "tensor/tensor_proto.h"

#include "ops/data/data_harness.inc"

/* ---- saving and restoring drivers ---- */

typedef struct saver {
  asked asked; /* first */
  td_archive archive;
} saver;

static td_next use(td_request *r, td_driver *d, td_status *status) {
  saver *s = TD_CONTAINER_OF(r, saver, asked.request);
  s->archive.waiter = d;
  s->archive.is_busy = false;
  s->archive.out.size = 0;
  *status = td_driver_archive(d, &s->archive);
  return s->archive.is_busy && !*status ? TD_NEXT_WAIT : TD_NEXT_READY;
}

static td_status save(td_driver *d, td_strbuf *out) {
  saver s = {.asked.request = {.done = asked_done, .destroy = asked_destroy, .use = use}, .archive.is_writing = true};
  td_element *none;
  pthread_mutex_init(&s.asked.lock, NULL);
  pthread_cond_init(&s.asked.cond, NULL);
  td_driver_next(d, &s.asked.request);
  td_status status = answer(&s.asked, &none);
  assert_null(none);
  *out = s.archive.out;
  s.archive.out = (td_strbuf){0};
  td_archive_deinit(&s.archive);
  return status;
}

static td_status revive(td_tensor *dataset, td_str state, td_pool *p, td_driver **out) {
  td_archive a = {.in = td_wire_of(state)};
  *out = drive(td_tensor_retain(dataset), p);
  td_status s = td_driver_archive(*out, &a);
  if (!s && td_wire_left(&a.in)) s = td_archive_invalid("too long");
  td_archive_deinit(&a);
  return s;
}

/* Bytes that are almost a state: each is one, or an error; what it gives can be asked for. */
static void hostile_states(td_tensor *dataset, td_str state) {
  char *bytes = td_malloc(state.size + 1);
  for (size_t i = 0; i < state.size; i += 1 + state.size / 150) {
    for (int k = 0; k < 3; k++) {
      size_t size = k == 2 ? i : state.size;
      memcpy(bytes, state.data, size);
      if (k < 2) bytes[i] = (char)(k ? 0xff : bytes[i] ^ 1 << i % 8);
      td_driver *d;
      td_status s = revive(dataset, td_str_n(bytes, size), NULL, &d);
      for (int n = 0; n < 5 && !s; n++) {
        td_element *e;
        td_status_free(next(d, &e));
        td_element_free(e);
      }
      td_status_free(s);
      td_driver_release(d);
    }
  }
  td_free(bytes);
}

/* Stopping after any number of elements and going on elsewhere gives what there is without a stop. Takes it. */
static void expect_goes_on(td_tensor *dataset) {
  for (int pooled = 0; pooled < 2; pooled++) {
    td_pool *p = pooled ? pool : NULL;
    td_driver *d = drive(td_tensor_retain(dataset), p);
    char *want = all_of(d);
    td_driver_release(d);
    for (int stop = 0; stop < 9; stop += 1 + pooled) {
      td_strbuf got = {0}, state;
      d = drive(td_tensor_retain(dataset), p);
      for (int i = 0; i < stop; i++) {
        char *text = some_of(d, 1);
        if (*text) td_strbuf_printf(&got, got.size ? " %s" : "%s", text);
        td_free(text);
      }
      td_status s = save(d, &state);
      if (s) fail_msg("%s", td_status_message(s));
      td_driver *other;
      s = revive(dataset, td_strbuf_view(&state), p, &other);
      if (s) fail_msg("%s", td_status_message(s));
      td_driver *both[] = {d, other};
      for (int k = 0; k < 2; k++) { /* the one that was saved goes on as well */
        char *rest = all_of(both[k]),
             *all = td_asprintf("%s%s%s", td_strbuf_cstr(&got), got.size && *rest ? " " : "", rest);
        assert_string_equal(all, want);
        td_free(rest);
        td_free(all);
        td_driver_release(both[k]);
      }
      if (!pooled && stop == 3) hostile_states(dataset, td_strbuf_view(&state));
      td_strbuf_deinit(&state);
      td_strbuf_deinit(&got);
    }
    td_free(want);
  }
  td_tensor_release(dataset);
}

/* ---- tests ---- */

static void choices(void **state) {
  expect_goes_on(range_of(0, 7, 1));
  expect_goes_on(counted("TakeDataset", range_of(0, 9, 1), 6));
  expect_goes_on(counted("SkipDataset", range_of(0, 9, 1), 3));
  expect_goes_on(counted("RepeatDataset", range_of(0, 3, 1), 3));
  expect_goes_on(op("ConcatenateDataset", ONE_INT, range_of(0, 3, 1), range_of(7, 11, 1), NULL));
  expect_goes_on(op("ZipDataset", "N: 2; output_types: [int64, int64]; output_shapes: [unknown, unknown]",
                    range_of(0, 7, 1), range_of(5, 11, 1), NULL));
  expect_goes_on(op("ShardDataset", ONE_INT, range_of(0, 20, 1), number(3), number(1), NULL));
  expect_goes_on(op("TensorSliceDataset", "Toutput_types: [int32]; output_shapes: [[2]]",
                    td_test_tensor(TD_INT32, "[3,2]", "1 2 3 4 5 6"), NULL));
  expect_goes_on(op("UniqueDataset", ONE_INT, counted("RepeatDataset", range_of(0, 5, 1), 2), NULL));
  expect_goes_on(op("DirectedInterleaveDataset", "N: 2; " ONE_INT,
                    op("TensorSliceDataset", "Toutput_types: [int64]; output_shapes: [unknown]",
                       td_test_tensor(TD_INT64, "[6]", "0 1 1 0 0 1"), NULL),
                    range_of(0, 9, 1), range_of(5, 6, 1), NULL));
  expect_goes_on(counted("TakeDataset", op("RandomDataset", ONE_INT, number(3), number(4), NULL), 7));
}

static void batches(void **state) {
  td_tensor *pairs = op("BatchDataset", ONE_INT, range_of(0, 11, 1), number(2), NULL);
  expect_goes_on(td_tensor_retain(pairs));
  expect_goes_on(op("UnbatchDataset", ONE_INT, td_tensor_retain(pairs), NULL));
  expect_goes_on(op("RebatchDataset", ONE_INT, pairs, number(2), NULL));
  td_tensor *windows = op("WindowDataset", "output_types: [variant]; output_shapes: [unknown]", range_of(0, 9, 1),
                          number(2), number(2), number(1), boolean(false), NULL);
  expect_goes_on(op("FlatMapDataset", "f: 'itself'; Targuments: []; " ONE_INT, td_tensor_retain(windows), NULL));
  /* windows in a buffer */
  expect_goes_on(
      op("FlatMapDataset", "f: 'itself'; Targuments: []; " ONE_INT,
         op("PrefetchDataset", "output_types: [variant]; output_shapes: [unknown]", windows, number(2), NULL), NULL));
}

static void functions_of_elements(void **state) {
  for (int k = 0; k < 2; k++) {
    on_pool = k;
    expect_goes_on(with_function("MapDataset", "square", range_of(0, 7, 1)));
    expect_goes_on(with_function("MapDataset", "fails_on_odd", range_of(0, 5, 1)));
    expect_goes_on(with_function("FilterDataset", "is_even", range_of(0, 9, 1)));
    expect_goes_on(with_function("TakeWhileDataset", "is_even", range_of(0, 9, 1)));
    expect_goes_on(with_function("FlatMapDataset", "count_up", range_of(0, 5, 1)));
    expect_goes_on(
        op("IgnoreErrorsDataset", ONE_INT, with_function("MapDataset", "fails_on_odd", range_of(0, 9, 1)), NULL));
    expect_goes_on(op("InterleaveDataset", "f: 'count_up'; Targuments: []; " ONE_INT, range_of(1, 5, 1), number(2),
                      number(2), NULL));
    expect_goes_on(parallel_map("square", range_of(0, 9, 1), 3));
    expect_goes_on(parallel_map("fails_on_odd", range_of(0, 5, 1), 2));
    expect_goes_on(op("PrefetchDataset", ONE_INT, parallel_map("square", range_of(0, 9, 1), 3), number(2), NULL));
    expect_goes_on(op("ParallelInterleaveDatasetV2", "f: 'count_up'; Targuments: []; " ONE_INT, range_of(1, 5, 1),
                      number(2), number(2), number(2), NULL));
    expect_goes_on(op("GroupByWindowDataset",
                      "key_func: 'parity'; window_size_func: 'two'; reduce_func: 'second'; "
                      "Tkey_func_other_arguments: []; Treduce_func_other_arguments: []; "
                      "Twindow_size_func_other_arguments: []; " ONE_INT,
                      range_of(0, 9, 1), NULL));
    expect_goes_on(op("GroupByReducerDataset",
                      "key_func: 'parity'; init_func: 'two'; reduce_func: 'sum'; finalize_func: 'square'; "
                      "Tkey_func_other_arguments: []; Tinit_func_other_arguments: []; "
                      "Treduce_func_other_arguments: []; Tfinalize_func_other_arguments: []; " ONE_INT,
                      range_of(0, 5, 1), NULL));
  }
  on_pool = false;
  expect_all_released();
}

static void shuffles_and_caches(void **state) {
  const char *fixed = "reshuffle_each_iteration: false; " ONE_INT;
  expect_goes_on(op("ShuffleDataset", fixed, range_of(0, 12, 1), number(4), number(7), number(3), NULL));
  expect_goes_on(
      op("ShuffleAndRepeatDataset", fixed, range_of(0, 4, 1), number(3), number(7), number(3), number(3), NULL));
  td_tensor *shuffled = op("ShuffleDataset", fixed, range_of(0, 5, 1), number(4), number(7), number(3), NULL);
  expect_goes_on(counted("RepeatDataset", shuffled, 3));
  expect_goes_on(counted("RepeatDataset", op("CacheDataset", ONE_INT, range_of(0, 4, 1), empty_string(), NULL), 2));
}

static void files(void **state) {
  char path[] = "/tmp/archive_test_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  static const char content[] = "one,1\ntwo,2\nthree,3\nfour,4\n";
  assert_int_equal(write(fd, content, sizeof content - 1), sizeof content - 1);
  close(fd);
  expect_goes_on(op("TextLineDataset", "", text_tensor(path), empty_string(), number(0), NULL));
  expect_goes_on(
      op("FixedLengthRecordDataset", "", text_tensor(path), number(0), number(9), number(0), number(0), NULL));
  expect_goes_on(op("CSVDataset", "output_types: [string, int64]; output_shapes: [unknown, unknown]", text_tensor(path),
                    empty_string(), number(64), boolean(false), text_tensor(","), boolean(true), empty_string(),
                    td_test_tensor(TD_INT64, "[0]", ""), empty_string(), number(8), NULL));
  expect_goes_on(op("MatchingFilesDataset", "", text_tensor(path), NULL));
  unlink(path);
}

/* A save takes its turn among requests, however busy those are who work ahead. */
static void saves_among_requests(void **state) {
  on_pool = true;
  for (int round = 0; round < 50; round++) {
    td_tensor *dataset =
        op("PrefetchDataset", ONE_INT,
           with_function("MapDataset", "square", parallel_map("square", range_of(0, 40, 1), 3)), number(2), NULL);
    td_driver *d = drive(td_tensor_retain(dataset), pool), *other;
    asked a[8];
    saver save = {.asked.request = {.done = asked_done, .destroy = asked_destroy, .use = use},
                  .archive.is_writing = true};
    pthread_mutex_init(&save.asked.lock, NULL);
    pthread_cond_init(&save.asked.cond, NULL);
    td_element *e;
    for (int i = 0; i < 8; i++) {
      if (i == round % 8) td_driver_next(d, &save.asked.request);
      ask(d, &a[i], NULL);
    }
    assert_null(answer(&save.asked, &e));
    td_strbuf bytes = save.archive.out;
    save.archive.out = (td_strbuf){0};
    td_archive_deinit(&save.archive); /* what it has paused goes on */
    for (int64_t i = 0; i < 8; i++) {
      assert_null(answer(&a[i], &e));
      assert_int_equal(*TD_DATA(e->values[0], int64_t), i * i * i * i);
      td_element_free(e);
    }
    assert_null(revive(dataset, td_strbuf_view(&bytes), pool, &other));
    td_strbuf_deinit(&bytes);
    for (int64_t i = round % 8; i < 40; i++) {
      assert_null(next(other, &e));
      assert_int_equal(*TD_DATA(e->values[0], int64_t), i * i * i * i);
      td_element_free(e);
    }
    td_driver_release(other);
    td_driver_release(d);
    td_tensor_release(dataset);
  }
  on_pool = false;
  expect_all_released();
}

/* Saving waits until nobody is at work, and can be cancelled; the iterator then goes on. */
static void busy_ones(void **state) {
  td_driver *d = drive(parallel_map("blocks", range_of(0, 5, 1), 2), pool);
  atomic_store(&blocked_calls, 0);
  asked a;
  td_element *e;
  td_cancellation *c = td_cancellation_create();
  ask(d, &a, c);
  while (atomic_load(&blocked_calls) < 2) usleep(100);
  td_cancellation_cancel(c);
  td_status s = answer(&a, &e);
  assert_int_equal(td_status_code(s), TD_CANCELLED);
  td_status_free(s);
  td_cancellation_release(c);
  c = td_cancellation_create();
  saver save = {.asked.request = {.cancellation = c, .done = asked_done, .destroy = asked_destroy, .use = use},
                .archive.is_writing = true};
  pthread_mutex_init(&save.asked.lock, NULL);
  pthread_cond_init(&save.asked.cond, NULL);
  td_driver_next(d, &save.asked.request);
  td_cancellation_cancel(c);
  s = answer(&save.asked, &e);
  assert_int_equal(td_status_code(s), TD_CANCELLED);
  td_status_free(s);
  td_archive_deinit(&save.archive);
  td_cancellation_release(c);
  td_driver_release(d);
  expect_all_released();
}

static void wrong_ones(void **state) {
  td_tensor *range = range_of(0, 5, 1), *take = counted("TakeDataset", range_of(0, 5, 1), 2);
  td_strbuf bytes;
  td_driver *d = drive(td_tensor_retain(range), NULL), *other;
  assert_null(save(d, &bytes));
  td_status s = revive(take, td_strbuf_view(&bytes), NULL, &other);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
  td_status_free(s);
  td_strbuf_deinit(&bytes);
  td_driver_release(other);
  td_driver_release(d);
  td_tensor_release(range);
  td_tensor_release(take);
}

/* The ops, with a value that has travelled. */
static void ops_of_iterators(void **state) {
  td_tensor *it = op("IteratorV2", "shared_name: 'saved'; container: ''; " ONE_INT, NULL);
  td_op_run save = {.op = "SerializeIterator", .device = device, .in = &it, .in_count = 1};
  td_assert_run_fails(&save, TD_FAILED_PRECONDITION, "Save() failed because the iterator has not been initialized.");
  td_tensor *in[] = {range_of(0, 9, 1), it};
  td_op_run make = {.op = "MakeIterator", .device = device, .in = in, .in_count = 2};
  td_op_run get = {.op = "IteratorGetNext", .attrs = ONE_INT, .device = device, .in = &it, .in_count = 1};
  assert_null(td_op_test_run(&make));
  for (int64_t i = 0; i < 3; i++) {
    get.out[0] = NULL;
    assert_null(td_op_test_run(&get));
    td_tensor_release(get.out[0]);
  }
  assert_null(td_op_test_run(&save));
  td_strbuf bytes = {0};
  td_tensor *saved;
  assert_null(td_tensor_encode(save.out[0], &bytes));
  assert_null(td_tensor_decode(td_strbuf_view(&bytes), &saved));
  assert_null(td_op_test_run(&make)); /* from the beginning */
  td_tensor *both[] = {it, saved};
  td_op_run restore = {.op = "DeserializeIterator", .device = device, .in = both, .in_count = 2};
  assert_null(td_op_test_run(&restore));
  get.out[0] = NULL;
  assert_null(td_op_test_run(&get));
  assert_int_equal(*TD_DATA(get.out[0], int64_t), 3);
  td_tensor_release(get.out[0]);
  td_tensor_release(saved);
  bytes.data[bytes.size - 1] ^= 1;
  assert_null(td_tensor_decode(td_strbuf_view(&bytes), &both[1]));
  td_assert_run_fails(&restore, TD_DATA_LOSS, "its checksum does not match");
  td_tensor_release(both[1]);
  both[1] = op("OptionalNone", NULL, NULL);
  td_assert_run_fails(&restore, TD_INVALID_ARGUMENT, "not an iterator's state");
  td_tensor_release(both[1]);
  td_strbuf_deinit(&bytes);
  td_tensor_release(save.out[0]);
  td_tensor_release(in[0]);
  td_tensor_release(it);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(choices),
      cmocka_unit_test(batches),
      cmocka_unit_test(functions_of_elements),
      cmocka_unit_test(shuffles_and_caches),
      cmocka_unit_test(files),
      cmocka_unit_test(saves_among_requests),
      cmocka_unit_test(busy_ones),
      cmocka_unit_test(wrong_ones),
      cmocka_unit_test(ops_of_iterators),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
