/* Operations: their definitions, and the process-wide registry of definitions and kernels.
 *
 * A family (a file under src/ops/) declares its ops as td_op_spec: inputs, outputs and attributes in a compact
 * notation, parsed on first use:
 *   args:   "x: T; values: N * T; data: Tlist; ref: Ref(T); handle: resource"  (T: a type attribute or a type name)
 *   attrs:  "T: type in {float, double} = float; N: int >= 1; axis: int = 0; shapes: list(shape) >= 0 = [];
 *            padding: string in {'SAME', 'VALID'}; f: func; value: tensor; color: tensor = uint8 [255, 0]; shape: shape
 * = unknown"
 */
#ifndef TD_FRAMEWORK_OP_H_
#define TD_FRAMEWORK_OP_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"
#include "proto/framework.pb-c.h"
#include "tensor/dtype.h"

enum {
  TD_OP_STATEFUL = 1, /* never merged, folded or pruned for having no effect; kernels kept per session */
  TD_OP_COMMUTATIVE = 2,
  TD_OP_AGGREGATE = 4,
  TD_OP_ALLOWS_UNINITIALIZED = 8, /* its ref inputs may be uninitialised */
};

typedef struct td_op_spec {
  const char *name, *inputs, *outputs, *attrs; /* NULL: none */
  uint32_t flags;
} td_op_spec;

typedef enum td_attr_kind {
  TD_ATTR_STRING,
  TD_ATTR_INT,
  TD_ATTR_FLOAT,
  TD_ATTR_BOOL,
  TD_ATTR_TYPE,
  TD_ATTR_SHAPE,
  TD_ATTR_TENSOR,
  TD_ATTR_FUNC,
} td_attr_kind;

typedef struct td_attr_def {
  td_str name;
  td_attr_kind kind;
  bool is_list, has_minimum;
  int64_t minimum;            /* of an int, or of a list's length */
  td_dtype_set allowed_types; /* 0: any */
  td_str *allowed_strings;
  size_t allowed_string_count;  /* 0: any */
  Pb__AttrValue *default_value; /* NULL: the attribute is mandatory */
} td_attr_def;

/* One declared argument. It stands for one edge, for number_attr edges of one type, or for one per entry of
 * type_list_attr. */
typedef struct td_arg_def {
  td_str name;
  td_dtype type;                                 /* TD_INVALID: given by type_attr or type_list_attr */
  td_str type_attr, number_attr, type_list_attr; /* empty: not used */
  bool is_ref;
} td_arg_def;

typedef struct td_op_def {
  td_str name;
  td_arg_def *inputs, *outputs;
  td_attr_def *attrs;
  size_t input_count, output_count, attr_count;
  td_str *control_outputs; /* functions only */
  size_t control_output_count;
  uint32_t flags;
} td_op_def;

const td_attr_def *td_op_attr(const td_op_def *op, td_str name); /* NULL when there is none */

/* The definition of an op; NULL when unknown. Definitions live for ever. Thread-safe. */
const td_op_def *td_op_find(td_str name);

/* NOT_FOUND in TensorFlow's words. */
td_status td_op_not_found(td_str name) TD_MUST_USE;

/* Parses one spec into `arena`; INVALID_ARGUMENT with the place in the text. For tests and the registry. */
td_status td_op_parse(const td_op_spec *spec, td_arena *arena, const td_op_def **out) TD_MUST_USE;

/* A definition from a message (a function's signature), into `arena`. Validates it. */
td_status td_op_from_proto(const Pb__OpDef *proto, td_arena *arena, const td_op_def **out) TD_MUST_USE;

/* ---- nodes as ops see them ------------------------------------------------------------------------------- */

typedef struct td_attr {
  td_str name;
  const Pb__AttrValue *value;
} td_attr;

typedef struct td_node_def {
  td_str name, op, device;
  td_attr *attrs;
  size_t attr_count;
} td_node_def;

/* Typed attribute access. A missing one or another kind is INVALID_ARGUMENT with node and name. Strings and lists
 * are borrowed from the node. */
const Pb__AttrValue *td_attr_find(const td_node_def *n, const char *name); /* NULL when absent */
td_status td_attr_int(const td_node_def *n, const char *name, int64_t *out) TD_MUST_USE;
td_status td_attr_float(const td_node_def *n, const char *name, float *out) TD_MUST_USE;
td_status td_attr_bool(const td_node_def *n, const char *name, bool *out) TD_MUST_USE;
td_status td_attr_type(const td_node_def *n, const char *name, td_dtype *out) TD_MUST_USE;
td_status td_attr_str(const td_node_def *n, const char *name, td_str *out) TD_MUST_USE;
td_status td_attr_shape(const td_node_def *n, const char *name, const Pb__TensorShapeProto **out) TD_MUST_USE;
td_status td_attr_tensor(const td_node_def *n, const char *name, const Pb__TensorProto **out) TD_MUST_USE;
td_status td_attr_func(const td_node_def *n, const char *name, const Pb__NameAttrList **out) TD_MUST_USE;
td_status td_attr_list(const td_node_def *n, const char *name, const Pb__AttrValue__ListValue **out) TD_MUST_USE;

/* Expands the op's arguments for this node: *out_types gets one entry per edge (ref types for Ref arguments), from
 * `arena`. Counts are bounded (65,536 edges). */
td_status td_node_input_types(const td_node_def *n, const td_op_def *op, td_arena *arena, int **out_types,
                              size_t *out_count) TD_MUST_USE;
td_status td_node_output_types(const td_node_def *n, const td_op_def *op, td_arena *arena, int **out_types,
                               size_t *out_count) TD_MUST_USE;
/* The range [*begin, *end) of flat inputs (outputs) that the argument `name` stands for. */
td_status td_node_input_range(const td_node_def *n, const td_op_def *op, const char *name, int *begin,
                              int *end) TD_MUST_USE;
td_status td_node_output_range(const td_node_def *n, const td_op_def *op, const char *name, int *begin,
                               int *end) TD_MUST_USE;

/* Adds the definition's default for every attribute that is absent (values are shared with the definition). */
void td_node_add_defaults(td_node_def *n, const td_op_def *op, td_arena *arena);
/* Checks that every attribute is known (or starts with '_'), of its kind and allowed, and none is missing, with
 * TensorFlow's texts. `tolerate_unknown`: skip attributes the definition lacks (a newer producer). */
td_status td_node_validate(const td_node_def *n, const td_op_def *op, bool tolerate_unknown) TD_MUST_USE;

#endif /* TD_FRAMEWORK_OP_H_ */
