/* Datasets that gather elements by a key that a function gives: GroupByWindow, GroupByReducer. */
#include <string.h>

#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/data/held.h"
#include "ops/families.h"

enum { KEY, SIZE_OR_INIT, REDUCE, FINALIZE, FUNCTIONS }; /* which function */

typedef struct grouped {
  td_dataset base;
  td_captured f[FUNCTIONS];
} grouped;

static void grouped_destroy(td_dataset *d) {
  for (int i = 0; i < FUNCTIONS; i++) td_captured_deinit(&((grouped *)d)->f[i]);
}

/* ---- groups, sorted by key ---- */

typedef struct group {
  int64_t key, window; /* window 0: not known yet */
  td_element **elements;
  size_t count, capacity;
  td_element *state; /* GroupByReducer */
} group;

typedef struct group_iterator {
  td_iterator base;
  td_iterator *input, *flushed;
  td_data_call call;
  td_element *element; /* whose group is being looked for */
  /* Of the window that is being flushed: its key and dataset; and the state of `flushed` where that is still to be
   * made, as before a checkpoint. */
  td_element *window;
  td_strbuf later;
  group *groups;
  size_t count, capacity, at; /* at: the group in hand */
  bool input_ended;
  enum { CHOOSE, PULLED, KEYED, PREPARED, REDUCED, FLUSH, FLUSHED } phase;
} group_iterator;

static void drop_elements(group *g) {
  for (size_t i = 0; i < g->count; i++) td_element_free(g->elements[i]);
  g->count = 0;
}

static td_status group_start(td_iterator *it) {
  return td_iterator_create_input(it, 0, &((group_iterator *)it)->input);
}

static void group_stop(td_iterator *it) {
  group_iterator *g = (group_iterator *)it;
  for (size_t i = 0; i < g->count; i++) {
    drop_elements(&g->groups[i]);
    td_free(g->groups[i].elements);
    td_element_free(g->groups[i].state);
  }
  td_free(g->groups);
  td_iterator_destroy(g->flushed);
  td_iterator_destroy(g->input);
  td_data_call_deinit(&g->call);
  td_element_free(g->element);
  td_element_free(g->window);
  td_strbuf_deinit(&g->later);
}

/* The group of a key, made if there is none; its index. */
static size_t find_group(group_iterator *g, int64_t key) {
  size_t low = 0, high = g->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (g->groups[middle].key < key)
      low = middle + 1;
    else
      high = middle;
  }
  if (low < g->count && g->groups[low].key == key) return low;
  TD_GROW(g->groups, g->count, g->capacity);
  memmove(g->groups + low + 1, g->groups + low, (g->count - low) * sizeof *g->groups);
  g->groups[low] = (group){.key = key};
  g->count++;
  return low;
}

static td_status scalar_int64(td_data_call *call, const char *function, int64_t *out) {
  td_status s;
  td_element *e = td_data_call_take(call, &s);
  if (s) return s;
  if (e->count != 1 || e->values[0]->dtype != TD_INT64 || e->values[0]->rank)
    s = td_invalid_argument("`%s` must return a scalar int64.", function);
  else
    *out = *TD_DATA(e->values[0], int64_t);
  td_element_free(e);
  return s;
}

static td_status key_element(int64_t key, td_element **out) {
  td_tensor *t;
  TD_TRY(td_tensor_create_dims(TD_INT64, 0, NULL, &t));
  *TD_DATA(t, int64_t) = key;
  *out = td_element_of(1, &t);
  return TD_STATUS_OK;
}

/* Fails with the element in hand given up. */
static td_next give_up(td_iterator *it, td_status s) {
  group_iterator *g = (group_iterator *)it;
  td_element_free(g->element);
  g->element = NULL;
  g->phase = CHOOSE;
  return td_iterator_fail(it, s);
}

/* Asks for the key of the element that was pulled. */
static td_next ask_key(td_iterator *it) {
  group_iterator *g = (group_iterator *)it;
  g->element = td_iterator_take(g->input);
  g->phase = KEYED;
  return td_iterator_call(it, &g->call, &((grouped *)it->dataset)->f[KEY], td_element_copy(g->element));
}

/* Calls a function of the group's key. */
static td_next call_with_key(td_iterator *it, int which, td_status *s) {
  group_iterator *g = (group_iterator *)it;
  td_element *args;
  g->phase = PREPARED;
  *s = key_element(g->groups[g->at].key, &args);
  if (*s) return TD_NEXT_READY;
  return td_iterator_call(it, &g->call, &((grouped *)it->dataset)->f[which], args);
}

/* ---- GroupByWindow ---- */

/* Key and dataset of the group in hand, whose elements it takes. */
static td_status window_args(td_iterator *it, td_element **out) {
  group_iterator *g = (group_iterator *)it;
  group *from = &g->groups[g->at];
  td_dataset *d;
  td_element *e = td_element_create(2), *key;
  td_status s = td_held_create(&it->dataset->inputs[0]->spec, from->elements, from->count, &d);
  from->elements = NULL;
  from->count = from->capacity = 0;
  if (!s) s = td_dataset_tensor(d, &e->values[1]);
  if (!s) s = key_element(from->key, &key);
  if (s) {
    td_element_free(e);
    return s;
  }
  e->values[0] = key->values[0];
  td_free(key);
  *out = e;
  return TD_STATUS_OK;
}

static td_status open_flushed(td_iterator *it) {
  group_iterator *g = (group_iterator *)it;
  td_status s;
  td_dataset *d;
  td_element *e = td_data_call_take(&g->call, &s);
  if (s) return s;
  if (e->count != 1 || e->values[0]->dtype != TD_VARIANT)
    s = td_invalid_argument("`reduce_func` must return a single dataset.");
  if (!s) s = td_dataset_of(e->values[0], &d);
  if (!s) s = td_data_spec_check(&it->dataset->spec, &d->spec);
  if (!s) s = td_iterator_create(d, it, it->driver, &g->flushed);
  if (!s && g->later.size) {
    s = td_archive_apply(&g->later, g->flushed);
    if (s) {
      td_iterator_destroy(g->flushed);
      g->flushed = NULL;
    }
  }
  td_strbuf_deinit(&g->later);
  td_element_free(e);
  return s;
}

/* The window size is known: keeps the element. True: the window is full. */
static bool keep_element(group_iterator *g) {
  group *to = &g->groups[g->at];
  TD_GROW(to->elements, to->count, to->capacity);
  to->elements[to->count++] = g->element;
  g->element = NULL;
  return (int64_t)to->count >= to->window;
}

/* A group to flush at the end: the first that has elements. */
static bool choose_rest(group_iterator *g) {
  for (g->at = 0; g->at < g->count; g->at++)
    if (g->groups[g->at].count) return true;
  return false;
}

static td_next window_advance(td_iterator *it) {
  group_iterator *g = (group_iterator *)it;
  const grouped *d = (const grouped *)it->dataset;
  for (;;) {
    td_status s = TD_STATUS_OK;
    int64_t value;
    bool flushes = false;
    switch (g->phase) {
      case CHOOSE:
        if (g->input_ended) {
          if (!choose_rest(g)) return td_iterator_give(it, NULL);
          flushes = true;
          break;
        }
        g->phase = PULLED;
        return td_iterator_pull(it, g->input);
      case PULLED:
        g->phase = CHOOSE;
        if (g->input->status) return td_iterator_pass(it, g->input);
        g->input_ended = td_iterator_ended(g->input);
        if (!g->input_ended && ask_key(it) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
        break;
      case KEYED:
        s = scalar_int64(&g->call, "key_func", &value);
        if (s) return give_up(it, s);
        g->at = find_group(g, value);
        if (g->groups[g->at].window) {
          flushes = keep_element(g);
          g->phase = CHOOSE;
          break;
        }
        if (call_with_key(it, SIZE_OR_INIT, &s) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
        if (s) return give_up(it, s);
        break;
      case PREPARED:
        s = scalar_int64(&g->call, "window_size_func", &value);
        if (!s && value <= 0)
          s = td_invalid_argument("Window size must be greater than zero, but got %lld.", (long long)value);
        if (s) return give_up(it, s);
        g->groups[g->at].window = value;
        flushes = keep_element(g);
        g->phase = CHOOSE;
        break;
      case REDUCED:
        g->phase = CHOOSE;
        s = open_flushed(it);
        if (s) return td_iterator_fail(it, s);
        g->phase = FLUSH;
        break;
      case FLUSH:
        if (!g->flushed) { /* it was read from an archive */
          flushes = true;
          break;
        }
        g->phase = FLUSHED;
        return td_iterator_pull(it, g->flushed);
      case FLUSHED:
        if (!td_iterator_ended(g->flushed) || g->flushed->status) {
          g->phase = FLUSH;
          return td_iterator_pass(it, g->flushed);
        }
        g->phase = CHOOSE;
        td_iterator_destroy(g->flushed);
        g->flushed = NULL;
        td_element_free(g->window);
        g->window = NULL;
        break;
    }
    if (!flushes) continue;
    if (g->phase != FLUSH) {
      td_element_free(g->window); /* of one that failed */
      g->window = NULL;
      s = window_args(it, &g->window);
    }
    if (s) return give_up(it, s);
    g->phase = REDUCED;
    if (td_iterator_call(it, &g->call, &d->f[REDUCE], td_element_copy(g->window)) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
  }
}

/* Groups with what they hold. */
static td_status archive_groups(td_iterator *it, td_archive *a) {
  group_iterator *g = (group_iterator *)it;
  size_t n = g->count;
  TD_TRY(td_archive_count(a, &n));
  for (size_t i = 0; i < n; i++) {
    group local = {0}, *to = a->is_writing ? &g->groups[i] : &local;
    TD_TRY(td_archive_int(a, &to->key, INT64_MIN, INT64_MAX));
    if (!a->is_writing) {
      size_t before = g->count, at = find_group(g, local.key);
      to = &g->groups[at];
      if (g->count == before) return td_archive_invalid("a group's key is there twice");
    }
    TD_TRY(td_archive_int(a, &to->window, 0, INT64_MAX));
    TD_TRY(td_archive_elements(a, &it->dataset->inputs[0]->spec, &to->elements, &to->count, &to->capacity));
    TD_TRY(td_archive_element(a, NULL, &to->state));
  }
  TD_TRY(td_archive_size(a, &g->at, g->count));
  TD_TRY(td_archive_bool(a, &g->input_ended));
  TD_TRY(td_archive_input(a, it, 0, &g->input));
  return g->input ? TD_STATUS_OK : td_archive_invalid("an input is missing");
}

static td_status window_archive(td_iterator *it, td_archive *a) {
  group_iterator *g = (group_iterator *)it;
  bool flushes = g->phase == FLUSH;
  TD_TRY(archive_groups(it, a));
  TD_TRY(td_archive_bool(a, &flushes));
  if (!flushes) return TD_STATUS_OK;
  g->phase = FLUSH;
  TD_TRY(td_archive_element(a, NULL, &g->window));
  if (!g->window) return td_archive_invalid("a window is missing");
  return td_archive_later(a, g->flushed, &g->later);
}

static td_status reducer_archive(td_iterator *it, td_archive *a) {
  group_iterator *g = (group_iterator *)it;
  bool is_at_end = g->phase == FLUSH;
  TD_TRY(archive_groups(it, a));
  TD_TRY(td_archive_bool(a, &is_at_end));
  g->phase = is_at_end ? FLUSH : CHOOSE;
  return TD_STATUS_OK;
}

static const td_dataset_ops window_ops = {.name = "GroupByWindow",
                                          .iterator_size = sizeof(group_iterator),
                                          .start = group_start,
                                          .advance = window_advance,
                                          .stop = group_stop,
                                          .archive = window_archive,
                                          .destroy = grouped_destroy};

/* ---- GroupByReducer: a state for each key, all of the input first ---- */

static td_element *joined(const td_element *state, td_element *x) {
  td_element *args = td_element_create(state->count + x->count);
  for (int i = 0; i < state->count; i++) args->values[i] = td_tensor_retain(state->values[i]);
  for (int i = 0; i < x->count; i++) args->values[state->count + i] = x->values[i];
  td_free(x);
  return args;
}

/* Calls the reducer with the state of the group in hand and the element. */
static td_next reduce(td_iterator *it) {
  group_iterator *g = (group_iterator *)it;
  td_element *args = joined(g->groups[g->at].state, g->element);
  g->element = NULL;
  g->phase = REDUCED;
  return td_iterator_call(it, &g->call, &((grouped *)it->dataset)->f[REDUCE], args);
}

/* The call's results become the state of the group in hand. */
static td_status take_state(group_iterator *g) {
  td_status s;
  td_element *state = td_data_call_take(&g->call, &s);
  if (s) return s;
  td_element_free(g->groups[g->at].state);
  g->groups[g->at].state = state;
  return TD_STATUS_OK;
}

/* The next group's final result is asked for; the groups are over: the end. */
static td_next finalize(td_iterator *it) {
  group_iterator *g = (group_iterator *)it;
  if (g->at >= g->count) return td_iterator_give(it, NULL);
  group *from = &g->groups[g->at++];
  td_element *state = from->state;
  from->state = NULL;
  if (!state) return td_iterator_fail(it, td_internal("The state of key %lld is not there", (long long)from->key));
  g->phase = FLUSHED;
  return td_iterator_call(it, &g->call, &((grouped *)it->dataset)->f[FINALIZE], state) == TD_NEXT_WAIT ? TD_NEXT_WAIT
                                                                                                       : TD_NEXT_HOP;
}

static td_next reducer_advance(td_iterator *it) {
  group_iterator *g = (group_iterator *)it;
  for (;;) {
    td_status s = TD_STATUS_OK;
    int64_t key;
    td_element *e;
    switch (g->phase) {
      case CHOOSE:
        g->phase = PULLED;
        return td_iterator_pull(it, g->input);
      case PULLED:
        g->phase = CHOOSE;
        if (g->input->status) return td_iterator_pass(it, g->input);
        if (td_iterator_ended(g->input)) {
          g->at = 0;
          g->phase = FLUSH;
        } else if (ask_key(it) == TD_NEXT_WAIT) {
          return TD_NEXT_WAIT;
        }
        break;
      case KEYED:
        s = scalar_int64(&g->call, "key_func", &key);
        if (s) return give_up(it, s);
        g->at = find_group(g, key);
        if ((g->groups[g->at].state ? reduce(it) : call_with_key(it, SIZE_OR_INIT, &s)) == TD_NEXT_WAIT)
          return TD_NEXT_WAIT;
        if (s) return give_up(it, s);
        break;
      case PREPARED:
        s = take_state(g);
        if (s) return give_up(it, s);
        if (reduce(it) == TD_NEXT_WAIT) return TD_NEXT_WAIT;
        break;
      case REDUCED:
        s = take_state(g);
        if (s) return give_up(it, s);
        g->phase = CHOOSE;
        break;
      case FLUSH: {
        td_next next = finalize(it);
        if (next != TD_NEXT_HOP) return next;
        break;
      }
      case FLUSHED:
        g->phase = FLUSH;
        e = td_data_call_take(&g->call, &s);
        return s ? td_iterator_fail(it, s) : td_iterator_give(it, e);
    }
  }
}

static const td_dataset_ops reducer_ops = {.name = "GroupByReducer",
                                           .iterator_size = sizeof(group_iterator),
                                           .start = group_start,
                                           .advance = reducer_advance,
                                           .stop = group_stop,
                                           .archive = reducer_archive,
                                           .destroy = grouped_destroy};

/* ---- kernels ---- */

static td_status create_window(td_kernel_builder *b, void *state) {
  TD_TRY(td_dataset_kernel_create(b, state));
  TD_TRY(td_dataset_kernel_add_function(b, state, "key_func", "key_func_other_arguments"));
  TD_TRY(td_dataset_kernel_add_function(b, state, "window_size_func", "window_size_func_other_arguments"));
  return td_dataset_kernel_add_function(b, state, "reduce_func", "reduce_func_other_arguments");
}

static td_status create_reducer(td_kernel_builder *b, void *state) {
  TD_TRY(td_dataset_kernel_create(b, state));
  TD_TRY(td_dataset_kernel_add_function(b, state, "key_func", "key_func_other_arguments"));
  TD_TRY(td_dataset_kernel_add_function(b, state, "init_func", "init_func_other_arguments"));
  TD_TRY(td_dataset_kernel_add_function(b, state, "reduce_func", "reduce_func_other_arguments"));
  return td_dataset_kernel_add_function(b, state, "finalize_func", "finalize_func_other_arguments");
}

static td_status make(td_kernel_ctx *ctx, const td_dataset_ops *ops) {
  const td_dataset_kernel *k = ctx->state;
  td_dataset *input, *d;
  TD_TRY(td_in_dataset(ctx, 0, &input));
  TD_TRY(td_dataset_create(ops, sizeof(grouped), &k->spec, &input, 1, &d));
  for (int i = 0; i < k->function_count; i++) td_captured_init(&((grouped *)d)->f[i], ctx, i);
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static td_status compute_window(td_kernel_ctx *ctx) { return make(ctx, &window_ops); }
static td_status compute_reducer(td_kernel_ctx *ctx) { return make(ctx, &reducer_ops); }

#define WINDOW_IN                                                                                 \
  "input_dataset: variant; key_func_other_arguments: Tkey_func_other_arguments; "                 \
  "reduce_func_other_arguments: Treduce_func_other_arguments; window_size_func_other_arguments: " \
  "Twindow_size_func_other_arguments"
#define WINDOW_ATTRS                                                                                  \
  "key_func: func; reduce_func: func; window_size_func: func; Tkey_func_other_arguments: list(type) " \
  ">= 0; Treduce_func_other_arguments: list(type) >= 0; Twindow_size_func_other_arguments: "          \
  "list(type) >= 0; " TD_DATASET_TYPES
#define REDUCER_IN                                                                       \
  "input_dataset: variant; key_func_other_arguments: Tkey_func_other_arguments; "        \
  "init_func_other_arguments: Tinit_func_other_arguments; reduce_func_other_arguments: " \
  "Treduce_func_other_arguments; finalize_func_other_arguments: Tfinalize_func_other_arguments"
#define REDUCER_ATTRS                                                                         \
  "key_func: func; init_func: func; reduce_func: func; finalize_func: func; "                 \
  "Tkey_func_other_arguments: list(type) >= 0; Tinit_func_other_arguments: list(type) >= 0; " \
  "Treduce_func_other_arguments: list(type) >= 0; Tfinalize_func_other_arguments: list(type) >= 0; " TD_DATASET_TYPES

static const td_op_spec ops[] = {
    {"ExperimentalGroupByReducerDataset", REDUCER_IN, "handle: variant", REDUCER_ATTRS, TD_OP_STATEFUL},
    {"ExperimentalGroupByWindowDataset", WINDOW_IN, "handle: variant", WINDOW_ATTRS, 0},
    {"GroupByReducerDataset", REDUCER_IN, "handle: variant", REDUCER_ATTRS, TD_OP_STATEFUL},
    {"GroupByWindowDataset", WINDOW_IN, "handle: variant", WINDOW_ATTRS TD_DATASET_META, 0},
};

static const td_kernel_def kernels[] = {
    TD_DATASET_KERNEL("ExperimentalGroupByReducerDataset", create_reducer, compute_reducer),
    TD_DATASET_KERNEL("ExperimentalGroupByWindowDataset", create_window, compute_window),
    TD_DATASET_KERNEL("GroupByReducerDataset", create_reducer, compute_reducer),
    TD_DATASET_KERNEL("GroupByWindowDataset", create_window, compute_window),
};

TD_FAMILY(data_group, ops, kernels);
