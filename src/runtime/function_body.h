/* The body of a function as a graph; for the runtime room only. */
#ifndef TD_RUNTIME_FUNCTION_BODY_H_
#define TD_RUNTIME_FUNCTION_BODY_H_

#include "graph/graph.h"

/* A graph of the function's body with `call`'s attributes put in for its placeholders: an _Arg node for each flat
 * input, a _Retval node for each flat output, and of the body what these, its control outputs and its stateful nodes
 * need. It shares messages with the library and with `call`, which must outlive it. INVALID_ARGUMENT with the place. */
td_status td_function_body_create(td_library *library, const Pb__FunctionDef *f, const Pb__NameAttrList *call,
                                  td_graph **out) TD_MUST_USE;

#endif /* TD_RUNTIME_FUNCTION_BODY_H_ */
