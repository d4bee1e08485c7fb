/* Assert, Print, PrintV2, Timestamp (TensorFlow's logging_ops). Output goes to this task's own streams. */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ops/families.h"

/* ---- Assert ---- */

typedef struct print_state {
  int64_t summarize, first_n;
  char *message;
  _Atomic int64_t printed;
} print_state;

static td_status create_assert(td_kernel_builder *b, void *state) {
  return td_attr_int(b->node, "summarize", &((print_state *)state)->summarize);
}

/* "[a b c]" of inputs from `first` on, with `between` in between. */
static void append_values(td_kernel_ctx *ctx, td_strbuf *text, int64_t summarize, const char *between) {
  for (int i = 1; i < ctx->kernel->input_count; i++) {
    char *values = td_tensor_summarize(td_in(ctx, i), summarize);
    td_strbuf_printf(text, "%s[", i > 1 ? between : "");
    td_strbuf_puts(text, values);
    td_strbuf_putc(text, ']');
    td_free(values);
  }
}

static td_status compute_assert(td_kernel_ctx *ctx) {
  const print_state *st = ctx->state;
  const td_tensor *condition = td_in(ctx, 0);
  if (condition->count != 1 || condition->rank > 1) {
    char *shape = td_tensor_shape_text(condition);
    td_status s = td_invalid_argument("In[0] should be a scalar: %s", shape);
    td_free(shape);
    return s;
  }
  if (TD_DATA(condition, uint8_t)[0]) return TD_STATUS_OK;
  td_strbuf text = {0};
  td_strbuf_puts(&text, "assertion failed: ");
  append_values(ctx, &text, st->summarize, " ");
  td_status s = td_error_bytes(TD_INVALID_ARGUMENT, text.data, text.size);
  td_strbuf_deinit(&text);
  return s;
}

/* ---- Print ---- */

/* Whole, in one call where the system takes it in one. What cannot be written is dropped: it is a log. */
static void write_all(int fd, td_str text) {
  while (text.size) {
    ssize_t n = write(fd, text.data, text.size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.data += n;
    text.size -= (size_t)n;
  }
}

static td_status create_print(td_kernel_builder *b, void *state) {
  print_state *st = state;
  td_str message;
  TD_TRY(td_attr_int(b->node, "summarize", &st->summarize));
  TD_TRY(td_attr_int(b->node, "first_n", &st->first_n));
  TD_TRY(td_attr_str(b->node, "message", &message));
  st->message = td_strndup(message.data ? message.data : "", message.size);
  return TD_STATUS_OK;
}

static void destroy_print(void *state) { td_free(((print_state *)state)->message); }

static td_status compute_print(td_kernel_ctx *ctx) {
  print_state *st = ctx->state;
  bool quiet = st->first_n >= 0 && atomic_fetch_add(&st->printed, 1) >= st->first_n;
  if (!quiet) {
    td_strbuf text = {0};
    td_strbuf_puts(&text, st->message);
    append_values(ctx, &text, st->summarize, "");
    td_strbuf_putc(&text, '\n');
    write_all(STDERR_FILENO, td_strbuf_view(&text));
    td_strbuf_deinit(&text);
  }
  td_out_forward(ctx, 0, 0);
  return TD_STATUS_OK;
}

/* ---- PrintV2 ---- */

typedef enum print_target {
  TO_STDOUT,
  TO_STDERR,
  TO_LOG_INFO,
  TO_LOG_WARNING,
  TO_LOG_ERROR,
  TARGET_COUNT
} print_target;

static const char *const target_names[TARGET_COUNT] = {"stdout", "stderr", "log(info)", "log(warning)", "log(error)"};

typedef struct print2_state {
  print_target target;
  char *end;
  size_t end_size;
} print2_state;

static td_status create_print2(td_kernel_builder *b, void *state) {
  print2_state *st = state;
  td_str stream, end;
  TD_TRY(td_attr_str(b->node, "output_stream", &stream));
  TD_TRY(td_attr_str(b->node, "end", &end));
  st->end = td_strndup(end.data ? end.data : "", end.size);
  st->end_size = end.size;
  if (td_str_starts(stream, TD_STR("file://")))
    return td_error(TD_PERMISSION_DENIED, "PrintV2 to %.*s: this server does not write files for graphs",
                    TD_STR_ARG(stream));
  for (int i = 0; i < TARGET_COUNT; i++)
    if (td_str_is(stream, target_names[i])) {
      st->target = (print_target)i;
      return TD_STATUS_OK;
    }
  return td_invalid_argument(
      "Unknown output stream: %.*s, Valid streams are: stdout stderr log(info) log(warning) log(error)",
      TD_STR_ARG(stream));
}

static void destroy_print2(void *state) { td_free(((print2_state *)state)->end); }

static td_status compute_print2(td_kernel_ctx *ctx) {
  const print2_state *st = ctx->state;
  const td_tensor *in = td_in(ctx, 0);
  if (in->count != 1) return td_check_scalar(in, "input");
  td_strbuf text = {0};
  td_strbuf_append(&text, td_string_view(TD_DATA(in, td_string)));
  td_strbuf_append(&text, td_str_n(st->end, st->end_size));
  td_str view = td_strbuf_view(&text);
  if (st->target == TO_STDOUT || st->target == TO_STDERR)
    write_all(st->target == TO_STDOUT ? STDOUT_FILENO : STDERR_FILENO, view);
  else
    td_log(st->target == TO_LOG_INFO      ? TD_LOG_INFO
           : st->target == TO_LOG_WARNING ? TD_LOG_WARNING
                                          : TD_LOG_ERROR,
           "%.*s", TD_STR_ARG(td_str_trim(view)));
  td_strbuf_deinit(&text);
  return TD_STATUS_OK;
}

/* ---- Timestamp ---- */

static td_status compute_timestamp(td_kernel_ctx *ctx) {
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_DATA(out, double)[0] = (double)td_wall_us() / 1e6;
  return TD_STATUS_OK;
}

/* ---- tables ---- */

static const td_op_spec ops[] = {
    {.name = "Assert",
     .inputs = "condition: bool; data: T",
     .attrs = "T: list(type) >= 1; summarize: int = 3",
     .flags = TD_OP_STATEFUL},
    {.name = "Print",
     .inputs = "input: T; data: U",
     .outputs = "output: T",
     .flags = TD_OP_STATEFUL,
     .attrs = "T: type; U: list(type) >= 0; message: string = ''; first_n: int = -1; summarize: int = 3"},
    {.name = "PrintV2",
     .inputs = "input: string",
     .flags = TD_OP_STATEFUL,
     .attrs = "output_stream: string = 'stderr'; end: string = '\\n'"},
    {.name = "Timestamp", .outputs = "ts: double", .flags = TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "Assert",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(print_state),
     .create = create_assert,
     .compute = compute_assert},
    {.op = "Print",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(print_state),
     .create = create_print,
     .destroy = destroy_print,
     .compute = compute_print},
    {.op = "PrintV2",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(print2_state),
     .create = create_print2,
     .destroy = destroy_print2,
     .compute = compute_print2},
    {.op = "Timestamp", .cost = TD_COST_CHEAP, .compute = compute_timestamp},
};

TD_FAMILY(logging, ops, kernels);
