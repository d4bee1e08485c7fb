#include "rpc/inflate.h"

#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/mem.h"

bool td_encoding_parse(td_str name, td_encoding *out) {
  static const char *const NAMES[] = {"identity", "gzip", "deflate"};
  for (int i = 0; i < (int)TD_COUNT(NAMES); i++) {
    if (!td_str_is(name, NAMES[i])) continue;
    *out = (td_encoding)i;
    return true;
  }
  return false;
}

/* Room for more of the result: doubles up to one byte past `max`, so that too large a result shows. */
static td_status grow(char **data, size_t *capacity, size_t max) {
  size_t want = *capacity ? *capacity * 2 : 16384;
  if (want > max + 1) want = max + 1;
  char *p = realloc(*data, want);
  if (!p) return td_resource_exhausted("No memory for an inflated message of %zu bytes or more", want);
  *data = p;
  *capacity = want;
  return TD_STATUS_OK;
}

td_status td_inflate(td_encoding encoding, td_str in, size_t max, char **out, size_t *out_size) {
  z_stream z = {0};
  char *data = NULL;
  size_t capacity = 0, size = 0;
  td_status status = TD_STATUS_OK;
  if (inflateInit2(&z, encoding == TD_ENCODING_GZIP ? 15 + 16 : 15) != Z_OK)
    return td_resource_exhausted("No memory to inflate a message");
  z.next_in = (Bytef *)in.data;
  size_t left = in.size;
  int rc = Z_OK;
  while (rc != Z_STREAM_END) {
    if (!z.avail_in) {
      z.avail_in = (uInt)TD_MIN(left, (size_t)INT_MAX);
      left -= z.avail_in;
    }
    if (size == capacity) TD_TRY_GOTO(grow(&data, &capacity, max));
    uInt room = (uInt)TD_MIN(capacity - size, (size_t)INT_MAX);
    z.next_out = (Bytef *)data + size;
    z.avail_out = room;
    rc = inflate(&z, Z_NO_FLUSH);
    size += room - z.avail_out;
    if (size > max) {
      status = td_resource_exhausted("Received message larger than max after inflating (more than %zu bytes)", max);
      goto cleanup;
    }
    bool stuck = rc == Z_BUF_ERROR && !(z.avail_in || left);
    if ((rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) || stuck) {
      status = td_internal("Cannot inflate a compressed message of %zu bytes: %s", in.size,
                           z.msg   ? z.msg
                           : stuck ? "it is cut off"
                                   : "broken data");
      goto cleanup;
    }
  }
  if (z.avail_in || left) {
    status = td_internal("Cannot inflate a compressed message of %zu bytes: bytes behind its end", in.size);
    goto cleanup;
  }
  *out = data;
  *out_size = size;
  data = NULL;
cleanup:
  inflateEnd(&z);
  free(data);
  return status;
}
