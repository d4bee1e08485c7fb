#include "cluster/graph_debug.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/control.h"
#include "cluster/task.h"
#include "proto/message.h"

enum { POLL_MS = 100 };

typedef struct publishing {
  td_debug_report report;
  td_latch latch;
} publishing;

static void published(td_debug_report *r, td_status status) {
  td_latch_done(&TD_CONTAINER_OF(r, publishing, report)->latch, status);
}

static void closed(void *arg) { td_latch_done(arg, TD_STATUS_OK); }

/* Waits; when nobody wants the graph any more, everything that the run waits for ends. */
static td_status wait(td_worker_session *s, const td_graph_debug *debug, td_debug_run *run, td_latch *latch) {
  while (!td_latch_wait_until(latch, td_now_ns() + POLL_MS * 1000000ull)) {
    pthread_mutex_lock(&s->lock);
    bool is_over = s->is_closed || (debug->gave_up && atomic_load(debug->gave_up));
    pthread_mutex_unlock(&s->lock);
    if (is_over) td_debug_run_cancel(run, 0);
  }
  return td_latch_wait(latch);
}

static td_status publish(td_worker_session *s, const td_graph_debug *debug, td_debug_run *run, const td_partition *part,
                         const td_str *urls, size_t url_count) {
  td_arena arena = {0};
  td_strbuf bytes = {0};
  td_status status = td_message_encode(&td_graph_to_proto(part->graph, &arena)->base, &bytes);
  td_arena_deinit(&arena);
  if (!status) {
    publishing p = {.report = {.urls = urls,
                               .url_count = url_count,
                               .device = part->location,
                               .graph = td_strbuf_view(&bytes),
                               .done = published}};
    td_latch_init(&p.latch, 1);
    td_debug_run_report(run, &p.report);
    status = wait(s, debug, run, &p.latch);
    td_latch_deinit(&p.latch);
  }
  td_strbuf_deinit(&bytes);
  return status;
}

static void close_run(td_worker_session *s, const td_graph_debug *debug, td_debug_run *run) {
  td_latch latch;
  td_latch_init(&latch, 1);
  td_debug_run_close(run, closed, &latch);
  td_status_free(wait(s, debug, run, &latch));
  td_latch_deinit(&latch);
  td_debug_run_release(run);
}

td_status td_graph_debug_prepare(td_worker_session *s, const td_graph_debug *debug, td_partition *partitions,
                                 size_t count) {
  if (!td_watches_any(debug->watches)) return TD_STATUS_OK;
  td_arena arena = {0};
  size_t url_count;
  td_str *urls = td_watches_urls(debug->watches, &arena, &url_count);
  td_debug_run *run = debug->run ? debug->run : td_debug_run_create(s->task->debugger);
  td_status status = TD_STATUS_OK;
  for (size_t i = 0; i < count && !status; i++) {
    status = td_watches_insert(debug->watches, partitions[i].graph, partitions[i].location);
    if (!status) status = publish(s, debug, run, &partitions[i], urls, url_count);
  }
  if (!debug->run) close_run(s, debug, run);
  td_arena_deinit(&arena);
  return status;
}
