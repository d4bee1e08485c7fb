#include "cluster/callable.h"

#include "base/mem.h"
#include "cluster/master_step.h"
#include "graph/watch.h"
#include "proto/message.h"

enum { MAX_CALLABLES = 1000000 }; /* of a session; handles are never used again */

static td_status check(const Pb__CallableOptions *o) {
  if (!o) return td_invalid_argument("MakeCallable without options");
  if (o->n_feed_devices || o->n_fetch_devices)
    return td_unimplemented(
        "CallableOptions::feed_devices and CallableOptions::fetch_devices to configure feeding/fetching tensors "
        "to/from device memory is not yet supported when using a remote session.");
  return TD_STATUS_OK;
}

/* With the session's lock held. Takes the plan on success. */
static td_status add(td_master_session *s, td_plan_view *view, const Pb__RunOptions *options, int64_t *out_handle) {
  if (s->is_closed) return td_failed_precondition("Session is closed.");
  if (s->callable_count >= MAX_CALLABLES)
    return td_resource_exhausted("session %s has made %d callables already", s->handle, MAX_CALLABLES);
  TD_GROW(s->callables, s->callable_count, s->callable_capacity);
  td_callable *c = &s->callables[s->callable_count];
  *c = (td_callable){.view = view};
  if (options)
    c->options = (td_run_options_view){
        .trace_level = (int)options->trace_level,
        .timeout_ms = options->timeout_in_ms,
        .collective_graph_key = options->experimental ? options->experimental->collective_graph_key : 0,
        .output_partition_graphs = options->output_partition_graphs};
  *out_handle = (int64_t)s->callable_count++;
  return TD_STATUS_OK;
}

td_status td_callable_make(td_master_session *s, const Pb__MakeCallableRequest *request, int64_t *out_handle) {
  const Pb__CallableOptions *o = request->options;
  td_plan_view *view = NULL;
  td_arena arena = {0};
  td_strbuf watches = {0};
  TD_TRY(check(o));
  td_names names = td_names_of(&arena, o->feed, o->n_feed, o->fetch, o->n_fetch, o->target, o->n_target);
  td_connection *connections = td_arena_array(&arena, td_connection, o->n_tensor_connection + 1);
  for (size_t i = 0; i < o->n_tensor_connection; i++)
    connections[i] =
        (td_connection){td_str_of(o->tensor_connection[i]->from_tensor), td_str_of(o->tensor_connection[i]->to_tensor)};
  names.connections = connections;
  names.connection_count = o->n_tensor_connection;
  td_status status = TD_STATUS_OK;
  if (o->run_options && td_watches_any(o->run_options->debug_options)) {
    names.watches = o->run_options->debug_options;
    status = td_message_encode(&names.watches->base, &watches);
    names.watch_bytes = td_strbuf_view(&watches);
  }
  /* a callable of a plan that failed would fail for ever */
  if (!status) status = td_plan_view_wait(s, &names, &view);
  td_strbuf_deinit(&watches);
  td_arena_deinit(&arena);
  if (status) return status;
  pthread_mutex_lock(&s->lock);
  status = add(s, view, o->run_options, out_handle);
  pthread_mutex_unlock(&s->lock);
  if (status) td_plan_release(view->plan);
  return status;
}

void td_callable_release(td_master_session *s, int64_t handle) {
  pthread_mutex_lock(&s->lock);
  if (handle >= 0 && (uint64_t)handle < s->callable_count) s->callables[handle].is_released = true;
  pthread_mutex_unlock(&s->lock);
}
