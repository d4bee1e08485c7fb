#include "ops/data/iterator.h"

#include "base/mem.h"

td_status td_iterator_create(td_dataset *d, td_iterator *parent, td_driver *driver, td_iterator **out) {
  int depth = (parent ? parent->depth : td_driver_depth(driver)) + 1;
  if (depth > TD_DATASET_MAX_DEPTH)
    return td_resource_exhausted("Iterators are nested more than %d deep", TD_DATASET_MAX_DEPTH);
  td_iterator *it = td_calloc(1, d->ops->iterator_size);
  it->dataset = td_dataset_retain(d);
  it->parent = parent;
  it->driver = driver;
  it->depth = depth;
  td_status s = d->ops->start ? d->ops->start(it) : TD_STATUS_OK;
  if (s)
    td_iterator_destroy(it);
  else
    *out = it;
  return s;
}

void td_iterator_destroy(td_iterator *it) {
  if (!it) return;
  if (it->dataset->ops->stop) it->dataset->ops->stop(it);
  td_element_free(it->element);
  td_status_free(it->status);
  td_dataset_release(it->dataset);
  td_free(it);
}

td_status td_iterator_create_input(td_iterator *it, int input, td_iterator **out) {
  return td_iterator_create(it->dataset->inputs[input], it, it->driver, out);
}

/* ---- results ---- */

td_next td_iterator_give(td_iterator *it, td_element *e) {
  it->element = e;
  return TD_NEXT_READY;
}

td_next td_iterator_fail(td_iterator *it, td_status s) {
  it->status = s;
  return TD_NEXT_READY;
}

td_next td_iterator_pass(td_iterator *it, td_iterator *input) {
  it->element = input->element;
  it->status = input->status;
  input->element = NULL;
  input->status = NULL;
  return TD_NEXT_READY;
}

td_element *td_iterator_take(td_iterator *input) {
  td_element *e = input->element;
  input->element = NULL;
  return e;
}

td_next td_iterator_call_failed(td_iterator *it, td_status s, bool preserves_cardinality) {
  if (td_status_code(s) != TD_OUT_OF_RANGE) return td_iterator_fail(it, s);
  td_status error = preserves_cardinality
                        ? td_invalid_argument("Function invocation produced OutOfRangeError: %s", td_status_message(s))
                        : TD_STATUS_OK;
  td_status_free(s);
  return error ? td_iterator_fail(it, error) : td_iterator_give(it, NULL);
}
