#include "ops/data/held.h"

#include "base/mem.h"
#include "ops/data/archive.h"

typedef struct held {
  td_dataset base;
  td_element **elements;
  size_t count;
} held;

typedef struct held_iterator {
  td_iterator base;
  size_t next;
} held_iterator;

void td_elements_free(td_element **elements, size_t count) {
  for (size_t i = 0; i < count; i++) td_element_free(elements[i]);
  td_free(elements);
}

static void held_destroy(td_dataset *base) {
  held *h = (held *)base;
  td_elements_free(h->elements, h->count);
}

static td_next held_advance(td_iterator *it) {
  const held *h = (const held *)it->dataset;
  held_iterator *i = (held_iterator *)it;
  return td_iterator_give(it, i->next < h->count ? td_element_copy(h->elements[i->next++]) : NULL);
}

static td_status held_archive(td_iterator *it, td_archive *a) {
  return td_archive_size(a, &((held_iterator *)it)->next, ((held *)it->dataset)->count);
}

static int64_t held_cardinality(const td_dataset *d) { return (int64_t)((const held *)d)->count; }

static const td_dataset_ops held_ops = {.name = "Window",
                                        .iterator_size = sizeof(held_iterator),
                                        .advance = held_advance,
                                        .archive = held_archive,
                                        .destroy = held_destroy,
                                        .cardinality = held_cardinality};

td_status td_held_create(const td_data_spec *spec, td_element **elements, size_t count, td_dataset **out) {
  td_status s = td_dataset_create(&held_ops, sizeof(held), spec, NULL, 0, out);
  if (s) {
    td_elements_free(elements, count);
    return s;
  }
  ((held *)*out)->elements = elements;
  ((held *)*out)->count = count;
  return TD_STATUS_OK;
}

bool td_held_elements(const td_dataset *d, td_element *const **out, size_t *count) {
  if (d->ops != &held_ops) return false;
  *out = ((const held *)d)->elements;
  *count = ((const held *)d)->count;
  return true;
}
