/* Caches in files: tensor bundles, as TensorFlow writes and reads them. */
#ifndef TD_OPS_DATA_FILE_CACHE_H_
#define TD_OPS_DATA_FILE_CACHE_H_

#include "ops/data/dataset.h"

/* `input`'s elements through the bundle `filename`: the iterator that reads the input to its end leaves it. One
 * reference. */
td_status td_file_cache_create(const td_data_spec *spec, td_dataset *input, td_str filename,
                               td_dataset **out) TD_MUST_USE;

#endif /* TD_OPS_DATA_FILE_CACHE_H_ */
