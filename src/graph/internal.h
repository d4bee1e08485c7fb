/* What the files of this room share with each other and with nobody else. */
#ifndef TD_GRAPH_INTERNAL_H_
#define TD_GRAPH_INTERNAL_H_

#include "graph/graph.h"

/* Appends "\n\t [[{{node <name>}}]]", or "\n\t [[<name>]]" when the message names a node already. Consumes `s`. */
td_status td_graph_attach(td_status s, td_str node) TD_MUST_USE;

/* INVALID_ARGUMENT unless a value of type `got` from src:slot may enter the input: the same type, or a ref read. */
td_status td_graph_check_types(const td_node *dst, int dst_slot, td_str src, int src_slot, int got) TD_MUST_USE;

td_node_kind td_node_kind_of(td_str op);
td_str td_node_original(const td_node *n); /* the user's node that it stands for */
bool td_node_is_placeholder(const td_node *n);
bool td_node_is_generator(const td_node *n); /* no inputs, one output that is no ref */

/* Takes `arena` over: it lives as long as the graph, and *arena is left empty. */
void td_graph_adopt_arena(td_graph *g, td_arena *arena);
/* Puts a node that is complete but for its id into the graph. */
void td_graph_put_node(td_graph *g, td_node *n);
/* A copy of `from` without edges; everything but the node itself is shared with its graph, which must be kept. */
td_node *td_graph_clone_node(td_graph *g, const td_node *from);
void td_graph_reserve(td_graph *g, size_t node_count);
void td_graph_copy_versions(td_graph *g, const td_graph *from);

/* ---- order.c ---- */
bool td_edge_goes_back(const td_edge *e); /* NextIteration to Merge */
/* The nodes, sources before their readers but for edges that go back; in `arena`. What stands behind any other cycle is
 * left out. */
td_node **td_graph_order(const td_graph *g, td_arena *arena, size_t *count);

/* Sets (replaces or adds) an attribute; the attribute array is copied into `arena`, which may not be the one of the
 * node that `def` was copied from. */
void td_node_def_set_attr(td_node_def *def, td_arena *arena, td_str name, const Pb__AttrValue *value);

/* "_<kind>_<node>_<slot>", with a number when there is such a node; in the graph's arena. */
td_str td_graph_endpoint_name(td_graph *g, const char *kind, const td_node *n, int slot);

/* ---- validate.c ---- */
bool td_node_name_is_valid(td_str name, bool allow_internal);
/* "name" or "name:k" or "^name"; *out_slot is TD_CONTROL_SLOT for the last. False when malformed. */
bool td_input_parse(td_str text, td_str *out_name, int *out_slot);
/* What a client may send: "Illegal op name …", "Illegal op input name …", order of control inputs. */
td_status td_graph_check_syntax(const Pb__GraphDef *def) TD_MUST_USE;
td_status td_graph_check_versions(const Pb__VersionDef *versions) TD_MUST_USE;

#endif /* TD_GRAPH_INTERNAL_H_ */
