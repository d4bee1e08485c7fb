#include "rpc/incoming.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/mem.h"

enum { FIRST_HEAP = 64 * 1024 };

void td_incoming_init(td_incoming *in) { memset(in, 0, offsetof(td_incoming, small)); }

bool td_incoming_is_compressed(const td_incoming *in) { return in->prefix_size == 5 && in->prefix[0]; }

/* Compressed bytes are gathered first, whatever the receiver. */
static bool gathers(const td_incoming *in) { return (!in->receiver && !in->diverted) || td_incoming_is_compressed(in); }

/* Its first bytes are gathered, and divert() is to be asked about the rest. */
static bool awaits_head(const td_incoming *in) {
  return in->divert && !in->is_decided && in->size > TD_INCOMING_HEAD && !td_incoming_is_compressed(in);
}

/* ---- budgets ---------------------------------------------------------------------------------------------- */

static void give_back(td_incoming *in, int count, size_t size) {
  for (int i = 0; i < count; i++)
    if (in->budgets[i]) atomic_fetch_sub_explicit(&in->budgets[i]->used, size, memory_order_relaxed);
}

static td_status take(td_incoming *in, size_t size) {
  for (int i = 0; i < (int)TD_COUNT(in->budgets); i++) {
    td_gather_budget *b = in->budgets[i];
    if (!b) continue;
    size_t used = atomic_fetch_add_explicit(&b->used, size, memory_order_relaxed) + size;
    if (used <= b->max) continue;
    give_back(in, i + 1, size);
    return td_resource_exhausted("No room to buffer a message of %zu bytes: %zu of at most %zu bytes are in use",
                                 in->size, used - size, b->max);
  }
  return TD_STATUS_OK;
}

static size_t heap_capacity(const td_incoming *in) { return in->data == in->small ? 0 : in->capacity; }

/* ---- gathering -------------------------------------------------------------------------------------------- */

/* Room for at least one more byte. Grows with what came, never at once to what was announced. */
static td_status grow(td_incoming *in) {
  if (in->size <= sizeof in->small || awaits_head(in)) {
    in->data = in->small;
    in->capacity = sizeof in->small;
    return TD_STATUS_OK;
  }
  size_t have = heap_capacity(in), want = have ? have * 2 : FIRST_HEAP;
  if (want > in->size) want = in->size;
  TD_TRY(take(in, want - have));
  char *p = realloc(have ? in->data : NULL, want); /* past glibc's mmap threshold pages are moved, not copied */
  if (!p) {
    give_back(in, TD_COUNT(in->budgets), want - have);
    return td_resource_exhausted("No memory to buffer a message of %zu bytes", in->size);
  }
  if (!have) memcpy(p, in->small, in->got);
  in->data = p;
  in->capacity = want;
  return TD_STATUS_OK;
}

static td_status gather(td_incoming *in, const char *data, size_t size) {
  while (size) {
    if (in->got == in->capacity) TD_TRY(grow(in));
    size_t n = TD_MIN(size, in->capacity - in->got);
    if (data != in->data + in->got) memcpy(in->data + in->got, data, n);
    in->got += n;
    data += n;
    size -= n;
  }
  return TD_STATUS_OK;
}

static td_status receive(td_incoming *in, const char *data, size_t size) {
  bool landed = in->window && data == in->window && size <= in->window_size;
  in->window = NULL;
  in->got += size;
  td_receiver *r = in->diverted ? in->diverted : in->receiver;
  return landed ? r->ops->landed(r, size) : r->ops->bytes(r, data, size);
}

static void free_gathered(td_incoming *in) {
  size_t heap = heap_capacity(in);
  if (heap) give_back(in, TD_COUNT(in->budgets), heap);
  if (in->data != in->small) td_free(in->data);
  in->data = NULL;
  in->capacity = 0;
}

static td_status complete(td_incoming *in) {
  in->complete = true;
  if (!in->message) return TD_STATUS_OK;
  if (td_incoming_is_compressed(in)) return td_unimplemented("Received a compressed message on a stream");
  TD_TRY(in->message(in, in->diverted ? td_str_n(in->data, TD_INCOMING_HEAD) : td_incoming_message(in)));
  free_gathered(in);
  in->diverted = NULL;
  in->complete = in->began = in->is_decided = false;
  in->prefix_size = 0;
  in->size = in->got = 0;
  return TD_STATUS_OK;
}

static td_status begin(td_incoming *in) {
  const unsigned char *p = in->prefix;
  in->size = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
  in->began = true;
  if (p[0] > 1) return td_internal("Received a message with compression flag %d", p[0]);
  if (p[0] && in->encoding == TD_ENCODING_IDENTITY)
    return td_internal("Received a compressed message without a grpc-encoding");
  if (in->size > in->max)
    return td_resource_exhausted("Received message larger than max (%zu vs. %zu)", in->size, in->max);
  if (!gathers(in) && in->receiver->ops->begin) TD_TRY(in->receiver->ops->begin(in->receiver, in->size));
  return in->size ? TD_STATUS_OK : complete(in);
}

td_status td_incoming_feed(td_incoming *in, const char *data, size_t size) {
  while (size && !in->is_over) {
    if (in->complete) return td_internal("Received more than one message on a unary call");
    if (!in->began) {
      size_t n = TD_MIN(size, sizeof in->prefix - in->prefix_size);
      memcpy(in->prefix + in->prefix_size, data, n);
      in->prefix_size += (unsigned char)n;
      data += n;
      size -= n;
      if (in->prefix_size == sizeof in->prefix) TD_TRY(begin(in));
      continue;
    }
    size_t n = TD_MIN(size, (awaits_head(in) ? TD_INCOMING_HEAD : in->size) - in->got);
    TD_TRY(gathers(in) ? gather(in, data, n) : receive(in, data, n));
    data += n;
    size -= n;
    if (in->got == TD_INCOMING_HEAD && awaits_head(in)) {
      in->is_decided = true;
      in->diverted = in->divert(in, td_incoming_message(in));
    }
    if (in->got == in->size) TD_TRY(complete(in));
  }
  return TD_STATUS_OK;
}

char *td_incoming_window(td_incoming *in, size_t *size) {
  if (!in->began || in->complete || in->is_over || awaits_head(in)) return NULL;
  size_t left = in->size - in->got;
  if (gathers(in)) {
    if (in->got == in->capacity) {
      td_status s = grow(in);
      if (s) { /* the same failure shows when the bytes are fed */
        td_status_free(s);
        return NULL;
      }
    }
    *size = in->capacity - in->got;
    if (*size > left) *size = left;
    return in->data + in->got;
  }
  td_receiver *r = in->diverted ? in->diverted : in->receiver;
  if (!r->ops->window) return NULL;
  if (!in->window || in->diverted) { /* who takes a diverted message may have gone since */
    in->window_size = left;
    in->window = r->ops->window(r, &in->window_size);
    if (!in->window || !in->window_size) {
      in->window = NULL;
      return NULL;
    }
    if (in->window_size > left) in->window_size = left;
  }
  *size = in->window_size;
  return in->window;
}

td_status td_incoming_check(const td_incoming *in) {
  if (in->complete || (in->message && !in->prefix_size)) return TD_STATUS_OK;
  if (!in->prefix_size) return td_internal("The stream ended without a message");
  if (!in->began) return td_internal("The stream ended after %d bytes of a message's prefix", in->prefix_size);
  return td_internal("The stream ended after %zu of a message's %zu bytes", in->got, in->size);
}

td_status td_incoming_replace(td_incoming *in, char *data, size_t size) {
  give_back(in, TD_COUNT(in->budgets), heap_capacity(in));
  if (in->data != in->small) td_free(in->data);
  in->data = data;
  in->got = in->size = in->capacity = size;
  td_status s = take(in, size);
  if (s) in->capacity = 0; /* nothing to give back */
  if (s || !in->receiver) return s;
  td_receiver *r = in->receiver;
  if (r->ops->begin) TD_TRY(r->ops->begin(r, size));
  return size ? r->ops->bytes(r, data, size) : TD_STATUS_OK;
}

void td_incoming_deinit(td_incoming *in) {
  free_gathered(in);
  in->is_over = true;
  if (in->receiver && in->receiver->ops->destroy) in->receiver->ops->destroy(in->receiver);
  in->receiver = NULL;
}
