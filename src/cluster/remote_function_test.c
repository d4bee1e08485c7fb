/* Functions on another task (TensorFlow's cluster_function_library_runtime): calls, errors, a task that comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/testing.h"
#include "cluster/remote_function.h"
#include "cluster/testing.h"
#include "framework/cancellation.h"
#include "ops/testing.h"

#define PS_DEVICE "/job:ps/replica:0/task:0/device:CPU:0"

static struct {
  td_test_cluster cluster;
  td_worker_session *ps, *worker;
  td_function_places places; /* of the worker's session */
  td_library *library;
  td_arena arena;
} fixture;

/* A function x: float -> y: float whose y is output z of node n, in td_test_graph()'s lines. */
static Pb__FunctionDef *function(const char *name, const char *nodes) {
  td_arena *a = &fixture.arena;
  Pb__FunctionDef *f = td_arena_new(a, Pb__FunctionDef);
  pb__function_def__init(f);
  f->signature = td_arena_new(a, Pb__OpDef);
  pb__op_def__init(f->signature);
  f->signature->name = td_arena_strdup(a, name);
  for (int is_output = 0; is_output < 2; is_output++) {
    Pb__OpDef__ArgDef **list = td_arena_array(a, Pb__OpDef__ArgDef *, 1);
    *list = td_arena_new(a, Pb__OpDef__ArgDef);
    pb__op_def__arg_def__init(*list);
    (*list)->name = is_output ? "y" : "x";
    (*list)->type = TD_FLOAT;
    *(is_output ? &f->signature->output_arg : &f->signature->input_arg) = list;
  }
  f->signature->n_input_arg = f->signature->n_output_arg = 1;
  Pb__GraphDef *graph = td_test_graph(a, nodes);
  f->node_def = graph->node;
  f->n_node_def = graph->n_node;
  f->ret = td_arena_array(a, Pb__StringEntry *, 1);
  f->ret[0] = td_arena_new(a, Pb__StringEntry);
  pb__string_entry__init(f->ret[0]);
  f->ret[0]->key = "y";
  f->ret[0]->value = "n:z:0";
  f->n_ret = 1;
  return f;
}

static int start(void **state) {
  td_test_cluster_start(&fixture.cluster, "ps 1 worker 1");
  fixture.ps = td_test_worker_session(fixture.cluster.servers[0], "s");
  fixture.worker = td_test_worker_session(fixture.cluster.servers[1], "s");
  fixture.places = td_session_places(fixture.worker);
  Pb__FunctionDef *functions[] = {
      function("twice", "n Add - x,x T: float\n"),
      function("odd",
               "c Const - - dtype: float; value: float [2] 1 2\n"
               "d Const - - dtype: float; value: float [3] 1 2 3\n"
               "n Add - c:output:0,d:output:0 T: float\n"),
  };
  Pb__FunctionDefLibrary library = PB__FUNCTION_DEF_LIBRARY__INIT;
  library.function = functions;
  library.n_function = TD_COUNT(functions);
  td_library *none = td_library_create();
  must(td_library_merge(none, &library, &fixture.library));
  td_library_release(none);
  return 0;
}

static int stop(void **state) {
  td_library_release(fixture.library);
  fixture.places.release(fixture.places.arg);
  td_worker_session_release(fixture.ps);
  td_worker_session_release(fixture.worker);
  td_test_cluster_stop(&fixture.cluster);
  td_arena_deinit(&fixture.arena);
  return 0;
}

static td_status create(const char *name, const char *device, td_remote_function **out) {
  Pb__NameAttrList call = PB__NAME_ATTR_LIST__INIT;
  call.name = (char *)name;
  return fixture.places.remote(fixture.places.arg, fixture.library, &call, td_str_of(device), out);
}

/* A call that is waited for. */
typedef struct waiting {
  td_function_call call;
  td_step step;
  td_latch latch;
  td_tensor *arg, *result;
} waiting;

static void called(td_function_call *call, td_status status, td_tensor **results, int count) {
  waiting *w = TD_CONTAINER_OF(call, waiting, call);
  if (!status && count == 1) {
    w->result = results[0];
    results[0] = NULL;
  }
  td_latch_done(&w->latch, status);
}

static void begin(waiting *w, td_remote_function *f, const char *value) {
  *w = (waiting){.arg = td_test_tensor(TD_FLOAT, "[]", value)};
  w->step.cancellation = td_cancellation_create();
  w->call = (td_function_call){.step = &w->step, .args = &w->arg, .arg_count = 1, .done = called};
  td_latch_init(&w->latch, 1);
  f->run(f, &w->call);
}

static td_status end(waiting *w) {
  td_status s = td_latch_wait(&w->latch);
  td_latch_deinit(&w->latch);
  td_tensor_release(w->arg);
  td_cancellation_release(w->step.cancellation);
  return s;
}

static void expect(waiting *w, const char *value) {
  must(end(w));
  td_assert_tensor(w->result, TD_FLOAT, "[]", value, 0);
  td_tensor_release(w->result);
}

static void test_calls_share_a_registration(void **state) {
  td_remote_function *f;
  waiting w[3];
  must(create("twice", PS_DEVICE, &f));
  begin(&w[0], f, "1"); /* these wait for the registration */
  begin(&w[1], f, "2");
  expect(&w[0], "2");
  expect(&w[1], "4");
  begin(&w[2], f, "-3");
  expect(&w[2], "-6");
  pthread_mutex_lock(&fixture.ps->lock);
  assert_int_equal(fixture.ps->graphs.count, 1);
  pthread_mutex_unlock(&fixture.ps->lock);
  while (td_test_step_count(&fixture.cluster, 0)) usleep(1000); /* every call was a step, and was cleaned up */
  f->release(f);
}

static void test_an_error_there_names_its_task(void **state) {
  td_remote_function *f;
  waiting w;
  must(create("odd", PS_DEVICE, &f));
  for (int i = 0; i < 2; i++) {
    begin(&w, f, "1");
    must_fail(end(&w), TD_INVALID_ARGUMENT, "From /job:ps/replica:0/task:0:\nIncompatible shapes: [2] vs. [3]");
  }
  f->release(f);
}

static void test_what_is_not_there(void **state) {
  td_remote_function *f;
  waiting w;
  must_fail(create("none", PS_DEVICE, &f), TD_NOT_FOUND, "Function none is not defined.");
  must_fail(create("twice", "/job:ps/replica:0/task:7/device:CPU:0", &f), TD_INVALID_ARGUMENT, "Could not find worker");
  must_fail(create("twice", TD_TEST_DEVICE, &f), TD_INVALID_ARGUMENT, "Could not find worker"); /* not a remote one */
  must(create("twice", PS_DEVICE, &f));
  begin(&w, f, "1");
  expect(&w, "2");
  waiting more = {.call = {.step = &w.step, .done = called}};
  td_latch_init(&more.latch, 1);
  f->run(f, &more.call); /* an argument too few */
  must_fail(td_latch_wait(&more.latch), TD_INVALID_ARGUMENT, "Function twice takes 1 arguments, 0 are given");
  td_latch_deinit(&more.latch);
  f->release(f);
}

static void test_a_cancelled_step_calls_nothing(void **state) {
  td_remote_function *f;
  must(create("twice", PS_DEVICE, &f));
  waiting w = {.arg = td_test_tensor(TD_FLOAT, "[]", "1")};
  w.step.cancellation = td_cancellation_create();
  w.call = (td_function_call){.step = &w.step, .args = &w.arg, .arg_count = 1, .done = called};
  td_latch_init(&w.latch, 1);
  td_cancellation_cancel(w.step.cancellation);
  f->run(f, &w.call);
  td_status s = end(&w);
  assert_true(td_status_is_derived(s));
  must_fail(s, TD_CANCELLED, "Function twice was cancelled");
  f->release(f);
}

/* A registration that failed is tried again by the next call. */
static void test_a_task_that_comes_back(void **state) {
  td_remote_function *f;
  waiting w;
  must(create("twice", PS_DEVICE, &f));
  td_worker_session_release(fixture.ps);
  td_test_cluster_stop_task(&fixture.cluster, 0);
  begin(&w, f, "1");
  must_fail(end(&w), TD_UNAVAILABLE, "");
  td_test_cluster_restart(&fixture.cluster, 0);
  fixture.ps = td_test_worker_session(fixture.cluster.servers[0], "s");
  td_status status;
  do { /* the channel may wait a moment before it connects anew */
    begin(&w, f, "4");
    status = end(&w);
    if (status) {
      assert_int_equal(td_status_code(status), TD_UNAVAILABLE);
      td_status_free(status);
      usleep(10000);
    }
  } while (!w.result);
  td_assert_tensor(w.result, TD_FLOAT, "[]", "8", 0);
  td_tensor_release(w.result);
  f->release(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_calls_share_a_registration), cmocka_unit_test(test_an_error_there_names_its_task),
      cmocka_unit_test(test_what_is_not_there),          cmocka_unit_test(test_a_cancelled_step_calls_nothing),
      cmocka_unit_test(test_a_task_that_comes_back),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
