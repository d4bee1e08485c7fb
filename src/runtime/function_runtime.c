#include "runtime/function_runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "framework/device.h"
#include "framework/rendezvous.h"
#include "graph/function_body.h"
#include "graph/gradient.h"
#include "runtime/executor.h"
#include "runtime/function_parts.h"
#include "runtime/local_rendezvous.h"
#include "runtime/program_internal.h"

enum { MAX_FUNCTIONS = 1 << 20, MAX_CALLS = 100000, MAX_COMPILE_DEPTH = 64 };

typedef struct instance {
  td_str key;
  const Pb__FunctionDef *def; /* the library's; NULL: the gradient of `call` */
  Pb__NameAttrList *call;     /* own copy */
  td_device *device;          /* retained; NULL: `remote` */
  bool is_multi_device;
  td_remote_function *remote; /* own */
  /* guarded by compile_lock until state is READY or FAILED (release), then immutable */
  _Atomic int state;
  td_function_parts parts;
  td_status error;
} instance;
enum { NEW, COMPILING, READY, FAILED };

typedef struct runtime {
  td_function_runtime base;
  atomic_uint refs;
  td_library *library;
  char *session;
  td_function_places places;
  pthread_mutex_t compile_lock; /* recursive: compiling a function instantiates those it calls */
  int compile_depth;            /* guarded by compile_lock */
  pthread_mutex_t lock;         /* taken inside compile_lock */
  td_map by_key;                /* guarded by lock, as are: */
  instance **instances;
  size_t count, capacity;
  atomic_int calls; /* in progress; relaxed: a cap need not be exact */
} runtime;

/* ---- instances ---- */

static int by_key(const void *a, const void *b) {
  return strcmp((*(Pb__AttrEntry *const *)a)->key, (*(Pb__AttrEntry *const *)b)->key);
}

/* What is instantiated, and where. */
typedef struct wanted {
  const Pb__NameAttrList *function;
  const Pb__FunctionDef *def; /* NULL: the gradient */
  td_device *device;          /* NULL: another task's */
  td_str device_name;
  bool is_multi_device;
  td_remote_function *remote; /* consumed; NULL: not remote */
} wanted;

/* Device, kind and packed message, with the attributes in order. */
static td_status make_key(const wanted *w, td_strbuf *out) {
  const Pb__NameAttrList *function = w->function;
  Pb__NameAttrList sorted = *function;
  sorted.attr = td_new_array(Pb__AttrEntry *, function->n_attr);
  for (size_t i = 0; i < function->n_attr; i++) sorted.attr[i] = function->attr[i];
  if (function->n_attr > 1) qsort(sorted.attr, function->n_attr, sizeof *sorted.attr, by_key);
  size_t size = pb__name_attr_list__get_packed_size(&sorted);
  uint8_t *bytes = td_try_malloc(size);
  if (bytes) {
    td_strbuf_printf(out, "%.*s%c", TD_STR_ARG(w->device_name), !w->def ? '\'' : w->is_multi_device ? '*' : ';');
    td_strbuf_append(out, td_str_n(bytes, pb__name_attr_list__pack(&sorted, bytes)));
  }
  td_free(bytes);
  td_free(sorted.attr);
  return bytes ? TD_STATUS_OK : td_resource_exhausted("No memory for a function's attributes of %zu bytes", size);
}

static void instance_free(instance *i) {
  td_function_parts_deinit(&i->parts);
  if (i->remote) i->remote->release(i->remote);
  td_status_free(i->error);
  if (i->call) pb__name_attr_list__free_unpacked(i->call, NULL);
  if (i->device) td_device_release(i->device);
  td_free((char *)i->key.data);
  td_free(i);
}

static instance *instance_new(const wanted *w, td_str key, Pb__NameAttrList *call) {
  instance *i = td_new(instance);
  i->key = key;
  i->def = w->def;
  i->call = call;
  i->device = w->device ? td_device_retain(w->device) : NULL;
  i->is_multi_device = w->is_multi_device;
  i->remote = w->remote;
  return i;
}

/* The instance of a key, made if there is none yet. Takes the key over. */
static td_status find_or_add(runtime *r, td_strbuf *key, wanted *w, instance **out, td_function_handle *handle) {
  td_status s = TD_STATUS_OK;
  pthread_mutex_lock(&r->lock);
  uintptr_t at = (uintptr_t)td_map_get(&r->by_key, td_strbuf_view(key)); /* handle; 0: none */
  if (!at && r->count >= MAX_FUNCTIONS) {
    s = td_resource_exhausted("More than %d functions are instantiated", MAX_FUNCTIONS);
  } else if (!at) {
    size_t head = w->device_name.size + 1, size = key->size;
    Pb__NameAttrList *copy = pb__name_attr_list__unpack(NULL, size - head, (uint8_t *)key->data + head);
    if (copy) {
      instance *i = instance_new(w, (td_str){td_strbuf_take(key), size}, copy);
      w->remote = NULL;
      TD_GROW(r->instances, r->count, r->capacity);
      r->instances[r->count++] = i;
      at = r->count;
      td_map_put(&r->by_key, i->key, (void *)at);
    } else {
      s = td_resource_exhausted("No memory for a function's attributes of %zu bytes", key->size);
    }
  }
  if (!s) {
    *out = r->instances[at - 1];
    *handle = at;
  }
  pthread_mutex_unlock(&r->lock);
  return s;
}

static td_status compile(runtime *r, instance *i) {
  td_function_body body;
  if (i->def)
    TD_TRY(td_function_body_create(r->library, i->def, i->call, &body));
  else
    TD_TRY(td_gradient_body_create(r->library, i->call, &body));
  td_program_options o = {.device = i->device, .functions = &r->base, .session = td_str_of(r->session)};
  td_str name = td_str_of(i->call->name);
  td_status s = td_function_body_lower(&body, i->def ? name : (td_str){0});
  if (!s) s = td_function_parts_create(&body, name, &o, i->is_multi_device ? &r->places : NULL, &i->parts);
  td_graph_release(body.graph);
  return s;
}

/* Compiles it unless that has been or is being done; when a graph is made, not if functions nest too deeply. */
static td_status ensure_compiled(runtime *r, instance *i, bool at_run) {
  /* acquire: pairs with the release below */
  int state = atomic_load_explicit(&i->state, memory_order_acquire);
  if (state < READY) {
    pthread_mutex_lock(&r->compile_lock);
    state = atomic_load_explicit(&i->state, memory_order_relaxed);
    if (state == NEW && (at_run || r->compile_depth < MAX_COMPILE_DEPTH)) {
      atomic_store_explicit(&i->state, COMPILING, memory_order_relaxed);
      int outer = r->compile_depth;
      r->compile_depth++;
      i->error = compile(r, i);
      r->compile_depth = outer;
      state = i->error ? FAILED : READY;
      atomic_store_explicit(&i->state, state, memory_order_release);
    }
    pthread_mutex_unlock(&r->compile_lock);
  }
  return state == FAILED ? td_status_retain(i->error) : TD_STATUS_OK;
}

static const Pb__NameAttrList *attr_f(const Pb__NameAttrList *function) {
  for (size_t i = 0; i < function->n_attr; i++) {
    const Pb__AttrValue *v = function->attr[i]->value;
    if (!strcmp(function->attr[i]->key, "f") && v && v->value_case == PB__ATTR_VALUE__VALUE_FUNC) return v->func;
  }
  return NULL;
}

/* "SymbolicGradient" of f is the function that the library names as f's gradient, or one that is made. */
static td_status resolve_gradient(const runtime *r, Pb__NameAttrList *function, bool *is_made) {
  *is_made = false;
  if (strcmp(function->name, "SymbolicGradient") != 0) return TD_STATUS_OK;
  const Pb__NameAttrList *f = attr_f(function);
  if (!f) return td_invalid_argument("SymbolicGradient is missing attr: f");
  if (!strcmp(f->name, "SymbolicGradient")) return td_invalid_argument("Can't take gradient of SymbolicGradient");
  const Pb__GradientDef *given = td_map_get(&r->library->gradients, td_str_of(f->name));
  *function = *f;
  *is_made = !given;
  if (given) function->name = given->gradient_func;
  return TD_STATUS_OK;
}

/* Consumes w->remote. */
static td_status add(runtime *r, wanted *w, td_function_handle *out) {
  td_strbuf key = {0};
  instance *i;
  td_status s = make_key(w, &key);
  if (!s) s = find_or_add(r, &key, w, &i, out);
  td_strbuf_deinit(&key);
  if (w->remote) w->remote->release(w->remote); /* it was there */
  if (s || !i->device) return s;
  return ensure_compiled(r, i, false);
}

static td_status find_def(const runtime *r, const Pb__NameAttrList *function, const Pb__FunctionDef **out) {
  *out = td_library_find(r->library, td_str_of(function->name));
  if (!*out) return td_not_found("Function %s is not defined.", function->name);
  return (*out)->signature ? TD_STATUS_OK : td_invalid_argument("Function %s has no signature", function->name);
}

static td_status instantiate_here(runtime *r, const Pb__NameAttrList *requested, td_device *device,
                                  bool is_multi_device, td_function_handle *out) {
  Pb__NameAttrList function = *requested;
  wanted w = {.function = &function,
              .device = device,
              .device_name = td_str_of(device->name),
              .is_multi_device = is_multi_device};
  bool is_gradient;
  TD_TRY(resolve_gradient(r, &function, &is_gradient));
  if (!is_gradient) TD_TRY(find_def(r, &function, &w.def));
  return add(r, &w, out);
}

static td_status instantiate(td_function_runtime *base, const Pb__NameAttrList *function, td_device *device,
                             td_function_handle *out) {
  return instantiate_here((runtime *)base, function, device, false, out);
}

/* `target` completed by the caller's device. */
static td_status find_target(td_str target, const td_device *caller, char *out) {
  td_device_name name;
  if (!td_device_name_parse(target, &name))
    return td_invalid_argument("Could not parse %.*s into a device specification.", TD_STR_ARG(target));
  if (!name.job[0]) memcpy(name.job, caller->parsed.job, sizeof name.job);
  if (name.replica < 0) name.replica = caller->parsed.replica;
  if (name.task < 0) name.task = caller->parsed.task;
  if (!name.type[0]) memcpy(name.type, caller->parsed.type, sizeof name.type);
  if (name.id < 0) name.id = caller->parsed.id;
  td_device_name_format(&name, out);
  return TD_STATUS_OK;
}

static td_status instantiate_on(td_function_runtime *base, const Pb__NameAttrList *function, td_device *caller,
                                const td_function_where *where, td_function_handle *out) {
  runtime *r = (runtime *)base;
  char name[TD_DEVICE_NAME_MAX];
  if (!where->target.size)
    return instantiate_here(r, function, caller, where->is_multi_device && r->places.device_count, out);
  TD_TRY(find_target(where->target, caller, name));
  if (!strcmp(name, caller->name)) return instantiate_here(r, function, caller, where->is_multi_device, out);
  for (int i = 0; i < r->places.device_count; i++)
    if (!strcmp(name, r->places.devices[i]->name))
      return instantiate_here(r, function, r->places.devices[i], where->is_multi_device, out);
  if (!r->places.remote) return td_invalid_argument("%s unknown device.", name);
  wanted w = {.function = function, .device_name = td_str_of(name)};
  TD_TRY(find_def(r, function, &w.def));
  TD_TRY(r->places.remote(r->places.arg, r->library, function, w.device_name, &w.remote));
  return add(r, &w, out);
}

/* ---- calls ---- */

typedef struct running {
  runtime *r;
  td_function_call *call;
  td_step step;
} running;

static void call_ended(void *arg, td_status status, td_tensor **results, int count) {
  running *c = arg;
  td_function_call *call = c->call;
  td_rendezvous_release(c->step.rendezvous);
  atomic_fetch_sub_explicit(&c->r->calls, 1, memory_order_relaxed);
  td_free(c);
  call->done(call, status, results, count);
}

static void run(td_function_runtime *base, td_function_call *call) {
  runtime *r = (runtime *)base;
  pthread_mutex_lock(&r->lock);
  instance *i = call->function && call->function <= r->count ? r->instances[call->function - 1] : NULL;
  pthread_mutex_unlock(&r->lock);
  if (i && i->remote) {
    i->remote->run(i->remote, call);
    return;
  }
  td_status s = i ? ensure_compiled(r, i, true)
                  : td_internal("There is no function of handle %llu", (unsigned long long)call->function);
  if (!s && atomic_fetch_add_explicit(&r->calls, 1, memory_order_relaxed) >= MAX_CALLS) {
    atomic_fetch_sub_explicit(&r->calls, 1, memory_order_relaxed);
    s = td_resource_exhausted("More than %d function calls are in progress at once, in function %s", MAX_CALLS,
                              i->call->name);
  }
  if (!s && !i->parts.count) { /* its own thread is compiling it: only while a kernel is being created */
    atomic_fetch_sub_explicit(&r->calls, 1, memory_order_relaxed);
    s = td_internal("Function %s is called while it is being compiled", i->call->name);
  }
  if (s) {
    call->done(call, s, NULL, 0);
    return;
  }
  running *c = td_new(running);
  c->r = r;
  c->call = call;
  c->step = *call->step;
  c->step.functions = base;
  c->step.rendezvous = i->parts.has_transfers ? td_local_rendezvous_create() : NULL;
  td_run_options o = {.step = &c->step, .args = call->args, .arg_count = call->arg_count, .done = call_ended, .arg = c};
  td_function_parts_run(&i->parts, &o);
}

static const Pb__FunctionDefLibrary *reach(td_function_runtime *base, const Pb__NameAttrList *const *calls,
                                           size_t count, td_arena *arena) {
  return td_library_reach(((runtime *)base)->library, calls, count, arena);
}

/* Functions of other tasks stay out of reach: they are bound to the session's graph. */
static td_status derive(td_function_runtime *base, const Pb__FunctionDefLibrary *from, td_function_runtime **out) {
  const runtime *r = (const runtime *)base;
  td_function_places places = {.devices = r->places.devices, .device_count = r->places.device_count};
  td_library *none = td_library_create(), *library;
  td_status s = td_library_merge(none, from, &library);
  td_library_release(none);
  if (s) return s;
  *out = td_function_runtime_create(library, td_str_of(r->session), &places);
  td_library_release(library);
  return TD_STATUS_OK;
}

static void retain(td_function_runtime *base) {
  atomic_fetch_add_explicit(&((runtime *)base)->refs, 1, memory_order_relaxed);
}

static void copy_places(td_function_places *to, const td_function_places *from) {
  *to = *from;
  to->devices = td_new_array(td_device *, (size_t)from->device_count);
  for (int i = 0; i < from->device_count; i++) to->devices[i] = td_device_retain(from->devices[i]);
}

td_function_runtime *td_function_runtime_create(td_library *library, td_str session, const td_function_places *places) {
  static const td_function_runtime_ops ops = {.instantiate = instantiate,
                                              .instantiate_on = instantiate_on,
                                              .run = run,
                                              .reach = reach,
                                              .derive = derive,
                                              .retain = retain,
                                              .release = td_function_runtime_destroy};
  runtime *r = td_new(runtime);
  atomic_init(&r->refs, 1);
  r->base.ops = &ops;
  r->library = library ? td_library_retain(library) : td_library_create();
  r->session = td_strndup(session.data ? session.data : "", session.size);
  if (places) copy_places(&r->places, places);
  pthread_mutexattr_t attr;
  pthread_mutexattr_init(&attr);
  pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&r->compile_lock, &attr);
  pthread_mutexattr_destroy(&attr);
  pthread_mutex_init(&r->lock, NULL);
  return &r->base;
}

void td_function_runtime_destroy(td_function_runtime *base) {
  runtime *r = (runtime *)base;
  /* acq_rel: the last owner sees every use before it frees */
  if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
  for (size_t i = 0; i < r->count; i++) instance_free(r->instances[i]);
  td_free(r->instances);
  for (int i = 0; i < r->places.device_count; i++) td_device_release(r->places.devices[i]);
  td_free(r->places.devices);
  if (r->places.release) r->places.release(r->places.arg);
  td_map_deinit(&r->by_key);
  td_library_release(r->library);
  pthread_mutex_destroy(&r->lock);
  pthread_mutex_destroy(&r->compile_lock);
  td_free(r->session);
  td_free(r);
}
