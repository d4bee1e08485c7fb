#include "cluster/callable.h"

#include "base/mem.h"
#include "cluster/master_step.h"
#include "graph/watch.h"
#include "proto/message.h"

enum { MAX_CALLABLES = 1000000 }; /* of a session; handles are never used again */

static td_str *names_of(td_arena *arena, char *const *names, size_t count) {
  td_str *out = td_arena_array(arena, td_str, count + 1);
  for (size_t i = 0; i < count; i++) out[i] = td_str_of(names[i]);
  return out;
}

static td_status check(const Pb__CallableOptions *o) {
  if (!o) return td_invalid_argument("MakeCallable without options");
  if (o->n_feed_devices || o->n_fetch_devices)
    return td_unimplemented(
        "CallableOptions::feed_devices and CallableOptions::fetch_devices to configure feeding/fetching tensors "
        "to/from "
        "device memory is not yet supported when using a remote session.");
  if (o->n_tensor_connection) return td_unimplemented("CallableOptions::tensor_connection is not implemented");
  return TD_STATUS_OK;
}

/* With the session's lock held. */
static td_status add(td_master_session *s, td_plan_view *view, const Pb__RunOptions *options, int64_t *out_handle) {
  if (s->is_closed) return td_failed_precondition("Session is closed.");
  if (s->callable_count >= MAX_CALLABLES)
    return td_resource_exhausted("session %s has made %d callables already", s->handle, MAX_CALLABLES);
  TD_GROW(s->callables, s->callable_count, s->callable_capacity);
  td_plan_retain(view->plan);
  td_callable *c = &s->callables[s->callable_count];
  *c = (td_callable){.view = view};
  if (options)
    c->options = (td_run_options_view){.trace_level = (int)options->trace_level,
                                       .timeout_ms = options->timeout_in_ms,
                                       .output_partition_graphs = options->output_partition_graphs};
  *out_handle = (int64_t)s->callable_count++;
  return TD_STATUS_OK;
}

/* A plan may be in the making for a step that came before; a callable of one that fails would fail for ever. */
static td_status add_when_ready(td_master_session *s, td_plan_view *view, const Pb__RunOptions *options,
                                int64_t *out_handle) {
  pthread_mutex_lock(&s->lock);
  while (!view->plan->is_ready && !s->is_closed) pthread_cond_wait(&s->changed, &s->lock);
  td_status status = view->plan->is_ready ? td_status_retain(view->plan->status) : TD_STATUS_OK;
  if (!status) status = add(s, view, options, out_handle);
  pthread_mutex_unlock(&s->lock);
  return status;
}

td_status td_callable_make(td_master_session *s, const Pb__MakeCallableRequest *request, int64_t *out_handle) {
  const Pb__CallableOptions *o = request->options;
  td_plan_view *view;
  bool is_new;
  td_arena arena = {0};
  td_strbuf watches = {0};
  TD_TRY(check(o));
  td_names names = {names_of(&arena, o->feed, o->n_feed),
                    names_of(&arena, o->fetch, o->n_fetch),
                    names_of(&arena, o->target, o->n_target),
                    o->n_feed,
                    o->n_fetch,
                    o->n_target,
                    NULL,
                    TD_STR("")};
  td_status status = TD_STATUS_OK;
  if (o->run_options && td_watches_any(o->run_options->debug_options)) {
    names.watches = o->run_options->debug_options;
    status = td_message_encode(&names.watches->base, &watches);
    names.watch_bytes = td_strbuf_view(&watches);
  }
  pthread_mutex_lock(&s->lock);
  if (!status && s->is_closed) status = td_failed_precondition("Session is closed.");
  if (!status) status = td_plan_view_get(s, &names, &view, &is_new);
  td_plan *plan = status ? NULL : td_plan_retain(view->plan);
  pthread_mutex_unlock(&s->lock);
  if (plan && is_new) td_plan_build(plan, NULL);
  if (plan) status = add_when_ready(s, view, o->run_options, out_handle);
  td_plan_release(plan);
  td_strbuf_deinit(&watches);
  td_arena_deinit(&arena);
  return status;
}

void td_callable_release(td_master_session *s, int64_t handle) {
  pthread_mutex_lock(&s->lock);
  if (handle >= 0 && (uint64_t)handle < s->callable_count) s->callables[handle].is_released = true;
  pthread_mutex_unlock(&s->lock);
}
