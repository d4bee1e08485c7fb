#include "debug/debugger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "debug/file_sink.h"
#include "debug/listener.h"

static const uint64_t DISK_BYTES = 107374182400u, CONNECT_NS = 900 * 1000000000ull;

struct td_debugger {
  td_debugger_options options; /* immutable */
  td_debug_gates *gates;
  atomic_uint next_loop;
  pthread_mutex_t lock;
  uint64_t disk_bytes; /* guarded by lock */
};

struct td_debug_run {
  td_debug_sink sink; /* first */
  _Atomic uint32_t references;
  td_debugger *debugger;
  pthread_mutex_t lock;
  td_map listeners; /* guarded by lock until closed: url -> td_debug_listener * */
  bool is_cancelled;
  /* of the close */
  atomic_int open;
  void (*closed)(void *arg);
  void *closed_arg;
};

/* ---- the task's side ---- */

static uint64_t limit_of_environment(void) {
  const char *text = getenv("TFDBG_DISK_BYTES_LIMIT");
  uint64_t limit;
  return text && td_str_to_u64(td_str_of(text), &limit) && limit ? limit : DISK_BYTES;
}

td_debugger *td_debugger_create(const td_debugger_options *options) {
  td_debugger *d = td_new(td_debugger);
  d->options = *options;
  if (!d->options.disk_bytes_limit) d->options.disk_bytes_limit = limit_of_environment();
  if (!d->options.connect_ns) d->options.connect_ns = CONNECT_NS;
  d->gates = td_debug_gates_create();
  pthread_mutex_init(&d->lock, NULL);
  return d;
}

void td_debugger_destroy(td_debugger *d) {
  if (!d) return;
  td_debug_gates_destroy(d->gates);
  pthread_mutex_destroy(&d->lock);
  td_free(d);
}

void td_debugger_reset_disk_bytes(td_debugger *d) {
  pthread_mutex_lock(&d->lock);
  d->disk_bytes = 0;
  pthread_mutex_unlock(&d->lock);
}

static bool take_disk_bytes(td_debugger *d, uint64_t bytes) {
  pthread_mutex_lock(&d->lock);
  bool ok = !bytes || (bytes < d->options.disk_bytes_limit && d->disk_bytes < d->options.disk_bytes_limit - bytes);
  if (ok) d->disk_bytes += bytes;
  pthread_mutex_unlock(&d->lock);
  return ok;
}

/* ---- URLs ---- */

static bool has_scheme(td_str url, const char *scheme) {
  size_t n = strlen(scheme);
  return url.size >= n && !strncasecmp(url.data, scheme, n);
}

static bool is_file(td_str url) { return has_scheme(url, "file://"); }
static bool is_grpc(td_str url) { return has_scheme(url, "grpc://"); }
static td_str folder_of(td_str url) { return td_str_n(url.data + 7, url.size - 7); }

static td_status check_urls(const td_str *urls, size_t count) {
  for (size_t i = 0; i < count; i++) {
    bool has_nul = urls[i].size && memchr(urls[i].data, 0, urls[i].size);
    if (!has_nul && (is_file(urls[i]) || is_grpc(urls[i]))) continue;
    if (has_scheme(urls[i], "memcbk://"))
      return td_failed_precondition("No callback registered for: %.*s", TD_STR_ARG(urls[i]));
    return td_error(TD_UNAVAILABLE, "Invalid debug target URL: %.*s", TD_STR_ARG(urls[i]));
  }
  return TD_STATUS_OK;
}

/* ---- fan-out ---- */

/* One event on its way to all its URLs. */
typedef struct fanout {
  td_work work;
  td_debug_run *run;                 /* retained */
  td_debug_publication *publication; /* a tensor; NULL: */
  td_debug_report *report;
  const td_str *urls;
  size_t url_count;
  int64_t wall_us;
  atomic_size_t pending;
  pthread_mutex_t lock;
  size_t failed;   /* guarded by lock until nothing is pending */
  td_strbuf why;   /* so too: every URL's reason */
  td_status first; /* so too */
} fanout;

/* A failure of one URL; consumes `s`. */
static void note_failure(fanout *f, td_status s) {
  if (!s) return;
  pthread_mutex_lock(&f->lock);
  f->failed++;
  td_strbuf_printf(&f->why, " %s;", td_status_message(s));
  td_status_merge(&f->first, s);
  pthread_mutex_unlock(&f->lock);
}

static void finish(fanout *f, td_status s) {
  td_debug_publication *p = f->publication;
  td_debug_report *r = f->report;
  td_strbuf_deinit(&f->why);
  td_status_free(f->first);
  pthread_mutex_destroy(&f->lock);
  td_debug_run_release(f->run);
  td_free(f);
  if (p)
    p->done(p, s);
  else
    r->done(r, s);
}

static void one_done(fanout *f) {
  /* acq_rel: the last one sees what the others noted */
  if (atomic_fetch_sub_explicit(&f->pending, 1, memory_order_acq_rel) != 1) return;
  td_status s = TD_STATUS_OK;
  if (f->failed && f->publication)
    s = td_internal("Publishing to %zu of %zu debug target URLs failed, due to the following errors:%s", f->failed,
                    f->url_count, td_strbuf_cstr(&f->why));
  else if (f->failed)
    s = td_status_retain(f->first);
  finish(f, s);
}

/* ---- to listeners ---- */

static td_debug_listener *listener_of(td_debug_run *r, td_str url) {
  td_debugger *d = r->debugger;
  pthread_mutex_lock(&r->lock);
  td_debug_listener *l = td_map_get(&r->listeners, url);
  if (!l && !r->is_cancelled) {
    unsigned turn = atomic_fetch_add_explicit(&d->next_loop, 1, memory_order_relaxed);
    td_loop *loop = d->options.loops[turn % (unsigned)d->options.loop_count];
    l = td_debug_listener_create(loop, url, d->gates, d->options.connect_ns);
    td_map_put(&r->listeners, td_debug_listener_url(l), l);
  }
  if (l) td_debug_listener_retain(l);
  pthread_mutex_unlock(&r->lock);
  return l;
}

static void sent(void *arg, td_status status) {
  note_failure(arg, status);
  one_done(arg);
}

static td_status tensor_send(fanout *f, td_str url, td_debug_send *out) {
  const td_debug_publication *p = f->publication;
  td_debug_gate gate = td_debug_gates_get(f->run->debugger->gates, td_debug_url_address(url), p->key->watch);
  TD_TRY(td_debug_tensor_events(p->key, p->tensor, f->wall_us, TD_DEBUG_CHUNK_BYTES, &out->events));
  out->tensor = td_tensor_retain(p->tensor);
  out->wants_reply = gate == TD_DEBUG_GATE_READ_WRITE;
  return TD_STATUS_OK;
}

static void report_send(fanout *f, td_str url, td_debug_send *out) {
  const td_debug_report *r = f->report;
  out->wants_reply = true;
  if (r->metadata) {
    out->events.items = td_new_array(td_debug_event, 1);
    out->events.count = 1;
    td_debug_metadata_event(r->metadata, td_debug_url_path(url), f->wall_us, out->events.items);
  } else { /* bytes that may be written after the report is done */
    td_strbuf_append(&out->bytes, r->graph);
    td_debug_graph_chunks(td_strbuf_view(&out->bytes), r->device, f->wall_us, &out->events);
  }
}

static bool is_open(td_debug_sink *s, td_str url, td_str watch) {
  td_debug_run *r = (td_debug_run *)s;
  return !is_grpc(url) ||
         td_debug_gates_get(r->debugger->gates, td_debug_url_address(url), watch) != TD_DEBUG_GATE_CLOSED;
}

static void send_to_listener(fanout *f, td_str url) {
  const td_debug_publication *p = f->publication;
  if (p && p->is_gated && !is_open(&f->run->sink, url, p->key->watch)) return;
  td_debug_listener *l = listener_of(f->run, url);
  if (!l) {
    note_failure(f, td_cancelled("Write event to stream URL %.*s failed.", TD_STR_ARG(url)));
    return;
  }
  td_debug_send send = {.done = sent, .arg = f};
  td_status s = TD_STATUS_OK;
  if (p)
    s = tensor_send(f, url, &send);
  else
    report_send(f, url, &send);
  if (s) {
    note_failure(f, s);
  } else {
    atomic_fetch_add_explicit(&f->pending, 1, memory_order_relaxed); /* one_done() of the caller comes later */
    td_debug_listener_send(l, &send);
  }
  td_debug_listener_release(l);
}

static void send_to_listeners(fanout *f) {
  for (size_t i = 0; i < f->url_count; i++)
    if (is_grpc(f->urls[i])) send_to_listener(f, f->urls[i]);
  one_done(f);
}

/* ---- to files ---- */

static td_status write_file(fanout *f, td_str url) {
  const td_debug_publication *p = f->publication;
  const td_debug_report *r = f->report;
  if (p) return td_debug_file_tensor(folder_of(url), p->key, p->tensor, f->wall_us);
  if (r->metadata) return td_debug_file_metadata(folder_of(url), r->metadata, f->wall_us);
  return td_debug_file_graph(folder_of(url), r->device, r->graph, f->wall_us);
}

/* The allowance is checked for the whole publication first: past it, the run ends. */
static td_status take_allowance(const fanout *f) {
  const td_debug_publication *p = f->publication;
  td_debugger *d = f->run->debugger;
  uint64_t bytes = p && p->tensor->has_value ? p->tensor->size : 0;
  for (size_t i = 0; i < f->url_count; i++)
    if (is_file(f->urls[i]) && !take_disk_bytes(d, bytes))
      return td_resource_exhausted(
          "TensorFlow Debugger has exhausted file-system byte-size allowance (%llu), therefore it cannot dump an "
          "additional %llu byte(s) of tensor data for the debug tensor %.*s:%d. You may use the environment variable "
          "TFDBG_DISK_BYTES_LIMIT to set a higher limit.",
          (unsigned long long)d->options.disk_bytes_limit, (unsigned long long)bytes, TD_STR_ARG(p->key->node),
          p->key->slot);
  return TD_STATUS_OK;
}

static void write_files(td_work *w) {
  fanout *f = TD_CONTAINER_OF(w, fanout, work);
  td_status s = take_allowance(f);
  if (s) {
    finish(f, s);
    return;
  }
  for (size_t i = 0; i < f->url_count; i++)
    if (is_file(f->urls[i])) note_failure(f, write_file(f, f->urls[i]));
  send_to_listeners(f);
}

/* ---- the run's side ---- */

/* Takes `f` apart from its common members. */
static void start(td_debug_run *r, fanout *f) {
  bool any_file = false;
  f->run = td_debug_run_retain(r);
  f->wall_us = td_wall_us();
  f->work.run = write_files;
  pthread_mutex_init(&f->lock, NULL);
  atomic_init(&f->pending, 1);
  td_status s = check_urls(f->urls, f->url_count);
  for (size_t i = 0; i < f->url_count; i++) any_file |= is_file(f->urls[i]);
  if (s)
    finish(f, s);
  else if (any_file && r->debugger->options.pool)
    td_pool_submit(r->debugger->options.pool, &f->work);
  else if (any_file)
    write_files(&f->work);
  else
    send_to_listeners(f);
}

static void publish(td_debug_sink *s, td_debug_publication *p) {
  fanout *f = td_new(fanout);
  f->publication = p;
  f->urls = p->urls;
  f->url_count = p->url_count;
  start((td_debug_run *)s, f);
}

void td_debug_run_report(td_debug_run *r, td_debug_report *report) {
  fanout *f = td_new(fanout);
  f->report = report;
  f->urls = report->urls;
  f->url_count = report->url_count;
  start(r, f);
}

td_debug_run *td_debug_run_create(td_debugger *d) {
  static const td_debug_sink_ops ops = {.is_open = is_open, .publish = publish};
  td_debug_run *r = td_new(td_debug_run);
  r->sink.ops = &ops;
  atomic_init(&r->references, 1);
  r->debugger = d;
  pthread_mutex_init(&r->lock, NULL);
  return r;
}

td_debug_run *td_debug_run_retain(td_debug_run *r) {
  atomic_fetch_add_explicit(&r->references, 1, memory_order_relaxed);
  return r;
}

void td_debug_run_release(td_debug_run *r) {
  /* acq_rel: the last owner sees what the others did */
  if (!r || atomic_fetch_sub_explicit(&r->references, 1, memory_order_acq_rel) != 1) return;
  void *l;
  for (size_t i = 0; td_map_next(&r->listeners, &i, NULL, &l);) {
    td_debug_listener_cancel(l, 0);
    td_debug_listener_release(l);
  }
  td_map_deinit(&r->listeners);
  pthread_mutex_destroy(&r->lock);
  td_free(r);
}

td_debug_sink *td_debug_run_sink(td_debug_run *r) { return &r->sink; }

static void listener_closed(void *arg) {
  td_debug_run *r = arg;
  /* acq_rel: who comes last sees what the others did */
  if (atomic_fetch_sub_explicit(&r->open, 1, memory_order_acq_rel) != 1) return;
  r->closed(r->closed_arg);
  td_debug_run_release(r);
}

void td_debug_run_close(td_debug_run *r, void (*done)(void *arg), void *arg) {
  void *l;
  td_debug_run_retain(r);
  r->closed = done;
  r->closed_arg = arg;
  pthread_mutex_lock(&r->lock);
  r->is_cancelled = true; /* no stream opens any more */
  atomic_init(&r->open, (int)r->listeners.count + 1);
  for (size_t i = 0; td_map_next(&r->listeners, &i, NULL, &l);) td_debug_listener_close(l, listener_closed, r);
  pthread_mutex_unlock(&r->lock);
  listener_closed(r);
}

void td_debug_run_cancel(td_debug_run *r, uint64_t grace_ns) {
  void *l;
  pthread_mutex_lock(&r->lock);
  r->is_cancelled = true;
  for (size_t i = 0; td_map_next(&r->listeners, &i, NULL, &l);) td_debug_listener_cancel(l, grace_ns);
  pthread_mutex_unlock(&r->lock);
}
