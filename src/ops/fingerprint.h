/* FarmHash's Fingerprint64 (the "na" form of farmhash.h), which hashed feature columns and checkpoints of tables
 * depend on: the same value everywhere and for ever. */
#ifndef TD_OPS_FINGERPRINT_H_
#define TD_OPS_FINGERPRINT_H_

#include <stddef.h>
#include <stdint.h>

uint64_t td_fingerprint64(const void *data, size_t size); /* thread-safe; `data` may be NULL when size is 0 */

#endif /* TD_OPS_FINGERPRINT_H_ */
