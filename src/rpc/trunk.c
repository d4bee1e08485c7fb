#include "rpc/trunk.h"

#include <string.h>

static void put_u32(char *to, uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (char)(value >> 8 * i);
}

static uint32_t get_u32(const char *from) {
  const unsigned char *p = (const unsigned char *)from;
  return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static td_str behind(td_str s, size_t size) { return td_str_n(s.data + size, s.size - size); }

size_t td_trunk_request_head(char out[TD_TRUNK_HEAD], uint32_t slot, td_str path) {
  put_u32(out, slot);
  out[4] = (char)path.size;
  if (path.size) memcpy(out + 5, path.data, path.size);
  return 5 + path.size;
}

size_t td_trunk_answer_head(char out[TD_TRUNK_HEAD], uint32_t slot, td_code code, size_t text_size) {
  put_u32(out, slot);
  out[4] = (char)code;
  if (!code) return 5;
  put_u32(out + 5, (uint32_t)text_size);
  return 9;
}

td_status td_trunk_request_parse(td_str bytes, td_trunk_request *out) {
  size_t path_size = bytes.size < 5 ? 0 : (unsigned char)bytes.data[4];
  if (bytes.size < 5 + path_size || path_size > TD_TRUNK_PATH_MAX)
    return td_internal("A request of %zu bytes on a trunk has a path of %zu", bytes.size, path_size);
  *out = (td_trunk_request){get_u32(bytes.data), td_str_n(bytes.data + 5, path_size), behind(bytes, 5 + path_size)};
  return out->slot < TD_TRUNK_SLOTS
             ? TD_STATUS_OK
             : td_internal("A request on a trunk is for slot %u of %d", out->slot, TD_TRUNK_SLOTS);
}

td_status td_trunk_answer_parse(td_str bytes, td_trunk_answer *out) {
  if (bytes.size < 5) return td_internal("An answer on a trunk has %zu bytes", bytes.size);
  *out = (td_trunk_answer){.slot = get_u32(bytes.data), .code = (unsigned char)bytes.data[4]};
  if (out->slot >= TD_TRUNK_SLOTS)
    return td_internal("An answer on a trunk is for slot %u of %d", out->slot, TD_TRUNK_SLOTS);
  td_str rest = behind(bytes, 5);
  if (!out->code) {
    out->message = rest;
    return TD_STATUS_OK;
  }
  if (out->code > TD_UNAUTHENTICATED) out->code = TD_UNKNOWN;
  size_t text_size = rest.size < 4 ? 0 : get_u32(rest.data);
  if (rest.size < 4 || text_size > rest.size - 4)
    return td_internal("An answer of %zu bytes on a trunk has a text of %zu", bytes.size, text_size);
  out->text = td_str_n(rest.data + 4, text_size);
  out->details = behind(rest, 4 + text_size);
  return TD_STATUS_OK;
}
