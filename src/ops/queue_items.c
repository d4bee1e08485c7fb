#include "ops/queue_items.h"

#include "base/mem.h"
#include "base/random.h"

void td_queue_items_init(td_queue_items *q, const td_queue_spec *spec) {
  bool seeded = spec->seed || spec->seed2;
  *q = (td_queue_items){.kind = spec->kind, .width = spec->type_count};
  q->random = td_philox_words_of(td_philox_from_seeds(seeded ? (uint64_t)spec->seed : td_random_u64(),
                                                      seeded ? (uint64_t)spec->seed2 : td_random_u64()));
}

void td_queue_items_deinit(td_queue_items *q) {
  for (size_t i = 0; i < q->count; i++) td_queue_tuple_free(q, q->slots[(q->head + i) & (q->capacity - 1)]);
  td_free(q->slots);
}

td_queue_tuple *td_queue_tuple_create(const td_queue_items *q) {
  return td_calloc(1, sizeof(td_queue_tuple) + (size_t)q->width * sizeof(td_tensor *));
}

void td_queue_tuple_free(const td_queue_items *q, td_queue_tuple *t) {
  for (int i = 0; i < q->width; i++) td_tensor_release(t->parts[i]);
  td_free(t);
}

static td_queue_tuple **at(td_queue_items *q, size_t i) { return &q->slots[(q->head + i) & (q->capacity - 1)]; }

static void make_room(td_queue_items *q) {
  if (q->count < q->capacity) return;
  size_t n = q->capacity ? q->capacity * 2 : 8;
  td_queue_tuple **slots = td_new_array(td_queue_tuple *, n);
  for (size_t i = 0; i < q->count; i++) slots[i] = *at(q, i);
  td_free(q->slots);
  q->slots = slots;
  q->head = 0;
  q->capacity = n;
}

static bool comes_before(const td_queue_tuple *a, const td_queue_tuple *b) {
  return a->priority != b->priority ? a->priority < b->priority : a->number < b->number;
}

void td_queue_items_put(td_queue_items *q, td_queue_tuple *t) {
  make_room(q);
  t->number = q->next_number++;
  size_t i = q->count++;
  *at(q, i) = t;
  if (q->kind != TD_QUEUE_PRIORITY) return;
  for (size_t up; i && comes_before(t, *at(q, up = (i - 1) / 2)); i = up) {
    *at(q, i) = *at(q, up);
    *at(q, up) = t;
  }
}

void td_queue_items_put_front(td_queue_items *q, td_queue_tuple *t) {
  if (q->kind == TD_QUEUE_PRIORITY || q->kind == TD_QUEUE_SHUFFLE) {
    td_queue_items_put(q, t);
    return;
  }
  make_room(q);
  q->head = (q->head - 1) & (q->capacity - 1);
  q->count++;
  *at(q, 0) = t;
}

static td_queue_tuple *take_least(td_queue_items *q) {
  td_queue_tuple *t = *at(q, 0), *moved = *at(q, --q->count);
  size_t i = 0;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= q->count) break;
    if (child + 1 < q->count && comes_before(*at(q, child + 1), *at(q, child))) child++;
    if (!comes_before(*at(q, child), moved)) break;
    *at(q, i) = *at(q, child);
    i = child;
  }
  *at(q, i) = moved;
  return t;
}

td_queue_tuple *td_queue_items_take(td_queue_items *q) {
  if (q->kind == TD_QUEUE_PRIORITY) return take_least(q);
  if (q->kind == TD_QUEUE_SHUFFLE) {
    size_t i = td_philox_word(&q->random) % q->count;
    td_queue_tuple *t = *at(q, i);
    *at(q, i) = *at(q, --q->count);
    return t;
  }
  td_queue_tuple *t = *at(q, 0);
  q->head = (q->head + 1) & (q->capacity - 1);
  q->count--;
  return t;
}
