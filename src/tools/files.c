#include "tools/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

td_status td_file_read(const char *what, const char *path, size_t max_bytes, td_strbuf *out) {
  FILE *f = fopen(path, "rb");
  if (!f) return td_invalid_argument("%s %s: %s", what, path, strerror(errno));
  td_status s = TD_STATUS_OK;
  char block[16384];
  size_t n, total = 0;
  errno = 0;
  while ((n = fread(block, 1, sizeof block, f)) && !s) {
    total += n;
    if (total > max_bytes)
      s = td_invalid_argument("%s %s: longer than %zu bytes", what, path, max_bytes);
    else
      td_strbuf_append(out, td_str_n(block, n));
  }
  if (!s && ferror(f)) s = td_invalid_argument("%s %s: %s", what, path, strerror(errno));
  fclose(f);
  return s;
}
