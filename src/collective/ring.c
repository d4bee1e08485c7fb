/* All-reduce and all-gather over rings (TensorFlow's RingReducer and RingGatherer; the algorithm is that of Patarasuk
 * and Yuan, 2009). The tensor is cut into as many chunks as there are members; in a first round each chunk travels once
 * around and is merged with every member's part, in a second one the results do. Several rings share the work. */
#include <stdio.h>

#include "base/mem.h"
#include "collective/internal.h"

/* What becomes of a chunk next. */
enum { BEGIN, RECEIVING, SENDING, DONE };

typedef struct field {
  td_transfer transfer;          /* first */
  int ring, chunk, place, index; /* index: in keys, of chunk and ring */
  void *data;
  int64_t count;
  bool receives, sends, is_last, second_round;
  void *scratch; /* what another task sent, before it is merged */
} field;

typedef struct rings {
  size_t element_size;
  size_t count;
  field fields[];
} rings;

static void destroy(td_collective_op *op) {
  rings *r = op->state;
  for (size_t i = 0; i < r->count; i++) td_free(r->fields[i].scratch);
  td_free(r);
}

static int before(int place, int by, int size) { return (place + size - by % size) % size; }

/* Chunk k begins its first round at place k and its second one at place k - 1, which has the whole. */
static void begin_round(td_collective_op *op, field *f, bool second) {
  int size = op->member->group->size, first = second ? before(f->chunk, 1, size) : f->chunk;
  int last = before(first, 1, size);
  f->second_round = second;
  f->transfer.action = BEGIN;
  f->is_last = f->place == last;
  f->receives = f->count && f->place != first;
  f->sends = f->count && f->place != last;
}

static td_str key_of(const field *f, int place, char *buffer, size_t capacity) {
  int n = snprintf(buffer, capacity, "%d:%d:%d", f->second_round, f->index, place);
  return td_str_n(buffer, (size_t)n);
}

static td_status receive(td_collective_op *op, field *f) {
  char key[64];
  const td_member *m = op->member;
  int size = m->group->size, place = before(f->place, 1, size);
  int from = m->rings[(size_t)f->ring * (size_t)size + (size_t)place];
  size_t bytes = (size_t)f->count * ((rings *)op->state)->element_size;
  bool merges = op->c->spec->type == TD_COLLECTIVE_REDUCE && !f->second_round;
  if (merges && !f->scratch && !td_op_is_local(op, from) && !(f->scratch = td_try_malloc(bytes)))
    return td_resource_exhausted("no memory for %zu bytes of a collective's chunk", bytes);
  f->transfer.action = RECEIVING;
  td_transfer_recv(&f->transfer, key_of(f, place, key, sizeof key), from, merges ? f->scratch : f->data, bytes);
  return TD_STATUS_OK;
}

/* What was received becomes part of the chunk. */
static td_status take(td_collective_op *op, field *f) {
  const td_collective_spec *s = op->c->spec;
  size_t bytes = (size_t)f->count * ((rings *)op->state)->element_size;
  const void *from;
  td_status status = td_transfer_bytes(&f->transfer, bytes, &from);
  if (!status && s->type == TD_COLLECTIVE_REDUCE && !f->second_round) {
    s->merge(s, from, f->data, f->count);
    if (f->is_last && s->finish) s->finish(s, f->data, f->count);
  } else if (!status && from != f->data) {
    memcpy(f->data, from, bytes);
  }
  td_transfer_taken(&f->transfer);
  return status;
}

static void send(td_collective_op *op, field *f) {
  char key[64];
  f->transfer.action = SENDING;
  td_transfer_send(&f->transfer, key_of(f, f->place, key, sizeof key), op->c->output, f->data,
                   (size_t)f->count * ((rings *)op->state)->element_size);
}

/* As far as it goes without waiting. */
static void proceed(td_collective_op *op, field *f) {
  td_status s = TD_STATUS_OK;
  if (f->transfer.action == BEGIN && f->receives) {
    if ((s = receive(op, f))) td_op_fail(op, s);
    return;
  }
  if (f->transfer.action == RECEIVING && (s = take(op, f))) {
    td_op_fail(op, s);
    return;
  }
  if (f->transfer.action != SENDING && f->sends) {
    send(op, f);
    return;
  }
  if (f->second_round || op->c->spec->type == TD_COLLECTIVE_GATHER) {
    f->transfer.action = DONE;
    op->left--;
    return;
  }
  begin_round(op, f, true);
  proceed(op, f); /* at most once more: the second round is the last */
}

static void advance(td_collective_op *op, td_transfer *t) { proceed(op, (field *)t); }

static void copy_input(td_collective_op *op, size_t element_size, int64_t chunk) {
  const td_collective *c = op->c;
  char *to = c->output->data;
  if (c->spec->type == TD_COLLECTIVE_GATHER) to += (size_t)op->member->places[0] * (size_t)chunk * element_size;
  if (to != c->input->data && c->input->size) memcpy(to, c->input->data, c->input->size);
}

static td_status start(td_collective_op *op) {
  const td_collective *c = op->c;
  const td_member *m = op->member;
  int size = m->group->size;
  bool reduces = c->spec->type == TD_COLLECTIVE_REDUCE;
  size_t n = (size_t)size * (size_t)m->ring_count, element_size = td_dtype_size(c->spec->dtype);
  rings *r = td_try_malloc(sizeof *r + n * sizeof(field));
  if (!r) return td_resource_exhausted("no memory for a collective of %d members in %d rings", size, m->ring_count);
  memset(r, 0, sizeof *r + n * sizeof(field));
  r->count = n;
  r->element_size = element_size;
  op->state = r;
  op->left = (int)n;
  int64_t total = c->output->count, chunk = td_chunk_elements(total, element_size, (int64_t)n, reduces);
  copy_input(op, element_size, chunk);
  for (size_t i = 0; i < n; i++) {
    field *f = &r->fields[i];
    int64_t begin = TD_MIN((int64_t)i * chunk, total);
    f->transfer.op = op;
    f->index = (int)i;
    f->chunk = (int)(i / (size_t)m->ring_count);
    f->ring = (int)(i % (size_t)m->ring_count);
    f->place = m->places[f->ring];
    f->data = (char *)c->output->data + (size_t)begin * element_size;
    f->count = TD_MIN(chunk, total - begin);
    begin_round(op, f, false);
  }
  for (size_t i = 0; i < n && !op->status; i++) proceed(op, &r->fields[i]);
  return TD_STATUS_OK;
}

const td_algorithm td_ring_algorithm = {.start = start, .advance = advance, .destroy = destroy};
