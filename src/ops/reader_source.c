#include "ops/reader_source.h"

#include <string.h>

#include "base/mem.h"
#include "checkpoint/record.h"

static td_status skip_lines(td_reader_source *s, int64_t n) {
  td_strbuf line = {0};
  td_status status = TD_STATUS_OK;
  for (bool end = false; s->number < n && !end && !status; s->number += !end)
    status = td_input_line(s->in, &line, &end);
  td_strbuf_deinit(&line);
  return status;
}

/* A header that is not all there is an error. */
static td_status skip_header(td_reader_source *s, int64_t n) {
  char last;
  size_t got = 1;
  if (!n) return TD_STATUS_OK;
  TD_TRY(td_input_seek(s->in, (uint64_t)n - 1));
  TD_TRY(td_input_read(s->in, &last, 1, &got));
  return got ? TD_STATUS_OK
             : td_error(TD_OUT_OF_RANGE, "%s ends within its header of %lld bytes", td_input_path(s->in), (long long)n);
}

td_status td_reader_source_open(td_reader_source *s, const td_reader_options *o, td_str name) {
  td_reader_source_close(s);
  if (o->kind == TD_READER_WHOLE_FILE || o->kind == TD_READER_IDENTITY) return TD_STATUS_OK;
  TD_TRY(td_input_open(name, o->compression, 0, &s->in));
  td_status status = o->kind == TD_READER_LINES          ? skip_lines(s, o->skip_lines)
                     : o->kind == TD_READER_FIXED_LENGTH ? skip_header(s, o->header)
                                                         : TD_STATUS_OK;
  if (status) td_reader_source_close(s);
  return status;
}

void td_reader_source_close(td_reader_source *s) {
  td_input_close(s->in);
  td_strbuf_deinit(&s->ahead);
  *s = (td_reader_source){0};
}

static void set_key(td_strbuf *key, td_str name, uint64_t number) {
  td_strbuf_append(key, name);
  td_strbuf_printf(key, ":%llu", (unsigned long long)number);
}

/* A record counts only if the footer's bytes follow it: the bytes of both are held before it is given. */
static td_status read_fixed(td_reader_source *s, const td_reader_options *o, td_strbuf *value, bool *end) {
  size_t hop = s->number ? (size_t)(o->hop ? o->hop : o->record) : 0;
  uint64_t window = (uint64_t)o->record + (uint64_t)o->footer, got;
  size_t drop = TD_MIN(hop, s->ahead.size);
  if (drop) memmove(s->ahead.data, s->ahead.data + drop, s->ahead.size - drop);
  s->ahead.size -= drop;
  if (hop > drop) TD_TRY(td_input_seek(s->in, td_input_tell(s->in) + (hop - drop)));
  if (s->ahead.size < window) TD_TRY(td_input_append(s->in, window - s->ahead.size, &s->ahead, &got));
  *end = s->ahead.size < window;
  if (*end) return TD_STATUS_OK;
  if (!td_strbuf_try_reserve(value, (size_t)o->record)) {
    return td_resource_exhausted("%s: no memory for a record of %lld bytes", td_input_path(s->in),
                                 (long long)o->record);
  }
  td_strbuf_append(value, td_str_n(s->ahead.data, (size_t)o->record));
  return TD_STATUS_OK;
}

td_status td_reader_source_read(td_reader_source *s, const td_reader_options *o, td_str name, td_strbuf *key,
                                td_strbuf *value, bool *produced, bool *at_end) {
  key->size = value->size = 0;
  *produced = *at_end = false;
  switch (o->kind) {
    case TD_READER_LINES:
      TD_TRY(td_input_line(s->in, value, at_end));
      set_key(key, name, (uint64_t)++s->number);
      break;
    case TD_READER_FIXED_LENGTH:
      TD_TRY(read_fixed(s, o, value, at_end));
      set_key(key, name, (uint64_t)s->number++);
      break;
    case TD_READER_RECORDS:
      set_key(key, name, td_input_tell(s->in));
      TD_TRY(td_record_read(s->in, value, at_end));
      break;
    case TD_READER_WHOLE_FILE:
      TD_TRY(td_input_whole_file(name, value));
      td_strbuf_append(key, name);
      break;
    case TD_READER_IDENTITY:
      td_strbuf_append(key, name);
      td_strbuf_append(value, name);
      break;
  }
  *produced = !*at_end;
  if (o->kind == TD_READER_WHOLE_FILE || o->kind == TD_READER_IDENTITY) *at_end = true;
  return TD_STATUS_OK;
}
