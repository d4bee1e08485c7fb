#include "cluster/transfer_log.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "proto/wire.h"

/* Past these everything is thrown away: a master that went without turning logging off must cost nothing for long. */
enum { MAX_STEPS = 1024, MAX_BYTES = 64 << 20 };

/* What came for one device. */
typedef struct device_log {
  char *name;
  td_strbuf nodes; /* fields of DeviceStepStats */
} device_log;

typedef struct step_log {
  int64_t id;
  device_log *devices;
  size_t count, capacity;
} step_log;

struct td_transfer_log {
  /* written with the lock held; relaxed: a receive that is missed at the edge is no loss */
  atomic_int active;
  atomic_int kept; /* entries of steps */
  pthread_mutex_t lock;
  /* guarded by lock */
  td_map steps; /* id (its eight bytes) -> step_log */
  size_t bytes;
};

struct td_transfer {
  td_transfer_log *log;
  int64_t step_id, start_us;
  size_t key_size;
  char key[];
};

td_transfer_log *td_transfer_log_create(void) {
  td_transfer_log *l = td_new(td_transfer_log);
  pthread_mutex_init(&l->lock, NULL);
  return l;
}

static td_str key_of(const int64_t *id) { return td_str_n(id, sizeof *id); }

static void step_free(step_log *s) {
  for (size_t i = 0; i < s->count; i++) {
    td_free(s->devices[i].name);
    td_strbuf_deinit(&s->devices[i].nodes);
  }
  td_free(s->devices);
  td_free(s);
}

/* With the lock held. */
static void clear(td_transfer_log *l) {
  void *v;
  for (size_t i = 0; td_map_next(&l->steps, &i, NULL, &v);) step_free(v);
  td_map_clear(&l->steps);
  l->bytes = 0;
  atomic_store_explicit(&l->kept, 0, memory_order_relaxed);
}

void td_transfer_log_destroy(td_transfer_log *l) {
  if (!l) return;
  clear(l);
  td_map_deinit(&l->steps);
  pthread_mutex_destroy(&l->lock);
  td_free(l);
}

bool td_transfer_log_is_on(td_transfer_log *l) { return atomic_load_explicit(&l->active, memory_order_relaxed) > 0; }

void td_transfer_log_set(td_transfer_log *l, bool on) {
  pthread_mutex_lock(&l->lock);
  int n = atomic_load_explicit(&l->active, memory_order_relaxed) + (on ? 1 : -1);
  atomic_store_explicit(&l->active, TD_MAX(n, 0), memory_order_relaxed);
  pthread_mutex_unlock(&l->lock);
}

td_transfer *td_transfer_begin(td_transfer_log *l, int64_t step_id, td_str key) {
  if (!atomic_load_explicit(&l->active, memory_order_relaxed)) return NULL;
  td_transfer *t = td_malloc(sizeof *t + key.size);
  *t = (td_transfer){.log = l, .step_id = step_id, .start_us = td_wall_us(), .key_size = key.size};
  memcpy(t->key, key.data, key.size);
  return t;
}

/* With the lock held. */
static device_log *find_device(td_transfer_log *l, int64_t step_id, td_str device) {
  step_log *s = td_map_get(&l->steps, key_of(&step_id));
  if (!s) {
    s = td_new(step_log);
    s->id = step_id;
    td_map_put(&l->steps, key_of(&s->id), s);
    atomic_fetch_add_explicit(&l->kept, 1, memory_order_relaxed);
  }
  for (size_t i = 0; i < s->count; i++)
    if (td_str_is(device, s->devices[i].name)) return &s->devices[i];
  TD_GROW(s->devices, s->count, s->capacity);
  device_log *d = &s->devices[s->count++];
  *d = (device_log){.name = td_strndup(device.data, device.size)};
  return d;
}

/* "[8B] [0.037714Mb/s] <edge> from <device> to <device>" */
static void put_label(td_strbuf *b, const td_rendezvous_key *key, size_t bytes, int64_t us) {
  double rate = 8.0 * (double)bytes / (double)us;
  if ((double)bytes >= 0.1 * 1048576.0)
    td_strbuf_printf(b, "[%.1fMB] ", (double)bytes / 1048576.0);
  else
    td_strbuf_printf(b, "[%zuB] ", bytes);
  if (rate >= 1000.0)
    td_strbuf_printf(b, "[%.1fGb/s] ", rate / 1000.0);
  else
    td_strbuf_printf(b, "[%fMb/s] ", rate);
  td_strbuf_printf(b, "%.*s from %.*s to %.*s", TD_STR_ARG(key->edge), TD_STR_ARG(key->src_device),
                   TD_STR_ARG(key->dst_device));
}

/* A NodeExecStats as field 2 of a DeviceStepStats. */
static void put_transfer(td_strbuf *out, const td_rendezvous_key *key, size_t bytes, int64_t start_us, int64_t us) {
  td_strbuf node = {0}, label = {0}, output = {0}, leaf = {0};
  td_wire_put_bytes(&node, 1, TD_STR("RecvTensor"));
  td_wire_put_uint(&node, 2, (uint64_t)start_us);
  td_wire_put_uint(&node, 4, (uint64_t)us);
  td_wire_put_uint(&node, 5, (uint64_t)us);
  td_wire_put_uint(&leaf, 1, bytes); /* output.tensor_description.allocation_description.requested_bytes */
  td_wire_put_bytes(&output, 4, td_strbuf_view(&leaf));
  leaf.size = 0;
  td_wire_put_bytes(&leaf, 3, td_strbuf_view(&output));
  td_wire_put_bytes(&node, 7, td_strbuf_view(&leaf));
  put_label(&label, key, bytes, us);
  td_wire_put_bytes(&node, 8, td_strbuf_view(&label));
  td_wire_put_uint(&node, 13, (uint64_t)start_us * 1000);
  td_wire_put_uint(&node, 15, (uint64_t)us * 1000);
  td_wire_put_uint(&node, 16, (uint64_t)us * 1000);
  td_wire_put_bytes(out, 2, td_strbuf_view(&node));
  td_strbuf_deinit(&node);
  td_strbuf_deinit(&label);
  td_strbuf_deinit(&output);
  td_strbuf_deinit(&leaf);
}

void td_transfer_end(td_transfer *t, bool ok, int64_t sent_us, size_t bytes) {
  if (!t) return;
  td_transfer_log *l = t->log;
  td_rendezvous_key key;
  td_frame_id frame;
  td_status s = ok ? td_rendezvous_key_parse(td_str_n(t->key, t->key_size), &key, &frame) : TD_STATUS_OK;
  if (ok && !s) {
    int64_t end_us = TD_MAX(td_wall_us(), t->start_us + 1), start_us = t->start_us;
    /* the clocks of two machines: what was sent was asked for before and has come since */
    if (sent_us) start_us = TD_MIN(TD_MAX(start_us, sent_us), end_us - 1);
    td_strbuf node = {0};
    put_transfer(&node, &key, bytes, start_us, end_us - start_us);
    pthread_mutex_lock(&l->lock);
    if (l->steps.count >= MAX_STEPS || l->bytes >= MAX_BYTES) clear(l);
    td_strbuf_append(&find_device(l, t->step_id, key.dst_device)->nodes, td_strbuf_view(&node));
    l->bytes += node.size;
    pthread_mutex_unlock(&l->lock);
    td_strbuf_deinit(&node);
  }
  td_status_free(s);
  td_free(t);
}

/* Takes a step's log out; NULL: there is none. */
static step_log *take(td_transfer_log *l, int64_t step_id) {
  pthread_mutex_lock(&l->lock);
  step_log *s = td_map_remove(&l->steps, key_of(&step_id));
  for (size_t i = 0; s && i < s->count; i++) l->bytes -= s->devices[i].nodes.size;
  if (s) atomic_fetch_sub_explicit(&l->kept, 1, memory_order_relaxed);
  pthread_mutex_unlock(&l->lock);
  return s;
}

bool td_transfer_log_take(td_transfer_log *l, int64_t step_id, td_strbuf *out) {
  step_log *s = take(l, step_id);
  td_strbuf device = {0};
  if (!s) return false;
  for (size_t i = 0; i < s->count; i++) {
    device.size = 0;
    td_wire_put_bytes(&device, 1, td_str_of(s->devices[i].name));
    td_strbuf_append(&device, td_strbuf_view(&s->devices[i].nodes));
    td_wire_put_bytes(out, 1, td_strbuf_view(&device));
  }
  td_strbuf_deinit(&device);
  step_free(s);
  return true;
}

void td_transfer_log_forget(td_transfer_log *l, int64_t step_id) {
  if (!atomic_load_explicit(&l->kept, memory_order_relaxed)) return;
  step_log *s = take(l, step_id);
  if (s) step_free(s);
}

void td_transfer_log_clear(td_transfer_log *l) {
  pthread_mutex_lock(&l->lock);
  clear(l);
  pthread_mutex_unlock(&l->lock);
}
