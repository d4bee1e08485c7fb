/* The rendezvous within one task: a sharded table of what was sent and what is waited for. */
#ifndef TD_RUNTIME_LOCAL_RENDEZVOUS_H_
#define TD_RUNTIME_LOCAL_RENDEZVOUS_H_

#include "framework/rendezvous.h"

/* A value sent inside a frame can be received under either dialect's frame id, once. Entries are capped (a step
 * that exceeds 1 Mi of waiting entries fails with RESOURCE_EXHAUSTED). One reference. */
td_rendezvous *td_local_rendezvous_create(void);

/* Withdraws a receive that has not completed: true, and done() will not run; false: it has run or is about to. */
bool td_local_rendezvous_cancel_recv(td_rendezvous *r, td_recv *request);

/* What is waited for, for status pages and logs: calls visit(arg, key text, waiting since). */
void td_local_rendezvous_visit_waiting(td_rendezvous *r, void (*visit)(void *arg, td_str key, uint64_t since_ns),
                                       void *arg);

#endif /* TD_RUNTIME_LOCAL_RENDEZVOUS_H_ */
