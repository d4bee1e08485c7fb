/* Compressed messages: gzip and zlib ("deflate"), with the inflated size capped while inflating. */
#ifndef TD_RPC_INFLATE_H_
#define TD_RPC_INFLATE_H_

#include "base/status.h"
#include "base/str.h"

typedef enum td_encoding { TD_ENCODING_IDENTITY, TD_ENCODING_GZIP, TD_ENCODING_DEFLATE } td_encoding;

/* By grpc-encoding's value; false when it is another one. */
bool td_encoding_parse(td_str name, td_encoding *out);

/* Inflates all of `in`. *out is the caller's to td_free(). RESOURCE_EXHAUSTED past `max` bytes or without memory,
 * INTERNAL for broken data. Blocks for as long as inflating takes: not for loop threads. */
td_status td_inflate(td_encoding encoding, td_str in, size_t max, char **out, size_t *out_size) TD_MUST_USE;

#endif /* TD_RPC_INFLATE_H_ */
