#include "runtime/trace.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "framework/variable.h"

static td_thread_name this_thread(void) {
  static _Thread_local td_thread_name t;
  if (!t.id) {
    t.id = gettid();
    pthread_getname_np(pthread_self(), t.name, sizeof t.name);
  }
  return t;
}

td_event *td_trace_begin(td_trace *t, const td_pnode *n, const td_value *in) {
  if (!td_step_stats_may_add(t->stats)) return NULL;
  td_event *e = td_arena_new(&t->arena, td_event);
  e->node = n;
  e->thread = this_thread();
  e->inputs = td_arena_array(&t->arena, const void *, n->input_count + 1);
  for (uint32_t i = 0; i < n->input_count; i++)
    if (in[i].tensor && !(n->in_refs && n->in_refs[i] & TD_IN_REF)) e->inputs[i] = in[i].tensor->data;
  e->start_ns = e->op_start_ns = td_clock_ns(CLOCK_REALTIME);
  e->scheduled_ns = TD_MIN(t->idle_ns, e->start_ns);
  return e;
}

void td_event_started(td_event *e) {
  e->thread = this_thread();
  e->op_start_ns = td_clock_ns(CLOCK_REALTIME);
}

void td_event_ended(td_event *e) { e->op_end_ns = td_clock_ns(CLOCK_REALTIME); }

/* Whether a node made this tensor, as far as can be seen: nobody else holds it and it is none of its inputs. */
static bool is_made_here(const td_event *e, const td_tensor *t) {
  if (e->node->exec < TD_EXEC_KERNEL || !td_tensor_is_exclusive(t)) return false;
  for (uint32_t i = 0; i < e->node->input_count; i++)
    if (e->inputs[i] == t->data) return false;
  return true;
}

static void add_output(td_trace *t, td_event *e, int slot, const td_tensor *value, bool is_ref) {
  int64_t *dims = td_arena_array(&t->arena, int64_t, value->rank + 1u);
  for (int i = 0; i < value->rank; i++) dims[i] = value->dims[i];
  bool is_exclusive = !is_ref && td_tensor_is_exclusive(value);
  if (!is_ref && is_made_here(e, value)) e->allocated_bytes += value->size;
  e->outputs[e->output_count++] = (td_output_record){
      .slot = slot,
      .dtype = value->dtype,
      .rank = value->rank,
      .dims = dims,
      .bytes = value->size,
      .data = value->data,
      .is_exclusive = is_exclusive,
  };
}

void td_trace_add(td_trace *t, td_event *e, const td_value *out) {
  const td_pnode *n = e->node;
  e->outputs = td_arena_array(&t->arena, td_output_record, n->output_count + 1);
  for (uint32_t i = 0; i < n->output_count; i++) {
    if (!out[i].tensor) continue;
    if (!td_dtype_is_ref(n->kernel->output_types[i])) {
      add_output(t, e, (int)i, out[i].tensor, false);
      continue;
    }
    td_variable *v = out[i].ref;
    pthread_rwlock_rdlock(&v->lock);
    if (v->value) add_output(t, e, (int)i, v->value, true);
    pthread_rwlock_unlock(&v->lock);
  }
  e->end_ns = td_clock_ns(CLOCK_REALTIME);
  if (!e->op_end_ns) e->op_end_ns = e->end_ns;
  *t->last = e;
  t->last = &e->next;
}
