/* While as a loop: Enter, Merge, a call of the condition, Switch, a call of the body, NextIteration, Exit. */
#include "base/mem.h"
#include "graph/internal.h"
#include "graph/lower_internal.h"

typedef struct loop {
  td_graph *g;
  td_node *n;
  size_t count;
  const Pb__NameAttrList *condition, *body;
  td_output *enters, *merges, *bodies, *exits; /* by loop variable */
  td_node **switches;
  td_node *condition_call, *body_call, *predicate;
  td_arena scratch;
} loop;

static bool can_lower(loop *w) {
  static const int boolean[] = {TD_BOOL};
  const td_node *n = w->n;
  td_status s = td_attr_func(&n->def, "cond", &w->condition);
  if (!s) s = td_attr_func(&n->def, "body", &w->body);
  td_status_free(s);
  return !s && w->count && td_function_fits(w->g->library, w->condition, n->input_types, w->count, boolean, 1) &&
         td_function_fits(w->g->library, w->body, n->input_types, w->count, n->input_types, w->count);
}

static td_status add_enters(loop *w) {
  td_node *wait = NULL;
  int64_t parallel = 10;
  if (td_attr_find(&w->n->def, "parallel_iterations"))
    TD_TRY(td_attr_int(&w->n->def, "parallel_iterations", &parallel));
  td_attr attrs[] = {{TD_STR("frame_name"), td_attr_value_str(&w->g->arena, w->n->def.name)},
                     {TD_STR("parallel_iterations"), td_attr_value_int(&w->g->arena, parallel)}};
  for (size_t i = 0; i < w->count; i++) {
    td_output value = {w->n->in[i]->src, w->n->in[i]->src_slot};
    TD_TRY(td_lower_add(w->g, w->n, "enter", "Enter", &value, 1, attrs, TD_COUNT(attrs), &w->enters[i].node));
  }
  for (const td_edge *e = w->n->in_edges; e; e = e->next_in) {
    if (e->src_slot != TD_CONTROL_SLOT) continue;
    if (!wait) TD_TRY(td_lower_add(w->g, w->n, "LoopControlInputs", "NoOp", NULL, 0, NULL, 0, &wait));
    td_graph_add_control_edge(w->g, e->src, wait);
  }
  for (size_t i = 0; wait && i < w->count; i++) td_graph_add_control_edge(w->g, wait, w->enters[i].node);
  return TD_STATUS_OK;
}

/* A Merge's second input comes last, when the NextIteration is there. */
static td_status add_merges(loop *w) {
  for (size_t i = 0; i < w->count; i++) {
    td_output both[] = {w->enters[i], w->enters[i]};
    td_node *m;
    TD_TRY(td_lower_add(w->g, w->n, "merge", "Merge", both, 2, NULL, 0, &m));
    td_graph_remove_edge(w->g, m->in[1]);
    w->merges[i].node = m;
  }
  return TD_STATUS_OK;
}

static td_status add_condition(loop *w) {
  TD_TRY(td_lower_add_call(w->g, w->n, "cond", w->condition, w->merges, w->count, &w->condition_call));
  td_graph_add_control_edge(w->g, w->merges[0].node, w->condition_call); /* its constants run once per iteration */
  td_output value = {w->condition_call, 0};
  return td_lower_add(w->g, w->n, "LoopCond", "LoopCond", &value, 1, NULL, 0, &w->predicate);
}

static td_status add_body(loop *w) {
  td_node *alive;
  for (size_t i = 0; i < w->count; i++) {
    td_output inputs[] = {w->merges[i], {w->predicate, 0}};
    const char *name = td_arena_printf(&w->scratch, "%.*s_switch", TD_STR_ARG(w->n->in[i]->src->def.name));
    TD_TRY(td_lower_add(w->g, w->n, name, "Switch", inputs, 2, NULL, 0, &w->switches[i]));
    w->bodies[i] = (td_output){w->switches[i], 1};
  }
  TD_TRY(td_lower_add_call(w->g, w->n, "body", w->body, w->bodies, w->count, &w->body_call));
  TD_TRY(td_lower_add(w->g, w->n, "loop_body_control", "Identity", &w->bodies[0], 1, NULL, 0, &alive));
  td_graph_add_control_edge(w->g, alive, w->body_call);
  return TD_STATUS_OK;
}

static td_status add_ends(loop *w) {
  for (size_t i = 0; i < w->count; i++) {
    td_output out = {w->switches[i], 0}, result = {w->body_call, (int)i};
    td_node *next;
    TD_TRY(td_lower_add(w->g, w->n, "exit", "Exit", &out, 1, NULL, 0, &w->exits[i].node));
    TD_TRY(td_lower_add(w->g, w->n, "next_iteration", "NextIteration", &result, 1, NULL, 0, &next));
    td_graph_add_control_edge(w->g, w->body_call, next);
    td_graph_add_edge(w->g, next, 0, w->merges[i].node, 1);
  }
  return TD_STATUS_OK;
}

static td_status lower(loop *w) {
  td_node *executed;
  w->enters = td_arena_array(&w->scratch, td_output, w->count);
  w->merges = td_arena_array(&w->scratch, td_output, w->count);
  w->bodies = td_arena_array(&w->scratch, td_output, w->count);
  w->exits = td_arena_array(&w->scratch, td_output, w->count);
  w->switches = td_arena_array(&w->scratch, td_node *, w->count);
  TD_TRY(add_enters(w));
  TD_TRY(add_merges(w));
  TD_TRY(add_condition(w));
  TD_TRY(add_body(w));
  TD_TRY(add_ends(w));
  TD_TRY(td_lower_add(w->g, w->n, "LoopExecuted", "NoOp", NULL, 0, NULL, 0, &executed));
  for (size_t i = 0; i < w->count; i++) td_graph_add_control_edge(w->g, w->exits[i].node, executed);
  return td_lower_replace(w->g, w->n, w->exits, executed);
}

td_status td_lower_while(td_graph *g, td_node *n, bool *did) {
  loop w = {.g = g, .n = n, .count = (size_t)n->input_count};
  *did = can_lower(&w);
  td_status s = *did ? lower(&w) : TD_STATUS_OK;
  td_arena_deinit(&w.scratch);
  return s;
}
