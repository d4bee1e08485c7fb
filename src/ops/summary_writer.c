/* Summary writers: SummaryWriter, CreateSummaryFileWriter and the ops that write events (TensorFlow's summary_kernels).
 * What touches files runs on the pool. */
#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"
#include "checkpoint/events.h"
#include "framework/device.h"
#include "ops/blocking.h"
#include "ops/families.h"
#include "ops/handles.h"
#include "ops/move.h"
#include "ops/summary_value.h"
#include "proto/wire.h"

typedef struct writer {
  td_resource resource; /* first */
  pthread_mutex_t lock; /* guards the rest */
  td_events events;
  int64_t most_waiting, waiting; /* events */
  uint64_t flush_ns, flushed_ns;
} writer;

static void destroy_writer(td_resource *r) {
  writer *w = (writer *)r;
  td_events_close(&w->events);
  pthread_mutex_destroy(&w->lock);
  td_free(w);
}

static const td_resource_type writer_type = {.name = "N10tensorflow22SummaryWriterInterfaceE",
                                             .destroy = destroy_writer};

static td_str string_at(const td_tensor *t, int64_t i) { return td_string_view(TD_DATA(t, td_string) + i); }

/* ---- SummaryWriter, CreateSummaryFileWriter ---- */

static td_status create_handle(td_kernel_builder *b, void *state) {
  return td_constant_handle_create(b, &writer_type, state);
}

static td_status new_writer(void *arg, td_resource **out) {
  (void)arg;
  writer *w = td_new(writer);
  td_resource_init(&w->resource, &writer_type);
  pthread_mutex_init(&w->lock, NULL);
  *out = &w->resource;
  return TD_STATUS_OK;
}

/* Inputs: writer, folder, most events that wait, milliseconds they may wait, suffix of the file's name. */
static td_status open_writer(td_kernel_ctx *ctx, writer *w) {
  td_status s = TD_STATUS_OK;
  pthread_mutex_lock(&w->lock);
  if (!w->events.file.is_open) { /* else another run was first: that one's file it is */
    s = td_events_open(&w->events, string_at(td_in(ctx, 1), 0), string_at(td_in(ctx, 4), 0));
    w->most_waiting = TD_DATA(td_in(ctx, 2), int32_t)[0];
    w->flush_ns = (uint64_t)TD_MAX(TD_DATA(td_in(ctx, 3), int32_t)[0], 0) * 1000000;
    w->flushed_ns = td_now_ns();
  }
  pthread_mutex_unlock(&w->lock);
  return s;
}

static td_status create_file_writer(td_kernel_ctx *ctx) {
  static const char *const names[] = {"writer", "logdir", "max_queue", "flush_millis", "filename_suffix"};
  td_resource_handle *h;
  void *w;
  for (int i = 1; i < 5; i++) TD_TRY(td_check_scalar(td_in(ctx, i), names[i]));
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  td_str container = td_str_of(h->container), name = td_str_of(h->name);
  TD_TRY(td_resource_lookup_or_create(ctx->device->resources, container, name, &writer_type, new_writer, NULL, &w));
  td_status s = open_writer(ctx, w);
  if (s) td_status_free(td_resource_delete(ctx->device->resources, container, name, &writer_type));
  td_resource_release(w);
  return s;
}
TD_BLOCKING(create_file_writer)

/* ---- events ---- */

static td_status flush_locked(writer *w) {
  w->waiting = 0;
  w->flushed_ns = td_now_ns();
  return td_status_prepend(td_events_flush(&w->events), "Could not flush events file: ");
}

/* An event with `message` in `field`; or, for field 0, a whole one. */
static td_status add_event(writer *w, int64_t step, uint32_t field, td_str message) {
  pthread_mutex_lock(&w->lock);
  td_status s = !w->events.file.is_open ? td_failed_precondition("The summary writer has not been created")
                : field                 ? td_events_add(&w->events, step, field, message)
                                        : td_events_add_serialized(&w->events, message);
  if (!s && (++w->waiting > w->most_waiting || td_now_ns() - w->flushed_ns > w->flush_ns)) s = flush_locked(w);
  pthread_mutex_unlock(&w->lock);
  return s;
}

typedef struct write_state {
  int64_t most; /* images, clips */
} write_state;

static td_status write_create(td_kernel_builder *b, void *state) {
  write_state *st = state;
  bool is_audio = td_str_is(b->node->op, "WriteAudioSummary");
  return td_attr_int(b->node, is_audio ? "max_outputs" : "max_images", &st->most);
}

/* The message that an op writes. Inputs 0 and 1 are the writer and the step. */
typedef td_status (*message_fn)(td_kernel_ctx *ctx, td_strbuf *out);

static td_status write_message(td_kernel_ctx *ctx, uint32_t field, message_fn make) {
  void *w;
  td_strbuf message = {0};
  TD_TRY(td_check_scalar(td_in(ctx, 1), "step"));
  TD_TRY(td_handle_lookup(td_in(ctx, 0), ctx->device, &writer_type, &w));
  td_status s = make(ctx, &message);
  if (!s) s = add_event(w, TD_DATA(td_in(ctx, 1), int64_t)[0], field, td_strbuf_view(&message));
  td_strbuf_deinit(&message);
  td_resource_release(w);
  return s;
}

static td_status make_scalar(td_kernel_ctx *ctx, td_strbuf *out) {
  const td_tensor *tag = td_in(ctx, 2), *value = td_in(ctx, 3);
  TD_TRY(td_check_scalar(tag, "tag"));
  if (value->count != 1) return td_invalid_argument("value must be a scalar, got shape %s", TD_SHOW(value));
  td_summary_put_scalar(out, string_at(tag, 0), value, 0);
  return TD_STATUS_OK;
}

static td_status make_histogram(td_kernel_ctx *ctx, td_strbuf *out) {
  TD_TRY(td_check_scalar(td_in(ctx, 2), "tag"));
  td_str tag = string_at(td_in(ctx, 2), 0);
  return td_summary_put_histogram(out, tag, td_in(ctx, 3), tag);
}

static td_status make_images(td_kernel_ctx *ctx, td_strbuf *out) {
  const td_tensor *color = td_in(ctx, 4);
  TD_TRY(td_check_scalar(td_in(ctx, 2), "tag"));
  if (color->rank != 1) return td_invalid_argument("bad_color must be a vector, got shape %s", TD_SHOW(color));
  int64_t most = ((const write_state *)ctx->state)->most;
  return td_summary_put_images(out, string_at(td_in(ctx, 2), 0), td_in(ctx, 3), most, color);
}

static td_status make_audio(td_kernel_ctx *ctx, td_strbuf *out) {
  TD_TRY(td_check_scalar(td_in(ctx, 2), "tag"));
  TD_TRY(td_check_scalar(td_in(ctx, 4), "sample_rate"));
  int64_t most = ((const write_state *)ctx->state)->most;
  float rate = TD_DATA(td_in(ctx, 4), float)[0];
  return td_summary_put_audio(out, string_at(td_in(ctx, 2), 0), td_in(ctx, 3), most, rate);
}

static td_status make_tensor(td_kernel_ctx *ctx, td_strbuf *out) {
  TD_TRY(td_check_scalar(td_in(ctx, 3), "tag"));
  TD_TRY(td_check_scalar(td_in(ctx, 4), "summary_metadata"));
  td_str metadata = string_at(td_in(ctx, 4), 0);
  return td_summary_put_tensor(out, string_at(td_in(ctx, 3), 0), td_in(ctx, 2), metadata.size ? metadata : (td_str){0});
}

/* Whether the bytes are fields and nothing else. */
static bool is_message(td_str bytes) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad)) continue;
  return !bad;
}

/* Serialized Summaries: together they are one. */
static td_status make_summary(td_kernel_ctx *ctx, td_strbuf *out) {
  const td_tensor *t = td_in(ctx, 2);
  for (int64_t i = 0; i < t->count; i++) {
    if (!is_message(string_at(t, i)))
      return td_error(TD_DATA_LOSS, "Bad tf.compat.v1.Summary binary proto tensor string at index %lld", (long long)i);
    td_strbuf_append(out, string_at(t, i));
  }
  return TD_STATUS_OK;
}

static td_status make_graph(td_kernel_ctx *ctx, td_strbuf *out) {
  TD_TRY(td_check_scalar(td_in(ctx, 2), "tensor"));
  td_str graph = string_at(td_in(ctx, 2), 0);
  if (!is_message(graph)) return td_error(TD_DATA_LOSS, "Bad tf.GraphDef binary proto tensor string");
  td_strbuf_append(out, graph);
  return TD_STATUS_OK;
}

#define WRITER(name, field)                                                                            \
  static td_status write_##name(td_kernel_ctx *ctx) { return write_message(ctx, field, make_##name); } \
  TD_BLOCKING(write_##name)
WRITER(scalar, TD_EVENT_SUMMARY)
WRITER(histogram, TD_EVENT_SUMMARY)
WRITER(images, TD_EVENT_SUMMARY)
WRITER(audio, TD_EVENT_SUMMARY)
WRITER(tensor, TD_EVENT_SUMMARY)
WRITER(summary, TD_EVENT_SUMMARY)
WRITER(graph, TD_EVENT_GRAPH)

static td_status import_event(td_kernel_ctx *ctx) {
  void *w;
  TD_TRY(td_check_scalar(td_in(ctx, 1), "event"));
  td_str event = string_at(td_in(ctx, 1), 0);
  if (!is_message(event)) return td_error(TD_DATA_LOSS, "Bad tf.Event binary proto tensor string");
  TD_TRY(td_handle_lookup(td_in(ctx, 0), ctx->device, &writer_type, &w));
  td_status s = add_event(w, 0, 0, event);
  td_resource_release(w);
  return s;
}
TD_BLOCKING(import_event)

static td_status flush_writer(td_kernel_ctx *ctx) {
  void *found;
  TD_TRY(td_handle_lookup(td_in(ctx, 0), ctx->device, &writer_type, &found));
  writer *w = found;
  pthread_mutex_lock(&w->lock);
  td_status s = flush_locked(w);
  pthread_mutex_unlock(&w->lock);
  td_resource_release(w);
  return s;
}
TD_BLOCKING(flush_writer)

static td_status close_writer(td_kernel_ctx *ctx) {
  td_resource_handle *h;
  TD_TRY(td_handle_of(td_in(ctx, 0), ctx->device, &h));
  return td_resource_delete(ctx->device->resources, td_str_of(h->container), td_str_of(h->name), &writer_type);
}
TD_BLOCKING(close_writer)

/* ---- tables ---- */

#define REAL "float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64"

static const td_op_spec ops[] = {
    {"CloseSummaryWriter", "writer: resource", NULL, NULL, TD_OP_STATEFUL},
    {"CreateSummaryFileWriter",
     "writer: resource; logdir: string; max_queue: int32; flush_millis: int32; filename_suffix: string", NULL, NULL,
     TD_OP_STATEFUL},
    {"FlushSummaryWriter", "writer: resource", NULL, NULL, TD_OP_STATEFUL},
    {"ImportEvent", "writer: resource; event: string", NULL, NULL, TD_OP_STATEFUL},
    {"SummaryWriter", NULL, "writer: resource", "shared_name: string = ''; container: string = ''", TD_OP_STATEFUL},
    {"WriteAudioSummary", "writer: resource; step: int64; tag: string; tensor: float; sample_rate: float", NULL,
     "max_outputs: int >= 1 = 3", TD_OP_STATEFUL},
    {"WriteGraphSummary", "writer: resource; step: int64; tensor: string", NULL, NULL, TD_OP_STATEFUL},
    {"WriteHistogramSummary", "writer: resource; step: int64; tag: string; values: T", NULL,
     "T: type in {" REAL ", bool} = float", TD_OP_STATEFUL},
    {"WriteImageSummary", "writer: resource; step: int64; tag: string; tensor: T; bad_color: uint8", NULL,
     "max_images: int >= 1 = 3; T: type in {uint8, double, float, half} = float", TD_OP_STATEFUL},
    {"WriteRawProtoSummary", "writer: resource; step: int64; tensor: string", NULL, NULL, TD_OP_STATEFUL},
    {"WriteScalarSummary", "writer: resource; step: int64; tag: string; value: T", NULL, "T: type in {" REAL "}",
     TD_OP_STATEFUL},
    {"WriteSummary", "writer: resource; step: int64; tensor: T; tag: string; summary_metadata: string", NULL, "T: type",
     TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "CloseSummaryWriter", .compute_async = close_writer_async},
    {.op = "CreateSummaryFileWriter", .compute_async = create_file_writer_async},
    {.op = "FlushSummaryWriter", .compute_async = flush_writer_async},
    {.op = "ImportEvent", .compute_async = import_event_async},
    {.op = "SummaryWriter",
     .cost = TD_COST_CHEAP,
     .flags = TD_KERNEL_CONSTANT,
     .state_size = sizeof(td_constant_handle),
     .create = create_handle,
     .destroy = td_constant_handle_destroy,
     .compute = td_constant_handle_compute},
    {.op = "WriteAudioSummary",
     .state_size = sizeof(write_state),
     .create = write_create,
     .compute_async = write_audio_async},
    {.op = "WriteGraphSummary", .compute_async = write_graph_async},
    {.op = "WriteHistogramSummary",
     .types = {{"T", TD_SET_REAL | TD_SET(TD_BOOL)}},
     .compute_async = write_histogram_async},
    {.op = "WriteImageSummary",
     .types = {{"T", TD_SET(TD_UINT8) | TD_SET(TD_FLOAT) | TD_SET(TD_HALF) | TD_SET(TD_DOUBLE)}},
     .state_size = sizeof(write_state),
     .create = write_create,
     .compute_async = write_images_async},
    {.op = "WriteRawProtoSummary", .compute_async = write_summary_async},
    {.op = "WriteScalarSummary", .types = {{"T", TD_SET_REAL}}, .compute_async = write_scalar_async},
    {.op = "WriteSummary", .compute_async = write_tensor_async},
};

TD_FAMILY(summary_writer, ops, kernels);
