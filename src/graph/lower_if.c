/* If and Case as Switch and Merge nodes: each branch is a call whose inputs are alive only when it is chosen. */
#include "graph/internal.h"
#include "graph/lower_internal.h"

enum { MAX_BRANCHES = 32 }; /* of a _SwitchN */

typedef struct branches {
  td_graph *g;
  td_node *n;
  bool is_case;
  const Pb__NameAttrList *functions[MAX_BRANCHES]; /* of an If: else, then, as a Switch puts them out */
  size_t count;
  td_output selector;
  td_node *select;               /* a Switch of the selector by itself */
  td_node *pivots[MAX_BRANCHES]; /* run in their branch only */
  td_node *calls[MAX_BRANCHES];
  td_output *inputs[MAX_BRANCHES];
  td_output *outputs;
  td_arena scratch;
} branches;

static const char *part(branches *b, const char *if_false, const char *if_true, const char *in_case, size_t i) {
  if (!b->is_case) return i ? if_true : if_false;
  return td_arena_printf(&b->scratch, "%s%zu", in_case, i);
}

/* ---- may it be done? ---- */

static bool find_functions(branches *b) {
  td_status s;
  if (b->is_case) {
    const Pb__AttrValue__ListValue *list;
    s = td_attr_list(&b->n->def, "branches", &list);
    if (!s && list->n_func <= MAX_BRANCHES)
      for (; b->count < list->n_func; b->count++) b->functions[b->count] = list->func[b->count];
  } else {
    s = td_attr_func(&b->n->def, "else_branch", &b->functions[0]);
    if (!s) s = td_attr_func(&b->n->def, "then_branch", &b->functions[1]);
    b->count = 2;
  }
  td_status_free(s);
  return !s && b->count;
}

static bool can_lower(branches *b) {
  td_node *n = b->n;
  if (n->input_count < 1 || n->input_types[0] != (b->is_case ? TD_INT32 : TD_BOOL) || !find_functions(b)) return false;
  for (size_t i = 0; i < b->count; i++)
    if (!td_function_fits(b->g->library, b->functions[i], n->input_types + 1, (size_t)n->input_count - 1,
                          n->output_types, (size_t)n->output_count))
      return false;
  return true;
}

/* ---- nodes ---- */

/* A Switch of `data` by the selector. A variable is read by the branch that wants it, not before. */
static td_status add_switch(branches *b, const char *name, td_output data, td_node **out) {
  td_output inputs[] = {data, b->selector};
  bool is_ref = td_dtype_is_ref(data.node->output_types[data.slot]);
  td_attr outs = {TD_STR("num_outs"), td_attr_value_int(&b->g->arena, (int64_t)b->count)};
  return td_lower_add(b->g, b->n, name,
                      b->is_case ? "_SwitchN"
                      : is_ref   ? "RefSwitch"
                                 : "Switch",
                      inputs, 2, &outs, b->is_case, out);
}

static td_status add_pivots(branches *b) {
  TD_TRY(add_switch(b, b->is_case ? "branch_index" : "switch_pred", b->selector, &b->select));
  for (const td_edge *e = b->n->in_edges; e; e = e->next_in)
    if (e->src_slot == TD_CONTROL_SLOT) td_graph_add_control_edge(b->g, e->src, b->select);
  for (size_t i = 0; i < b->count; i++) {
    td_output pivot = {b->select, (int)i};
    TD_TRY(td_lower_add(b->g, b->n, part(b, "pivot_f", "pivot_t", "pivot_", i), "Identity", &pivot, 1, NULL, 0,
                        &b->pivots[i]));
  }
  return TD_STATUS_OK;
}

/* An input's Switch stands where the input comes from. */
static td_status add_inputs(branches *b) {
  int count = b->n->input_count - 1;
  for (size_t i = 0; i < b->count; i++) b->inputs[i] = td_arena_array(&b->scratch, td_output, (size_t)count);
  for (int k = 0; k < count; k++) {
    const td_edge *e = b->n->in[k + 1];
    td_node *s;
    const char *name = td_arena_printf(&b->scratch, "%.*s", TD_STR_ARG(e->src->def.name));
    TD_TRY(add_switch(b, name, (td_output){e->src, e->src_slot}, &s));
    s->def.device = e->src->def.device;
    for (size_t i = 0; i < b->count; i++) b->inputs[i][k] = (td_output){s, (int)i};
  }
  return TD_STATUS_OK;
}

static td_status add_calls(branches *b) {
  for (size_t i = 0; i < b->count; i++) {
    TD_TRY(td_lower_add_call(b->g, b->n, part(b, "else", "then", "branch", i), b->functions[i], b->inputs[i],
                             (size_t)b->n->input_count - 1, &b->calls[i]));
    td_graph_add_control_edge(b->g, b->pivots[i], b->calls[i]);
  }
  return TD_STATUS_OK;
}

static td_status add_outputs(branches *b) {
  td_output ends[MAX_BRANCHES];
  b->outputs = td_arena_array(&b->scratch, td_output, (size_t)b->n->output_count);
  for (int k = 0; k < b->n->output_count; k++) {
    for (size_t i = 0; i < b->count; i++) ends[i] = (td_output){b->calls[i], k};
    TD_TRY(td_lower_add(b->g, b->n, "output", "Merge", ends, b->count, NULL, 0, &b->outputs[k].node));
  }
  return TD_STATUS_OK;
}

/* Alive when either branch has had all its effects, also one without outputs. */
static td_status add_executed(branches *b, td_node **out) {
  td_output ends[MAX_BRANCHES];
  for (size_t i = 0; i < b->count; i++) ends[i] = (td_output){b->pivots[i], 0};
  TD_TRY(td_lower_add(b->g, b->n, "branch_executed", "Merge", ends, b->count, NULL, 0, out));
  for (size_t i = 0; i < b->count; i++) td_graph_add_control_edge(b->g, b->calls[i], *out);
  return TD_STATUS_OK;
}

static td_status lower(branches *b) {
  td_node *executed;
  b->selector = (td_output){b->n->in[0]->src, b->n->in[0]->src_slot};
  TD_TRY(add_pivots(b));
  TD_TRY(add_inputs(b));
  TD_TRY(add_calls(b));
  TD_TRY(add_outputs(b));
  TD_TRY(add_executed(b, &executed));
  return td_lower_replace(b->g, b->n, b->outputs, executed);
}

td_status td_lower_branches(td_graph *g, td_node *n, bool *did) {
  branches b = {.g = g, .n = n, .is_case = td_str_ends(n->def.op, TD_STR("Case"))};
  *did = can_lower(&b);
  td_status s = *did ? lower(&b) : TD_STATUS_OK;
  td_arena_deinit(&b.scratch);
  return s;
}
