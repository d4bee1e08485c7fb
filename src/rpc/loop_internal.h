/* What the transport needs of a loop beyond loop.h. Loop thread only. */
#ifndef TD_RPC_LOOP_INTERNAL_H_
#define TD_RPC_LOOP_INTERNAL_H_

#include "rpc/loop.h"

enum { TD_LOOP_SCRATCH = 64 * 1024 };

/* Runs `work` after this turn's events, timers and posts. Work added while turn ends run belongs to the next turn,
 * which then comes without sleep: a connection with more to write than its budget goes on this way. */
void td_loop_at_turn_end(td_loop *l, td_work *work);

/* TD_LOOP_SCRATCH bytes for reading into; free to use until the caller returns to the loop. */
char *td_loop_scratch(td_loop *l);

/* Part of a call came (no mere ping): the loop spins for the next, and learns whether spinning pays. */
void td_loop_touch(td_loop *l);

uint64_t td_loop_now_ns(const td_loop *l); /* the clock at the start of the turn */

#endif /* TD_RPC_LOOP_INTERNAL_H_ */
