/* Tables from text files: one entry a line. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "ops/table.h"
#include "ops/text_number.h"

typedef struct reader {
  const char *path;
  const td_table_file_options *options;
  FILE *file;
  char *line; /* getline()'s */
  size_t capacity;
  int64_t lines, bytes;   /* read so far */
  td_tensor *key, *value; /* one element each */
  td_table_rows rows;
} reader;

static td_status check_columns(const td_table *t, const td_table_file_options *o) {
  const char *key = td_dtype_name(t->key_type), *value = td_dtype_name(t->value_type);
  if (o->key_index == TD_TABLE_LINE_NUMBER && t->key_type != TD_INT64)
    return td_invalid_argument("Key index for line number requires table key dtype of int64, got %s", key);
  if (o->key_index == TD_TABLE_WHOLE_LINE && t->key_type != TD_STRING && !td_dtype_in(t->key_type, TD_SET_INTEGER))
    return td_invalid_argument("Key index for whole line requires string or integer table key, got %s", key);
  if (o->value_index == TD_TABLE_LINE_NUMBER && t->value_type != TD_INT64)
    return td_invalid_argument("Value index for line number requires table value dtype of int64, got %s", value);
  if (o->value_index == TD_TABLE_WHOLE_LINE && t->value_type != TD_STRING)
    return td_invalid_argument("Value index for whole line requires table value dtype of string, got %s", value);
  return TD_STATUS_OK;
}

static td_status open_file(reader *r) {
  struct stat st;
  /* Not blocking: the name of a pipe must not hold the thread up. */
  int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    td_code code = errno == ENOENT ? TD_NOT_FOUND : errno == EACCES ? TD_PERMISSION_DENIED : TD_UNKNOWN;
    return td_error(code, "%s; %s", r->path, strerror(errno));
  }
  if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
    bool directory = S_ISDIR(st.st_mode);
    close(fd);
    return td_failed_precondition("%s; %s", r->path, directory ? "Is a directory" : "Not a regular file");
  }
  r->file = fdopen(fd, "r");
  if (!r->file) {
    close(fd);
    return td_resource_exhausted("OOM when opening %s", r->path);
  }
  return TD_STATUS_OK;
}

/* The next line without its end and without carriage returns; *end when there is none. */
static td_status next_line(reader *r, td_str *line, bool *end) {
  errno = 0;
  ssize_t n = getline(&r->line, &r->capacity, r->file);
  *end = n < 0;
  if (n < 0) {
    if (ferror(r->file) || errno == ENOMEM) return td_error(TD_UNKNOWN, "%s; %s", r->path, strerror(errno));
    return TD_STATUS_OK;
  }
  r->bytes += n;
  size_t size = 0;
  for (ssize_t i = 0; i < n; i++) {
    if (r->line[i] != '\r' && r->line[i] != '\n') r->line[size++] = r->line[i];
  }
  *line = td_str_n(r->line, size);
  return TD_STATUS_OK;
}

/* The part of the line that `index` means; false when there are too few. */
static bool column(td_str line, char delimiter, int64_t index, td_str *out, int64_t *columns) {
  const char *p = line.data, *end = line.data + line.size;
  for (*columns = 1;; ++*columns) {
    const char *stop = memchr(p, delimiter, (size_t)(end - p));
    *out = td_str_n(p, (size_t)((stop ? stop : end) - p));
    if (*columns == index + 1) return true;
    if (!stop) return false;
    p = stop + 1;
  }
}

static td_status set_element(reader *r, td_tensor *t, td_str line, int64_t index) {
  td_str text = line;
  int64_t columns;
  if (index == TD_TABLE_LINE_NUMBER) {
    TD_DATA(t, int64_t)[0] = (int64_t)((uint64_t)r->lines + (uint64_t)r->options->offset);
    return TD_STATUS_OK;
  }
  if (index >= 0 && !column(line, r->options->delimiter, index, &text, &columns)) {
    return td_invalid_argument("Invalid number of columns in %s line %lld (%.*s) : expected %lld got %lld", r->path,
                               (long long)r->lines, (int)TD_MIN(line.size, 1024), line.data,
                               (long long)TD_MAX(r->options->key_index, r->options->value_index), (long long)columns);
  }
  if (t->dtype == TD_STRING) return td_string_set(t->data, text);
  if (!td_dtype_in((td_dtype)t->dtype, TD_SET(TD_INT32) | TD_SET(TD_INT64) | TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE)))
    return td_invalid_argument("Data type %s not supported.", td_dtype_name(t->dtype));
  if (td_text_number(text, (td_dtype)t->dtype, t->data)) return TD_STATUS_OK;
  return td_invalid_argument("Field %.*s in line %lld is not a valid %s.", (int)TD_MIN(text.size, 1024), text.data,
                             (long long)r->lines, td_dtype_name(t->dtype));
}

static td_status add_line(reader *r, td_str line) {
  if (!line.size)
    return td_invalid_argument("Invalid content in %s: empty line found at position %lld.", r->path,
                               (long long)r->bytes);
  TD_TRY(set_element(r, r->key, line, r->options->key_index));
  TD_TRY(set_element(r, r->value, line, r->options->value_index));
  TD_TRY(td_table_rows_add_once(&r->rows, r->key, r->value, 0));
  r->lines++;
  return TD_STATUS_OK;
}

static td_status read_lines(reader *r) {
  int64_t limit = r->options->vocab_size;
  for (;;) {
    td_str line;
    bool end;
    TD_TRY(next_line(r, &line, &end));
    if (end && limit != -1 && r->lines != limit) {
      return td_invalid_argument("Invalid vocab_size in %s: expected %lld but got %lld", r->path, (long long)limit,
                                 (long long)r->lines);
    }
    if (end) return r->lines ? TD_STATUS_OK : td_error(TD_OUT_OF_RANGE, "eof");
    if (limit != -1 && r->lines >= limit) {
      if (r->lines) return TD_STATUS_OK;
      return td_error(TD_OUT_OF_RANGE, "Finished reading %lld of lines from %s", (long long)limit, r->path);
    }
    TD_TRY(add_line(r, line));
  }
}

td_status td_table_init_from_file(td_table *t, const char *path, const td_table_file_options *o) {
  reader r = {
      .path = path, .options = o, .rows = {.key_type = t->key_type, .value_type = t->value_type, .value_size = 1}};
  td_status status = TD_STATUS_OK;
  TD_TRY_GOTO(check_columns(t, o));
  TD_TRY_GOTO(open_file(&r));
  if (td_table_is_initialized(t)) goto cleanup;
  TD_TRY_GOTO(td_tensor_create_dims(t->key_type, 0, NULL, &r.key));
  TD_TRY_GOTO(td_tensor_create_dims(t->value_type, 0, NULL, &r.value));
  TD_TRY_GOTO(read_lines(&r));
  status = td_table_initialize(t, &r.rows, r.rows.count);
  if (status && td_table_is_initialized(t)) { /* another run was first */
    td_status_free(status);
    status = TD_STATUS_OK;
  }
cleanup:
  td_tensor_release(r.key);
  td_tensor_release(r.value);
  td_table_rows_deinit(&r.rows);
  if (r.file) fclose(r.file);
  free(r.line); /* getline()'s own */
  return status;
}
