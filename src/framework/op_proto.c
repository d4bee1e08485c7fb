/* Op definitions from messages: the signatures of functions. */
#include "base/mem.h"
#include "framework/op.h"

static td_str copy(td_arena *a, const char *s) { return td_arena_str(a, td_str_of(s)); }

static td_status attr_from(const Pb__OpDef__AttrDef *p, td_arena *arena, td_attr_def *out) {
  static const char *const kinds[] = {"string", "int", "float", "bool", "type", "shape", "tensor", "func"};
  td_str type = td_str_of(p->type);
  out->name = copy(arena, p->name);
  out->is_list = td_str_starts(type, TD_STR("list(")) && td_str_ends(type, TD_STR(")"));
  if (out->is_list) type = (td_str){type.data + 5, type.size - 6};
  size_t k = 0;
  while (k < TD_COUNT(kinds) && !td_str_is(type, kinds[k])) k++;
  if (k == TD_COUNT(kinds)) return td_invalid_argument("Unrecognized type '%s' in attr '%s'", p->type, p->name);
  out->kind = (td_attr_kind)k;
  out->has_minimum = p->has_minimum;
  out->minimum = p->minimum;
  /* `p` outlives the definition: both live in the library. */
  out->default_value = p->default_value;
  return TD_STATUS_OK;
}

static td_status arg_from(const Pb__OpDef__ArgDef *p, td_arena *arena, td_arg_def *out) {
  *out = (td_arg_def){
      .name = copy(arena, p->name),
      .type_attr = copy(arena, p->type_attr),
      .number_attr = copy(arena, p->number_attr),
      .type_list_attr = copy(arena, p->type_list_attr),
      .is_ref = p->is_ref,
      .type = td_dtype_base(p->type),
  };
  if (!out->type_attr.size && !out->type_list_attr.size && !td_dtype_valid(out->type))
    return td_invalid_argument("Missing type for input or output '%s'", p->name);
  return TD_STATUS_OK;
}

td_status td_op_from_proto(const Pb__OpDef *p, td_arena *arena, const td_op_def **out) {
  td_op_def *op = td_arena_new(arena, td_op_def);
  op->name = copy(arena, p->name);
  op->flags = (p->is_stateful ? TD_OP_STATEFUL : 0u) | (p->is_commutative ? TD_OP_COMMUTATIVE : 0u) |
              (p->is_aggregate ? TD_OP_AGGREGATE : 0u) |
              (p->allows_uninitialized_input ? TD_OP_ALLOWS_UNINITIALIZED : 0u);
  op->attrs = td_arena_array(arena, td_attr_def, p->n_attr + 1);
  op->inputs = td_arena_array(arena, td_arg_def, p->n_input_arg + 1);
  op->outputs = td_arena_array(arena, td_arg_def, p->n_output_arg + 1);
  op->control_outputs = td_arena_array(arena, td_str, p->n_control_output + 1);
  for (size_t i = 0; i < p->n_attr; i++) TD_TRY(attr_from(p->attr[i], arena, &op->attrs[op->attr_count++]));
  for (size_t i = 0; i < p->n_input_arg; i++) TD_TRY(arg_from(p->input_arg[i], arena, &op->inputs[op->input_count++]));
  for (size_t i = 0; i < p->n_output_arg; i++)
    TD_TRY(arg_from(p->output_arg[i], arena, &op->outputs[op->output_count++]));
  for (size_t i = 0; i < p->n_control_output; i++)
    op->control_outputs[op->control_output_count++] = copy(arena, p->control_output[i]);
  *out = op;
  return TD_STATUS_OK;
}
