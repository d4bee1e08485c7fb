#include "ops/reader_data.h"

#include <limits.h>

#include "base/mem.h"
#include "ops/reader_source.h"
#include "proto/wire.h"

struct td_reader {
  td_room room; /* first; its lock guards has_owner and the counters */
  td_reader_options options;
  char *name; /* "TextLineReader 'node'" */
  bool has_owner;
  int64_t started, finished, produced;
  /* the owner's */
  td_reader_source source;
  char *work;
  size_t work_size;
};

/* A run that has the reader, or waits for it. `inner` is what waits in its place. */
typedef struct run run;
struct run {
  td_kernel_ctx inner; /* first */
  td_kernel_ctx *ctx;
  td_value name;            /* what the queue gives */
  td_reader *reader;        /* retained */
  td_queue *queue;          /* retained; NULL for runs that do not read */
  td_status (*act)(run *r); /* of those: what they do */
  bool is_scalar;
  int64_t wanted;
  td_string *keys, *values; /* read so far */
  int64_t count, capacity;
  td_work task;
};

/* ---- life ---- */

static void destroy_reader(td_resource *resource) {
  td_reader *r = (td_reader *)resource;
  td_reader_source_close(&r->source);
  td_room_deinit(&r->room);
  td_free(r->work);
  td_free(r->name);
  td_free(r);
}

const td_resource_type td_reader_type = {.name = "N10tensorflow15ReaderInterfaceE", .destroy = destroy_reader};

td_reader *td_reader_create(const td_reader_options *options, td_str node) {
  static const char *const names[] = {
      [TD_READER_LINES] = "TextLineReader",    [TD_READER_FIXED_LENGTH] = "FixedLengthRecordReader",
      [TD_READER_RECORDS] = "TFRecordReader",  [TD_READER_WHOLE_FILE] = "WholeFileReader",
      [TD_READER_IDENTITY] = "IdentityReader",
  };
  td_reader *r = td_new(td_reader);
  td_room_init(&r->room, &td_reader_type, "Reader operation was cancelled");
  r->options = *options;
  r->name = td_asprintf("%s '%.*s'", names[options->kind], TD_STR_ARG(node));
  return r;
}

static int64_t counter(td_reader *r, const int64_t *which) {
  pthread_mutex_lock(&r->room.lock);
  int64_t n = *which;
  pthread_mutex_unlock(&r->room.lock);
  return n;
}

int64_t td_reader_records_produced(td_reader *r) { return counter(r, &r->produced); }
int64_t td_reader_files_finished(td_reader *r) { return counter(r, &r->finished); }

static void set_work(td_reader *r, td_str work) {
  td_free(r->work);
  r->work = td_strndup(work.data, work.size);
  r->work_size = work.size;
}

/* Two counters at once; the third may be read meanwhile. */
static void set_counters(td_reader *r, int64_t started, int64_t finished, int64_t produced) {
  pthread_mutex_lock(&r->room.lock);
  r->started = started;
  r->finished = finished;
  r->produced = produced;
  pthread_mutex_unlock(&r->room.lock);
}

/* ---- turns ---- */

static bool take_reader(td_room *room, td_kernel_ctx *ctx, td_status *status, bool *changed) {
  td_reader *r = (td_reader *)room;
  (void)ctx;
  (void)status;
  (void)changed;
  if (r->has_owner) return false;
  r->has_owner = true;
  return true;
}

static void let_reader_go(td_room *room) { ((td_reader *)room)->has_owner = false; }

static td_status set_outputs(run *r) {
  for (int i = 0; i < 2; i++) {
    td_tensor *out;
    TD_TRY(td_out_alloc_dims(r->ctx, i, r->is_scalar ? 0 : 1, &r->count, &out));
    td_string *from = i ? r->values : r->keys;
    for (int64_t k = 0; k < r->count; k++) {
      td_string_take(TD_DATA(out, td_string) + k, from[k].data, from[k].size);
      from[k] = (td_string){0};
    }
  }
  return TD_STATUS_OK;
}

/* Ends the run; the next one gets the reader if this one had it. */
static void end(run *r, bool owned, td_status status) {
  td_kernel_ctx *ctx = r->ctx;
  td_reader *reader = r->reader;
  if (!status && r->queue) status = set_outputs(r);
  for (int64_t i = 0; i < r->count; i++) {
    td_free(r->keys[i].data);
    td_free(r->values[i].data);
  }
  td_free(r->keys);
  td_free(r->values);
  td_resource_release(r->queue);
  td_free(r);
  if (owned) td_room_change(&reader->room, let_reader_go);
  td_kernel_done(ctx, status);
  td_resource_release(reader);
}

static void go_on(run *r, void (*next)(td_work *task)) {
  td_pool *pool = r->ctx->step->pool;
  r->task.run = next;
  if (pool)
    td_pool_submit(pool, &r->task);
  else
    next(&r->task);
}

static run *run_of(td_work *task) { return TD_CONTAINER_OF(task, run, task); }

/* ---- reading ---- */

static bool has_work(const td_reader *r) { return r->finished < r->started; } /* the owner alone changes them */

static void add_record(run *r, td_strbuf *key, td_strbuf *value) {
  if (r->count == r->capacity) {
    r->capacity = r->capacity ? r->capacity * 2 : 1;
    r->keys = td_realloc(r->keys, (size_t)r->capacity * sizeof *r->keys);
    r->values = td_realloc(r->values, (size_t)r->capacity * sizeof *r->values);
  }
  r->keys[r->count] = (td_string){key->data, key->size};
  r->values[r->count++] = (td_string){value->data, value->size};
  *key = *value = (td_strbuf){0};
}

/* One record of the file that is open, or its end. */
static td_status read_one(run *r) {
  td_reader *reader = r->reader;
  td_strbuf key = {0}, value = {0};
  bool produced, at_end;
  td_status s = td_reader_source_read(&reader->source, &reader->options, td_str_n(reader->work, reader->work_size),
                                      &key, &value, &produced, &at_end);
  if (!s) {
    set_counters(reader, reader->started, at_end ? reader->started : reader->finished, reader->produced + produced);
    if (at_end) td_reader_source_close(&reader->source);
    if (produced) add_record(r, &key, &value);
  }
  td_strbuf_deinit(&key);
  td_strbuf_deinit(&value);
  return s;
}

static void wait_for_work(run *r);

/* On the pool, with the reader: reads until there is enough, or waits for another file's name. */
static void read_on(td_work *task) {
  run *r = run_of(task);
  td_status s = TD_STATUS_OK;
  while (!s && r->count < r->wanted) {
    if (!has_work(r->reader)) {
      if (r->count) break; /* a file has ended: what it had is enough */
      wait_for_work(r);
      return;
    }
    s = td_cancellation_is_cancelled(r->ctx->step->cancellation) ? td_cancelled("%s", r->reader->room.cancelled_text)
                                                                 : read_one(r);
  }
  end(r, true, s);
}

static void start_work(td_work *task) {
  run *r = run_of(task);
  td_reader *reader = r->reader;
  td_status s = td_reader_source_open(&reader->source, &reader->options, td_str_n(reader->work, reader->work_size));
  if (s) {
    end(r, true, s);
    return;
  }
  set_counters(reader, reader->started + 1, reader->finished, reader->produced);
  read_on(task);
}

static void work_came(td_kernel_ctx *inner, td_status status) {
  run *r = (run *)inner;
  td_tensor *t = r->name.tensor;
  r->name.tensor = NULL;
  if (!status && t->count != 1) status = td_invalid_argument("Expected to dequeue a one-element string tensor");
  if (!status) set_work(r->reader, td_string_view(TD_DATA(t, td_string)));
  td_tensor_release(t);
  if (status)
    end(r, true, status);
  else
    go_on(r, start_work);
}

/* What stands for the reading kernel in the queue: one output, a string. */
static const int one_string[] = {TD_STRING};
static td_kernel dequeue_kernel = {.output_count = 1, .output_types = one_string};

static void wait_for_work(run *r) {
  r->inner.kernel = &dequeue_kernel;
  r->inner.out = &r->name;
  r->inner.done = work_came;
  td_queue_dequeue(r->queue, &r->inner);
}

static void reader_came(td_kernel_ctx *inner, td_status status) {
  run *r = (run *)inner;
  if (status)
    end(r, false, status);
  else if (r->queue)
    go_on(r, read_on);
  else
    end(r, true, r->act(r));
}

static void start(const run *what, td_kernel_ctx *ctx) {
  run *r = td_new(run);
  *r = *what;
  r->ctx = ctx;
  r->inner = (td_kernel_ctx){.step = ctx->step, .device = ctx->device, .kernel = ctx->kernel, .done = reader_came};
  td_resource_retain(r->reader);
  td_resource_retain(r->reader); /* td_room_run() takes one */
  if (r->queue) td_resource_retain(r->queue);
  td_room_run(&r->reader->room, &r->inner, take_reader);
}

static td_status check_queue(const td_queue *queue) {
  int count;
  const td_dtype *types = td_queue_types(queue, &count);
  if (count != 1) return td_invalid_argument("Expected single component queue");
  return types[0] == TD_STRING ? TD_STATUS_OK : td_invalid_argument("Expected queue with single string component");
}

static void start_reading(const run *what, td_kernel_ctx *ctx) {
  td_status s = check_queue(what->queue);
  if (s)
    td_kernel_done(ctx, s);
  else
    start(what, ctx);
}

void td_reader_read(td_reader *r, td_queue *queue, td_kernel_ctx *ctx) {
  start_reading(&(run){.reader = r, .queue = queue, .is_scalar = true, .wanted = 1}, ctx);
}

void td_reader_read_up_to(td_reader *r, td_queue *queue, int64_t n, td_kernel_ctx *ctx) {
  start_reading(&(run){.reader = r, .queue = queue, .wanted = n}, ctx);
}

/* ---- state (TensorFlow's ReaderBaseState) ---- */

enum { STATE_STARTED = 1, STATE_FINISHED, STATE_PRODUCED, STATE_WORK };

static bool is_within_files(const td_reader *r) {
  return r->options.kind != TD_READER_WHOLE_FILE && r->options.kind != TD_READER_IDENTITY;
}

static td_status save(run *r) {
  const td_reader *reader = r->reader;
  td_strbuf b = {0};
  td_tensor *out;
  if (is_within_files(reader)) return td_unimplemented("Reader SerializeState");
  TD_TRY(td_out_alloc_dims(r->ctx, 0, 0, NULL, &out));
  td_wire_put_uint(&b, STATE_STARTED, (uint64_t)reader->started);
  td_wire_put_uint(&b, STATE_FINISHED, (uint64_t)reader->finished);
  td_wire_put_uint(&b, STATE_PRODUCED, (uint64_t)reader->produced);
  if (reader->work_size) td_wire_put_bytes(&b, STATE_WORK, td_str_n(reader->work, reader->work_size));
  size_t size = b.size;
  td_string_take(TD_DATA(out, td_string), td_strbuf_take(&b), size);
  return TD_STATUS_OK;
}

static td_status unparsed(const td_reader *r, td_str state) {
  td_strbuf text = {0};
  for (size_t i = 0; i < TD_MIN(state.size, (size_t)512); i++) {
    unsigned char c = (unsigned char)state.data[i];
    if (c >= 32 && c < 127 && !strchr("\\'\"", c))
      td_strbuf_putc(&text, (char)c);
    else
      td_strbuf_printf(&text, "\\%03o", c);
  }
  td_status s = td_invalid_argument("Could not parse state for %s: %s", r->name, td_strbuf_cstr(&text));
  td_strbuf_deinit(&text);
  return s;
}

static td_status restore_from(td_reader *r, td_str state) {
  int64_t counters[STATE_WORK] = {0};
  td_str work = TD_STR("");
  td_wire w = td_wire_of(state);
  td_wire_field f;
  bool bad = false;
  if (is_within_files(r)) return td_unimplemented("Reader RestoreState");
  while (td_wire_next(&w, &f, &bad)) {
    if (f.number < STATE_WORK && f.type == TD_WIRE_VARINT) counters[f.number] = (int64_t)f.value;
    if (f.number == STATE_WORK && f.type == TD_WIRE_BYTES) work = f.bytes;
  }
  if (bad) return unparsed(r, state);
  long long started = counters[STATE_STARTED], finished = counters[STATE_FINISHED], produced = counters[STATE_PRODUCED];
  if (started < 0 || finished < 0 || produced < 0) {
    return td_invalid_argument(
        "Unexpected negative value when restoring in %s: started %lld, finished %lld, produced %lld", r->name, started,
        finished, produced);
  }
  if (started > finished) {
    return td_invalid_argument(
        "Inconsistent work started vs. finished when restoring in %s: started %lld, finished %lld", r->name, started,
        finished);
  }
  set_work(r, work);
  set_counters(r, started, finished, produced);
  return TD_STATUS_OK;
}

static td_status reset(run *r) {
  td_reader_source_close(&r->reader->source);
  set_work(r->reader, TD_STR(""));
  set_counters(r->reader, 0, 0, 0);
  return TD_STATUS_OK;
}

static td_status restore(run *r) {
  const td_tensor *state = td_in(r->ctx, 1);
  td_status s = restore_from(r->reader, td_string_view(TD_DATA(state, td_string)));
  if (s) td_status_free(reset(r));
  return s;
}

void td_reader_save(td_reader *r, td_kernel_ctx *ctx) { start(&(run){.reader = r, .act = save}, ctx); }
void td_reader_restore(td_reader *r, td_kernel_ctx *ctx) { start(&(run){.reader = r, .act = restore}, ctx); }
void td_reader_reset(td_reader *r, td_kernel_ctx *ctx) { start(&(run){.reader = r, .act = reset}, ctx); }
