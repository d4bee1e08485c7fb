#include "framework/step.h"

/* TensorFlow 2.x's Hash64Combine. */
static uint64_t combine(uint64_t a, uint64_t b) { return a ^ (b + 0x9e3779b97f4a7800ull + (a << 10) + (a >> 4)); }

td_frame_id td_frame_child(td_frame_id parent, td_str parent_path, td_str frame_name, td_strbuf *out_path) {
  size_t begin = out_path->size;
  td_strbuf_append(out_path, parent_path);
  td_strbuf_printf(out_path, ";%lld;", (long long)parent.iter);
  td_strbuf_append(out_path, frame_name);
  uint64_t name_hash = td_hash64(frame_name.data, frame_name.size);
  return (td_frame_id){
      .id_1x = td_hash64(out_path->data + begin, out_path->size - begin),
      .id_2x = combine(parent.id_2x, combine((uint64_t)parent.iter, name_hash)),
      .iter = 0,
  };
}
