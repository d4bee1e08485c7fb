#include "runtime/step_stats.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "framework/device.h"
#include "proto/wire.h"
#include "runtime/trace.h"

struct td_step_stats {
  atomic_int nodes; /* recorded or being recorded; relaxed: a cap need not be exact */
  pthread_mutex_t lock;
  /* guarded by lock */
  td_trace *first, **last; /* of runs that have ended, in that order */
};

td_step_stats *td_step_stats_create(void) {
  td_step_stats *s = td_new(td_step_stats);
  pthread_mutex_init(&s->lock, NULL);
  s->last = &s->first;
  return s;
}

bool td_step_stats_may_add(td_step_stats *s) {
  if (atomic_fetch_add_explicit(&s->nodes, 1, memory_order_relaxed) < TD_STEP_STATS_MAX_NODES) return true;
  atomic_fetch_sub_explicit(&s->nodes, 1, memory_order_relaxed);
  return false;
}

static void trace_free(td_trace *t) {
  td_program_release(t->program);
  td_arena_deinit(&t->arena);
  td_free(t);
}

void td_step_stats_destroy(td_step_stats *s) {
  if (!s) return;
  for (td_trace *t = s->first, *next; t; t = next) {
    next = t->next;
    trace_free(t);
  }
  pthread_mutex_destroy(&s->lock);
  td_free(s);
}

td_trace *td_trace_create(td_step_stats *s, td_program *p) {
  td_trace *t = td_new(td_trace);
  t->stats = s;
  t->program = td_program_retain(p);
  t->last = &t->first;
  t->idle_ns = td_clock_ns(CLOCK_REALTIME);
  return t;
}

void td_trace_end(td_trace *t) {
  td_step_stats *s = t->stats;
  if (!t->first) {
    trace_free(t);
    return;
  }
  pthread_mutex_lock(&s->lock);
  *s->last = t;
  s->last = &t->next;
  pthread_mutex_unlock(&s->lock);
}

/* ---- labels ---- */

/* What stands between the brackets of a node's label: its inputs as a graph would name them. Found again from the edges
 * of the compiled program, so that programs which nobody traces need not keep them. */
typedef struct inputs {
  td_str *names; /* of data inputs, by slot */
  td_strbuf controls;
} inputs;

static void find_inputs(const td_program *p, td_arena *arena, inputs *all) {
  for (uint32_t i = 0; i < p->node_count; i++)
    all[i].names = td_arena_array(arena, td_str, p->nodes[i].input_count + 1);
  for (uint32_t i = 0; i < p->node_count; i++) {
    const td_pnode *src = &p->nodes[i];
    td_str name = p->infos[i].name;
    for (const td_pedge *e = p->edges + src->edge, *end = e + src->edge_count; e < end; e++) {
      const td_pnode *dst = &p->nodes[e->dst];
      if (e->flags & TD_PE_CONTROL)
        td_strbuf_printf(&all[e->dst].controls, ", ^%.*s", TD_STR_ARG(name));
      else if (e->out)
        all[e->dst].names[e->slot - dst->slot] = td_str_of(td_arena_printf(arena, "%.*s:%u", TD_STR_ARG(name), e->out));
      else
        all[e->dst].names[e->slot - dst->slot] = name;
    }
  }
}

/* "name = Op(input, input:1, ^control)" of every node; made once, in the program's arena. */
static const td_str *labels_of(td_program *p) {
  pthread_mutex_lock(&p->lock);
  if (!p->labels) {
    td_arena scratch = {0};
    td_strbuf text = {0};
    inputs *all = td_arena_array(&scratch, inputs, p->node_count + 1);
    td_str *labels = td_arena_array(&p->arena, td_str, p->node_count + 1);
    find_inputs(p, &scratch, all);
    for (uint32_t i = 0; i < p->node_count; i++) {
      const td_pnode *n = &p->nodes[i];
      text.size = 0;
      td_strbuf_printf(&text, "%.*s = %.*s(", TD_STR_ARG(p->infos[i].name), TD_STR_ARG(n->kernel->op));
      for (uint32_t k = 0; k < n->input_count; k++)
        td_strbuf_printf(&text, "%s%.*s", k ? ", " : "", TD_STR_ARG(all[i].names[k]));
      td_str controls = td_strbuf_view(&all[i].controls);
      if (controls.size && !n->input_count) controls = td_str_n(controls.data + 2, controls.size - 2);
      td_strbuf_append(&text, controls);
      td_strbuf_putc(&text, ')');
      labels[i] = td_arena_str(&p->arena, td_strbuf_view(&text));
      td_strbuf_deinit(&all[i].controls);
    }
    p->labels = labels;
    td_strbuf_deinit(&text);
    td_arena_deinit(&scratch);
  }
  const td_str *labels = p->labels;
  pthread_mutex_unlock(&p->lock);
  return labels;
}

/* ---- encoding ---- */

/* Buffers that are used for one message after the other. */
typedef struct writer {
  td_strbuf node, part, piece, leaf;
} writer;

static void put_message(td_strbuf *to, uint32_t number, td_strbuf *message) {
  td_wire_put_bytes(to, number, td_strbuf_view(message));
  message->size = 0;
}

static uint64_t since(uint64_t begin_ns, uint64_t ns) { return ns > begin_ns ? ns - begin_ns : 0; }

/* NodeOutput{slot, TensorDescription{dtype, shape, AllocationDescription}} */
static void put_output(writer *w, const td_output_record *o) {
  td_strbuf *description = &w->part, *shape = &w->piece, *leaf = &w->leaf;
  td_wire_put_uint(description, 1, (uint64_t)o->dtype);
  for (int i = 0; i < o->rank; i++) {
    td_wire_put_uint(leaf, 1, (uint64_t)o->dims[i]);
    put_message(shape, 2, leaf);
  }
  put_message(description, 2, shape);
  td_wire_put_uint(leaf, 1, o->bytes);
  td_wire_put_uint(leaf, 2, o->bytes);
  td_wire_put_bytes(leaf, 3, TD_STR("cpu"));
  td_wire_put_uint(leaf, 5, o->is_exclusive);
  td_wire_put_uint(leaf, 6, (uint64_t)(uintptr_t)o->data);
  put_message(description, 4, leaf);
  td_wire_put_uint(shape, 1, (uint64_t)o->slot);
  put_message(shape, 3, description);
  put_message(&w->node, 7, shape);
}

/* AllocatorMemoryUsed; what the node holds when it ends is what it made. */
static void put_memory(writer *w, size_t bytes) {
  if (!bytes) return;
  td_wire_put_bytes(&w->part, 1, TD_STR("cpu"));
  for (uint32_t field = 2; field <= 4; field++) td_wire_put_uint(&w->part, field, bytes); /* total, peak, live */
  put_message(&w->node, 6, &w->part);
}

/* NodeExecStats; fields in order. */
static void put_event(writer *w, const td_event *e, td_str name, td_str label, td_strbuf *device) {
  td_strbuf *b = &w->node;
  td_wire_put_bytes(b, 1, name);
  td_wire_put_uint(b, 2, e->start_ns / 1000);
  td_wire_put_uint(b, 3, since(e->start_ns / 1000, e->op_start_ns / 1000));
  td_wire_put_uint(b, 4, since(e->start_ns / 1000, e->op_end_ns / 1000));
  td_wire_put_uint(b, 5, since(e->start_ns / 1000, e->end_ns / 1000));
  put_memory(w, e->allocated_bytes);
  for (size_t i = 0; i < e->output_count; i++) put_output(w, &e->outputs[i]);
  if (e->allocated_bytes >= 104858) { /* from 0.1 MB on TensorFlow tells it in the label */
    td_strbuf_printf(&w->part, "[cpu %.1fMB %.1fMB] %.*s", (double)e->allocated_bytes / 1048576.0,
                     (double)e->allocated_bytes / 1048576.0, TD_STR_ARG(label));
    put_message(b, 8, &w->part);
  } else {
    td_wire_put_bytes(b, 8, label);
  }
  td_wire_put_uint(b, 9, e->scheduled_ns / 1000);
  td_wire_put_uint(b, 10, (uint64_t)(uint32_t)e->thread.id);
  td_wire_put_bytes(b, 12, (td_str){"", 0}); /* memory_stats: no temporary nor persistent memory is told apart */
  td_wire_put_uint(b, 13, e->start_ns);
  td_wire_put_uint(b, 14, since(e->start_ns, e->op_start_ns));
  td_wire_put_uint(b, 15, since(e->start_ns, e->op_end_ns));
  td_wire_put_uint(b, 16, since(e->start_ns, e->end_ns));
  td_wire_put_uint(b, 17, e->scheduled_ns);
  put_message(device, 2, b);
}

/* The threads that a device's nodes ran on. */
typedef struct threads {
  int *ids;
  size_t count, capacity;
} threads;

/* An entry of the map thread_names of a DeviceStepStats, of a thread not seen before. */
static void put_thread(writer *w, threads *seen, const td_event *e, td_strbuf *device) {
  for (size_t i = 0; i < seen->count; i++)
    if (seen->ids[i] == e->thread.id) return;
  TD_GROW(seen->ids, seen->count, seen->capacity);
  seen->ids[seen->count++] = e->thread.id;
  td_wire_put_uint(&w->part, 1, (uint64_t)(uint32_t)e->thread.id);
  td_wire_put_bytes(&w->part, 2, td_str_of(e->thread.name));
  put_message(device, 3, &w->part);
}

static void put_device(writer *w, const td_step_stats *s, const td_device *d, td_strbuf *out) {
  td_strbuf device = {0};
  threads seen = {0};
  td_wire_put_bytes(&device, 1, td_str_of(d->name));
  for (td_trace *t = s->first; t; t = t->next) {
    if (t->program->device != d) continue;
    const td_str *labels = labels_of(t->program);
    for (const td_event *e = t->first; e; e = e->next) {
      size_t at = (size_t)(e->node - t->program->nodes);
      put_event(w, e, t->program->infos[at].name, labels[at], &device);
      put_thread(w, &seen, e, &device);
    }
  }
  td_free(seen.ids);
  put_message(out, 1, &device);
  td_strbuf_deinit(&device);
}

void td_step_stats_encode(td_step_stats *s, td_strbuf *out) {
  writer w = {0};
  const td_device **devices = NULL;
  size_t count = 0, capacity = 0;
  pthread_mutex_lock(&s->lock);
  for (const td_trace *t = s->first; t; t = t->next) {
    size_t i = 0;
    while (i < count && devices[i] != t->program->device) i++;
    if (i < count) continue;
    TD_GROW(devices, count, capacity);
    devices[count++] = t->program->device;
    put_device(&w, s, t->program->device, out);
  }
  pthread_mutex_unlock(&s->lock);
  td_free(devices);
  td_strbuf_deinit(&w.node);
  td_strbuf_deinit(&w.part);
  td_strbuf_deinit(&w.piece);
  td_strbuf_deinit(&w.leaf);
}

void td_step_stats_visit(td_step_stats *s, td_str device, void (*visit)(void *arg, const td_node_record *n),
                         void *arg) {
  pthread_mutex_lock(&s->lock);
  for (td_trace *t = s->first; t; t = t->next) {
    if (t->program->is_function || !td_str_is(device, t->program->device->name)) continue;
    for (const td_event *e = t->first; e; e = e->next) {
      td_node_record n = {.name = td_pnode_info_of(t->program, e->node)->name,
                          .op_start_ns = e->op_start_ns,
                          .op_end_ns = e->op_end_ns,
                          .outputs = e->outputs,
                          .output_count = e->output_count,
                          .allocated_bytes = e->allocated_bytes};
      visit(arg, &n);
    }
  }
  pthread_mutex_unlock(&s->lock);
}
