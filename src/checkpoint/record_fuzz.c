/* TFRecord and text files from hostile bytes; the first byte chooses the compression and the buffer's size. Records are
 * also tried with their checksums set right, so that what lies behind them is reached. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/record.h"

static void put(const char *path, const void *data, size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  close(fd);
}

static void read_all(const char *path, td_compression c, size_t buffer, bool records) {
  td_input *in;
  td_strbuf item = {0};
  td_status s = td_input_open(td_str_of(path), c, buffer, &in);
  if (s) abort();
  uint64_t last = 0;
  for (bool end = false; !s && !end;) {
    s = records ? td_record_read(in, &item, &end) : td_input_line(in, &item, &end);
    if (td_input_tell(in) < last) abort();
    last = td_input_tell(in);
  }
  td_status_free(s);
  s = td_input_seek(in, last / 2);
  bool end;
  if (!s) s = td_input_line(in, &item, &end);
  td_status_free(s);
  td_strbuf_deinit(&item);
  td_input_close(in);
}

static void set_checksum(uint8_t *at, const uint8_t *data, size_t size) {
  uint32_t crc = td_crc32c_mask(td_crc32c(data, size));
  memcpy(at, &crc, 4);
}

static void set_checksums(uint8_t *p, size_t size) {
  while (size >= TD_RECORD_HEADER) {
    uint64_t length;
    memcpy(&length, p, 8);
    set_checksum(p + 8, p, 8);
    size -= TD_RECORD_HEADER;
    if (length > size || size - length < TD_RECORD_FOOTER) return;
    set_checksum(p + TD_RECORD_HEADER + length, p + TD_RECORD_HEADER, (size_t)length);
    size -= (size_t)length + TD_RECORD_FOOTER;
    p += TD_RECORD_HEADER + length + TD_RECORD_FOOTER;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64];
  if (!size) return 0;
  snprintf(path, sizeof path, "/tmp/td-record-fuzz-%d", (int)getpid());
  uint8_t *copy = td_malloc(size);
  memcpy(copy, data, size);
  td_compression c = (td_compression)(*data % 3);
  size_t buffer = *data / 3 % 2 ? 1 + *data / 6 : 0;
  put(path, copy + 1, size - 1);
  read_all(path, c, buffer, true);
  read_all(path, c, buffer, false);
  set_checksums(copy + 1, size - 1);
  put(path, copy + 1, size - 1);
  read_all(path, c, buffer, true);
  unlink(path);
  td_free(copy);
  return 0;
}
