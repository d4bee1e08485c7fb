#include "collective/op.h"

#include "base/clock.h"
#include "base/mem.h"
#include "collective/internal.h"

typedef td_collective_op op;

static void op_release(op *o) {
  /* acq_rel: the last owner sees every use before it frees */
  if (atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) != 1) return;
  if (o->state) o->algorithm->destroy(o);
  td_resource_release(o->member);
  if (o->calls) o->calls->ops->release(o->calls);
  td_resolver_release(o->resolver);
  td_buf_rendezvous_release(o->bufs);
  td_cancellation_release(o->cancellation);
  pthread_mutex_destroy(&o->lock);
  td_free(o);
}

/* ---- the end ---- */

static void finish(op *o, td_status status) {
  td_collective *c = o->c;
  if (td_cancellation_try_unregister(o->cancellation, &o->on_cancel)) op_release(o);
  op_release(o);
  c->done(c, status);
}

/* As in TensorFlow, one collective that fails fails all of its step: members elsewhere would wait for what never comes.
 * They get the cause. */
void td_op_fail(op *o, td_status status) {
  bool first = !o->status;
  td_status_merge(&o->status, status);
  if (!first) return;
  td_buf_rendezvous_abort(o->bufs, o->status);
  if (o->calls) o->calls->ops->cancel(o->calls);
}

/* ---- the actor ---- */

static void handle(op *o, td_transfer *t) {
  td_status s = t->status;
  t->status = TD_STATUS_OK;
  o->pending--;
  if (s || o->status) {
    td_transfer_taken(t);
    if (s) td_op_fail(o, s);
  } else {
    o->algorithm->advance(o, t);
  }
}

static void drain(td_work *w) {
  op *o = TD_CONTAINER_OF(w, op, work);
  if (!o->is_started) {
    o->is_started = true;
    td_status s = o->algorithm->start(o);
    if (s) td_op_fail(o, s);
  }
  for (;;) {
    if (!o->pending && (o->status || !o->left)) {
      finish(o, o->status);
      return;
    }
    pthread_mutex_lock(&o->lock);
    td_transfer *all = o->inbox;
    o->inbox = NULL;
    o->inbox_end = &o->inbox;
    if (!all) o->is_scheduled = false;
    pthread_mutex_unlock(&o->lock);
    if (!all) return;
    for (td_transfer *next; all; all = next) {
      next = all->next;
      handle(o, all);
    }
  }
}

static void submit(op *o) {
  if (o->step->pool)
    td_pool_submit(o->step->pool, &o->work);
  else
    drain(&o->work);
}

static void came_back(td_transfer *t, td_status status) {
  op *o = t->op;
  t->status = status;
  t->next = NULL;
  pthread_mutex_lock(&o->lock);
  *o->inbox_end = t;
  o->inbox_end = &t->next;
  bool sleeps = !o->is_scheduled;
  o->is_scheduled = true;
  pthread_mutex_unlock(&o->lock);
  if (sleeps) submit(o);
}

/* ---- transfers ---- */

static void sent(td_buf_offer *offer, td_status status) {
  came_back(TD_CONTAINER_OF(offer, td_transfer, offer), status);
}

static void received(td_buf_want *want, td_status status, td_buf_offer *offer) {
  td_transfer *t = TD_CONTAINER_OF(want, td_transfer, want);
  t->got = offer;
  came_back(t, status);
}

static void received_remotely(void *arg, td_status status) { came_back(arg, status); }

/* "instance:frame:iteration:rest", as TensorFlow 1.x spells it. */
static void whole_key(const op *o, td_str rest, td_strbuf *out) {
  td_strbuf_printf(out, "%d:%llu:%lld:%.*s", o->c->spec->instance_key, (unsigned long long)o->c->frame.id_1x,
                   (long long)o->c->frame.iter, TD_STR_ARG(rest));
}

void td_transfer_send(td_transfer *t, td_str rest, td_tensor *owner, const void *data, size_t size) {
  op *o = t->op;
  td_strbuf key = {0};
  whole_key(o, rest, &key);
  o->pending++;
  t->offer = (td_buf_offer){.data = data, .size = size, .owner = owner, .done = sent};
  td_buf_rendezvous_offer(o->bufs, td_strbuf_view(&key), &t->offer);
  td_strbuf_deinit(&key);
}

bool td_op_is_local(const op *o, int rank) { return !strcmp(o->member->group->tasks[rank], o->step->task); }

void td_transfer_recv(td_transfer *t, td_str rest, int from, void *into, size_t size) {
  op *o = t->op;
  const td_group *g = o->member->group;
  td_strbuf key = {0};
  whole_key(o, rest, &key);
  o->pending++;
  t->into = NULL;
  if (td_op_is_local(o, from)) {
    t->want.done = received;
    td_buf_rendezvous_want(o->bufs, td_strbuf_view(&key), &t->want);
  } else if (o->calls) {
    t->into = into;
    td_recv_buf what = {.step_id = o->step->step_id,
                        .task = g->tasks[from],
                        .device = g->devices[from],
                        .to_device = o->c->device->name,
                        .key = td_strbuf_view(&key),
                        .into = into,
                        .size = size};
    o->calls->ops->recv_buf(o->calls, &what, received_remotely, t);
  } else {
    came_back(t, td_internal("No worker known as %s", g->tasks[from]));
  }
  td_strbuf_deinit(&key);
}

td_status td_transfer_bytes(td_transfer *t, size_t size, const void **out) {
  if (t->got && t->got->size != size)
    return td_internal("a member of collective instance %d sent %zu bytes where %zu were expected",
                       t->op->c->spec->instance_key, t->got->size, size);
  *out = t->got ? t->got->data : t->into;
  return TD_STATUS_OK;
}

void td_transfer_taken(td_transfer *t) {
  td_buf_offer *got = t->got;
  t->got = NULL;
  if (got) td_buf_taken(got);
}

/* ---- the beginning ---- */

static void cancelled(td_cancel_callback *c) {
  op *o = TD_CONTAINER_OF(c, op, on_cancel);
  if (o->calls) o->calls->ops->cancel(o->calls);
  td_membership_cancel(&o->resolution);
  op_release(o); /* what is under way within this task comes back by the step's td_buf_rendezvous */
}

static void describe(const td_cancel_callback *c, td_strbuf *out, uint64_t *since_ns) {
  const op *o = TD_CONTAINER_OF(c, op, on_cancel);
  const td_collective_spec *s = o->c->spec;
  td_strbuf_printf(out, "collective \"%.*s\" (group_key %d, instance_key %d)", TD_STR_ARG(s->name), s->group_key,
                   s->instance_key);
  *since_ns = o->since_ns;
}

static size_t shape_bytes(const td_collective *c) {
  int64_t count = 0;
  td_status_free(td_shape_count(&c->shape, &count));
  return (size_t)count * td_dtype_size(c->spec->dtype);
}

/* Keeps what was found for the kernel's later runs; a concurrent run may have found it, too. */
static void keep(op *o) {
  td_resource *none = NULL;
  td_resource_retain(o->member);
  if (!atomic_compare_exchange_strong(o->c->resolved, &none, &o->member->base)) td_resource_release(o->member);
}

static void start(op *o) {
  o->algorithm = o->c->spec->type == TD_COLLECTIVE_BROADCAST ? &td_tree_algorithm : &td_ring_algorithm;
  o->is_scheduled = true;
  submit(o);
}

static void resolved(td_membership *q, td_status status, td_group *group, int source_rank) {
  op *o = TD_CONTAINER_OF(q, op, resolution);
  if (!status)
    status = td_member_create(group, td_group_rank(group, td_str_of(o->c->device->name)), source_rank, o->c->spec,
                              shape_bytes(o->c), &o->member);
  if (status) {
    if (!td_status_is_derived(status)) td_buf_rendezvous_abort(o->bufs, status);
    finish(o, status);
    return;
  }
  keep(o);
  start(o);
}

static void resolve(op *o) {
  const td_collective *c = o->c;
  const td_collective_spec *s = c->spec;
  td_membership *q = &o->resolution;
  q->group = (td_group_member){.key = s->group_key,
                               .size = s->group_size,
                               .device_type = td_str_of(c->device->parsed.type),
                               .device = td_str_of(c->device->name),
                               .name = s->name};
  q->instance = (td_instance_member){.key = s->instance_key,
                                     .type = s->type,
                                     .dtype = s->dtype,
                                     .shape = &c->shape,
                                     .device = td_str_of(c->device->name),
                                     .is_source = s->is_source};
  q->spec = s;
  q->calls = o->calls;
  q->done = resolved;
  td_membership_init(o->resolver, q);
}

static void run(td_collectives *base, td_collective *c) {
  td_collective_step *step = (td_collective_step *)base;
  op *o = td_new(op);
  atomic_init(&o->refs, 3); /* the run's, the cancellation's, this function's */
  o->c = c;
  o->step = step;
  o->resolver = td_resolver_retain(step->resolver);
  o->bufs = step->bufs(step);
  o->cancellation = td_cancellation_retain(step->cancellation);
  o->calls = step->net ? step->net->ops->open(step->net) : NULL;
  o->since_ns = td_now_coarse_ns();
  o->inbox_end = &o->inbox;
  o->work.run = drain;
  o->on_cancel = (td_cancel_callback){.cancelled = cancelled, .describe = describe};
  pthread_mutex_init(&o->lock, NULL);
  resolve(o);
  if (!td_cancellation_register(o->cancellation, &o->on_cancel)) {
    op_release(o);
    finish(o, td_group_cancelled());
  } else if ((o->member = (td_member *)atomic_load(c->resolved))) {
    td_resource_retain(o->member);
    start(o);
  } else {
    td_membership_start(&o->resolution);
  }
  op_release(o);
}

void td_collective_step_init(td_collective_step *s) { s->base.run = run; }
