#include "cluster/recv_buf_receiver.h"

#include <stdatomic.h>
#include <sys/time.h>

#include "base/mem.h"
#include "proto/wire.h"

/* The messages within each other: RecvBufResponse, Any, RecvBufRespExtra; then a piece's bytes. */
enum { RESPONSE, ANY, EXTRA, PIECE };
static const uint32_t field_of_next[] = {[RESPONSE] = 4, [ANY] = 2, [EXTRA] = 1};

struct td_recv_buf_receiver {
  td_receiver base;
  atomic_uint refs;
  uint8_t head[2 * TD_WIRE_MAX_VARINT]; /* the next field's tag and number while they are incomplete */
  size_t head_size;
  size_t skip;            /* bytes of an uninteresting field still to come */
  int level;              /* in which message */
  size_t left[PIECE + 1]; /* of it and those around it, but the outermost */
  char *into;
  size_t size, filled; /* filled: what came, though it may be more than fits */
};

typedef td_recv_buf_receiver receiver;

td_receiver *td_recv_buf_receiver_base(receiver *r) { return &r->base; }

void td_recv_buf_receiver_release(receiver *r) {
  /* acq_rel: the last owner sees what the other wrote */
  if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1) td_free(r);
}

static void destroy(td_receiver *base) { td_recv_buf_receiver_release((receiver *)base); }

static td_status malformed(const char *what) { return td_invalid_argument("malformed RecvBufResponse: %s", what); }

/* `n` bytes of the message at hand are done; messages that end with them are left. */
static td_status consume(receiver *r, size_t n) {
  for (int i = 1; i <= r->level; i++) {
    if (r->left[i] < n) return malformed("a field is longer than its message");
    r->left[i] -= n;
  }
  while (r->level && !r->left[r->level] && !r->skip && !r->head_size) r->level--;
  return TD_STATUS_OK;
}

/* With a complete head. */
static td_status begin_field(receiver *r) {
  td_wire w = {r->head, r->head + r->head_size};
  uint32_t number;
  td_wire_type type;
  uint64_t value = 0;
  size_t n = r->head_size;
  if (!td_wire_read_tag(&w, &number, &type)) return malformed("bad field tag");
  if (type == TD_WIRE_FIXED32 || type == TD_WIRE_FIXED64)
    r->skip = type == TD_WIRE_FIXED32 ? 4 : 8;
  else if (!td_wire_read_varint(&w, &value))
    return malformed("bad field head");
  r->head_size = 0;
  if (type == TD_WIRE_BYTES && value > INT32_MAX) return malformed("a field is longer than a message may be");
  if (type == TD_WIRE_BYTES && number == field_of_next[r->level]) {
    int outer = r->level;
    if (outer && r->left[outer] < n + value) return malformed("a field is longer than its message");
    TD_TRY(consume(r, n));
    if (value) r->left[r->level = outer + 1] = (size_t)value;
    return TD_STATUS_OK;
  }
  if (type == TD_WIRE_BYTES) r->skip = (size_t)value;
  return consume(r, n);
}

static td_status feed_head(receiver *r, uint8_t byte) {
  if (r->head_size == sizeof r->head) return malformed("endless field head");
  r->head[r->head_size++] = byte;
  td_wire w = {r->head, r->head + r->head_size};
  uint32_t number;
  td_wire_type type;
  uint64_t value;
  if (!td_wire_read_tag(&w, &number, &type))
    return r->head_size >= 5 || !(byte & 0x80) ? malformed("bad field tag") : TD_STATUS_OK;
  if (type != TD_WIRE_FIXED32 && type != TD_WIRE_FIXED64 && !td_wire_read_varint(&w, &value)) return TD_STATUS_OK;
  return begin_field(r);
}

static td_status bytes(td_receiver *base, const void *data, size_t size) {
  receiver *r = (receiver *)base;
  const uint8_t *p = data;
  while (size) {
    size_t n = 1;
    if (r->level == PIECE) {
      n = TD_MIN(size, r->left[PIECE]);
      if (r->filled <= r->size) memcpy(r->into + r->filled, p, TD_MIN(n, r->size - r->filled));
      r->filled += n;
      TD_TRY(consume(r, n));
    } else if (r->skip) {
      n = TD_MIN(size, r->skip);
      r->skip -= n;
      TD_TRY(consume(r, n));
    } else {
      TD_TRY(feed_head(r, *p));
    }
    p += n, size -= n;
  }
  return TD_STATUS_OK;
}

static void *window(td_receiver *base, size_t *size) {
  receiver *r = (receiver *)base;
  if (r->level != PIECE || r->filled >= r->size) return NULL;
  *size = TD_MIN(r->left[PIECE], r->size - r->filled);
  return r->into + r->filled;
}

static td_status landed(td_receiver *base, size_t size) {
  receiver *r = (receiver *)base;
  r->filled += size;
  return consume(r, size);
}

receiver *td_recv_buf_receiver_create(void *into, size_t size) {
  static const td_receiver_ops ops = {.bytes = bytes, .window = window, .landed = landed, .destroy = destroy};
  receiver *r = td_new(receiver);
  r->base.ops = &ops;
  atomic_init(&r->refs, 2);
  r->into = into;
  r->size = size;
  return r;
}

td_status td_recv_buf_receiver_check(const receiver *r) {
  if (r->level || r->skip || r->head_size) return malformed("it ends in the middle of a field");
  if (r->filled != r->size)
    return td_internal("RecvBufResponse returned %zu bytes where to_tensor expected %zu", r->filled, r->size);
  return TD_STATUS_OK;
}

/* ---- sending ---- */

static void release_tensor(void *owner) { td_tensor_release(owner); }

void td_recv_buf_response_encode(td_tensor *owner, const void *data, size_t size, td_payload *out) {
  static const td_str type = TD_STR("type.googleapis.com/tensorflow.RecvBufRespExtra");
  td_strbuf head = {0};
  struct timeval now;
  gettimeofday(&now, NULL);
  size_t extra = size ? td_wire_header_size(1, size) + size : 0;
  size_t any = td_wire_header_size(1, type.size) + type.size + td_wire_header_size(2, extra) + extra;
  td_wire_put_uint(&head, 5, (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_usec);
  td_wire_put_header(&head, 4, any);
  td_wire_put_bytes(&head, 1, type);
  td_wire_put_header(&head, 2, extra);
  if (size) td_wire_put_header(&head, 1, size);
  td_payload_copy(out, head.data, head.size);
  td_strbuf_deinit(&head);
  if (size) td_payload_add(out, data, size, release_tensor, td_tensor_retain(owner));
}
