#include "cluster/step_trace.h"

#include "proto/wire.h"

struct td_step_trace {
  td_master_step *step;
  void (*then)(td_master_step *st);
  size_t pending; /* calls, and one more while they are being started */
  size_t count;
  td_logging calls[]; /* by partition */
};

td_step_trace *td_step_trace_create(td_master_step *st) {
  size_t n = st->view->plan->partition_count;
  td_step_trace *t = td_arena_calloc(&st->arena, 1, sizeof *t + n * sizeof t->calls[0]);
  t->step = st;
  t->count = n;
  return t;
}

static void release_handle(td_logging *l) {
  if (l->handle) td_client_call_release(l->handle);
  l->handle = NULL;
}

static void one_done(td_step_trace *t) {
  if (--t->pending) return;
  for (size_t i = 0; i < t->count; i++) release_handle(&t->calls[i]);
  t->then(t->step);
}

static void answered(td_logging *l) { one_done(l->arg); }

static void ask_all(td_step_trace *t, bool enable, void (*then)(td_master_step *)) {
  t->then = then;
  t->pending = t->count + 1;
  for (size_t i = 0; i < t->count; i++) {
    td_worker *w = t->step->view->plan->partitions[i].worker;
    t->calls[i] = (td_logging){
        .enable = enable, .disable = !enable, .fetch_step = enable ? 0 : t->step->id, .done = answered, .arg = t};
    w->ops->logging(w, &t->calls[i]);
  }
  one_done(t);
}

void td_step_trace_begin(td_step_trace *t, void (*then)(td_master_step *)) { ask_all(t, true, then); }

void td_step_trace_end(td_step_trace *t, void (*then)(td_master_step *)) { ask_all(t, false, then); }

void td_step_trace_cancel(td_step_trace *t) {
  if (!t->pending) return;
  t->pending++; /* a call may end inside its cancel */
  for (size_t i = 0; i < t->count; i++)
    if (t->calls[i].handle) td_client_call_cancel(t->calls[i].handle);
  one_done(t);
}

void td_step_trace_put(const td_step_trace *t, td_strbuf *out) {
  for (size_t i = 0; i < t->count; i++)
    if (t->calls[i].step_stats.size) td_wire_put_bytes(out, 1, td_strbuf_view(&t->calls[i].step_stats));
}

void td_step_trace_deinit(td_step_trace *t) {
  for (size_t i = 0; i < t->count; i++) td_strbuf_deinit(&t->calls[i].step_stats);
}
