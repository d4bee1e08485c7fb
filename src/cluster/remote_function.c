#include "cluster/remote_function.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/worker.h"
#include "framework/cancellation.h"
#include "graph/build.h"
#include "graph/function_body.h"

/* Of a client graph that every peer understands. */
enum { PRODUCER = 134 };

/* What functions need of a session; it may end before they do. */
typedef struct places {
  td_task *task;
  td_peers *peers; /* retained */
  char *session;
} places;

typedef struct remote {
  td_remote_function base;
  atomic_uint refs;
  /* immutable */
  td_task *task;
  td_loop *loop;
  td_peers *peers; /* retained */
  td_worker *worker;
  char *session, *name;
  td_rendezvous_key *sends, *recvs; /* arguments and results */
  int send_count, recv_count;
  Pb__RegisterGraphRequest request;
  td_arena arena;
  /* loop only */
  enum { NEW, REGISTERING, READY } state;
  char *graph;
  td_worker_call registration;
  struct call *waiting; /* for the registration */
} remote;

/* Held by its way through the loop, and by a cancellation that is on its way there. Loop only, but for start(). */
typedef struct call {
  atomic_uint refs;
  remote *f; /* retained */
  td_function_call *call;
  struct call *next;
  td_work starting, cancelling;
  td_cancel_callback cancel;
  td_run_graph run;
  bool is_registered; /* for cancellation */
  bool is_running, is_cancelled, has_ended;
} call;

/* ---- the graph ---- */

static td_status add_end(remote *f, td_graph *g, td_node *end, bool is_arg, int index, td_str device) {
  td_arena *a = &g->arena;
  td_str name = td_str_of(td_arena_printf(a, "%s%d", is_arg ? "arg" : "ret", index));
  td_dtype type = td_dtype_base(is_arg ? end->output_types[0] : end->input_types[0]);
  Pb__AttrValue *where = td_attr_value_str(a, device);
  td_attr attrs[] = {{is_arg ? TD_STR("tensor_type") : TD_STR("T"), td_attr_value_type(a, type)},
                     {TD_STR("tensor_name"), td_attr_value_str(a, name)},
                     {TD_STR("send_device"), where},
                     {TD_STR("send_device_incarnation"), td_attr_value_int(a, 1)},
                     {TD_STR("recv_device"), where},
                     {TD_STR("client_terminated"), td_attr_value_bool(a, true)}};
  td_output value = {0};
  if (!is_arg) value = (td_output){end->in[0]->src, end->in[0]->src_slot};
  td_new_node spec = {.name = td_graph_new_name(g, is_arg ? TD_STR("_recv") : TD_STR("_send")),
                      .op = is_arg ? TD_STR("_Recv") : TD_STR("_Send"),
                      .inputs = &value,
                      .input_count = !is_arg,
                      .attrs = attrs,
                      .attr_count = TD_COUNT(attrs)};
  td_node *n;
  TD_TRY(td_graph_build_node(g, &spec, &n));
  while (is_arg && end->out_edges) {
    td_edge e = *end->out_edges;
    td_graph_remove_edge(g, end->out_edges);
    if (e.src_slot == TD_CONTROL_SLOT)
      td_graph_add_control_edge(g, n, e.dst);
    else
      td_graph_add_edge(g, n, 0, e.dst, e.dst_slot);
  }
  for (const td_edge *e = is_arg ? NULL : end->in_edges; e; e = e->next_in)
    if (e->src_slot == TD_CONTROL_SLOT) td_graph_add_control_edge(g, e->src, n);
  td_graph_remove_node(g, end);
  td_rendezvous_key_make(&f->arena, device, 1, device, name, is_arg ? &f->sends[index] : &f->recvs[index]);
  return TD_STATUS_OK;
}

static td_status make_graph(remote *f, td_function_body *body, td_str device) {
  td_graph *g = body->graph;
  f->send_count = (int)body->arg_count;
  f->recv_count = (int)body->result_count;
  f->sends = td_arena_array(&f->arena, td_rendezvous_key, body->arg_count);
  f->recvs = td_arena_array(&f->arena, td_rendezvous_key, body->result_count);
  for (int i = 0; i < f->recv_count; i++) TD_TRY(add_end(f, g, body->results[i], false, i, device));
  for (int i = 0; i < f->send_count; i++) TD_TRY(add_end(f, g, body->args[i], true, i, device));
  for (size_t i = 0; i < g->node_count; i++) g->nodes[i]->device = device;
  g->producer = PRODUCER;
  return TD_STATUS_OK;
}

/* The request shares nothing with the body's graph, which goes. */
static td_status make_request(remote *f, td_library *library, const Pb__NameAttrList *function, td_str device) {
  const Pb__FunctionDef *def = td_library_find(library, td_str_of(function->name));
  td_function_body body;
  if (!def) return td_not_found("Function %s is not defined.", function->name);
  TD_TRY(td_function_body_create(library, def, function, &body));
  td_status s = td_function_body_lower(&body, td_str_of(function->name));
  if (!s) s = make_graph(f, &body, device);
  if (!s) {
    td_arena scratch = {0};
    Pb__GraphDef *graph = td_graph_to_proto(body.graph, &scratch);
    s = td_graph_copy_message(&graph->base, &f->arena, &f->request.graph_def);
    td_arena_deinit(&scratch);
  }
  td_graph_release(body.graph);
  return s;
}

/* ---- life ---- */

static void release(td_remote_function *base) {
  remote *f = (remote *)base;
  /* acq_rel: the last owner sees every use before it frees */
  if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
  td_peers_release(f->peers);
  td_arena_deinit(&f->arena);
  td_free(f->session);
  td_free(f->name);
  td_free(f->graph);
  td_free(f);
}

static void call_release(call *c) {
  if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
  release(&c->f->base);
  td_free(c->run.recvs);
  td_free(c);
}

/* ---- a call's end ---- */

static void end(call *c, td_status status) {
  td_tensor **results = c->run.recvs;
  td_function_call *fc = c->call;
  c->has_ended = true;
  if (c->is_registered) td_cancellation_unregister(fc->step->cancellation, &c->cancel);
  for (int i = 0; status && i < c->run.recv_count; i++) td_tensor_release(results[i]);
  if (status)
    fc->done(fc, status, NULL, 0);
  else
    fc->done(fc, TD_STATUS_OK, results, c->run.recv_count);
  call_release(c);
}

static void run_done(td_run_graph *r, td_status status) {
  call *c = TD_CONTAINER_OF(r, call, run);
  td_strbuf_deinit(&r->step_stats);
  td_strbuf_deinit(&r->cost_graph);
  td_strbuf_deinit(&r->metadata);
  c->f->worker->ops->cleanup_graph(c->f->worker, r->step_id, NULL, NULL);
  if (status) status = td_status_prepend(status, "From %s:\n", c->f->worker->task_name);
  end(c, status);
}

static void run_now(call *c) {
  remote *f = c->f;
  c->run = (td_run_graph){.session = td_str_of(f->session),
                          .graph_handle = td_str_of(f->graph),
                          /* negative: no step of a master has such an id */
                          .step_id = -(int64_t)(td_random_u64() >> 2 | 1),
                          .send_keys = f->sends,
                          .sends = c->call->args,
                          .send_count = f->send_count,
                          .recv_keys = f->recvs,
                          .recvs = td_new_array(td_tensor *, (size_t)f->recv_count),
                          .recv_count = f->recv_count,
                          .done = run_done};
  c->is_running = true;
  f->worker->ops->run_graph(f->worker, &c->run);
}

/* ---- registration ---- */

static void registered(td_worker_call *w, td_status status, const ProtobufCMessage *reply) {
  remote *f = TD_CONTAINER_OF(w, remote, registration);
  call *waiting = f->waiting;
  f->waiting = NULL;
  f->state = status ? NEW : READY; /* it may be tried again: the peer may be back by then */
  if (!status) f->graph = td_strdup(((const Pb__RegisterGraphResponse *)reply)->graph_handle);
  while (waiting) {
    call *c = waiting;
    waiting = c->next;
    if (status)
      end(c, td_status_retain(status));
    else
      run_now(c);
  }
  td_status_free(status);
  release(&f->base);
}

static void start_registration(remote *f) {
  f->state = REGISTERING;
  f->registration = (td_worker_call){.method = TD_WORKER_REGISTER_GRAPH,
                                     .request = &f->request.base,
                                     .deadline_ns = TD_NO_DEADLINE,
                                     .done = registered};
  atomic_fetch_add_explicit(&f->refs, 2, memory_order_relaxed); /* the registration's, and this function's */
  f->worker->ops->call(f->worker, &f->registration);
  if (f->registration.handle) td_client_call_release(f->registration.handle);
  f->registration.handle = NULL;
  release(&f->base);
}

static void enter(td_work *work) {
  call *c = TD_CONTAINER_OF(work, call, starting);
  remote *f = c->f;
  if (c->is_cancelled) {
    end(c, td_status_derive(td_cancelled("Function %s was cancelled", f->name)));
  } else if (f->state == READY) {
    run_now(c);
  } else {
    c->next = f->waiting;
    f->waiting = c;
    if (f->state == NEW) start_registration(f);
  }
}

/* ---- cancellation ---- */

static void cancel_on_loop(td_work *work) {
  call *c = TD_CONTAINER_OF(work, call, cancelling);
  remote *f = c->f;
  c->is_cancelled = true;
  if (c->is_running && !c->has_ended) {
    f->worker->ops->cancel_run_graph(f->worker, &c->run);
  } else if (!c->has_ended) {
    for (call **at = &f->waiting; *at; at = &(*at)->next) {
      if (*at != c) continue;
      *at = c->next;
      end(c, td_status_derive(td_cancelled("Function %s was cancelled", f->name)));
      break;
    }
  }
  call_release(c);
}

static void cancelled(td_cancel_callback *callback) {
  call *c = TD_CONTAINER_OF(callback, call, cancel);
  atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
  td_loop_post(c->f->loop, &c->cancelling);
}

/* ---- the interface ---- */

static void run(td_remote_function *base, td_function_call *fc) {
  remote *f = (remote *)base;
  if (fc->arg_count != f->send_count) {
    fc->done(fc,
             td_invalid_argument("Function %s takes %d arguments, %d are given", f->name, f->send_count, fc->arg_count),
             NULL, 0);
    return;
  }
  call *c = td_new(call);
  atomic_init(&c->refs, 1);
  atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
  c->f = f;
  c->call = fc;
  c->starting.run = enter;
  c->cancelling.run = cancel_on_loop;
  c->cancel.cancelled = cancelled;
  if (fc->step->cancellation) {
    c->is_registered = td_cancellation_register(fc->step->cancellation, &c->cancel);
    c->is_cancelled = !c->is_registered;
  }
  td_loop_post(f->loop, &c->starting);
}

static td_status find_worker(const places *p, td_str device, td_worker **out) {
  td_device_name name;
  char text[TD_DEVICE_NAME_MAX];
  if (!td_device_name_parse(device, &name)) return td_invalid_argument("%.*s unknown device.", TD_STR_ARG(device));
  name.type[0] = '\0';
  name.id = -1;
  td_device_name_format(&name, text);
  *out = td_peers_find(p->peers, td_str_of(text));
  if (!*out || (*out)->is_self)
    return td_invalid_argument("Could not find worker with target: %.*s", TD_STR_ARG(device));
  return TD_STATUS_OK;
}

static td_status create(void *arg, td_library *library, const Pb__NameAttrList *function, td_str device,
                        td_remote_function **out) {
  places *p = arg;
  td_worker *worker;
  TD_TRY(find_worker(p, device, &worker));
  remote *f = td_new(remote);
  atomic_init(&f->refs, 1);
  f->base = (td_remote_function){.run = run, .release = release};
  f->task = p->task;
  f->loop = p->task->loops[0];
  f->peers = td_peers_retain(p->peers);
  f->worker = worker;
  f->session = td_strdup(p->session);
  f->name = td_strdup(function->name);
  pb__register_graph_request__init(&f->request);
  f->request.session_handle = f->session;
  f->request.create_worker_session_called = true;
  td_status s = make_request(f, library, function, td_arena_str(&f->arena, device));
  if (s)
    release(&f->base);
  else
    *out = &f->base;
  return s;
}

static void places_release(void *arg) {
  places *p = arg;
  td_peers_release(p->peers);
  td_free(p->session);
  td_free(p);
}

td_function_places td_session_places(td_worker_session *s) {
  places *p = td_new(places);
  p->task = s->task;
  p->peers = td_peers_retain(s->peers);
  p->session = td_strdup(s->handle);
  return (td_function_places){
      .devices = s->devices, .device_count = s->device_count, .remote = create, .release = places_release, .arg = p};
}
