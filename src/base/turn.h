/* Turns: how long computation may hold a thread that serves others.
 *
 * A thread whose owner has more to do than to compute (an event loop) names a question here; long computations ask it
 * when their turn is over, and go on while nobody waits. Per thread; no locks.
 */
#ifndef TD_BASE_TURN_H_
#define TD_BASE_TURN_H_

#include <stdbool.h>

/* Says that the calling thread serves others: `is_wanted(arg)`, called on this thread only, tells whether any of them
 * waits. It may cost a system call. NULL: the thread serves nobody else any more. */
void td_turn_set_owner(bool (*is_wanted)(void *arg), void *arg);

/* Whether the calling thread has something else to do. A thread without an owner has: its turns end when they end. */
bool td_turn_is_wanted(void);

#endif /* TD_BASE_TURN_H_ */
