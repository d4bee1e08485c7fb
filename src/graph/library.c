/* The functions of a graph. A library never changes once it was made: an extended graph gets a new one that shares
 * the messages and definitions of the one before, so it can be read from any thread. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "graph/graph.h"
#include "graph/internal.h"

td_library *td_library_create(void) {
  td_library *l = td_new(td_library);
  l->refs = 1;
  return l;
}

td_library *td_library_retain(td_library *l) {
  atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
  return l;
}

void td_library_release(td_library *l) {
  while (l && atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1) {
    td_library *base = l->base;
    td_map_deinit(&l->functions);
    td_map_deinit(&l->op_defs);
    td_map_deinit(&l->gradients);
    td_arena_deinit(&l->arena);
    td_free(l);
    l = base;
  }
}

/* ---- comparing functions ---- */

static void sort_attrs(size_t n, Pb__AttrEntry **attrs);

static void sort_func(Pb__NameAttrList *f) {
  if (f) sort_attrs(f->n_attr, f->attr);
}

static int by_key(const void *a, const void *b) {
  return strcmp((*(Pb__AttrEntry *const *)a)->key, (*(Pb__AttrEntry *const *)b)->key);
}

/* Maps come in any order on the wire. */
static void sort_attrs(size_t n, Pb__AttrEntry **attrs) {
  if (n > 1) qsort(attrs, n, sizeof *attrs, by_key);
  for (size_t i = 0; i < n; i++) {
    Pb__AttrValue *v = attrs[i]->value;
    if (!v) continue;
    if (v->value_case == PB__ATTR_VALUE__VALUE_FUNC) sort_func(v->func);
    if (v->value_case == PB__ATTR_VALUE__VALUE_LIST)
      for (size_t k = 0; k < v->list->n_func; k++) sort_func(v->list->func[k]);
  }
}

static int by_node_name(const void *a, const void *b) {
  return strcmp((*(Pb__NodeDef *const *)a)->name, (*(Pb__NodeDef *const *)b)->name);
}

static int by_entry_key(const void *a, const void *b) {
  return strcmp((*(Pb__StringEntry *const *)a)->key, (*(Pb__StringEntry *const *)b)->key);
}

static int by_arg(const void *a, const void *b) {
  uint32_t x = (*(Pb__FunctionDef__ArgAttrEntry *const *)a)->key, y = (*(Pb__FunctionDef__ArgAttrEntry *const *)b)->key;
  return (x > y) - (x < y);
}

/* One form for all encodings of the same function. The order of its nodes has a meaning nowhere. */
static void canonicalize(Pb__FunctionDef *f) {
  sort_attrs(f->n_attr, f->attr);
  for (size_t i = 0; i < f->n_node_def; i++) {
    sort_attrs(f->node_def[i]->n_attr, f->node_def[i]->attr);
    f->node_def[i]->experimental_debug_info = NULL;
  }
  if (f->n_node_def > 1) qsort(f->node_def, f->n_node_def, sizeof *f->node_def, by_node_name);
  if (f->n_ret > 1) qsort(f->ret, f->n_ret, sizeof *f->ret, by_entry_key);
  if (f->n_control_ret > 1) qsort(f->control_ret, f->n_control_ret, sizeof *f->control_ret, by_entry_key);
  if (f->n_arg_attr > 1) qsort(f->arg_attr, f->n_arg_attr, sizeof *f->arg_attr, by_arg);
  for (size_t i = 0; i < f->n_arg_attr; i++)
    if (f->arg_attr[i]->value) sort_attrs(f->arg_attr[i]->value->n_attr, f->arg_attr[i]->value->attr);
}

static td_status pack_canonical(const Pb__FunctionDef *f, td_arena *arena, td_str *out) {
  Pb__FunctionDef *copy;
  TD_TRY(td_graph_copy_message(&f->base, arena, &copy));
  canonicalize(copy);
  size_t size = pb__function_def__get_packed_size(copy);
  uint8_t *bytes = td_arena_alloc(arena, size ? size : 1);
  *out = td_str_n(bytes, pb__function_def__pack(copy, bytes));
  return TD_STATUS_OK;
}

static bool pack_equal(const Pb__FunctionDef *a, const Pb__FunctionDef *b) {
  size_t size = pb__function_def__get_packed_size(a);
  if (size != pb__function_def__get_packed_size(b)) return false;
  uint8_t *bytes = td_try_malloc(2 * size + 1);
  if (!bytes) return false;
  pb__function_def__pack(a, bytes);
  pb__function_def__pack(b, bytes + size);
  bool equal = !memcmp(bytes, bytes + size, size);
  td_free(bytes);
  return equal;
}

static bool functions_equal(const Pb__FunctionDef *a, const Pb__FunctionDef *b) {
  if (pack_equal(a, b)) return true; /* nearly always: clients send their whole library again and again */
  td_arena scratch = {0};
  td_str x, y;
  td_status s = pack_canonical(a, &scratch, &x);
  if (!s) s = pack_canonical(b, &scratch, &y);
  bool equal = !s && td_str_eq(x, y);
  td_status_free(s);
  td_arena_deinit(&scratch);
  return equal;
}

/* ---- merging ---- */

static td_status add_function(td_library *l, const Pb__FunctionDef *f) {
  if (!f->signature || !f->signature->name || !*f->signature->name)
    return td_invalid_argument("A function of the library has no name");
  td_str name = td_str_of(f->signature->name);
  const Pb__FunctionDef *old = td_map_get(&l->functions, name);
  if (old) {
    if (functions_equal(old, f)) return TD_STATUS_OK;
    return td_invalid_argument(
        "Cannot add function '%s' because a different function with the same name already exists.", f->signature->name);
  }
  if (td_op_find(name))
    return td_invalid_argument("Cannot add function '%s' because an op with the same name already exists.",
                               f->signature->name);
  Pb__FunctionDef *copy;
  TD_TRY(td_graph_copy_message(&f->base, &l->arena, &copy));
  td_map_put(&l->functions, td_str_of(copy->signature->name), copy);
  const td_op_def *op;
  td_status s = td_op_from_proto(copy->signature, &l->arena, &op);
  if (s) { /* an error only for those who call it */
    td_debug("function %s: %s", f->signature->name, td_status_message(s));
    td_status_free(s);
  } else {
    td_map_put(&l->op_defs, op->name, (void *)op);
  }
  return TD_STATUS_OK;
}

static td_status add_gradient(td_library *l, const Pb__GradientDef *g) {
  td_str name = td_str_of(g->function_name);
  const Pb__GradientDef *old = td_map_get(&l->gradients, name);
  if (old) {
    if (!strcmp(old->gradient_func, g->gradient_func)) return TD_STATUS_OK;
    return td_invalid_argument(
        "Cannot assign gradient function '%s' to '%s' because it already has gradient function '%s'", g->gradient_func,
        g->function_name, old->gradient_func);
  }
  Pb__GradientDef *copy;
  TD_TRY(td_graph_copy_message(&g->base, &l->arena, &copy));
  td_map_put(&l->gradients, td_str_of(copy->function_name), copy);
  return TD_STATUS_OK;
}

static void copy_map(td_map *to, const td_map *from) {
  td_str key;
  void *value;
  td_map_reserve(to, from->count);
  for (size_t i = 0; td_map_next(from, &i, &key, &value);) td_map_put(to, key, value);
}

td_status td_library_merge(const td_library *base, const Pb__FunctionDefLibrary *add, td_library **out) {
  td_library *l = td_library_create();
  if (base && (base->functions.count || base->gradients.count)) {
    l->base = td_library_retain((td_library *)base);
    copy_map(&l->functions, &base->functions);
    copy_map(&l->op_defs, &base->op_defs);
    copy_map(&l->gradients, &base->gradients);
  }
  size_t old_functions = l->functions.count, old_gradients = l->gradients.count;
  td_status status = TD_STATUS_OK;
  for (size_t i = 0; add && !status && i < add->n_function; i++) status = add_function(l, add->function[i]);
  for (size_t i = 0; add && !status && i < add->n_gradient; i++) status = add_gradient(l, add->gradient[i]);
  if (!status && l->base && l->functions.count == old_functions && l->gradients.count == old_gradients) {
    *out = td_library_retain(l->base); /* nothing new */
    td_library_release(l);
    return TD_STATUS_OK;
  }
  if (status)
    td_library_release(l);
  else
    *out = l;
  return status;
}

const Pb__FunctionDef *td_library_find(const td_library *l, td_str name) { return td_map_get(&l->functions, name); }

const td_op_def *td_library_op(td_library *l, td_str name) {
  const td_op_def *op = l->op_defs.count ? td_map_get(&l->op_defs, name) : NULL;
  return op ? op : td_op_find(name);
}
