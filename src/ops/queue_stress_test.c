/* Many clients of one queue at once, steps that are cancelled, a queue that is closed: nothing is lost, nothing comes
 * twice. QUEUE_STRESS_ROUNDS in the environment makes it longer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "framework/cancellation.h"
#include "framework/device.h"
#include "ops/testing.h"

enum { CLIENTS = 64, PRODUCERS = CLIENTS / 2, BATCH = 3, SHORT_ROUNDS = 100 };

/* What became of an operation's elements. */
typedef enum fate {
  NOT_SENT,
  ACCEPTED,
  REFUSED,
  PERHAPS /* a batch that was cancelled half-way: its first ones */
} fate;

typedef struct trial trial;

typedef struct client {
  trial *trial;
  int index;
  uint64_t random;
  pthread_t thread;
  pthread_mutex_t lock;
  td_cancellation *current; /* guarded by lock; of the operation that runs; NULL: none */
} client;

struct trial {
  td_device *device;
  td_tensor *queue;
  int rounds;
  fate *fates;       /* by operation: producer * rounds + round */
  int *sizes;        /* by operation: how many elements it brings */
  _Atomic int *seen; /* by element: operation * BATCH + position */
  _Atomic int operations;
  _Atomic bool is_over; /* for the canceller */
  client clients[CLIENTS];
};

static uint64_t draw(uint64_t *state) { /* xorshift64 */
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void publish(client *c, td_cancellation *next) {
  pthread_mutex_lock(&c->lock);
  td_cancellation *last = c->current;
  c->current = next;
  pthread_mutex_unlock(&c->lock);
  if (last) td_cancellation_release(last);
}

/* One operation, as a step of its own that may be cancelled; what comes out is noted. */
static td_status run(client *c, const char *op, const char *attrs, td_tensor *argument) {
  trial *t = c->trial;
  td_step step = {.id = c->index + 1, .cancellation = td_cancellation_create()};
  publish(c, step.cancellation);
  td_tensor *in[] = {t->queue, argument};
  td_op_run r = {.op = op, .attrs = attrs, .device = t->device, .step = &step, .in = in, .in_count = argument ? 2 : 1};
  td_status s = td_op_test_run(&r);
  publish(c, NULL);
  atomic_fetch_add(&t->operations, 1);
  for (int i = 0; i < r.out_count; i++) {
    for (int64_t k = 0; r.out[i] && k < r.out[i]->count; k++)
      atomic_fetch_add(&t->seen[TD_DATA(r.out[i], int32_t)[k]], 1);
    td_tensor_release(r.out[i]);
  }
  td_tensor_release(argument);
  return s;
}

static void *produce(void *arg) {
  client *c = arg;
  for (int round = 0; round < c->trial->rounds; round++) {
    int operation = c->index * c->trial->rounds + round;
    bool many = draw(&c->random) % 2;
    td_tensor *t = td_test_tensor(TD_INT32, many ? "[3]" : "[]", many ? "0 1 2" : "0");
    for (int64_t i = 0; i < t->count; i++) TD_DATA(t, int32_t)[i] += operation * BATCH;
    td_status s = run(c, many ? "QueueEnqueueManyV2" : "QueueEnqueueV2", "Tcomponents: [int32]", t);
    if (s) assert_int_equal(td_status_code(s), TD_CANCELLED);
    c->trial->sizes[operation] = many ? BATCH : 1;
    c->trial->fates[operation] = !s ? ACCEPTED : many ? PERHAPS : REFUSED;
    td_status_free(s);
  }
  return NULL;
}

static td_status consume_once(client *c) {
  static const char *const ops[] = {"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"};
  uint64_t kind = draw(&c->random) % 3;
  return run(c, ops[kind], "component_types: [int32]", kind ? td_test_tensor(TD_INT32, "[]", "2") : NULL);
}

/* Until the queue is closed and holds no more than a batch that is too small. */
static void *consume(void *arg) {
  client *c = arg;
  for (td_code code = TD_OK; code != TD_OUT_OF_RANGE;) {
    td_status s = consume_once(c);
    code = td_status_code(s);
    if (s && code != TD_OUT_OF_RANGE) assert_int_equal(code, TD_CANCELLED);
    td_status_free(s);
  }
  return NULL;
}

static void *cancel(void *arg) {
  trial *t = arg;
  uint64_t random = 88172645463325252u;
  while (!atomic_load(&t->is_over)) {
    client *c = &t->clients[draw(&random) % CLIENTS];
    td_cancellation *current = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->current) current = td_cancellation_retain(c->current);
    pthread_mutex_unlock(&c->lock);
    if (current) {
      td_cancellation_cancel(current);
      td_cancellation_release(current);
    }
    usleep(100);
  }
  return NULL;
}

static td_tensor *make_queue(td_device *d, const char *op, const char *attrs) {
  td_op_run r = {.op = op, .attrs = attrs, .device = d};
  assert_null(td_op_test_run(&r));
  return r.out[0];
}

/* What the last consumers left. */
static void drain(trial *t) {
  client *c = &t->clients[0];
  for (td_status s = TD_STATUS_OK; !s;) {
    s = run(c, "QueueDequeueUpToV2", "component_types: [int32]", td_test_tensor(TD_INT32, "[]", "100"));
    if (!s) continue;
    assert_int_equal(td_status_code(s), TD_OUT_OF_RANGE);
    td_status_free(s);
    break;
  }
}

/* How many operations were accepted. */
static int check_fates(const trial *t) {
  int accepted = 0;
  for (int i = 0; i < PRODUCERS * t->rounds; i++) {
    int count = 0;
    for (int k = 0; k < BATCH; k++) {
      int seen = atomic_load(&t->seen[i * BATCH + k]);
      assert_in_range(seen, 0, 1);
      if (seen) assert_int_equal(count, k); /* none before it is missing */
      count += seen;
    }
    assert_int_not_equal(t->fates[i], NOT_SENT);
    if (t->fates[i] == ACCEPTED) assert_int_equal(count, t->sizes[i]);
    if (t->fates[i] == REFUSED) assert_int_equal(count, 0);
    accepted += t->fates[i] == ACCEPTED;
  }
  return accepted;
}

static void start(trial *t) {
  for (int i = 0; i < CLIENTS; i++) {
    client *c = &t->clients[i];
    *c = (client){.trial = t, .index = i, .random = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1)};
    pthread_mutex_init(&c->lock, NULL);
  }
  for (int i = 0; i < CLIENTS; i++) {
    client *c = &t->clients[i];
    assert_int_equal(pthread_create(&c->thread, NULL, i < PRODUCERS ? produce : consume, c), 0);
  }
}

static void close_queue(trial *t, const char *attrs) {
  td_op_run r = {.op = "QueueCloseV2", .attrs = attrs, .device = t->device, .in = &t->queue, .in_count = 1};
  td_step step = {.id = 1};
  r.step = &step;
  assert_null(td_op_test_run(&r));
}

static void try_queue(td_device *d, const char *op, const char *attrs, const char *close_attrs) {
  const char *text = getenv("QUEUE_STRESS_ROUNDS");
  trial t = {.device = d, .rounds = text ? atoi(text) : SHORT_ROUNDS, .queue = make_queue(d, op, attrs)};
  size_t operations = (size_t)(PRODUCERS * t.rounds);
  t.fates = td_new_array(fate, operations);
  t.sizes = td_new_array(int, operations);
  t.seen = td_new_array(_Atomic int, operations *BATCH);
  pthread_t canceller;
  start(&t);
  assert_int_equal(pthread_create(&canceller, NULL, cancel, &t), 0);
  while (atomic_load(&t.operations) < (int)operations / 2) usleep(1000); /* closed in the midst of it */
  close_queue(&t, close_attrs);
  for (int i = 0; i < CLIENTS; i++) pthread_join(t.clients[i].thread, NULL);
  atomic_store(&t.is_over, true);
  pthread_join(canceller, NULL);
  drain(&t);
  assert_true(check_fates(&t) > 0);
  for (int i = 0; i < CLIENTS; i++) pthread_mutex_destroy(&t.clients[i].lock);
  td_tensor_release(t.queue);
  td_free(t.fates);
  td_free(t.sizes);
  td_free(t.seen);
}

#define OF_INTS "component_types: [int32]; shapes: [[]]; "

static void fifo(void **state) {
  try_queue(*state, "FIFOQueueV2", OF_INTS "capacity: 10; shared_name: 'fifo'", "cancel_pending_enqueues: false");
  try_queue(*state, "FIFOQueueV2", OF_INTS "capacity: 2; shared_name: 'fifo2'", "cancel_pending_enqueues: true");
}

static void shuffle(void **state) {
  try_queue(*state, "RandomShuffleQueueV2", OF_INTS "capacity: 16; min_after_dequeue: 3; shared_name: 'shuffle'",
            "cancel_pending_enqueues: false");
  try_queue(*state, "RandomShuffleQueueV2", OF_INTS "capacity: 8; min_after_dequeue: 1; shared_name: 'shuffle2'",
            "cancel_pending_enqueues: true");
}

static int setup(void **state) {
  *state = td_test_device();
  return 0;
}

static int teardown(void **state) {
  td_device_release(*state);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fifo), cmocka_unit_test(shuffle)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
