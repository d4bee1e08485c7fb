#include "cluster/step_debug.h"

#include "base/mem.h"
#include "cluster/master_step.h"
#include "graph/watch.h"
#include "proto/message.h"

td_status td_step_debug_create(td_master_step *st, td_str bytes) {
  td_step_debug *d = td_arena_new(&st->arena, td_step_debug);
  Pb__DebugOptions *watches;
  TD_TRY(td_message_decode(&pb__debug_options__descriptor, bytes, &st->arena, (ProtobufCMessage **)&watches));
  d->step = st;
  d->watches = watches;
  d->bytes = bytes;
  st->debug = d;
  return TD_STATUS_OK;
}

static void go_on(td_work *w) {
  td_step_debug *d = TD_CONTAINER_OF(w, td_step_debug, arrived);
  td_status status = d->status;
  d->status = TD_STATUS_OK;
  d->then(d->step, status);
}

static void arrive(td_step_debug *d) {
  d->arrived.run = go_on;
  td_loop_post(d->step->loop, &d->arrived);
}

static void told(td_debug_report *r, td_status status) {
  td_step_debug *d = TD_CONTAINER_OF(r, td_step_debug, report);
  d->status = status;
  arrive(d);
}

void td_step_debug_begin(td_master_step *st, int64_t run_index, td_step_debug_fn then) {
  td_step_debug *d = st->debug;
  const td_run_step_request *r = &st->request;
  td_str *feeds = td_arena_array(&st->arena, td_str, st->feeds.count + 1);
  for (size_t i = 0; i < st->feeds.count; i++) feeds[i] = st->feeds.items[i].name;
  d->metadata = (td_debug_metadata){.global_step = d->watches->global_step,
                                    .run_index = run_index,
                                    .inputs = feeds,
                                    .input_count = st->feeds.count,
                                    .outputs = r->fetches,
                                    .output_count = r->fetch_count,
                                    .targets = r->targets,
                                    .target_count = r->target_count};
  d->report = (td_debug_report){.metadata = &d->metadata, .done = told};
  d->report.urls = td_watches_urls(d->watches, &st->arena, &d->report.url_count);
  d->then = then;
  d->run = td_debug_run_create(st->task->debugger);
  if (d->watches->reset_disk_byte_usage) td_debugger_reset_disk_bytes(st->task->debugger);
  td_debug_run_report(d->run, &d->report);
}

static void streams_closed(void *arg) { arrive(arg); }

static void closed(td_master_step *st, td_status status) {
  st->debug->is_closed = true;
  st->debug->closed(st, status);
}

bool td_step_debug_close(td_master_step *st, td_status status, td_step_debug_fn then) {
  td_step_debug *d = st->debug;
  if (!d || !d->run || d->is_closed) return false;
  d->is_closing = true;
  d->status = status;
  d->then = closed;
  d->closed = then;
  td_debug_run_close(d->run, streams_closed, d);
  return true;
}

void td_step_debug_cancel(td_step_debug *d) {
  if (d->run && !d->is_closed) td_debug_run_cancel(d->run, 0);
}

void td_step_debug_deinit(td_step_debug *d) {
  if (!d) return;
  td_debug_run_release(d->run);
  td_plan_release(d->new_plan);
  td_status_free(d->status);
}
