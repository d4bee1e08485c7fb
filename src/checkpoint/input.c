#include "checkpoint/input.h"

#include <limits.h>
#include <string.h>
#include <zlib.h>

#include "base/mem.h"

enum { STEP = 1 << 20 }; /* memory for bytes that are only promised grows by this, or doubles */

struct td_input {
  td_file file;
  td_compression compression;
  uint64_t file_at;  /* what is read from the file next */
  uint64_t position; /* of data[begin], in what the caller reads */
  char *data;        /* what is ready: [begin, end) */
  size_t capacity, begin, end;
  /* compressed files */
  char *packed; /* as it stands in the file: what z.next_in points into */
  z_stream z;
  bool has_z, z_ended;
};

bool td_compression_parse(td_str name, td_compression *out) {
  static const char *const names[] = {"", "ZLIB", "GZIP"};
  for (int i = 0; i < (int)TD_COUNT(names); i++) {
    if (!td_str_is(name, names[i])) continue;
    *out = (td_compression)i;
    return true;
  }
  return false;
}

static int window_bits(td_compression c) { return c == TD_COMPRESSION_GZIP ? MAX_WBITS + 16 : MAX_WBITS; }

td_status td_input_open(td_str name, td_compression compression, size_t buffer_size, td_input **out) {
  char *path;
  size_t capacity = buffer_size ? buffer_size : TD_INPUT_BUFFER;
  TD_TRY(td_file_path(name, &path));
  td_input *in = td_new(td_input);
  td_status status;
  TD_TRY_GOTO(td_file_open(&in->file, path));
  in->compression = compression;
  in->capacity = capacity;
  in->data = td_try_malloc(capacity);
  if (compression) in->packed = td_try_malloc(capacity);
  if (!in->data || (compression && !in->packed)) {
    status = td_resource_exhausted("%s: no memory for a buffer of %zu bytes", path, capacity);
    goto cleanup;
  }
  if (compression && inflateInit2(&in->z, window_bits(compression)) != Z_OK) {
    status = td_resource_exhausted("%s: no memory to inflate it", path);
    goto cleanup;
  }
  in->has_z = compression;
  *out = in;
cleanup:
  td_free(path);
  if (status) td_input_close(in);
  return status;
}

void td_input_close(td_input *in) {
  if (!in) return;
  if (in->has_z) inflateEnd(&in->z);
  td_file_deinit(&in->file);
  td_free(in->data);
  td_free(in->packed);
  td_free(in);
}

const char *td_input_path(const td_input *in) { return in->file.path; }
uint64_t td_input_tell(const td_input *in) { return in->position; }

/* ---- bytes ---- */

/* More of the file for zlib; nothing is left then. */
static td_status fill_packed(td_input *in) {
  size_t got;
  TD_TRY(td_file_read_some(&in->file, in->file_at, in->packed, TD_MIN(in->capacity, (size_t)INT_MAX), &got));
  in->file_at += got;
  in->z.next_in = (Bytef *)in->packed;
  in->z.avail_in = (uInt)got;
  return TD_STATUS_OK;
}

/* A gzip file may be several, one behind the other; behind a zlib stream nothing is looked at. */
static td_status next_member(td_input *in, bool *end) {
  *end = in->compression != TD_COMPRESSION_GZIP;
  if (*end) return TD_STATUS_OK;
  if (!in->z.avail_in) TD_TRY(fill_packed(in));
  *end = !in->z.avail_in;
  if (*end) return TD_STATUS_OK;
  inflateReset(&in->z);
  in->z_ended = false;
  return TD_STATUS_OK;
}

/* Inflates into `to`; *got 0 only at the end. */
static td_status inflate_some(td_input *in, char *to, size_t size, size_t *got) {
  uInt room = (uInt)TD_MIN(size, (size_t)INT_MAX);
  *got = 0;
  in->z.next_out = (Bytef *)to;
  in->z.avail_out = room;
  while (in->z.avail_out == room) {
    bool end = false;
    if (in->z_ended) TD_TRY(next_member(in, &end));
    if (!end && !in->z.avail_in) {
      TD_TRY(fill_packed(in));
      end = !in->z.avail_in;
    }
    if (end) return TD_STATUS_OK;
    int rc = inflate(&in->z, Z_NO_FLUSH);
    in->z_ended = rc == Z_STREAM_END;
    if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR) continue;
    return td_error(TD_DATA_LOSS, "%s: inflate() failed with error %d before offset %llu: %s", in->file.path, rc,
                    (unsigned long long)(in->file_at - in->z.avail_in), in->z.msg ? in->z.msg : "broken data");
  }
  *got = room - in->z.avail_out;
  return TD_STATUS_OK;
}

/* From the source to `to`, past the (empty) buffer; *got 0 only at the end. */
static td_status read_source(td_input *in, char *to, size_t size, size_t *got) {
  if (in->compression) return inflate_some(in, to, size, got);
  TD_TRY(td_file_read_some(&in->file, in->file_at, to, size, got));
  in->file_at += *got;
  return TD_STATUS_OK;
}

static td_status fill(td_input *in) {
  in->begin = in->end = 0;
  return read_source(in, in->data, in->capacity, &in->end);
}

static void take(td_input *in, size_t n) {
  in->begin += n;
  in->position += n;
}

td_status td_input_read(td_input *in, void *to, size_t size, size_t *got) {
  char *p = to;
  *got = 0;
  while (*got < size) {
    size_t wanted = size - *got, n;
    if (in->begin == in->end && wanted >= in->capacity) {
      TD_TRY(read_source(in, p + *got, wanted, &n));
      in->position += n;
    } else {
      if (in->begin == in->end) TD_TRY(fill(in));
      n = TD_MIN(wanted, in->end - in->begin);
      memcpy(p + *got, in->data + in->begin, n);
      take(in, n);
    }
    if (!n) return TD_STATUS_OK;
    *got += n;
  }
  return TD_STATUS_OK;
}

static td_status reserve(td_strbuf *b, size_t more, const char *path) {
  if (td_strbuf_try_reserve(b, more)) return TD_STATUS_OK;
  return td_resource_exhausted("%s: no memory for %zu bytes", path, b->size + more);
}

/* What a plain file still has is worth believing in; anything else has to be earned step by step. *out 0: the end. */
static td_status believable(td_input *in, uint64_t promised, size_t have, size_t *out) {
  uint64_t sure = TD_MAX((uint64_t)STEP, have);
  if (!in->compression && in->file.size > in->position) {
    sure = in->file.size - in->position;
  } else if (in->begin == in->end) {
    TD_TRY(fill(in));
    if (in->begin == in->end) sure = 0;
  }
  *out = (size_t)TD_MIN(TD_MIN(promised, sure), (uint64_t)SIZE_MAX / 2);
  return TD_STATUS_OK;
}

td_status td_input_append(td_input *in, uint64_t size, td_strbuf *to, uint64_t *got) {
  *got = 0;
  while (*got < size) {
    size_t wanted, n;
    TD_TRY(believable(in, size - *got, to->size, &wanted));
    if (!wanted) return TD_STATUS_OK;
    TD_TRY(reserve(to, wanted, in->file.path));
    TD_TRY(td_input_read(in, to->data + to->size, wanted, &n));
    to->size += n;
    to->data[to->size] = '\0';
    *got += n;
    if (n < wanted) return TD_STATUS_OK;
  }
  return TD_STATUS_OK;
}

/* ---- lines ---- */

static td_status append_without_returns(td_strbuf *line, const char *p, size_t n, const char *path) {
  TD_TRY(reserve(line, n, path));
  if (!memchr(p, '\r', n)) {
    memcpy(line->data + line->size, p, n);
    line->size += n;
  } else {
    for (size_t i = 0; i < n; i++)
      if (p[i] != '\r') line->data[line->size++] = p[i];
  }
  line->data[line->size] = '\0';
  return TD_STATUS_OK;
}

td_status td_input_line(td_input *in, td_strbuf *line, bool *end) {
  line->size = 0;
  *end = false;
  for (;;) {
    if (in->begin == in->end) TD_TRY(fill(in));
    size_t left = in->end - in->begin;
    const char *p = in->data + in->begin, *stop = left ? memchr(p, '\n', left) : NULL;
    if (!left) {
      *end = !line->size;
      return TD_STATUS_OK;
    }
    size_t n = stop ? (size_t)(stop - p) : left;
    TD_TRY(append_without_returns(line, p, n, in->file.path));
    take(in, stop ? n + 1 : n);
    if (stop) return TD_STATUS_OK;
  }
}

/* ---- places ---- */

static void rewind_packed(td_input *in) {
  inflateReset(&in->z);
  in->z.avail_in = 0;
  in->z_ended = false;
  in->file_at = in->position = 0;
  in->begin = in->end = 0;
}

td_status td_input_seek(td_input *in, uint64_t position) {
  if (position >= in->position && position - in->position <= in->end - in->begin) {
    take(in, (size_t)(position - in->position));
    return TD_STATUS_OK;
  }
  if (position < in->position && in->position - position <= in->begin) {
    in->begin -= (size_t)(in->position - position);
    in->position = position;
    return TD_STATUS_OK;
  }
  if (!in->compression) {
    in->file_at = in->position = position;
    in->begin = in->end = 0;
    return TD_STATUS_OK;
  }
  if (position < in->position) rewind_packed(in);
  while (in->position < position) {
    if (in->begin == in->end) TD_TRY(fill(in));
    if (in->begin == in->end) break;
    take(in, (size_t)TD_MIN(position - in->position, in->end - in->begin));
  }
  return TD_STATUS_OK;
}

/* ---- all at once ---- */

td_status td_input_whole_file(td_str name, td_strbuf *to) {
  td_input *in;
  uint64_t got;
  TD_TRY(td_input_open(name, TD_COMPRESSION_NONE, 4096, &in));
  td_status status = td_input_append(in, UINT64_MAX, to, &got);
  td_input_close(in);
  return status;
}

td_status td_inflate_bytes(td_str data, td_compression compression, size_t limit, td_strbuf *to) {
  z_stream z = {.next_in = (Bytef *)data.data};
  size_t left = data.size, begin = to->size, produced = 0;
  td_status status = TD_STATUS_OK;
  if (inflateInit2(&z, window_bits(compression)) != Z_OK) return td_resource_exhausted("No memory to inflate a string");
  for (int rc = Z_OK; rc != Z_STREAM_END && !status;) {
    if (!z.avail_in) {
      z.avail_in = (uInt)TD_MIN(left, (size_t)INT_MAX);
      left -= z.avail_in;
    }
    size_t room = TD_MIN(TD_MAX((size_t)4096, produced), (size_t)INT_MAX);
    TD_TRY_GOTO(reserve(to, room, "Inflating a string"));
    z.next_out = (Bytef *)to->data + begin + produced;
    z.avail_out = (uInt)room;
    rc = inflate(&z, Z_NO_FLUSH);
    produced += room - z.avail_out;
    to->size = begin + produced;
    to->data[to->size] = '\0';
    bool stuck = rc == Z_BUF_ERROR && !(z.avail_in || left);
    if (produced > limit)
      status = td_resource_exhausted("A compressed string of %zu bytes inflates to more than %zu", data.size, limit);
    else if ((rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) || stuck)
      status = td_error(TD_DATA_LOSS, "Cannot inflate a compressed string of %zu bytes: %s", data.size,
                        z.msg   ? z.msg
                        : stuck ? "it is cut off"
                                : "broken data");
  }
cleanup:
  inflateEnd(&z);
  return status;
}
