/* Collectives among members of several tasks, all within this process: tasks reach each other through a net that looks
 * into the other's td_buf_rendezvous. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>

#include "base/mem.h"
#include "collective/layout.h"
#include "collective/op.h"

enum { MAX_TASKS = 4, MAX_MEMBERS = 12 };

typedef struct test_task {
  td_collective_step step; /* first */
  char name[64];
  td_cancellation *cancellation;
  td_buf_rendezvous *bufs;
  td_net net;
} test_task;

typedef struct member {
  td_collective c; /* first */
  struct cluster *cluster;
  td_device *device;
  td_resource *_Atomic resolved;
  td_collective_spec spec;
  td_status status;
  bool is_done;
} member;

typedef struct cluster {
  int task_count, member_count;
  test_task tasks[MAX_TASKS];
  member members[MAX_MEMBERS];
  td_resolver *resolver;
  td_pool *pool;
  pthread_mutex_t lock;
  pthread_cond_t changed;
} cluster;

/* ---- the net ---- */

typedef struct calls {
  td_net_calls base; /* first */
  atomic_uint refs;
  atomic_bool cancelled;
  cluster *cluster;
} calls;

typedef struct recv_call {
  td_buf_want want;
  calls *calls;
  td_recv_buf what;
  void (*done)(void *arg, td_status status);
  void *arg;
} recv_call;

static const td_net_ops net_ops;
static cluster *the_cluster;

static td_net_calls *net_open(td_net *net) {
  calls *c = td_new(calls);
  c->base.ops = &net_ops;
  c->cluster = the_cluster;
  atomic_init(&c->refs, 1);
  return &c->base;
}

static void net_release(td_net_calls *base) {
  calls *c = (calls *)base;
  if (atomic_fetch_sub(&c->refs, 1) == 1) td_free(c);
}

static void net_cancel(td_net_calls *base) { atomic_store(&((calls *)base)->cancelled, true); }

static void net_received(td_buf_want *want, td_status status, td_buf_offer *offer) {
  recv_call *r = TD_CONTAINER_OF(want, recv_call, want);
  if (!status && offer->size != r->what.size) status = td_internal("%zu bytes", offer->size);
  if (!status) memcpy(r->what.into, offer->data, offer->size);
  if (offer) td_buf_taken(offer);
  net_release(&r->calls->base);
  r->done(r->arg, status);
  td_free(r);
}

static void net_recv_buf(td_net_calls *base, const td_recv_buf *what, void (*done)(void *arg, td_status status),
                         void *arg) {
  calls *c = (calls *)base;
  recv_call *r = td_new(recv_call);
  *r = (recv_call){.want = {.done = net_received}, .calls = c, .what = *what, .done = done, .arg = arg};
  atomic_fetch_add(&c->refs, 1);
  for (int i = 0; i < c->cluster->task_count; i++)
    if (!strcmp(c->cluster->tasks[i].name, what->task)) {
      td_buf_rendezvous_want(c->cluster->tasks[i].bufs, what->key, &r->want);
      return;
    }
  fail_msg("no task %s", what->task);
}

static const td_net_ops net_ops = {
    .open = net_open, .cancel = net_cancel, .release = net_release, .recv_buf = net_recv_buf};

/* ---- the cluster ---- */

static td_buf_rendezvous *bufs_of(td_collective_step *s) { return td_buf_rendezvous_retain(((test_task *)s)->bufs); }

/* `devices`: of each task. `threads` 0: everything runs where it is triggered. */
static void cluster_init(cluster *c, int tasks, const int *devices, int threads) {
  memset(c, 0, sizeof *c);
  the_cluster = c;
  c->task_count = tasks;
  c->resolver = td_resolver_create(NULL);
  c->pool = threads ? td_pool_create("test", "test", threads) : NULL;
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  td_resource_mgr *resources = td_resource_mgr_create(TD_STR("worker"));
  for (int i = 0; i < tasks; i++) {
    test_task *t = &c->tasks[i];
    snprintf(t->name, sizeof t->name, "/job:worker/replica:0/task:%d", i);
    t->cancellation = td_cancellation_create();
    t->bufs = td_buf_rendezvous_create(7, t->cancellation);
    t->net.ops = &net_ops;
    t->step = (td_collective_step){.step_id = 7,
                                   .task = t->name,
                                   .resolver = c->resolver,
                                   .bufs = bufs_of,
                                   .cancellation = t->cancellation,
                                   .pool = c->pool,
                                   .net = tasks > 1 ? &t->net : NULL};
    td_collective_step_init(&t->step);
    for (int d = 0; d < devices[i]; d++) {
      td_device_name name = {.job = "worker", .type = "CPU", .task = i, .id = d};
      member *m = &c->members[c->member_count++];
      m->cluster = c;
      m->device = td_device_create(&name, 1, resources);
    }
  }
  td_resource_mgr_release(resources);
}

static void cluster_deinit(cluster *c) {
  if (c->pool) td_pool_destroy(c->pool);
  for (int i = 0; i < c->member_count; i++) {
    td_device_release(c->members[i].device);
    td_resource_release(c->members[i].resolved);
  }
  for (int i = 0; i < c->task_count; i++) {
    td_buf_rendezvous_close(c->tasks[i].bufs);
    td_cancellation_release(c->tasks[i].cancellation);
  }
  td_resolver_release(c->resolver);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
}

static void member_done(td_collective *base, td_status status) {
  member *m = (member *)base;
  cluster *c = m->cluster;
  pthread_mutex_lock(&c->lock);
  m->status = status;
  m->is_done = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static void add(const td_collective_spec *s, const void *from, void *into, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((double *)into)[i] += ((const double *)from)[i];
}

static void divide(const td_collective_spec *s, void *into, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((double *)into)[i] /= s->group_size;
}

static double value(int member, int64_t i) { return (member + 1) * 1000.0 + (double)i; }

/* Gives member `i` its part: an input of `count` doubles. */
static void prepare(cluster *c, int i, td_collective_type type, int64_t count, int source) {
  member *m = &c->members[i];
  m->spec.type = type;
  m->spec.group_key = 1;
  m->spec.instance_key = 2;
  m->spec.dtype = TD_DOUBLE;
  m->spec.group_size = c->member_count;
  m->spec.name = TD_STR("node: Test");
  m->spec.merge = add;
  m->spec.finish = divide;
  m->spec.is_source = i == source;
  m->is_done = false;
  m->c.spec = &m->spec;
  m->c.resolved = &m->resolved;
  m->c.device = m->device;
  m->c.step_id = 7;
  m->c.done = member_done;
  int64_t total = type == TD_COLLECTIVE_GATHER ? count * c->member_count : count;
  td_shape_vector(&m->c.shape, total);
  assert_null(td_tensor_create_dims(TD_DOUBLE, 1, &count, &m->c.input));
  for (int64_t k = 0; k < count; k++) TD_DATA(m->c.input, double)[k] = value(i, k);
  if (!m->spec.is_source) assert_null(td_tensor_create(TD_DOUBLE, &m->c.shape, &m->c.output));
  if (type == TD_COLLECTIVE_BROADCAST && !m->spec.is_source) {
    td_tensor_release(m->c.input);
    m->c.input = NULL;
  }
}

static void start(cluster *c, int i) {
  td_collectives *s = &c->tasks[c->members[i].device->parsed.task].step.base;
  s->run(s, &c->members[i].c);
}

static void await(cluster *c, int i) {
  pthread_mutex_lock(&c->lock);
  while (!c->members[i].is_done) pthread_cond_wait(&c->changed, &c->lock);
  pthread_mutex_unlock(&c->lock);
}

static void drop(cluster *c, int i) {
  td_tensor_release(c->members[i].c.input);
  td_tensor_release(c->members[i].c.output);
  c->members[i].c.input = c->members[i].c.output = NULL;
  td_status_free(c->members[i].status);
  c->members[i].status = NULL;
}

static void run_all(cluster *c) {
  for (int i = 0; i < c->member_count; i++) start(c, i);
  for (int i = 0; i < c->member_count; i++) await(c, i);
}

/* ---- results ---- */

static const int one[] = {1}, three[] = {3}, four[] = {1, 3}, six[] = {2, 2, 2}, nine[] = {4, 1, 3, 1};
static const struct {
  int tasks;
  const int *devices;
} layouts[] = {{1, one}, {1, three}, {2, four}, {3, six}, {4, nine}};

static void check_reduce(cluster *c, int64_t count) {
  for (int i = 0; i < c->member_count; i++) prepare(c, i, TD_COLLECTIVE_REDUCE, count, -1);
  run_all(c);
  for (int i = 0; i < c->member_count; i++) {
    assert_null(c->members[i].status);
    for (int64_t k = 0; k < count; k++) {
      double sum = 0;
      for (int j = 0; j < c->member_count; j++) sum += value(j, k);
      if (c->member_count > 1) sum /= c->member_count;
      assert_float_equal(TD_DATA(c->members[i].c.output, double)[k], sum, 1e-6);
    }
    drop(c, i);
  }
}

static void test_reduce(void **state) {
  static const int32_t offsets[] = {0, 1, -1};
  for (size_t l = 0; l < TD_COUNT(layouts); l++)
    for (int subdivs = 0; subdivs <= 3; subdivs++)
      for (int threads = 0; threads <= 4; threads += 4) {
        cluster c;
        cluster_init(&c, layouts[l].tasks, layouts[l].devices, threads);
        for (int i = 0; i < c.member_count; i++) {
          c.members[i].spec.subdiv_offsets = offsets;
          c.members[i].spec.subdiv_count = subdivs;
        }
        check_reduce(&c, 1003);
        check_reduce(&c, 5); /* the group is known by now; another size is fine if all have it */
        cluster_deinit(&c);
      }
}

static void test_gather(void **state) {
  for (size_t l = 0; l < TD_COUNT(layouts); l++) {
    cluster c;
    cluster_init(&c, layouts[l].tasks, layouts[l].devices, 3);
    for (int i = 0; i < c.member_count; i++) prepare(&c, i, TD_COLLECTIVE_GATHER, 13, -1);
    run_all(&c);
    for (int i = 0; i < c.member_count; i++) {
      assert_null(c.members[i].status);
      for (int64_t k = 0; k < 13 * c.member_count; k++)
        assert_true(TD_DATA(c.members[i].c.output, double)[k] == value((int)(k / 13), k % 13));
      drop(&c, i);
    }
    cluster_deinit(&c);
  }
}

static void test_broadcast(void **state) {
  for (size_t l = 0; l < TD_COUNT(layouts); l++)
    for (int source = 0;; source++) {
      cluster c;
      cluster_init(&c, layouts[l].tasks, layouts[l].devices, 3);
      bool last = source + 1 >= c.member_count;
      for (int i = 0; i < c.member_count; i++) prepare(&c, i, TD_COLLECTIVE_BROADCAST, 17, source);
      run_all(&c);
      for (int i = 0; i < c.member_count; i++) {
        assert_null(c.members[i].status);
        for (int64_t k = 0; i != source && k < 17; k++)
          assert_true(TD_DATA(c.members[i].c.output, double)[k] == value(source, k));
        drop(&c, i);
      }
      cluster_deinit(&c);
      if (last) break;
    }
}

/* ---- errors ---- */

static void expect(cluster *c, int i, td_code code, const char *text) {
  await(c, i);
  td_status s = c->members[i].status;
  assert_int_equal(td_status_code(s), code);
  if (!strstr(td_status_message(s), text)) fail_msg("\"%s\" lacks \"%s\"", td_status_message(s), text);
}

static void test_disagreement(void **state) {
  cluster c;
  cluster_init(&c, 1, three, 2);
  for (int i = 0; i < 3; i++) prepare(&c, i, TD_COLLECTIVE_GATHER, i == 2 ? 4 : 3, -1);
  for (int i = 0; i < 3; i++) start(&c, i);
  for (int i = 0; i < 3; i++) { /* whoever says it first is right; the others learn why */
    expect(&c, i, TD_INVALID_ARGUMENT, "Shape mismatch in the collective instance 2");
    drop(&c, i);
  }
  cluster_deinit(&c);

  cluster_init(&c, 1, three, 2);
  for (int i = 0; i < 3; i++) prepare(&c, i, TD_COLLECTIVE_REDUCE, 3, -1);
  c.members[1].spec.group_size = 2;
  start(&c, 0);
  start(&c, 1);
  expect(&c, 1, TD_INTERNAL, "has group_size 2 and group_key 1 but that group has size 3");
  td_cancellation_cancel(c.tasks[0].cancellation);
  expect(&c, 0, TD_CANCELLED, "cancelled");
  start(&c, 2);
  expect(&c, 2, TD_CANCELLED, "cancelled");
  for (int i = 0; i < 3; i++) drop(&c, i);
  cluster_deinit(&c);

  cluster_init(&c, 1, three, 0);
  for (int i = 0; i < 3; i++) prepare(&c, i, TD_COLLECTIVE_BROADCAST, 3, -1);
  for (int i = 0; i < 3; i++) start(&c, i);
  for (int i = 0; i < 3; i++) {
    expect(&c, i, TD_INTERNAL, "Instance 2 found no source for broadcast.");
    drop(&c, i);
  }
  cluster_deinit(&c);
}

static void test_cancel(void **state) {
  for (int round = 0; round < 60; round++) {
    cluster c;
    cluster_init(&c, 2, four, 3);
    for (int i = 0; i < 4; i++) prepare(&c, i, TD_COLLECTIVE_REDUCE, 4096, -1);
    for (int i = 0; i < 4; i++) {
      if (i == round % 5)
        for (int t = 0; t < 2; t++) td_cancellation_cancel(c.tasks[t].cancellation);
      start(&c, i);
    }
    for (int t = 0; t < 2; t++) td_cancellation_cancel(c.tasks[t].cancellation);
    for (int i = 0; i < 4; i++) {
      await(&c, i); /* it ends, whichever way */
      drop(&c, i);
    }
    cluster_deinit(&c);
  }
}

/* ---- the parts ---- */

static int done_count;
static td_code last_code;
static td_buf_offer *last_offer;

static void offered(td_buf_offer *o, td_status status) {
  done_count++;
  last_code = td_status_code(status);
  td_status_free(status);
}

static void wanted(td_buf_want *w, td_status status, td_buf_offer *o) {
  done_count++;
  last_code = td_status_code(status);
  last_offer = o;
  td_status_free(status);
}

static void test_buf_rendezvous(void **state) {
  td_cancellation *cancellation = td_cancellation_create();
  td_buf_rendezvous *r = td_buf_rendezvous_create(3, cancellation);
  td_buf_offer o = {.data = "x", .size = 1, .done = offered}, second = {.done = offered};
  td_buf_want w = {.done = wanted}, other = {.done = wanted};
  done_count = 0;
  td_buf_rendezvous_offer(r, TD_STR("a"), &o);
  assert_int_equal(done_count, 0);
  td_buf_rendezvous_offer(r, TD_STR("a"), &second);
  assert_int_equal(last_code, TD_INTERNAL);
  td_buf_rendezvous_want(r, TD_STR("a"), &w);
  assert_ptr_equal(last_offer, &o);
  td_buf_taken(last_offer);
  assert_int_equal(done_count, 3);
  td_buf_rendezvous_want(r, TD_STR("a"), &w);
  td_buf_rendezvous_want(r, TD_STR("a"), &other);
  assert_int_equal(last_code, TD_INTERNAL);
  assert_false(td_buf_rendezvous_withdraw(r, TD_STR("a"), &other));
  assert_true(td_buf_rendezvous_withdraw(r, TD_STR("a"), &w));
  td_buf_rendezvous_want(r, TD_STR("b"), &w);
  td_buf_rendezvous_offer(r, TD_STR("c"), &o);
  done_count = 0;
  td_cancellation_cancel(cancellation);
  assert_int_equal(done_count, 2);
  assert_int_equal(last_code, TD_ABORTED);
  td_buf_rendezvous_want(r, TD_STR("b"), &w);
  assert_int_equal(done_count, 3);
  td_buf_rendezvous_close(r);
  td_cancellation_release(cancellation);
}

static void test_chunks(void **state) {
  assert_int_equal(td_chunk_elements(8, 4, 2, true), 16);  /* 16 bytes grow to 64 */
  assert_int_equal(td_chunk_elements(32, 4, 2, true), 32); /* 64 grow to 128, as in TensorFlow */
  assert_int_equal(td_chunk_elements(1000, 8, 4, true), 256);
  assert_int_equal(td_chunk_elements(0, 4, 3, true), 16);
  assert_int_equal(td_chunk_elements(12, 4, 3, false), 4);
}

static void group_told(td_group_wait *w, td_status status, td_group *group) {
  done_count++;
  last_code = td_status_code(status);
  td_status_free(status);
}

static void test_groups(void **state) {
  td_groups *t = td_groups_create();
  td_group_wait waits[4] = {{.done = group_told}, {.done = group_told}, {.done = group_told}, {.done = group_told}};
  td_group_member m = {.key = 1, .size = 2, .device_type = TD_STR("CPU"), .name = TD_STR("n")};
  done_count = 0;
  m.device = TD_STR("not a device");
  td_groups_join(t, &m, &waits[0]);
  assert_int_equal(last_code, TD_INVALID_ARGUMENT);
  m.device = TD_STR("/job:w/replica:0/task:1/device:CPU:0");
  td_groups_join(t, &m, &waits[0]);
  td_groups_join(t, &m, &waits[1]); /* the same again: two steps of one member */
  assert_int_equal(done_count, 1);
  assert_true(td_groups_leave(t, 1, &waits[0]));
  assert_false(td_groups_leave(t, 1, &waits[0]));
  m.device = TD_STR("/job:w/replica:0/task:0/device:CPU:0");
  td_groups_join(t, &m, &waits[2]);
  assert_int_equal(done_count, 3);
  assert_int_equal(last_code, TD_OK);
  td_group *g = td_groups_find(t, 1);
  assert_int_equal(td_group_rank(g, m.device), 0);
  assert_int_equal(g->task_count, 2);
  td_group_release(g);
  m.device = TD_STR("/job:w/replica:0/task:2/device:CPU:0");
  td_groups_join(t, &m, &waits[3]);
  assert_int_equal(last_code, TD_INTERNAL);
  /* one that all have left has never been */
  m.key = 2;
  m.size = 3;
  td_groups_join(t, &m, &waits[0]);
  assert_true(td_groups_leave(t, 2, &waits[0]));
  m.size = 1;
  td_groups_join(t, &m, &waits[0]);
  assert_int_equal(last_code, TD_OK);
  td_groups_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reduce),       cmocka_unit_test(test_gather), cmocka_unit_test(test_broadcast),
      cmocka_unit_test(test_disagreement), cmocka_unit_test(test_cancel), cmocka_unit_test(test_buf_rendezvous),
      cmocka_unit_test(test_chunks),       cmocka_unit_test(test_groups),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
