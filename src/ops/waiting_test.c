/* Mutexes and staging areas: values, errors, bounds, cancellation, and many threads at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "framework/cancellation.h"
#include "framework/device.h"
#include "ops/testing.h"

static int setup(void **state) {
  *state = td_test_device();
  return 0;
}
static int teardown(void **state) {
  td_device_release(*state);
  return 0;
}

/* One node, with up to three inputs that stay the caller's. */
typedef struct call {
  td_op_run run;
  td_tensor *in[3];
  td_status status;
  pthread_t thread;
} call;

static void call_init(call *c, td_device *d, const char *op, const char *attrs, td_tensor *a, td_tensor *b,
                      td_tensor *e) {
  *c = (call){.in = {a, b, e}};
  c->run = (td_op_run){.op = op, .attrs = attrs, .device = d, .in = c->in, .in_count = e ? 3 : b ? 2 : a ? 1 : 0};
}
static void *call_main(void *arg) {
  call *c = arg;
  c->status = td_op_test_run(&c->run);
  return NULL;
}
static void call_start(call *c) { assert_int_equal(pthread_create(&c->thread, NULL, call_main, c), 0); }
static void call_end(call *c) {
  pthread_join(c->thread, NULL);
  if (c->status) fail_msg("%s: %s", c->run.op, td_status_message(c->status));
}

static td_tensor *run(td_device *d, const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *e) {
  call c;
  call_init(&c, d, op, attrs, a, b, e);
  td_assert_runs(&c.run);
  for (int i = 1; i < c.run.out_count; i++) td_tensor_release(c.run.out[i]);
  return c.run.out_count ? c.run.out[0] : NULL;
}

static void fails(td_device *d, const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *e,
                  td_code code, const char *text) {
  call c;
  call_init(&c, d, op, attrs, a, b, e);
  td_assert_run_fails(&c.run, code, text);
}

static td_tensor *ints(const char *shape, const char *values) { return td_test_tensor(TD_INT32, shape, values); }
static td_tensor *key(const char *value) { return td_test_tensor(TD_INT64, "[]", value); }

static void holds(td_tensor *t, td_dtype dtype, const char *shape, const char *values) {
  td_assert_tensor(t, dtype, shape, values, 0);
  td_tensor_release(t);
}

/* ---- mutexes ---- */

static td_tensor *mutex_handle(td_device *d) { return run(d, "MutexV2", "shared_name: 'm'", NULL, NULL, NULL); }

static void test_lock(void **state) {
  td_device *d = *state;
  td_tensor *h = mutex_handle(d);
  td_tensor *lock = run(d, "MutexLock", "", h, NULL, NULL);
  run(d, "ConsumeMutexLock", "", lock, NULL, NULL);
  call second;
  call_init(&second, d, "MutexLock", "", h, NULL, NULL);
  call_start(&second);
  usleep(20000);
  td_tensor_release(lock);
  call_end(&second);
  td_tensor_release(second.run.out[0]);
  td_tensor_release(run(d, "MutexLock", "", h, NULL, NULL));
  td_tensor_release(h);
}

static void test_lock_errors(void **state) {
  td_device *d = *state;
  td_tensor *h = mutex_handle(d), *none, *vector, *lock, *copy;
  assert_null(td_tensor_create_dims(TD_VARIANT, 0, NULL, &none));
  assert_null(td_tensor_create_dims(TD_VARIANT, 1, (int64_t[]){2}, &vector));
  TD_DATA(none, td_variant *)[0] = NULL;
  fails(d, "ConsumeMutexLock", "", none, NULL, NULL, TD_INVALID_ARGUMENT,
        "Expected input to contain a SharedLockReleaser object");
  fails(d, "ConsumeMutexLock", "", vector, NULL, NULL, TD_INVALID_ARGUMENT,
        "Expected input to be a scalar, saw shape: [2]");
  lock = run(d, "MutexLock", "", h, NULL, NULL);
  assert_null(td_tensor_copy(lock, &copy));
  fails(d, "ConsumeMutexLock", "", lock, NULL, NULL, TD_INVALID_ARGUMENT,
        "Expected use count of lock to be 1, but saw: 2");
  td_tensor_release(copy);
  td_tensor_release(lock);
  td_tensor_release(none);
  td_tensor_release(vector);
  td_tensor_release(h);
}

static void test_cancel(void **state) {
  td_device *d = *state;
  td_tensor *h = mutex_handle(d), *lock = run(d, "MutexLock", "", h, NULL, NULL);
  td_pool *pool = td_pool_create("test", NULL, 2);
  td_step step = {.id = 1, .pool = pool, .cancellation = td_cancellation_create()};
  call c[3];
  const char *ops[] = {"MutexLock", "Unstage", "MapUnstageNoKey"};
  td_tensor *index = ints("[1]", "0"), *in[] = {h, NULL, index};
  const char *attrs[] = {"", "dtypes: [float]", "dtypes: [float]"};
  for (int i = 0; i < 3; i++) {
    call_init(&c[i], d, ops[i], attrs[i], in[i], NULL, NULL);
    c[i].run.step = &step;
    call_start(&c[i]);
  }
  usleep(20000);
  td_cancellation_cancel(step.cancellation);
  for (int i = 0; i < 3; i++) {
    pthread_join(c[i].thread, NULL);
    assert_int_equal(td_status_code(c[i].status), TD_CANCELLED);
    td_status_free(c[i].status);
  }
  call_init(&c[0], d, "MutexLock", "", h, NULL, NULL);
  c[0].run.step = &step;
  td_assert_run_fails(&c[0].run, TD_CANCELLED, "Lock acquisition cancelled.");
  td_tensor_release(lock);
  td_cancellation_release(step.cancellation);
  td_pool_destroy(pool);
  td_tensor_release(index);
  td_tensor_release(h);
}

/* ---- staging ---- */

#define FLOATS "dtypes: [float, int32]; shared_name: 's'"

static void test_stage(void **state) {
  td_device *d = *state;
  td_tensor *f = td_test_tensor(TD_FLOAT, "[2]", "1 2"), *i = ints("[]", "7"), *zero = ints("[]", "0");
  td_tensor *minus = ints("[]", "-1");
  run(d, "Stage", FLOATS, f, i, NULL);
  holds(run(d, "StageSize", FLOATS, NULL, NULL, NULL), TD_INT32, "[]", "1");
  holds(run(d, "StagePeek", FLOATS, zero, NULL, NULL), TD_FLOAT, "[2]", "1 2");
  fails(d, "StagePeek", FLOATS, minus, NULL, NULL, TD_INVALID_ARGUMENT, "index must not be negative, got -1");
  fails(d, "StagePeek", "dtypes: [float]; shared_name: 's'", zero, NULL, NULL, TD_INVALID_ARGUMENT,
        "Mismatch stage/unstage: 2 vs. 1");
  fails(d, "StagePeek", "dtypes: [int32, int32]; shared_name: 's'", zero, NULL, NULL, TD_INVALID_ARGUMENT,
        "Output 0 is to be int32");
  holds(run(d, "Unstage", FLOATS, NULL, NULL, NULL), TD_FLOAT, "[2]", "1 2");
  for (int k = 0; k < 40; k++) run(d, "Stage", FLOATS, f, i, NULL);
  for (int k = 0; k < 25; k++) holds(run(d, "Unstage", FLOATS, NULL, NULL, NULL), TD_FLOAT, "[2]", "1 2");
  for (int k = 0; k < 40; k++) run(d, "Stage", FLOATS, f, i, NULL);
  holds(run(d, "StageSize", FLOATS, NULL, NULL, NULL), TD_INT32, "[]", "55");
  run(d, "StageClear", FLOATS, NULL, NULL, NULL);
  holds(run(d, "StageSize", FLOATS, NULL, NULL, NULL), TD_INT32, "[]", "0");
  td_tensor_release(f);
  td_tensor_release(i);
  td_tensor_release(zero);
  td_tensor_release(minus);
}

static void test_bounds(void **state) {
  td_device *d = *state;
  td_tensor *big = td_test_tensor(TD_FLOAT, "[4]", "1 2 3 4"), *small = td_test_tensor(TD_FLOAT, "[]", "5");
  const char *attrs = "dtypes: [float]; capacity: 2; memory_limit: 12; shared_name: 'b'";
  fails(d, "Stage", attrs, big, NULL, NULL, TD_RESOURCE_EXHAUSTED,
        "Attempted to insert tensors with combined size of '16' bytes into Staging Area with a memory limit of '12'.");
  run(d, "Stage", attrs, small, NULL, NULL);
  run(d, "Stage", attrs, small, NULL, NULL);
  call third;
  call_init(&third, d, "Stage", attrs, small, NULL, NULL);
  call_start(&third);
  usleep(20000);
  holds(run(d, "StageSize", attrs, NULL, NULL, NULL), TD_INT32, "[]", "2");
  holds(run(d, "Unstage", attrs, NULL, NULL, NULL), TD_FLOAT, "[]", "5");
  call_end(&third);
  holds(run(d, "StageSize", attrs, NULL, NULL, NULL), TD_INT32, "[]", "2");
  td_tensor_release(big);
  td_tensor_release(small);
}

#define PAIR "dtypes: [float, float]; shared_name: 'p'"
#define PART "dtypes: [float, float]; fake_dtypes: [float]; shared_name: 'p'"
#define ONE  "dtypes: [float]; shared_name: 'p'"

static void test_map(void **state) {
  td_device *d = *state;
  td_tensor *k1 = key("5"), *k2 = key("-3"), *first = ints("[1]", "0"), *second = ints("[1]", "1");
  td_tensor *f = td_test_tensor(TD_FLOAT, "[]", "1"), *g = td_test_tensor(TD_FLOAT, "[]", "2");
  run(d, "OrderedMapStage", PART, k1, first, f);
  fails(d, "OrderedMapStage", PART, k1, first, f, TD_INVALID_ARGUMENT,
        "The tensor for index '0' for key '5' was already initialized '2'.");
  holds(run(d, "OrderedMapIncompleteSize", PAIR, NULL, NULL, NULL), TD_INT32, "[]", "1");
  run(d, "OrderedMapStage", PART, k1, second, g);
  run(d, "OrderedMapStage", PART, k2, second, f);
  run(d, "OrderedMapStage", PART, k2, first, g);
  holds(run(d, "OrderedMapSize", PAIR, NULL, NULL, NULL), TD_INT32, "[]", "2");
  holds(run(d, "OrderedMapPeek", ONE, k1, second, NULL), TD_FLOAT, "[]", "2");
  holds(run(d, "OrderedMapUnstage", ONE, k1, second, NULL), TD_FLOAT, "[]", "2");
  fails(d, "OrderedMapUnstage", ONE, k1, second, NULL, TD_INVALID_ARGUMENT,
        "Tensor at index '1' for key '5' has already been removed.");
  holds(run(d, "OrderedMapUnstageNoKey", ONE, first, NULL, NULL), TD_INT64, "[]", "-3");
  run(d, "OrderedMapClear", PAIR, NULL, NULL, NULL);
  holds(run(d, "OrderedMapSize", PAIR, NULL, NULL, NULL), TD_INT32, "[]", "0");
  td_tensor *all[] = {k1, k2, first, second, f, g};
  for (size_t i = 0; i < TD_COUNT(all); i++) td_tensor_release(all[i]);
}

static void test_map_errors(void **state) {
  td_device *d = *state;
  td_tensor *k = key("1"), *keys = td_test_tensor(TD_INT64, "[2]", "1 2"),
            *no_key = td_test_tensor(TD_INT64, "[0]", "");
  td_tensor *none = ints("[0]", ""), *twice = ints("[2]", "1 1"), *far = ints("[1]", "2147483647");
  td_tensor *negative = ints("[1]", "-1"), *first = ints("[1]", "0"), *f = td_test_tensor(TD_FLOAT, "[]", "1");
  fails(d, "MapStage", PART, no_key, first, f, TD_INVALID_ARGUMENT, "key must not be empty");
  fails(d, "MapStage", PART, keys, first, f, TD_INVALID_ARGUMENT,
        "key must be an int64 scalar, got tensor with shape: [2]");
  fails(d, "MapStage", PART, k, none, f, TD_INVALID_ARGUMENT, "Indices are empty");
  fails(d, "MapStage", PART, k, twice, f, TD_INVALID_ARGUMENT, "Indices are not strictly ordered");
  fails(d, "MapStage", PART, k, far, f, TD_INVALID_ARGUMENT, "Index '2147483647' for key '1' was out of bounds '2'.");
  fails(d, "MapStage", PART, k, negative, f, TD_INVALID_ARGUMENT, "Index '-1' for key '1' was out of bounds '2'.");
  fails(d, "MapUnstage", PAIR, k, first, NULL, TD_INVALID_ARGUMENT, "output/indices size mismatch: 2 vs. 1");
  td_tensor *all[] = {k, keys, no_key, none, twice, far, negative, first, f};
  for (size_t i = 0; i < TD_COUNT(all); i++) td_tensor_release(all[i]);
}

/* ---- many threads ---- */

enum { THREADS = 8, ROUNDS = 150 };

typedef struct stress {
  td_device *device;
  td_step step;
  td_tensor *handle, *value, *key;
  int unguarded; /* changed only with the mutex held */
} stress;

static td_tensor *step_run(stress *s, const char *op, const char *attrs, td_tensor *a, td_tensor *b, td_tensor *e) {
  call c;
  call_init(&c, s->device, op, attrs, a, b, e);
  c.run.step = &s->step;
  td_assert_runs(&c.run);
  for (int i = 1; i < c.run.out_count; i++) td_tensor_release(c.run.out[i]);
  return c.run.out_count ? c.run.out[0] : NULL;
}

static void *lock_main(void *arg) {
  stress *s = arg;
  for (int i = 0; i < ROUNDS; i++) {
    td_tensor *lock = step_run(s, "MutexLock", "", s->handle, NULL, NULL);
    s->unguarded++;
    td_tensor_release(lock);
  }
  return NULL;
}
static void *put_main(void *arg) {
  stress *s = arg;
  td_tensor *index = ints("[1]", "0");
  for (int i = 0; i < ROUNDS; i++) {
    step_run(s, "Stage", "dtypes: [float]; capacity: 3; shared_name: 'x'", s->value, NULL, NULL);
    step_run(s, "MapStage", "dtypes: [float]; fake_dtypes: [float]; capacity: 3; shared_name: 'x'", s->key, index,
             s->value);
  }
  td_tensor_release(index);
  return NULL;
}
static void *get_main(void *arg) {
  stress *s = arg;
  for (int i = 0; i < ROUNDS; i++)
    td_tensor_release(step_run(s, "Unstage", "dtypes: [float]; capacity: 3; shared_name: 'x'", NULL, NULL, NULL));
  return NULL;
}

static void test_many_threads(void **state) {
  td_pool *pool = td_pool_create("test", NULL, 2);
  stress s = {.device = *state, .step = {.id = 1, .pool = pool, .cancellation = td_cancellation_create()}};
  s.handle = mutex_handle(s.device);
  s.value = td_test_tensor(TD_FLOAT, "[]", "5");
  s.key = key("1");
  pthread_t threads[THREADS];
  void *(*mains[])(void *) = {lock_main, put_main, lock_main, get_main};
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, mains[i % 4], &s), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(s.unguarded, THREADS / 2 * ROUNDS);
  td_cancellation_release(s.step.cancellation);
  td_pool_destroy(pool);
  td_tensor_release(s.handle);
  td_tensor_release(s.value);
  td_tensor_release(s.key);
}

/* Locks that are let go while their waiters are cancelled. */
static void *cancel_main(void *arg) {
  td_cancellation_cancel(arg);
  return NULL;
}
static void test_cancel_races(void **state) {
  td_device *d = *state;
  td_pool *pool = td_pool_create("test", NULL, 2);
  td_tensor *h = mutex_handle(d);
  for (int round = 0; round < 60; round++) {
    td_step step = {.id = 1, .pool = pool, .cancellation = td_cancellation_create()};
    td_tensor *lock = run(d, "MutexLock", "", h, NULL, NULL);
    call c[3];
    pthread_t canceller;
    for (int i = 0; i < 3; i++) {
      call_init(&c[i], d, "MutexLock", "", h, NULL, NULL);
      c[i].run.step = &step;
      call_start(&c[i]);
    }
    if (round % 2) usleep(1000);
    assert_int_equal(pthread_create(&canceller, NULL, cancel_main, step.cancellation), 0);
    td_tensor_release(lock);
    for (int left = 3, i = 0; left; i = (i + 1) % 3, left--) {
      pthread_join(c[i].thread, NULL);
      if (!c[i].status) td_tensor_release(c[i].run.out[0]);
      td_status_free(c[i].status);
    }
    pthread_join(canceller, NULL);
    td_cancellation_release(step.cancellation);
  }
  td_tensor_release(h);
  td_pool_destroy(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_lock, setup, teardown),
      cmocka_unit_test_setup_teardown(test_lock_errors, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
      cmocka_unit_test_setup_teardown(test_stage, setup, teardown),
      cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
      cmocka_unit_test_setup_teardown(test_map, setup, teardown),
      cmocka_unit_test_setup_teardown(test_map_errors, setup, teardown),
      cmocka_unit_test_setup_teardown(test_many_threads, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cancel_races, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
