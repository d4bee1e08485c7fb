/* Every decoder of the tensor and message rooms; the first byte says which. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/mem.h"
#include "proto/config.pb-c.h"
#include "proto/master.pb-c.h"
#include "proto/message.h"
#include "proto/worker.pb-c.h"
#include "tensor/memory.h"
#include "tensor/tensor_proto.h"
#include "tensor/tensor_stream.h"

static void use_tensor(td_tensor *t) {
  char *text = td_tensor_summarize(t, 3);
  td_free(text);
  td_strbuf b = {0};
  td_status s = td_tensor_encode(t, &b);
  if (s) {
    td_status_free(s);
  } else { /* what is written can be read, and is the same */
    td_tensor *again = NULL;
    s = td_tensor_decode(td_strbuf_view(&b), &again);
    if (s && td_status_code(s) != TD_RESOURCE_EXHAUSTED) abort();
    if (again && (!td_tensor_same_shape(t, again) || t->dtype != again->dtype)) abort();
    td_status_free(s);
    td_tensor_release(again);
  }
  td_strbuf_deinit(&b);
  td_tensor_release(t);
}

static void whole(td_str in) {
  td_tensor *t = NULL;
  td_status s = td_tensor_decode(in, &t);
  td_status_free(s);
  if (t) use_tensor(t);
}

/* In pieces the result must be the one of the whole. */
static void pieces(td_str in) {
  td_tensor *t = NULL;
  td_tensor_stream stream;
  td_tensor_stream_init(&stream, in.size);
  td_status s = TD_STATUS_OK;
  while (in.size && !s) {
    size_t n = TD_MIN(in.size, (size_t)13), room;
    void *window = td_tensor_stream_window(&stream, &room);
    if (window) {
      n = TD_MIN(n, room);
      memcpy(window, in.data, n);
      td_tensor_stream_landed(&stream, n);
    } else {
      s = td_tensor_stream_feed(&stream, in.data, n);
    }
    in = (td_str){in.data + n, in.size - n};
  }
  if (!s) s = td_tensor_stream_finish(&stream, &t);
  td_status_free(s);
  td_tensor_stream_deinit(&stream);
  if (t) use_tensor(t);
}

static void message(const ProtobufCMessageDescriptor *type, td_str in) {
  td_arena arena = {0};
  ProtobufCMessage *m = NULL;
  td_status s = td_message_decode(type, in, &arena, &m);
  if (m) {
    td_strbuf b = {0};
    td_status_free(td_message_encode(m, &b));
    ProtobufCMessage *again;
    if (td_message_decode(type, td_strbuf_view(&b), &arena, &again)) abort();
    td_strbuf_deinit(&b);
  }
  td_status_free(s);
  if (m && type == &pb__tensor_proto__descriptor) {
    td_tensor *t = NULL;
    td_status_free(td_tensor_from_proto((Pb__TensorProto *)m, &t));
    if (t) use_tensor(t);
  }
  td_arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const ProtobufCMessageDescriptor *const types[] = {
      &pb__tensor_proto__descriptor,     &pb__graph_def__descriptor,         &pb__create_session_request__descriptor,
      &pb__run_step_request__descriptor, &pb__run_graph_request__descriptor, &pb__server_def__descriptor,
      &pb__attr_value__descriptor,
  };
  if (!size) return 0;
  td_memory_set_limit((size_t)64 << 20); /* a splat of 2 GiB is allowed; here it would only be slow */
  unsigned which = data[0] % (2 + TD_COUNT(types));
  td_str in = td_str_n(data + 1, size - 1);
  if (which == 0) {
    whole(in);
  } else if (which == 1) {
    pieces(in);
  } else {
    message(types[which - 2], in);
  }
  return 0;
}
