/* Unpacking of Snappy blocks, which old checkpoints hold. Written from the format's description. */
#ifndef TD_CHECKPOINT_SNAPPY_H_
#define TD_CHECKPOINT_SNAPPY_H_

#include "base/status.h"
#include "base/str.h"

/* The unpacked bytes, td_free()d by the caller. DATA_LOSS for malformed input (its offset in the block named);
 * memory is taken only as far as the input could fill it. */
td_status td_snappy_unpack(td_str packed, char **out, size_t *out_size) TD_MUST_USE;

#endif /* TD_CHECKPOINT_SNAPPY_H_ */
