/* Writes a new file in pieces, from a thread of its own, while the caller makes the next piece: copying and checksums
 * cost about as much as the system's part of a write. Files of less than a piece are written by the caller.
 *
 * One caller at a time. After an error only td_write_behind_destroy() is left.
 */
#ifndef TD_CHECKPOINT_WRITE_BEHIND_H_
#define TD_CHECKPOINT_WRITE_BEHIND_H_

#include <stddef.h>

#include "base/status.h"
#include "checkpoint/file.h"

typedef struct td_write_behind td_write_behind;

/* `file`, an open one, is borrowed, and not for others until finish() or destroy(). */
td_write_behind *td_write_behind_create(td_new_file *file);
/* Where the file's next bytes go: *out_size > 0 of them. Waits while all pieces are on their way. Errors of an earlier
 * piece's write. */
td_status td_write_behind_room(td_write_behind *w, char **out, size_t *out_size) TD_MUST_USE;
/* Takes the first `size` bytes, at most *out_size, of what room() gave last. */
td_status td_write_behind_take(td_write_behind *w, size_t size) TD_MUST_USE;
/* Waits until all that was taken is written. Then only destroy(). */
td_status td_write_behind_finish(td_write_behind *w) TD_MUST_USE;
void td_write_behind_destroy(td_write_behind *w); /* without finish(): the file remains unfinished. NULL is fine */

#endif /* TD_CHECKPOINT_WRITE_BEHIND_H_ */
