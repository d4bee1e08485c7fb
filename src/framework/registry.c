/* The process-wide registry of op definitions and kernels: the one global of the program. Written at start-up, read
 * ever after; definitions are parsed on first use. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "framework/kernel.h"

typedef struct op_entry {
  const td_op_spec *spec;
  _Atomic(const td_op_def *) def; /* NULL until first use */
  const td_kernel_def **kernels;
  size_t kernel_count, kernel_capacity;
} op_entry;

static struct {
  pthread_mutex_t lock; /* guards arena and the parsing of definitions */
  td_arena arena;
  td_map ops; /* name -> op_entry; written at start-up only */
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static td_status register_kernel(const td_op_family *f, const td_kernel_def *k) {
  op_entry *e = k->op ? td_map_get(&registry.ops, td_str_of(k->op)) : NULL;
  if (!e) return td_internal("family %s: kernel for the undefined op %s", f->name, k->op ? k->op : "(none)");
  if (!k->compute && !k->compute_async && !k->create)
    return td_internal("family %s: kernel for op %s computes nothing", f->name, k->op);
  if (k->destroy && !k->state_size) return td_internal("family %s: op %s destroys no state", f->name, k->op);
  TD_GROW(e->kernels, e->kernel_count, e->kernel_capacity);
  e->kernels[e->kernel_count++] = k;
  return TD_STATUS_OK;
}

td_status td_family_register(const td_op_family *f) {
  for (size_t i = 0; i < f->op_count; i++) {
    const td_op_spec *spec = &f->ops[i];
    if (!spec->name) return td_internal("family %s: op %zu has no name", f->name, i);
    op_entry *e = td_new(op_entry);
    e->spec = spec;
    if (td_map_insert(&registry.ops, td_str_of(spec->name), e)) {
      td_free(e);
      return td_error(TD_ALREADY_EXISTS, "family %s: op %s is registered twice", f->name, spec->name);
    }
  }
  for (size_t i = 0; i < f->kernel_count; i++) TD_TRY(register_kernel(f, &f->kernels[i]));
  return TD_STATUS_OK;
}

static td_status definition(op_entry *e, const td_op_def **out) {
  /* acquire: pairs with the release below; the definition's contents are visible with the pointer */
  *out = atomic_load_explicit(&e->def, memory_order_acquire);
  if (*out) return TD_STATUS_OK;
  pthread_mutex_lock(&registry.lock);
  td_status s = TD_STATUS_OK;
  *out = atomic_load_explicit(&e->def, memory_order_relaxed);
  if (!*out) s = td_op_parse(e->spec, &registry.arena, out);
  if (!s) atomic_store_explicit(&e->def, *out, memory_order_release);
  pthread_mutex_unlock(&registry.lock);
  return s;
}

const td_op_def *td_op_find(td_str name) {
  op_entry *e = td_map_get(&registry.ops, name);
  const td_op_def *def = NULL;
  td_status s = e ? definition(e, &def) : TD_STATUS_OK;
  td_status_free(s); /* td_registry_check() and the tests show it */
  return s ? NULL : def;
}

td_status td_op_not_found(td_str name) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return td_not_found(
      "Op type not registered '%.*s' in binary running on %s. Make sure the Op and Kernel are registered in the binary "
      "running in this process.",
      TD_STR_ARG(name), host);
}

/* Whether every type that the constraint speaks of lies in its set. */
static bool constraint_fits(const td_node_def *n, const td_type_constraint *c) {
  const Pb__AttrValue *v = td_attr_find(n, c->attr);
  if (!v) return false;
  if (v->value_case == PB__ATTR_VALUE__VALUE_TYPE) return td_dtype_in(td_dtype_base(v->type), c->types);
  if (v->value_case != PB__ATTR_VALUE__VALUE_LIST) return false;
  for (size_t i = 0; i < v->list->n_type; i++)
    if (!td_dtype_in(td_dtype_base(v->list->type[i]), c->types)) return false;
  return true;
}

static bool kernel_fits(const td_kernel_def *k, const td_node_def *n, td_str device_type) {
  if (!td_str_is(device_type, k->device_type ? k->device_type : "CPU")) return false;
  for (size_t i = 0; i < TD_COUNT(k->types) && k->types[i].attr; i++)
    if (!constraint_fits(n, &k->types[i])) return false;
  return true;
}

const td_kernel_def *td_kernel_find(const td_node_def *n, td_str device_type) {
  const op_entry *e = td_map_get(&registry.ops, n->op);
  const td_kernel_def *best = NULL;
  for (size_t i = 0; e && i < e->kernel_count; i++)
    if ((!best || e->kernels[i]->priority > best->priority) && kernel_fits(e->kernels[i], n, device_type))
      best = e->kernels[i];
  return best;
}

bool td_kernel_any_for_op(td_str op) {
  const op_entry *e = td_map_get(&registry.ops, op);
  return e && e->kernel_count;
}

/* Two kernels may be chosen for one node: same device and priority, and every shared constraint overlaps. */
static bool ambiguous(const td_kernel_def *a, const td_kernel_def *b) {
  if (a->priority != b->priority) return false;
  if (strcmp(a->device_type ? a->device_type : "CPU", b->device_type ? b->device_type : "CPU")) return false;
  for (size_t i = 0; i < TD_COUNT(a->types) && a->types[i].attr; i++)
    for (size_t j = 0; j < TD_COUNT(b->types) && b->types[j].attr; j++)
      if (!strcmp(a->types[i].attr, b->types[j].attr) && !(a->types[i].types & b->types[j].types)) return false;
  return true;
}

static td_status check_op(op_entry *e) {
  const td_op_def *def;
  TD_TRY(definition(e, &def));
  for (size_t i = 0; i < e->kernel_count; i++) {
    const td_kernel_def *k = e->kernels[i];
    for (size_t c = 0; c < TD_COUNT(k->types) && k->types[c].attr; c++) {
      const td_attr_def *a = td_op_attr(def, td_str_of(k->types[c].attr));
      if (!a || a->kind != TD_ATTR_TYPE)
        return td_internal("op %s: a kernel constrains '%s', which is no type attribute", e->spec->name,
                           k->types[c].attr);
    }
    for (size_t j = 0; j < i; j++)
      if (ambiguous(k, e->kernels[j]))
        return td_error(TD_ALREADY_EXISTS, "op %s: kernels %zu and %zu of priority %d fit one case", e->spec->name, j,
                        i, k->priority);
  }
  return TD_STATUS_OK;
}

td_status td_registry_check(void) {
  void *v;
  for (size_t i = 0; td_map_next(&registry.ops, &i, NULL, &v);) TD_TRY(check_op(v));
  return TD_STATUS_OK;
}

bool td_registry_next(size_t *i, td_str *op) { return td_map_next(&registry.ops, i, op, NULL); }
