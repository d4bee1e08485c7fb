/* Files read from front to back, as they are or inflated on the way: bytes, lines, and places to come back to.
 *
 * A position counts the bytes that the caller reads (inflated ones). A file that grows is seen to grow: after its end
 * another read may find more. Everything here blocks: never call it on a loop thread. An input belongs to one thread
 * at a time.
 */
#ifndef TD_CHECKPOINT_INPUT_H_
#define TD_CHECKPOINT_INPUT_H_

#include "checkpoint/file.h"

typedef enum td_compression { TD_COMPRESSION_NONE, TD_COMPRESSION_ZLIB, TD_COMPRESSION_GZIP } td_compression;
/* By TensorFlow's names: "", "ZLIB", "GZIP"; false when it is another one. */
bool td_compression_parse(td_str name, td_compression *out);

typedef struct td_input td_input;

enum { TD_INPUT_BUFFER = 256 << 10 };

/* Opens file `name` (td_file_path()'s rules). `buffer_size` 0: TD_INPUT_BUFFER. Errors: td_file_open()'s. */
td_status td_input_open(td_str name, td_compression compression, size_t buffer_size, td_input **out) TD_MUST_USE;
void td_input_close(td_input *in);             /* NULL is fine */
const char *td_input_path(const td_input *in); /* borrowed */
uint64_t td_input_tell(const td_input *in);    /* where the next read begins */
/* Goes to a position, back or forth; one behind the end is the end. Back in a compressed file reads it anew. */
td_status td_input_seek(td_input *in, uint64_t position) TD_MUST_USE;

/* Up to `size` bytes; *got is less than that only at the end. DATA_LOSS with path and offset for broken compressed
 * data; data that are cut off end early, as in TensorFlow. */
td_status td_input_read(td_input *in, void *to, size_t size, size_t *got) TD_MUST_USE;
/* The same, appended to `to`, whose memory grows with what is really there: `size` may be any number.
 * RESOURCE_EXHAUSTED when there is no such memory. */
td_status td_input_append(td_input *in, uint64_t size, td_strbuf *to, uint64_t *got) TD_MUST_USE;
/* The next line into *line, without its end and without any '\r'; *end: there is none. */
td_status td_input_line(td_input *in, td_strbuf *line, bool *end) TD_MUST_USE;

/* All of a plain file, as it is now, appended to `to`; also of one whose size the system does not tell. */
td_status td_input_whole_file(td_str name, td_strbuf *to) TD_MUST_USE;

/* Inflates all of `data`, which came from somewhere else, appended to `to`; more than `limit` bytes are
 * RESOURCE_EXHAUSTED, broken data are DATA_LOSS. */
td_status td_inflate_bytes(td_str data, td_compression compression, size_t limit, td_strbuf *to) TD_MUST_USE;

#endif /* TD_CHECKPOINT_INPUT_H_ */
