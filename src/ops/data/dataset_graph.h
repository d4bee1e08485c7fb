/* Datasets as graphs. */
#ifndef TD_OPS_DATA_DATASET_GRAPH_H_
#define TD_OPS_DATA_DATASET_GRAPH_H_

#include "framework/device.h"
#include "framework/function.h"
#include "ops/data/dataset.h"

/* Appends the GraphDef that makes `d` again. `check`: FAILED_PRECONDITION when one of its functions has an op with
 * state that is not in `whitelist` (NULL: none). FAILED_PRECONDITION for resources, UNIMPLEMENTED for other values that
 * cannot be constants. */
td_status td_dataset_graph(td_dataset *d, bool check, const Pb__AttrValue__ListValue *whitelist,
                           td_strbuf *out) TD_MUST_USE;

#endif /* TD_OPS_DATA_DATASET_GRAPH_H_ */
