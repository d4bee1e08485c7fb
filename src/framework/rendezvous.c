#include "framework/rendezvous.h"

#include <stdatomic.h>
#include <stdio.h>

#include "framework/device.h"

void td_rendezvous_key_make(td_arena *arena, td_str src_device, uint64_t src_incarnation, td_str dst_device,
                            td_str edge, td_rendezvous_key *out) {
  /* Not with "%.*s": a client's name may hold a NUL, and the parts below count on every byte. */
  size_t size = src_device.size + 18 + dst_device.size + 1 + edge.size;
  char *text = td_arena_alloc(arena, size + 1), *p = text;
  if (src_device.size) memcpy(p, src_device.data, src_device.size);
  p += src_device.size;
  p += snprintf(p, 19, ";%016llx;", (unsigned long long)src_incarnation);
  if (dst_device.size) memcpy(p, dst_device.data, dst_device.size);
  p += dst_device.size;
  *p++ = ';';
  if (edge.size) memcpy(p, edge.data, edge.size);
  text[size] = '\0';
  out->text = (td_str){text, size};
  out->hash = td_hash(text, size);
  out->src_device = (td_str){text, src_device.size};
  out->dst_device = (td_str){text + src_device.size + 18, dst_device.size};
  out->edge = (td_str){out->dst_device.data + dst_device.size + 1, edge.size};
  out->src_incarnation = src_incarnation;
}

td_status td_rendezvous_key_parse(td_str text, td_rendezvous_key *key, td_frame_id *frame) {
  td_str rest = text;
  key->src_device = td_str_split(&rest, ';');
  td_str incarnation = td_str_split(&rest, ';');
  key->dst_device = td_str_split(&rest, ';');
  key->edge = td_str_split(&rest, ';');
  td_str frame_id = td_str_split(&rest, ':');
  uint64_t id;
  int64_t iter;
  td_device_name src, dst;
  /* five parts: the last has no ';' because a number does not */
  if (!rest.data || !key->edge.size || !td_str_hex_to_u64(incarnation, &key->src_incarnation) ||
      !td_str_to_u64(frame_id, &id) || !td_str_to_i64(rest, &iter) || !td_device_name_parse(key->src_device, &src) ||
      !td_device_name_parse(key->dst_device, &dst) || !td_device_name_is_complete(&src))
    return td_invalid_argument("Invalid  rendezvous key: %.*s", TD_STR_ARG(text));
  key->text = (td_str){text.data, (size_t)(frame_id.data - text.data) - 1};
  key->hash = td_hash(key->text.data, key->text.size);
  *frame = (td_frame_id){id, id, iter};
  return TD_STATUS_OK;
}

void td_rendezvous_key_format(td_str text, td_frame_id frame, bool is_2x, td_strbuf *out) {
  uint64_t id = is_2x ? frame.id_2x : frame.id_1x;
  td_strbuf_append(out, text);
  if (id || frame.iter)
    td_strbuf_printf(out, ";%llu:%lld", (unsigned long long)id, (long long)frame.iter);
  else
    td_strbuf_append(out, TD_STR(";0:0")); /* outside loops, where most are */
}

td_rendezvous *td_rendezvous_retain(td_rendezvous *r) {
  atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
  return r;
}

void td_rendezvous_release(td_rendezvous *r) {
  /* acq_rel: the last owner sees every use before it destroys */
  if (r && atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1) r->ops->destroy(r);
}
