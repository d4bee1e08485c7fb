#include "rpc/outgoing.h"

#include <string.h>

#include "base/mem.h"

enum { SPARE_MAX = 64 };

void td_out_queue_init(td_out_queue *q) {
  memset(q, 0, sizeof *q);
  q->unwritten_tail = &q->unwritten;
}

static void outgoing_free(td_out_queue *q, td_outgoing *o) {
  td_payload_deinit(&o->payload);
  if (q->spare_count >= SPARE_MAX) {
    td_free(o);
    return;
  }
  o->next = q->spare;
  q->spare = o;
  q->spare_count++;
}

static void release_written(td_out_queue *q) {
  while (q->unwritten && q->unwritten->end <= q->written) {
    td_outgoing *o = q->unwritten;
    q->unwritten = o->next;
    if (!q->unwritten) q->unwritten_tail = &q->unwritten;
    outgoing_free(q, o);
  }
}

void td_out_queue_abandon(td_out_queue *q) {
  q->written = UINT64_MAX;
  q->head = q->tail = 0;
  q->size = 0;
  release_written(q);
}

void td_out_queue_deinit(td_out_queue *q) {
  td_out_queue_abandon(q);
  while (q->spare) {
    td_outgoing *o = q->spare;
    q->spare = o->next;
    td_free(o);
  }
  td_free(q->arena);
}

/* ---- messages --------------------------------------------------------------------------------------------- */

static td_outgoing *outgoing_create(td_out_queue *q, td_payload *payload) {
  td_outgoing *o = q->spare;
  if (o) {
    q->spare = o->next;
    q->spare_count--;
    memset(o, 0, sizeof *o);
  } else {
    o = td_new(td_outgoing);
  }
  o->payload = *payload;
  *payload = (td_payload){0};
  o->left = o->payload.size;
  return o;
}

td_outgoing *td_outgoing_create_headed(td_out_queue *q, td_str head, td_payload *payload) {
  td_outgoing *o = outgoing_create(q, payload);
  size_t n = head.size + o->payload.size;
  o->prefix[1] = (unsigned char)(n >> 24);
  o->prefix[2] = (unsigned char)(n >> 16);
  o->prefix[3] = (unsigned char)(n >> 8);
  o->prefix[4] = (unsigned char)n;
  if (head.size) memcpy(o->prefix + 5, head.data, head.size);
  o->prefix_left = o->prefix_size = (unsigned char)(5 + head.size);
  o->left += o->prefix_size;
  return o;
}

td_outgoing *td_outgoing_create(td_out_queue *q, td_payload *payload, bool prefix) {
  return prefix ? td_outgoing_create_headed(q, (td_str){0}, payload) : outgoing_create(q, payload);
}

bool td_outgoing_recover(td_outgoing *o, td_payload *out) {
  if (o->left != o->payload.size + o->prefix_size) return false;
  *out = o->payload;
  o->payload = (td_payload){0};
  return true;
}

void td_outgoing_end(td_out_queue *q, td_outgoing *o) {
  if (!o) return;
  if (o->end <= q->written) {
    outgoing_free(q, o);
    return;
  }
  o->next = NULL;
  *q->unwritten_tail = o;
  q->unwritten_tail = &o->next;
}

size_t td_outgoing_frame(const td_outgoing *o, size_t max) {
  size_t total = o->prefix_left, copies = o->prefix_left, offset = o->offset;
  if (total >= max) return max;
  int pieces = 0;
  for (size_t i = o->segment; i < o->payload.count && pieces < TD_OUT_FRAME_SEGMENTS; i++) {
    size_t n = o->payload.segments[i].size - offset;
    offset = 0;
    if (!n) continue;
    pieces++;
    if (n <= TD_OUT_COPY) copies += n;
    if (copies > TD_OUT_FRAME_COPIES) break;
    total += n;
    if (total >= max) return max;
  }
  return total;
}

/* ---- queue ------------------------------------------------------------------------------------------------ */

static bool out_of_iov(const td_out_queue *q, int pieces) { return q->tail + pieces > TD_OUT_IOV; }

static void push(td_out_queue *q, const void *data, size_t size) {
  struct iovec *last = q->tail > q->head ? &q->iov[q->tail - 1] : NULL;
  if (last && (char *)last->iov_base + last->iov_len == (const char *)data) {
    last->iov_len += size;
  } else {
    q->iov[q->tail++] = (struct iovec){(void *)data, size};
  }
  q->size += size;
  q->queued += size;
}

bool td_out_queue_has_room(const td_out_queue *q) {
  /* A piece cut by the frame's end may be copied though it was not counted as a copy. */
  return !out_of_iov(q, 2 * TD_OUT_FRAME_SEGMENTS + 3) &&
         TD_OUT_ARENA - q->arena_size >= TD_OUT_FRAME_COPIES + TD_OUT_COPY + 9 + TD_OUT_PREFIX;
}

size_t td_out_queue_copy(td_out_queue *q, const void *data, size_t size) {
  if (!q->arena) q->arena = td_malloc(TD_OUT_ARENA);
  size = TD_MIN(size, TD_OUT_ARENA - q->arena_size);
  if (!size || out_of_iov(q, 1)) return 0;
  memcpy(q->arena + q->arena_size, data, size);
  push(q, q->arena + q->arena_size, size);
  q->arena_size += size;
  return size;
}

void td_out_queue_message(td_out_queue *q, td_outgoing *o, size_t size) {
  o->left -= size;
  if (o->prefix_left && size) {
    size_t n = TD_MIN(size, (size_t)o->prefix_left);
    td_out_queue_copy(q, o->prefix + o->prefix_size - o->prefix_left, n);
    o->prefix_left -= (unsigned char)n;
    size -= n;
  }
  while (size) {
    const td_segment *s = &o->payload.segments[o->segment];
    size_t n = TD_MIN(size, s->size - o->offset);
    const char *p = (const char *)s->data + o->offset;
    if (n > TD_OUT_COPY) {
      push(q, p, n);
      o->end = q->queued;
    } else if (n) {
      td_out_queue_copy(q, p, n);
    }
    o->offset += n;
    size -= n;
    if (o->offset == s->size) {
      o->segment++;
      o->offset = 0;
    }
  }
}

int td_out_queue_front(const td_out_queue *q, struct iovec *iov, size_t budget) {
  int n = 0;
  for (int i = q->head; i < q->tail && budget; i++) {
    iov[n] = q->iov[i];
    if (iov[n].iov_len > budget) iov[n].iov_len = budget;
    budget -= iov[n++].iov_len;
  }
  return n;
}

void td_out_queue_wrote(td_out_queue *q, size_t size) {
  q->size -= size;
  q->written += size;
  while (size) {
    struct iovec *v = &q->iov[q->head];
    if (size < v->iov_len) {
      v->iov_base = (char *)v->iov_base + size;
      v->iov_len -= size;
      break;
    }
    size -= v->iov_len;
    q->head++;
  }
  if (q->head == q->tail) {
    q->head = q->tail = 0;
    q->arena_size = 0;
  }
  release_written(q);
}
