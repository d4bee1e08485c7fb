/* The body of a function as a graph. */
#ifndef TD_GRAPH_FUNCTION_BODY_H_
#define TD_GRAPH_FUNCTION_BODY_H_

#include "graph/graph.h"

/* The lists lie in the graph's arena. */
typedef struct td_function_body {
  td_graph *graph;
  td_node **args;     /* _Arg nodes, one for each flat input */
  td_node **results;  /* _Retval nodes, one for each flat output */
  td_node **controls; /* what control_ret names: has run when the call has */
  size_t arg_count, result_count, control_count;
} td_function_body;

/* The function's body with `call`'s attributes put in for its placeholders; of its nodes those that results, control
 * outputs and nodes with state need. It shares messages with the library and with `call`, which must outlive the
 * graph; the caller releases out->graph. INVALID_ARGUMENT with the place. */
td_status td_function_body_create(td_library *library, const Pb__FunctionDef *f, const Pb__NameAttrList *call,
                                  td_function_body *out) TD_MUST_USE;

/* An _Arg or _Retval node. */
td_status td_function_body_add_end(td_graph *g, const char *op, td_str name, int type, int64_t index,
                                   td_node **out) TD_MUST_USE;

/* Inlines what the body calls and lowers its control flow (graph/lower.h), then prunes. */
td_status td_function_body_lower(td_function_body *body, td_str function) TD_MUST_USE;

/* Removes what neither results, `controls` nor nodes with state need. */
void td_function_body_prune(td_function_body *body);

/* Whether the function's attribute of this name is true ("_noinline"). */
bool td_function_is_marked(const Pb__FunctionDef *f, const char *attr);

#endif /* TD_GRAPH_FUNCTION_BODY_H_ */
