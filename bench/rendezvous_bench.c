/* The rendezvous of one task: a tensor handed over, by who comes first and how many wait; one thread. And what a step
 * pays to have one. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "figure.h"
#include "runtime/local_rendezvous.h"

enum { MOST = 1000 };

typedef struct meeting {
  td_arena arena;
  td_rendezvous *rendezvous;
  td_rendezvous_key keys[MOST];
  td_recv requests[MOST];
  td_tensor *tensor;
  int count; /* keys in use */
  uint64_t received;
} meeting;

static const td_frame_id ROOT = {0};
static meeting *the; /* the program's only one */

static void must(td_status s) {
  if (!s) return;
  fprintf(stderr, "rendezvous_bench: %s\n", td_status_message(s));
  exit(2);
}

static void received(td_recv *r, td_status status, td_tensor *t, bool is_dead) {
  must(status);
  td_tensor_release(t);
  the->received++;
}

static void send_all(meeting *m) {
  for (int i = 0; i < m->count; i++)
    must(td_rendezvous_send(m->rendezvous, &m->keys[i], ROOT, td_tensor_retain(m->tensor), false));
}

static void recv_all(meeting *m) {
  for (int i = 0; i < m->count; i++) {
    m->requests[i] = (td_recv){.done = received};
    td_rendezvous_recv(m->rendezvous, &m->keys[i], ROOT, &m->requests[i]);
  }
}

static void send_first(void *arg) {
  send_all(arg);
  recv_all(arg);
}

static void recv_first(void *arg) {
  recv_all(arg);
  send_all(arg);
}

static void come_and_go(void *arg) { td_rendezvous_release(td_local_rendezvous_create()); }

static void measure(const char *name, void (*run)(void *), int count) {
  the->count = count;
  bench_measure(&(bench_case){name, run, the, count, BENCH_NS});
}

int main(int argc, char **argv) {
  bench_options(argc, argv);
  the = td_new(meeting);
  *the = (meeting){.rendezvous = td_local_rendezvous_create()};
  for (int i = 0; i < MOST; i++) {
    char edge[32];
    snprintf(edge, sizeof edge, "edge_%d_variable/read", i);
    td_rendezvous_key_make(&the->arena, TD_STR("/job:ps/replica:0/task:0/device:CPU:0"), 0x0123456789abcdef,
                           TD_STR("/job:worker/replica:0/task:0/device:CPU:0"), td_str_of(edge), &the->keys[i]);
  }
  must(td_tensor_create_dims(TD_FLOAT, 0, NULL, &the->tensor));
  measure("rendezvous/send then receive", send_first, 1);
  measure("rendezvous/receive then send", recv_first, 1);
  measure("rendezvous/send then receive, 1,000 keys", send_first, MOST);
  measure("rendezvous/receive then send, 1,000 keys", recv_first, MOST);
  measure("rendezvous/create and destroy", come_and_go, 1);
  td_tensor_release(the->tensor);
  td_rendezvous_release(the->rendezvous);
  td_arena_deinit(&the->arena);
  td_free(the);
  return 0;
}
