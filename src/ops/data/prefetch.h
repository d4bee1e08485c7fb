/* Datasets that work ahead, for other kinds that are built from them. */
#ifndef TD_OPS_DATA_PREFETCH_H_
#define TD_OPS_DATA_PREFETCH_H_

#include "ops/data/ahead.h"

/* `input`, up to `limit` (at least 1) elements fetched ahead. One reference. */
td_status td_prefetch_create(td_dataset *input, int64_t limit, td_dataset **out) TD_MUST_USE;
/* What an iterator over such a dataset works with; NULL for others. */
td_ahead *td_prefetch_ahead(td_iterator *it);
/* `input` through function 0 of the kernel, up to `calls` (-1: as many as there are threads) at once. One reference.
 * INVALID_ARGUMENT when `calls` is 0 or below -1. */
td_status td_parallel_map_create(td_kernel_ctx *ctx, td_dataset *input, const td_data_spec *spec, int64_t calls,
                                 bool any_order, bool preserves_cardinality, td_dataset **out) TD_MUST_USE;

#endif /* TD_OPS_DATA_PREFETCH_H_ */
