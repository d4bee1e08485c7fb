/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/connect.h"
#include "base/testing.h"

#include "graph/testing.h"

#define CLIENT "/job:w/replica:0/task:0/device:CPU:0"

/* A pruned graph with connections "from", "to", …, one feed at most and one fetch. */
static td_status prune(td_graph *g, const char *const *names, const char *feed, const char *fetch, td_graph **out) {
  td_connection connections[4];
  td_str feeds = td_str_of(feed ? feed : ""), fetches = td_str_of(fetch);
  td_prune_options o = {.feeds = &feeds,
                        .feed_count = feed != NULL,
                        .fetches = &fetches,
                        .fetch_count = 1,
                        .client_device = TD_STR(CLIENT),
                        .connections = connections};
  for (; names[2 * o.connection_count]; o.connection_count++)
    connections[o.connection_count] =
        (td_connection){td_str_of(names[2 * o.connection_count]), td_str_of(names[2 * o.connection_count + 1])};
  return td_graph_prune(g, &o, out);
}

#define GRAPH                          \
  "a = Placeholder() {dtype: float}\n" \
  "b = Neg(a) {T: float}\n"            \
  "c = Add(b, a) {T: float}\n"         \
  "p = Placeholder() {dtype: float}\n" \
  "q = Neg(p, ^p) {T: float}\n"        \
  "i = Placeholder() {dtype: int32}\n" \
  "r = Neg(q) {T: float}\n"

#define CONNECT(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect(const char *const *names, const char *feed, const char *fetch, const char *text) {
  td_graph *g = td_graph_test_graph(GRAPH), *p = NULL;
  td_arena a = {0};
  char *before = td_graph_test_print(g, &a);
  must(prune(g, names, feed, fetch, &p));
  assert_string_equal(td_graph_test_print(g, &a), before);
  td_graph_release(g);
  assert_string_equal(td_graph_test_print(p, &a), text);
  td_graph_release(p);
  td_arena_deinit(&a);
}

static void expect_error(const char *const *names, const char *feed, const char *fetch, td_code code,
                         const char *text) {
  td_graph *g = td_graph_test_graph(GRAPH), *p = NULL;
  td_status s = prune(g, names, feed, fetch, &p);
  assert_int_equal(td_status_code(s), code);
  assert_string_equal(td_status_message(s), text);
  td_status_free(s);
  td_graph_release(g);
}

static void test_readers_read_another(void **state) {
  expect(CONNECT("b:0", "p:0"), NULL, "q:0",
         "_identity_p_0 = Identity(b)\n_send_q_0 = _Send(q) @" CLIENT
         "\na = Placeholder()\nb = Neg(a)\nq = Neg(_identity_p_0, ^_identity_p_0)\n");
  expect(CONNECT("a:0", "b:0"), "a:0", "c:0", /* the connection reads a itself, c's other input what is fed */
         "_identity_b_0 = Identity(a)\n_recv_a_0 = _Recv() @" CLIENT "\n_send_c_0 = _Send(c) @" CLIENT
         "\na = Placeholder()\nc = Add(_identity_b_0, _recv_a_0)\n");
}

static void test_a_later_connection_leads_on(void **state) {
  expect(CONNECT("a:0", "q:0", "p:0", "a:0"), NULL, "r:0",
         "_identity_a_0 = Identity(p)\n_identity_q_0 = Identity(_identity_a_0)\n_send_r_0 = _Send(r) @" CLIENT
         "\np = Placeholder()\nr = Neg(_identity_q_0)\n");
  expect(CONNECT("p:0", "a:0", "a:0", "q:0"), NULL, "r:0", /* made before: q's reads a itself */
         "_identity_q_0 = Identity(a)\n_send_r_0 = _Send(r) @" CLIENT "\na = Placeholder()\nr = Neg(_identity_q_0)\n");
}

static void test_connections_that_cannot_be_made(void **state) {
  expect_error(CONNECT("nope:0", "p:0"), NULL, "q:0", TD_INVALID_ARGUMENT,
               "Requested tensor connection from unknown node: \"p:0\".");
  expect_error(CONNECT("a:17", "p:0"), NULL, "q:0", TD_INVALID_ARGUMENT,
               "Requested tensor connection from unknown edge: \"p:0\" (actual number of outputs = 1).");
  expect_error(CONNECT("a:0", "nope:0"), NULL, "q:0", TD_NOT_FOUND, "FeedInputs: unable to find feed output nope:0");
  expect_error(CONNECT("a:0", "p:3"), NULL, "q:0", TD_INVALID_ARGUMENT, "FeedInputs: p:3 should have output index < 1");
  expect_error(CONNECT("a:0", "p:0", "b:0", "p:0"), NULL, "q:0", TD_INVALID_ARGUMENT,
               "Endpoint \"p:0\" fed more than once.");
  expect_error(CONNECT("a:0", "p:0"), "p:0", "q:0", TD_INVALID_ARGUMENT, "Endpoint \"p:0\" fed more than once.");
  expect_error(CONNECT("a:0", "p:0"), NULL, "p:0", TD_INVALID_ARGUMENT, "p:0 is both fed and fetched.");
  td_graph *g = td_graph_test_graph(GRAPH), *p = NULL;
  td_status s = prune(g, CONNECT("i:0", "p:0"), NULL, "q:0", &p);
  assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT); /* another type */
  td_status_free(s);
  td_graph_release(g);
}

static void test_cycles(void **state) {
#define CYCLE(to, from) \
  TD_INVALID_ARGUMENT, "Requested Tensor connection between nodes \"" to "\" and \"" from "\" would create a cycle."
  expect_error(CONNECT("b:0", "a:0"), NULL, "c:0", CYCLE("a", "b"));
  expect_error(CONNECT("a:0", "a:0"), NULL, "c:0", CYCLE("a", "a"));
  expect_error(CONNECT("c:0", "p:0", "r:0", "b:0"), NULL, "c:0", CYCLE("b", "r"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_readers_read_another),
      cmocka_unit_test(test_a_later_connection_leads_on),
      cmocka_unit_test(test_connections_that_cannot_be_made),
      cmocka_unit_test(test_cycles),
  };
  td_graph_test_register();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
