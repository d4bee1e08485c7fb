/* Readers of files whose names come from a queue: TextLineReader, FixedLengthRecordReader, TFRecordReader,
 * WholeFileReader, IdentityReader and the ops that use them (TensorFlow's reader_ops). */
#include "base/mem.h"
#include "framework/device.h"
#include "ops/families.h"
#include "ops/handles.h"
#include "ops/move.h"
#include "ops/named.h"
#include "ops/reader_data.h"

/* ---- the readers themselves ---- */

typedef struct reader_state {
  td_reader_options options;
  char *node;
  td_named reader;
} reader_state;

static td_status bytes_attr(const td_node_def *n, const char *name, int64_t least, int64_t *out) {
  TD_TRY(td_attr_int(n, name, out));
  if (*out >= least) return TD_STATUS_OK;
  return td_invalid_argument("%s must be >%s 0 not %lld", name, least ? "" : "=", (long long)*out);
}

static td_status read_compression(const td_node_def *n, const char *attr, td_compression *out) {
  td_str name;
  if (!td_attr_find(n, attr)) return TD_STATUS_OK; /* V1 of fixed lengths */
  TD_TRY(td_attr_str(n, attr, &name));
  if (td_compression_parse(name, out)) return TD_STATUS_OK;
  return td_invalid_argument("Unsupported %s: '%.*s', expected '', 'ZLIB' or 'GZIP'", attr, TD_STR_ARG(name));
}

static td_status create_reader(td_kernel_builder *b, void *state) {
  reader_state *st = state;
  td_reader_options *o = &st->options;
  const td_node_def *n = b->node;
  if (td_str_starts(n->op, TD_STR("TextLine"))) {
    o->kind = TD_READER_LINES;
    TD_TRY(bytes_attr(n, "skip_header_lines", 0, &o->skip_lines));
  } else if (td_str_starts(n->op, TD_STR("Fixed"))) {
    o->kind = TD_READER_FIXED_LENGTH;
    TD_TRY(bytes_attr(n, "header_bytes", 0, &o->header));
    TD_TRY(bytes_attr(n, "record_bytes", 1, &o->record));
    TD_TRY(bytes_attr(n, "footer_bytes", 0, &o->footer));
    TD_TRY(bytes_attr(n, "hop_bytes", 0, &o->hop));
    TD_TRY(read_compression(n, "encoding", &o->compression));
  } else if (td_str_starts(n->op, TD_STR("TFRecord"))) {
    o->kind = TD_READER_RECORDS;
    TD_TRY(read_compression(n, "compression_type", &o->compression));
  } else {
    o->kind = td_str_starts(n->op, TD_STR("WholeFile")) ? TD_READER_WHOLE_FILE : TD_READER_IDENTITY;
  }
  st->node = td_strndup(n->name.data, n->name.size);
  return td_named_init(&st->reader, b, &td_reader_type);
}

static void destroy_reader(void *state) {
  reader_state *st = state;
  td_named_deinit(&st->reader);
  td_free(st->node);
}

static td_status make_reader(void *arg, td_str name, td_resource **out) {
  const reader_state *st = arg;
  *out = (td_resource *)td_reader_create(&st->options, td_str_of(st->node));
  return TD_STATUS_OK;
}

static td_status compute_reader(td_kernel_ctx *ctx) {
  reader_state *st = ctx->state;
  return td_named_out(&st->reader, ctx, make_reader, NULL, st);
}

/* ---- ops on readers ---- */

static td_status find(td_kernel_ctx *ctx, int i, const td_resource_type *type, void **out) {
  return td_in_handle_at(ctx, i, ctx->device->resources, false, "Input handle must have two elements", type, out);
}

static void read_async(td_kernel_ctx *ctx) {
  void *reader = NULL, *queue = NULL;
  int64_t n = -1;
  td_status s = TD_STATUS_OK;
  if (ctx->kernel->input_count > 2) {
    s = td_check_scalar(td_in(ctx, 2), "Input num_records");
    if (!s) n = TD_DATA(td_in(ctx, 2), int64_t)[0];
    if (!s && n < 0) s = td_invalid_argument("num_records must be >= 0, got %lld", (long long)n);
  }
  if (!s) s = find(ctx, 0, &td_reader_type, &reader);
  if (!s) s = find(ctx, 1, &td_queue_type, &queue);
  if (s)
    td_kernel_done(ctx, s);
  else if (n < 0)
    td_reader_read(reader, queue, ctx);
  else
    td_reader_read_up_to(reader, queue, n, ctx);
  td_resource_release(reader);
  td_resource_release(queue);
}

static void act_on_reader(td_kernel_ctx *ctx, void (*act)(td_reader *r, td_kernel_ctx *ctx)) {
  void *reader = NULL;
  td_status s = find(ctx, 0, &td_reader_type, &reader);
  if (s)
    td_kernel_done(ctx, s);
  else
    act(reader, ctx);
  td_resource_release(reader);
}

static void save_async(td_kernel_ctx *ctx) { act_on_reader(ctx, td_reader_save); }
static void reset_async(td_kernel_ctx *ctx) { act_on_reader(ctx, td_reader_reset); }

static void restore_async(td_kernel_ctx *ctx) {
  const td_tensor *state = td_in(ctx, 1);
  if (state->rank)
    td_kernel_done(ctx, td_invalid_argument("Reader state must be scalar, but had shape: %s", TD_SHOW(state)));
  else
    act_on_reader(ctx, td_reader_restore);
}

static td_status count_of(td_kernel_ctx *ctx, int64_t (*count)(td_reader *r)) {
  void *reader;
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_TRY(find(ctx, 0, &td_reader_type, &reader));
  TD_DATA(out, int64_t)[0] = count(reader);
  td_resource_release(reader);
  return TD_STATUS_OK;
}

static td_status compute_records(td_kernel_ctx *ctx) { return count_of(ctx, td_reader_records_produced); }
static td_status compute_files(td_kernel_ctx *ctx) { return count_of(ctx, td_reader_files_finished); }

/* ---- tables ---- */

#define NAMES "container: string = ''; shared_name: string = ''"
#define FIXED "header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0; " NAMES

static const td_op_spec ops[] = {
    {"FixedLengthRecordReader", NULL, "reader_handle: Ref(string)", FIXED, TD_OP_STATEFUL},
    {"FixedLengthRecordReaderV2", NULL, "reader_handle: resource", FIXED "; encoding: string = ''", TD_OP_STATEFUL},
    {"IdentityReader", NULL, "reader_handle: Ref(string)", NAMES, TD_OP_STATEFUL},
    {"IdentityReaderV2", NULL, "reader_handle: resource", NAMES, TD_OP_STATEFUL},
    {"ReaderNumRecordsProduced", "reader_handle: Ref(string)", "records_produced: int64", NULL, 0},
    {"ReaderNumRecordsProducedV2", "reader_handle: resource", "records_produced: int64", NULL, TD_OP_STATEFUL},
    {"ReaderNumWorkUnitsCompleted", "reader_handle: Ref(string)", "units_completed: int64", NULL, 0},
    {"ReaderNumWorkUnitsCompletedV2", "reader_handle: resource", "units_completed: int64", NULL, TD_OP_STATEFUL},
    {"ReaderRead", "reader_handle: Ref(string); queue_handle: Ref(string)", "key: string; value: string", NULL, 0},
    {"ReaderReadUpTo", "reader_handle: Ref(string); queue_handle: Ref(string); num_records: int64",
     "keys: string; values: string", NULL, 0},
    {"ReaderReadUpToV2", "reader_handle: resource; queue_handle: resource; num_records: int64",
     "keys: string; values: string", NULL, TD_OP_STATEFUL},
    {"ReaderReadV2", "reader_handle: resource; queue_handle: resource", "key: string; value: string", NULL,
     TD_OP_STATEFUL},
    {"ReaderReset", "reader_handle: Ref(string)", NULL, NULL, 0},
    {"ReaderResetV2", "reader_handle: resource", NULL, NULL, TD_OP_STATEFUL},
    {"ReaderRestoreState", "reader_handle: Ref(string); state: string", NULL, NULL, 0},
    {"ReaderRestoreStateV2", "reader_handle: resource; state: string", NULL, NULL, TD_OP_STATEFUL},
    {"ReaderSerializeState", "reader_handle: Ref(string)", "state: string", NULL, 0},
    {"ReaderSerializeStateV2", "reader_handle: resource", "state: string", NULL, TD_OP_STATEFUL},
    {"TFRecordReader", NULL, "reader_handle: Ref(string)", NAMES "; compression_type: string = ''", TD_OP_STATEFUL},
    {"TFRecordReaderV2", NULL, "reader_handle: resource", NAMES "; compression_type: string = ''", TD_OP_STATEFUL},
    {"TextLineReader", NULL, "reader_handle: Ref(string)", "skip_header_lines: int = 0; " NAMES, TD_OP_STATEFUL},
    {"TextLineReaderV2", NULL, "reader_handle: resource", "skip_header_lines: int = 0; " NAMES, TD_OP_STATEFUL},
    {"WholeFileReader", NULL, "reader_handle: Ref(string)", NAMES, TD_OP_STATEFUL},
    {"WholeFileReaderV2", NULL, "reader_handle: resource", NAMES, TD_OP_STATEFUL},
};

#define ONE_READER(name)                                                                            \
  {                                                                                                 \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(reader_state), .create = create_reader, \
    .destroy = destroy_reader, .compute = compute_reader                                            \
  }
#define READER(name) ONE_READER(name), ONE_READER(name "V2")
#define ASYNC(name, fn)                                         \
  {.op = name, .cost = TD_COST_CHEAP, .compute_async = fn}, {   \
    .op = name "V2", .cost = TD_COST_CHEAP, .compute_async = fn \
  }
#define SYNC(name, fn) \
  {.op = name, .cost = TD_COST_CHEAP, .compute = fn}, { .op = name "V2", .cost = TD_COST_CHEAP, .compute = fn }

static const td_kernel_def kernels[] = {
    READER("FixedLengthRecordReader"),
    READER("IdentityReader"),
    READER("TFRecordReader"),
    READER("TextLineReader"),
    READER("WholeFileReader"),
    ASYNC("ReaderRead", read_async),
    ASYNC("ReaderReadUpTo", read_async),
    ASYNC("ReaderReset", reset_async),
    ASYNC("ReaderRestoreState", restore_async),
    ASYNC("ReaderSerializeState", save_async),
    SYNC("ReaderNumRecordsProduced", compute_records),
    SYNC("ReaderNumWorkUnitsCompleted", compute_files),
};

TD_FAMILY(reader, ops, kernels);
