/* Graph: nodes and edges of a session's graph, of a pruned client graph, or of a partition.
 *
 * A graph owns an arena in which everything it made lies; attribute values and definitions may be shared with the
 * graph it was derived from, which it keeps alive (`origin`). Not thread-safe.
 */
#ifndef TD_GRAPH_GRAPH_H_
#define TD_GRAPH_GRAPH_H_

#include "base/arena.h"
#include "base/map.h"
#include "framework/device.h"
#include "framework/op.h"
#include "proto/framework.pb-c.h"

typedef struct td_node td_node;
typedef struct td_edge td_edge;
typedef struct td_graph td_graph;
typedef struct td_library td_library;

enum { TD_CONTROL_SLOT = -1 };

struct td_edge {
  td_node *src, *dst;
  int src_slot, dst_slot;       /* both TD_CONTROL_SLOT for a control edge */
  int id;                       /* unique in the graph; names cross-task edges */
  td_edge *next_out, *prev_out; /* of src */
  td_edge *next_in, *prev_in;   /* of dst: data edges by slot first, then control edges */
};

/* What kind of control-flow node; decided once from the op's name. */
typedef enum td_node_kind {
  TD_NODE_PLAIN,
  TD_NODE_SWITCH,
  TD_NODE_MERGE,
  TD_NODE_ENTER,
  TD_NODE_EXIT,
  TD_NODE_NEXT_ITERATION,
  TD_NODE_LOOP_COND,
  TD_NODE_CONTROL_TRIGGER,
  TD_NODE_SEND,
  TD_NODE_RECV,
} td_node_kind;

struct td_node {
  td_node_def def;     /* name, op, requested device, attributes */
  const td_op_def *op; /* never NULL */
  int id;              /* index in graph->nodes */
  td_node_kind kind;
  int input_count, output_count;
  const int *input_types, *output_types; /* ref types for Ref arguments */
  td_edge **in;                          /* data edges by input slot */
  td_edge *in_edges, *out_edges;         /* all of them, linked */
  td_edge *last_in, *last_out;           /* ends of these lists */
  td_str device;                         /* assigned full name; empty before placement */
  td_str original;                       /* the user's node that this one was made for; empty: itself */
  bool is_removed;
  bool is_made;    /* by lowering: no client knows its name */
  bool is_lowered; /* an IdentityN of the values that replaced this node's outputs: graph/lower.h */
};

struct td_graph {
  _Atomic uint32_t refs;
  td_arena arena;
  td_node **nodes; /* by id; entries may be removed (is_removed) */
  size_t node_count, node_capacity;
  td_map by_name;
  int next_edge_id;
  int64_t next_name; /* counts what the server names itself (graph/build.h) */
  int32_t producer, min_consumer;
  int32_t *bad_consumers;
  size_t bad_consumer_count;
  td_library *library;           /* shared, retained */
  td_graph *origin;              /* retained; NULL: none */
  struct td_arena_link *adopted; /* arenas of messages that this graph took over */
};

td_graph *td_graph_create(td_library *library); /* retains the library; NULL: an empty one */
td_graph *td_graph_retain(td_graph *g);
void td_graph_release(td_graph *g);
td_node *td_graph_find(const td_graph *g, td_str name);

/* Adds a node whose attributes are complete and valid (strings and attributes are not copied: give them the graph's
 * arena). Input edges are added afterwards. ALREADY_EXISTS-like texts of the importer do not apply: the name must be
 * new (asserted). Fails if the attributes do not expand to types. */
td_status td_graph_add_node(td_graph *g, const td_node_def *def, const td_op_def *op, td_node **out) TD_MUST_USE;
td_edge *td_graph_add_edge(td_graph *g, td_node *src, int src_slot, td_node *dst, int dst_slot);
td_edge *td_graph_add_control_edge(td_graph *g, td_node *src, td_node *dst);
void td_graph_remove_edge(td_graph *g, td_edge *e);
void td_graph_remove_node(td_graph *g, td_node *n); /* and its edges */

/* Attribute values in an arena, for nodes the runtime makes itself. */
Pb__AttrValue *td_attr_value_str(td_arena *a, td_str v);
Pb__AttrValue *td_attr_value_int(td_arena *a, int64_t v);
Pb__AttrValue *td_attr_value_bool(td_arena *a, bool v);
Pb__AttrValue *td_attr_value_type(td_arena *a, td_dtype v);

/* ---- function library ---- */
struct td_library {
  _Atomic uint32_t refs;
  td_arena arena;
  td_map functions; /* name -> const Pb__FunctionDef * */
  td_map op_defs;   /* name -> const td_op_def *; functions with a broken signature have none */
  td_map gradients; /* function name -> const Pb__GradientDef * */
  td_library *base; /* retained: what this one was merged from, whose messages and definitions it shares */
};
td_library *td_library_create(void);
td_library *td_library_retain(td_library *l);
void td_library_release(td_library *l);
/* A new library with everything in `base` and in `add` (messages are copied). A different body under one name is
 * INVALID_ARGUMENT "Cannot add function '<n>' because a different function with the same name already exists." */
td_status td_library_merge(const td_library *base, const Pb__FunctionDefLibrary *add, td_library **out) TD_MUST_USE;
const Pb__FunctionDef *td_library_find(const td_library *l, td_str name);
/* The definition of an op or of a function of the library; NULL when neither. */
const td_op_def *td_library_op(td_library *l, td_str name);

/* The functions that these calls reach, in `arena`, sharing messages with the library; NULL: none. */
Pb__FunctionDefLibrary *td_library_reach(const td_library *l, const Pb__NameAttrList *const *calls, size_t count,
                                         td_arena *arena);

/* ---- messages ---- */
/* A copy of a message in `arena`. INVALID_ARGUMENT when it cannot be encoded and decoded again. */
td_status td_graph_copy_message(const ProtobufCMessage *message, td_arena *arena, void *out) TD_MUST_USE;
/* The graph as a GraphDef in `arena`, every attribute present, inputs as names, assigned devices; with the part of
 * the library that is reachable from its nodes. */
Pb__GraphDef *td_graph_to_proto(const td_graph *g, td_arena *arena);
/* Takes out of such a message, before it goes to a peer, the attributes that TensorFlow 1.15 does not know: those with
 * their default's value (a newer peer fills them in), and those that change no result. Messages that it shares with the
 * graph are not changed. */
void td_graph_def_trim(Pb__GraphDef *def, td_arena *arena);

#endif /* TD_GRAPH_GRAPH_H_ */
