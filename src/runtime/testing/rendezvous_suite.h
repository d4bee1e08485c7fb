/* What every rendezvous must do, as tests to be run against each implementation. */
#ifndef TD_RUNTIME_TESTING_RENDEZVOUS_SUITE_H_
#define TD_RUNTIME_TESTING_RENDEZVOUS_SUITE_H_

#include "framework/rendezvous.h"

/* `create` makes a fresh rendezvous (one reference) at which both ends meet. Asserts with cmocka. */
void td_rendezvous_suite(td_rendezvous *(*create)(void *arg), void *arg);

/* A receive that notes its outcome. */
typedef struct test_recv {
  td_recv request;
  _Atomic int done;
  td_status status;
  td_tensor *value;
  bool is_dead;
} test_recv;
void test_recv_start(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, test_recv *out);
void test_recv_deinit(test_recv *r);
/* A key of edge `edge` between two fixed devices, in `arena`. */
td_rendezvous_key test_key(td_arena *arena, const char *edge);

#endif /* TD_RUNTIME_TESTING_RENDEZVOUS_SUITE_H_ */
