/* Gradients of functions (SymbolicGradient): backpropagation over a body, with a rule for each op.
 * The algorithm and the rules' mathematics: TensorFlow's core/graph/gradients.cc and core/ops/{array,math,nn}_grad.cc.
 */
#ifndef TD_GRAPH_GRADIENT_H_
#define TD_GRAPH_GRADIENT_H_

#include "graph/build.h"
#include "graph/function_body.h"

/* The gradient of a function or op with inputs x and outputs y as a body (x…, dy…) -> (dx…). Calls of functions inside
 * become SymbolicGradient nodes. A gradient that nothing contributes to is zero; that of a resource is float.
 * The body shares messages with the library and with `f`. NOT_FOUND "No gradient defined for op: <op>". */
td_status td_gradient_body_create(td_library *library, const Pb__NameAttrList *f, td_function_body *out) TD_MUST_USE;

/* ---- rules; for this room ---- */

/* How one op's gradient is computed, as statements "name = expression" separated by ';':
 *   Op(a, b.1, [c, d]){attr=value, *}   a node; its name stands for all of its outputs, name.k for one of them;
 *                                       attributes that the inputs tell are not written; $a: the attribute a of the op
 *                                       that is differentiated, *: all of its attributes that this op has too
 *   3, -1   int32 scalars; #-1: a vector of one int32; 0.5: a scalar of the op's type T
 * The inputs of the op, then the gradients of its outputs go by the names in `args`, and the gradient of input "x" is
 * what is called "dx" in the end; one that gets no value is zero. */
typedef struct td_gradient_rule {
  const char *op, *args;
  const char *text; /* NULL: `write` gives it; both NULL: not differentiable */
  td_status (*write)(const td_node *n, td_strbuf *text);
} td_gradient_rule;

const td_gradient_rule *td_gradient_rule_find(td_str op); /* NULL when there is none */
bool td_gradient_rule_next(size_t *i, const td_gradient_rule **out);

/* Adds to `g` the gradient of node `n` of it by its rule; dy: by output, dx: by input. */
td_status td_gradient_expand(td_graph *g, const td_gradient_rule *rule, td_node *n, const td_output *dy,
                             td_output *dx) TD_MUST_USE;
/* A zero of the shape of `of`; of a resource: of the float variable it names. */
td_status td_gradient_zeros(td_graph *g, td_output of, td_output *out) TD_MUST_USE;

#endif /* TD_GRAPH_GRADIENT_H_ */
