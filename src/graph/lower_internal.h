/* The parts of lowering; for this room. */
#ifndef TD_GRAPH_LOWER_INTERNAL_H_
#define TD_GRAPH_LOWER_INTERNAL_H_

#include "graph/build.h"
#include "graph/function_body.h"

typedef struct td_inline_options {
  /* Body nodes keep their device specifications, completed by the call's, and have no more effects than the control
   * outputs say; else all run on the call's device. */
  bool is_multi_device;
  bool has_effects; /* outputs are there only when everything with state in the body has run, as with a call */
  /* The call may be in a loop or a branch: what has no inputs in the body must be there too. */
  bool is_in_control_flow;
} td_inline_options;

/* Replaces `call` by `body`, whose graph it consumes. The types must agree. */
td_status td_graph_inline_call(td_graph *g, td_node *call, td_function_body *body,
                               const td_inline_options *options) TD_MUST_USE;

/* Whether a function of the library with these attributes takes and gives these types (refs as their base types). */
bool td_function_fits(td_library *library, const Pb__NameAttrList *f, const int *inputs, size_t input_count,
                      const int *outputs, size_t output_count);

/* A call of `f` that is inlined later: op f, marked, on the device of `n`, named after it. */
td_status td_lower_add_call(td_graph *g, td_node *n, const char *part, const Pb__NameAttrList *f,
                            const td_output *inputs, size_t input_count, td_node **out) TD_MUST_USE;
/* A node "<n>/<part>/_<k>" on the device of `n`. */
td_status td_lower_add(td_graph *g, td_node *n, const char *part, const char *op, const td_output *inputs,
                       size_t input_count, const td_attr *attrs, size_t attr_count, td_node **out) TD_MUST_USE;
/* Gives the consumers of n's outputs these values instead, those that wait for `n` wait for `done`; then puts an
 * IdentityN of `values`, or a NoOp, in the place of `n` if a client may know its name. */
td_status td_lower_replace(td_graph *g, td_node *n, const td_output *values, td_node *done) TD_MUST_USE;

/* Replace an If or Case, and a While. *did is false when it cannot be lowered: then nothing has changed. */
td_status td_lower_branches(td_graph *g, td_node *n, bool *did) TD_MUST_USE;
td_status td_lower_while(td_graph *g, td_node *n, bool *did) TD_MUST_USE;

#endif /* TD_GRAPH_LOWER_INTERNAL_H_ */
