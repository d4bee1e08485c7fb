#include "checkpoint/record.h"

#include <endian.h>
#include <string.h>

#include "checkpoint/crc32c.h"

static uint64_t fixed64(const char *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return le64toh(v);
}

static uint32_t fixed32(const char *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return le32toh(v);
}

static td_status lost(const td_input *in, const char *how, uint64_t offset) {
  return td_error(TD_DATA_LOSS, "%s record at %llu in %s", how, (unsigned long long)offset, td_input_path(in));
}

static td_status read_record(td_input *in, uint64_t begin, td_strbuf *record, bool *end) {
  char header[TD_RECORD_HEADER];
  size_t got;
  uint64_t length, read;
  TD_TRY(td_input_read(in, header, sizeof header, &got));
  *end = !got;
  if (*end) return TD_STATUS_OK;
  if (got < sizeof header) return lost(in, "truncated", begin);
  if (td_crc32c_unmask(fixed32(header + 8)) != td_crc32c(header, 8)) return lost(in, "corrupted", begin);
  length = fixed64(header);
  if (length > SIZE_MAX - TD_RECORD_FOOTER - 1) {
    return td_error(TD_DATA_LOSS, "record size too large at %llu in %s", (unsigned long long)begin, td_input_path(in));
  }
  TD_TRY(td_input_append(in, length + TD_RECORD_FOOTER, record, &read));
  if (!read) return lost(in, "truncated", begin);
  if (read < length + TD_RECORD_FOOTER) return lost(in, "truncated", begin + sizeof header);
  if (td_crc32c_unmask(fixed32(record->data + length)) != td_crc32c(record->data, (size_t)length)) {
    return lost(in, "corrupted", begin + sizeof header);
  }
  record->size = (size_t)length;
  record->data[length] = '\0';
  return TD_STATUS_OK;
}

td_status td_record_read(td_input *in, td_strbuf *record, bool *end) {
  uint64_t begin = td_input_tell(in);
  *end = false;
  record->size = 0;
  td_status status = read_record(in, begin, record, end);
  if (!status) return status;
  td_status back = td_input_seek(in, begin);
  td_status_free(back); /* the first error tells more */
  return status;
}

void td_record_append(td_strbuf *to, td_str record) {
  char header[TD_RECORD_HEADER];
  uint64_t length = htole64(record.size);
  memcpy(header, &length, 8);
  uint32_t crc = htole32(td_crc32c_mask(td_crc32c(header, 8)));
  memcpy(header + 8, &crc, 4);
  td_strbuf_append(to, td_str_n(header, sizeof header));
  td_strbuf_append(to, record);
  crc = htole32(td_crc32c_mask(td_crc32c(record.data, record.size)));
  td_strbuf_append(to, td_str_n(&crc, 4));
}
