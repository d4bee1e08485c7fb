#include "ops/queue_data.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "framework/cancellation.h"
#include "ops/move.h"
#include "ops/queue_items.h"

typedef enum action { ENQUEUE, DEQUEUE } action;

/* An operation that waits. Who takes it off its list, under the queue's lock, ends it. */
typedef struct attempt {
  struct attempt *prev, *next;
  td_queue *queue; /* retained */
  td_kernel_ctx *ctx;
  td_cancel_callback on_cancel;
  action action;
  bool is_close, is_many, allow_small;
  bool is_taken; /* guarded by the queue's lock: off its list */
  bool has_callback;
  int first;              /* enqueues: the input of component 0 */
  int64_t wanted, done;   /* elements */
  td_queue_tuple **taken; /* dequeues: `done` of them */
  size_t taken_capacity;
  td_status status;
  uint64_t since_ns;
} attempt;

struct td_queue {
  td_resource resource;
  td_queue_spec spec;
  char *name;
  pthread_mutex_t lock;
  /* guarded by lock */
  bool is_closed;
  td_queue_items items;
  attempt waiting[2]; /* ring heads, by action */
};

static const char *kind_name(const td_queue *q) { return td_queue_kind_name(q->spec.kind); }

/* ---- life ---- */

static void destroy(td_resource *r) { /* attempts retain the queue: there are none */
  td_queue *q = (td_queue *)r;
  td_queue_items_deinit(&q->items);
  td_queue_spec_deinit(&q->spec);
  pthread_mutex_destroy(&q->lock);
  td_free(q->name);
  td_free(q);
}

const td_resource_type td_queue_type = {.name = "N10tensorflow14QueueInterfaceE", .destroy = destroy};

td_status td_queue_create(td_queue_spec *spec, td_str name, td_queue **out) {
  TD_TRY(td_queue_spec_check(spec, name));
  td_queue *q = td_new(td_queue);
  td_resource_init(&q->resource, &td_queue_type);
  pthread_mutex_init(&q->lock, NULL);
  q->spec = *spec;
  *spec = (td_queue_spec){0};
  q->name = td_strndup(name.data, name.size);
  td_queue_items_init(&q->items, &q->spec);
  for (int i = 0; i < 2; i++) q->waiting[i].prev = q->waiting[i].next = &q->waiting[i];
  *out = q;
  return TD_STATUS_OK;
}

td_status td_queue_matches(const td_queue *q, const td_queue_spec *s, td_str node, td_str op) {
  return td_queue_spec_matches(&q->spec, s, q->name, node, op);
}

/* ---- attempts ---- */

typedef enum progress { NO_PROGRESS, PROGRESS, COMPLETE } progress;

/* Element `index` of the batch in the inputs, or all of them as one element. */
static td_status make_tuple(attempt *a, int64_t index, td_queue_tuple **out) {
  td_queue *q = a->queue;
  td_queue_tuple *t = td_queue_tuple_create(&q->items);
  for (int i = 0; i < q->spec.type_count; i++) {
    td_tensor *in = td_in(a->ctx, a->first + i);
    if (!a->is_many) {
      t->parts[i] = td_tensor_retain(in);
      continue;
    }
    /* own elements: a view would keep the whole batch in memory as long as one element waits */
    td_status s = td_tensor_create_dims(in->dtype, in->rank - 1, in->dims + 1, &t->parts[i]);
    if (s) {
      td_queue_tuple_free(&q->items, t);
      return s;
    }
    int64_t n = t->parts[i]->count;
    if (n) td_tensor_copy_elements(t->parts[i], 0, in, index * n, n);
  }
  if (q->spec.kind == TD_QUEUE_PRIORITY) {
    if (t->parts[0]->rank) {
      char *text = td_tensor_shape_text(t->parts[0]);
      td_status s = td_invalid_argument("Expected the priority element to be a scalar, but received shape: %s", text);
      td_free(text);
      td_queue_tuple_free(&q->items, t);
      return s;
    }
    t->priority = *TD_DATA(t->parts[0], int64_t);
  }
  *out = t;
  return TD_STATUS_OK;
}

static progress try_enqueue(attempt *a) {
  td_queue *q = a->queue;
  if (a->is_close) {
    if (q->is_closed) a->status = td_cancelled("Queue '%s' is already closed.", q->name);
    q->is_closed = true;
    return COMPLETE;
  }
  if (q->is_closed) {
    a->status = td_cancelled("%s '%s' is closed.", kind_name(q), q->name);
    return COMPLETE;
  }
  progress p = NO_PROGRESS;
  while ((int64_t)q->items.count < q->spec.capacity) {
    td_queue_tuple *t = NULL;
    a->status = make_tuple(a, a->done, &t);
    if (a->status) return COMPLETE;
    td_queue_items_put(&q->items, t);
    p = PROGRESS;
    if (++a->done == a->wanted) return COMPLETE;
  }
  return p;
}

static void give_back(attempt *a) {
  while (a->done) td_queue_items_put_front(&a->queue->items, a->taken[--a->done]);
}

static bool is_empty(const attempt *list) { return list->next == list; }

/* A closed queue that holds too little. True: go on, `wanted` is what is left. */
static bool settle_for_less(attempt *a, progress *p) {
  td_queue *q = a->queue;
  int64_t size = (int64_t)q->items.count, missing = a->wanted - a->done;
  if (q->spec.kind != TD_QUEUE_PRIORITY) give_back(a);
  if (a->allow_small && q->items.count) {
    a->wanted = (int64_t)q->items.count;
    return true;
  }
  if (a->allow_small && !is_empty(&q->waiting[ENQUEUE])) { /* they may bring some */
    a->wanted = missing;
    *p = PROGRESS;
    return false;
  }
  a->status =
      td_error(TD_OUT_OF_RANGE, "%s '%s' is closed and has insufficient elements (requested %lld, current size %lld)",
               kind_name(q), q->name, (long long)missing, (long long)size);
  *p = COMPLETE;
  return false;
}

static progress try_dequeue(attempt *a) {
  td_queue *q = a->queue;
  progress p = NO_PROGRESS;
  if (q->is_closed && (int64_t)q->items.count < a->wanted - a->done && !settle_for_less(a, &p)) return p;
  /* in order of priority only when all are there */
  if (q->spec.kind == TD_QUEUE_PRIORITY && (int64_t)q->items.count < a->wanted) return NO_PROGRESS;
  int64_t keep = q->is_closed ? 0 : q->spec.min_after_dequeue;
  while ((int64_t)q->items.count > keep) {
    TD_GROW(a->taken, (size_t)a->done, a->taken_capacity);
    a->taken[a->done++] = td_queue_items_take(&q->items);
    p = PROGRESS;
    if (a->done == a->wanted) return COMPLETE;
  }
  return p;
}

static void unlink_attempt(attempt *a) {
  a->prev->next = a->next;
  a->next->prev = a->prev;
  a->is_taken = true;
}

/* Runs what waits for `which`; finished ones go to the end of `over`. */
static bool advance(td_queue *q, action which, attempt *over) {
  bool any = false;
  while (!is_empty(&q->waiting[which])) {
    attempt *a = q->waiting[which].next;
    progress p = which == ENQUEUE ? try_enqueue(a) : try_dequeue(a);
    if (p != NO_PROGRESS) any = true;
    if (p != COMPLETE) break;
    unlink_attempt(a);
    a->prev = over->prev;
    a->next = over;
    a->prev->next = over->prev = a;
  }
  return any;
}

static td_status out_tuples(attempt *a);

/* Ends the run; no lock held. */
static void finish(attempt *a) {
  td_queue *q = a->queue;
  td_kernel_ctx *ctx = a->ctx;
  td_status s = a->status;
  if (!s && a->action == DEQUEUE) s = out_tuples(a);
  for (int64_t i = 0; i < a->done && a->taken; i++) td_queue_tuple_free(&q->items, a->taken[i]);
  td_free(a->taken);
  td_free(a);
  td_resource_release(q);
  td_kernel_done(ctx, s);
}

/* Does what can be done now. The queue is retained by the caller. */
static void flush(td_queue *q) {
  attempt over;
  over.prev = over.next = &over;
  pthread_mutex_lock(&q->lock);
  for (bool any = true; any;) {
    any = advance(q, ENQUEUE, &over);
    any = advance(q, DEQUEUE, &over) || any;
  }
  pthread_mutex_unlock(&q->lock);
  for (attempt *a = over.next, *next; a != &over; a = next) {
    next = a->next;
    /* waits for a callback that runs right now: it finds the attempt taken and leaves it alone */
    if (a->has_callback) td_cancellation_unregister(a->ctx->step->cancellation, &a->on_cancel);
    finish(a);
  }
}

static td_status cancelled_status(const attempt *a) {
  return td_cancelled("%s operation was cancelled", a->is_close            ? "Close"
                                                    : a->action == ENQUEUE ? "Enqueue"
                                                                           : "Dequeue");
}

static void cancelled(td_cancel_callback *c) {
  attempt *a = TD_CONTAINER_OF(c, attempt, on_cancel);
  td_queue *q = a->queue;
  pthread_mutex_lock(&q->lock);
  bool mine = !a->is_taken;
  if (mine) {
    unlink_attempt(a);
    if (a->action == DEQUEUE) give_back(a);
    a->status = cancelled_status(a);
    td_resource_retain(q);
  }
  pthread_mutex_unlock(&q->lock);
  if (!mine) return;
  finish(a);
  flush(q); /* who waited behind it */
  td_resource_release(q);
}

static void describe(const td_cancel_callback *c, td_strbuf *out, uint64_t *since_ns) {
  const attempt *a = TD_CONTAINER_OF(c, attempt, on_cancel);
  td_ctx_describe(a->ctx, out);
  *since_ns = a->since_ns;
}

static void submit(const attempt *what) {
  attempt *a = td_new(attempt);
  *a = *what;
  td_queue *q = td_resource_retain(a->queue);
  td_cancellation *c = a->ctx->step->cancellation;
  a->on_cancel.cancelled = cancelled;
  a->on_cancel.describe = describe;
  a->since_ns = td_now_coarse_ns();
  td_resource_retain(q); /* for flush(): the attempt's goes with it */
  pthread_mutex_lock(&q->lock);
  a->has_callback = c != NULL;
  bool ok = !a->has_callback || td_cancellation_register(c, &a->on_cancel);
  if (ok) {
    attempt *list = &q->waiting[a->action];
    a->prev = list->prev;
    a->next = list;
    a->prev->next = list->prev = a;
  }
  pthread_mutex_unlock(&q->lock);
  if (ok) {
    flush(q);
  } else {
    a->status = cancelled_status(a);
    finish(a);
  }
  td_resource_release(q);
}

/* ---- enqueue ---- */

static td_status mismatch(int i, char *want, const td_tensor *got) {
  char *text = td_tensor_shape_text(got);
  td_status s = td_invalid_argument("Shape mismatch in tuple component %d. Expected %s, got %s", i, want, text);
  td_free(want);
  td_free(text);
  return s;
}

static td_status check_types(td_queue *q, td_kernel_ctx *ctx, int first) {
  int n = ctx->kernel->input_count - first;
  if (n != q->spec.type_count)
    return td_invalid_argument("Wrong number of components in tuple. Expected %d, got %d", q->spec.type_count, n);
  for (int i = 0; i < n; i++)
    if (td_in(ctx, first + i)->dtype != q->spec.types[i])
      return td_invalid_argument("Type mismatch in tuple component %d. Expected %s, got %s", i,
                                 td_dtype_name(q->spec.types[i]), td_dtype_name(td_in(ctx, first + i)->dtype));
  return TD_STATUS_OK;
}

static td_status check_one(td_queue *q, td_kernel_ctx *ctx, int first) {
  TD_TRY(check_types(q, ctx, first));
  for (int i = 0; i < q->spec.shape_count; i++) {
    td_tensor *t = td_in(ctx, first + i);
    if (!td_partial_shape_fits(&q->spec.shapes[i], t->rank, t->dims))
      return mismatch(i, td_partial_shape_text(&q->spec.shapes[i]), t);
  }
  return TD_STATUS_OK;
}

static td_status check_many(td_queue *q, td_kernel_ctx *ctx, int first) {
  TD_TRY(check_types(q, ctx, first));
  for (int i = 0; i < q->spec.type_count; i++)
    if (!td_in(ctx, first + i)->rank)
      return td_invalid_argument("Component %d of a batch of elements must be at least a vector, but is a scalar", i);
  int64_t n = td_in(ctx, first)->dims[0];
  for (int i = 0; i < q->spec.type_count; i++) {
    td_tensor *t = td_in(ctx, first + i);
    if (!q->spec.shape_count) {
      if (t->dims[0] != n)
        return td_invalid_argument(
            "All input tensors must have the same size in the 0th dimension. Component %d has %lld, and should have "
            "%lld",
            i, (long long)t->dims[0], (long long)n);
      continue;
    }
    const td_partial_shape *s = &q->spec.shapes[i];
    if (t->dims[0] == n && td_partial_shape_fits(s, t->rank - 1, t->dims + 1)) continue;
    td_shape want = {.rank = 1, .dims = {n}};
    for (int k = 0; k < s->rank && want.rank < TD_MAX_RANK; k++) want.dims[want.rank++] = s->dims[k];
    return mismatch(i, td_dims_text(want.rank, want.dims), t);
  }
  return TD_STATUS_OK;
}

void td_queue_enqueue(td_queue *q, td_kernel_ctx *ctx, int first) {
  td_status s = check_one(q, ctx, first);
  if (s)
    td_kernel_done(ctx, s);
  else
    submit(&(attempt){.queue = q, .ctx = ctx, .action = ENQUEUE, .first = first, .wanted = 1});
}

void td_queue_enqueue_many(td_queue *q, td_kernel_ctx *ctx, int first) {
  td_status s = check_many(q, ctx, first);
  int64_t n = s ? 0 : td_in(ctx, first)->dims[0];
  if (!n)
    td_kernel_done(ctx, s);
  else
    submit(&(attempt){.queue = q, .ctx = ctx, .action = ENQUEUE, .first = first, .is_many = true, .wanted = n});
}

/* ---- dequeue ---- */

static td_status check_outputs(const td_queue *q, const td_kernel_ctx *ctx) {
  bool same = ctx->kernel->output_count == q->spec.type_count;
  for (int i = 0; same && i < q->spec.type_count; i++) same = td_out_type(ctx, i) == q->spec.types[i];
  if (same) return TD_STATUS_OK;
  td_strbuf b = {0};
  for (int i = 0; i < ctx->kernel->output_count; i++)
    td_strbuf_printf(&b, "%s%s", i ? ", " : "", td_dtype_name(ctx->kernel->output_types[i]));
  char *types = td_queue_types_text(&q->spec);
  td_status s = td_invalid_argument("Signature mismatch, have: -> %s expected: -> %s", td_strbuf_cstr(&b), types);
  td_strbuf_deinit(&b);
  td_free(types);
  return s;
}

/* The shape that the elements have together in component `i`: a padding queue's unknown sizes are the largest. */
static td_status batch_shape(const td_queue *q, const attempt *a, int i, td_shape *shape) {
  const td_partial_shape *s = &q->spec.shapes[i];
  td_shape_vector(shape, a->wanted);
  for (int d = 0; d < s->rank; d++) {
    int64_t size = s->dims[d];
    for (int64_t k = 0; s->dims[d] < 0 && k < a->done; k++) size = TD_MAX(size, a->taken[k]->parts[i]->dims[d]);
    TD_TRY(td_shape_append(shape, TD_MAX(size, 0)));
  }
  return TD_STATUS_OK;
}

static void copy_padded(td_kernel_ctx *ctx, td_tensor *out, int64_t row, td_tensor *element) {
  int64_t per_row = out->count / out->dims[0], step = 1;
  td_move m;
  m.rank = 0;
  int64_t from[TD_MAX_RANK], to[TD_MAX_RANK], own = 1;
  for (int d = element->rank - 1; d >= 0; d--) {
    from[d] = own;
    to[d] = step;
    own *= element->dims[d];
    step *= out->dims[d + 1];
  }
  for (int d = 0; d < element->rank; d++) td_move_add(&m, element->dims[d], from[d], to[d]);
  td_move_run(ctx, &m, element, 0, out, row * per_row);
}

static td_status out_batch(attempt *a) {
  td_queue *q = a->queue;
  for (int i = 0; i < q->spec.type_count; i++) {
    td_shape shape;
    td_tensor *out;
    TD_TRY(batch_shape(q, a, i, &shape));
    TD_TRY(td_out_alloc(a->ctx, i, &shape, &out));
    bool full = td_partial_shape_is_full(&q->spec.shapes[i]);
    if (!full && td_dtype_is_pod(out->dtype) && out->size) memset(out->data, 0, out->size);
    for (int64_t k = 0; k < a->done; k++) {
      td_tensor *element = a->taken[k]->parts[i];
      if (!element->count) continue;
      if (full)
        td_tensor_copy_elements(out, k * element->count, element, 0, element->count);
      else
        copy_padded(a->ctx, out, k, element);
    }
  }
  return TD_STATUS_OK;
}

static td_status out_tuples(attempt *a) {
  if (a->is_many) return out_batch(a);
  for (int i = 0; i < a->queue->spec.type_count; i++) td_out_set(a->ctx, i, td_tensor_retain(a->taken[0]->parts[i]));
  return TD_STATUS_OK;
}

void td_queue_dequeue(td_queue *q, td_kernel_ctx *ctx) {
  td_status s = check_outputs(q, ctx);
  if (s)
    td_kernel_done(ctx, s);
  else
    submit(&(attempt){.queue = q, .ctx = ctx, .action = DEQUEUE, .wanted = 1});
}

void td_queue_dequeue_many(td_queue *q, td_kernel_ctx *ctx, int32_t n, bool allow_small) {
  td_status s = check_outputs(q, ctx);
  if (!s && !q->spec.shape_count)
    s = td_invalid_argument(q->spec.kind == TD_QUEUE_PRIORITY
                                ? "%s's DequeueMany requires the components to have specified shapes."
                                : "%s's DequeueMany and DequeueUpTo require the components to have specified shapes.",
                            kind_name(q));
  attempt a = {.queue = q, .ctx = ctx, .action = DEQUEUE, .is_many = true, .allow_small = allow_small, .wanted = n};
  if (!s && !n) s = out_batch(&a);
  if (s || !n)
    td_kernel_done(ctx, s);
  else
    submit(&a);
}

/* ---- close, size ---- */

static void close_and_cancel(td_queue *q) {
  attempt over;
  over.prev = over.next = &over;
  pthread_mutex_lock(&q->lock);
  q->is_closed = true;
  while (!is_empty(&q->waiting[ENQUEUE])) {
    attempt *a = q->waiting[ENQUEUE].next;
    unlink_attempt(a);
    a->status = a->is_close ? TD_STATUS_OK : cancelled_status(a);
    a->prev = over.prev;
    a->next = &over;
    a->prev->next = over.prev = a;
  }
  pthread_mutex_unlock(&q->lock);
  for (attempt *a = over.next, *next; a != &over; a = next) {
    next = a->next;
    if (a->has_callback) td_cancellation_unregister(a->ctx->step->cancellation, &a->on_cancel);
    finish(a);
  }
  flush(q);
}

void td_queue_shut(td_queue *q) {
  td_resource_retain(q);
  close_and_cancel(q);
  td_resource_release(q);
}

void td_queue_close(td_queue *q, td_kernel_ctx *ctx, bool cancel_pending) {
  if (!cancel_pending) { /* behind the enqueues that wait */
    submit(&(attempt){.queue = q, .ctx = ctx, .action = ENQUEUE, .is_close = true});
    return;
  }
  td_queue_shut(q);
  td_kernel_done(ctx, TD_STATUS_OK);
}

const td_dtype *td_queue_types(const td_queue *q, int *count) {
  *count = q->spec.type_count;
  return q->spec.types;
}

void td_queue_put(td_queue *q, td_tensor **parts) {
  td_queue_tuple *t = td_queue_tuple_create(&q->items);
  memcpy(t->parts, parts, (size_t)q->spec.type_count * sizeof *parts);
  if (q->spec.kind == TD_QUEUE_PRIORITY) t->priority = *TD_DATA(parts[0], int64_t);
  td_resource_retain(q);
  pthread_mutex_lock(&q->lock);
  td_queue_items_put(&q->items, t);
  pthread_mutex_unlock(&q->lock);
  flush(q);
  td_resource_release(q);
}

int64_t td_queue_size(td_queue *q) {
  pthread_mutex_lock(&q->lock);
  int64_t n = (int64_t)q->items.count;
  pthread_mutex_unlock(&q->lock);
  return n;
}

bool td_queue_is_closed(td_queue *q) {
  pthread_mutex_lock(&q->lock);
  bool yes = q->is_closed;
  pthread_mutex_unlock(&q->lock);
  return yes;
}
