/* Cost model of a registered partition (TensorFlow's costmodel): for each node the longest time it took and the largest
 * outputs it made in the steps that were recorded; told as a CostGraphDef. Thread-safe. */
#ifndef TD_RUNTIME_COST_MODEL_H_
#define TD_RUNTIME_COST_MODEL_H_

#include "graph/graph.h"
#include "runtime/step_stats.h"

typedef struct td_cost_model td_cost_model;

td_cost_model *td_cost_model_create(td_graph *g); /* retains the graph */
void td_cost_model_destroy(td_cost_model *m);
/* Takes in what was recorded of a step on `device`, the partition's. */
void td_cost_model_update(td_cost_model *m, td_step_stats *stats, td_str device);
/* Appends the nodes as fields of a CostGraphDef. Ids count from 2, as in TensorFlow, whose source and sink are 0 and 1
 * (they are left out). An output never seen has size -1; alias_input_port is the input whose elements it shared. */
void td_cost_model_encode(td_cost_model *m, td_strbuf *out);

#endif /* TD_RUNTIME_COST_MODEL_H_ */
