/* Datasets of given elements: windows, groups. Unlike others they can be saved with an iterator that has them in hand.
 */
#ifndef TD_OPS_DATA_HELD_H_
#define TD_OPS_DATA_HELD_H_

#include "ops/data/dataset.h"

/* Takes the array and the elements, also on failure. One reference. */
td_status td_held_create(const td_data_spec *spec, td_element **elements, size_t count, td_dataset **out) TD_MUST_USE;
/* Whether `d` is one; then its elements, borrowed. */
bool td_held_elements(const td_dataset *d, td_element *const **out, size_t *count);

void td_elements_free(td_element **elements, size_t count); /* NULL is fine */

#endif /* TD_OPS_DATA_HELD_H_ */
