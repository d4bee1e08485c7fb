/* Random numbers that need not repeat: handles, ids, incarnations, seeds. Thread-safe. */
#ifndef TD_BASE_RANDOM_H_
#define TD_BASE_RANDOM_H_

#include <stdint.h>

uint64_t td_random_u64(void); /* from the kernel's generator */
uint64_t td_random_u64_nonzero(void);
uint64_t td_random_fast_u64(void); /* a per-thread generator seeded from the kernel's: ids on the hot path */

#endif /* TD_BASE_RANDOM_H_ */
