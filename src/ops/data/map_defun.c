/* MapDefun: a function for each row of its arguments, several at once; the results stacked. */
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "framework/function.h"
#include "ops/data/dataset.h"
#include "ops/families.h"

enum { MAX_LANES = 64 };

typedef struct defun_kernel {
  td_data_spec spec;              /* first; of a row of the results */
  td_function_runtime *functions; /* as long as the kernel */
  td_function_handle f;
  int row_args;
} defun_kernel;

typedef struct defun_run {
  td_kernel_ctx *ctx;
  int64_t rows;
  td_element **results; /* by row */
  pthread_mutex_t lock;
  /* guarded by lock */
  int64_t next;
  int lanes; /* that have not ended */
  td_status error;
} defun_run;

/* One call after the other; as many lanes as calls may be in progress. */
typedef struct lane {
  td_function_call call;
  defun_run *run;
  int64_t row;
  _Atomic int state;
  td_tensor *args[];
} lane;

enum { STARTED, RETURNED, ENDED };

static td_status create(td_kernel_builder *b, void *state) {
  defun_kernel *k = state;
  const Pb__NameAttrList *f;
  int begin;
  TD_TRY(td_data_spec_attr(b->node, "output_types", &k->spec));
  k->functions = b->functions;
  if (!k->functions) return td_internal("No function library is provided.");
  TD_TRY(td_attr_func(b->node, "f", &f));
  TD_TRY(td_node_input_range(b->node, b->op, "arguments", &begin, &k->row_args));
  return k->functions->ops->instantiate(k->functions, f, b->device, &k->f);
}

static void destroy(void *state) { td_data_spec_deinit(&((defun_kernel *)state)->spec); }

/* ---- the end ---- */

static td_status check_row(const defun_run *r, int64_t row) {
  const td_element *first = r->results[0], *e = r->results[row];
  const td_data_spec *spec = r->ctx->state;
  for (int i = 0; i < e->count; i++) {
    if (e->values[i]->dtype == td_out_type(r->ctx, i) && td_tensor_same_shape(e->values[i], first->values[i]) &&
        td_partial_shape_fits(&spec->shapes[i], e->values[i]->rank, e->values[i]->dims))
      continue;
    char *a = td_tensor_shape_text(e->values[i]), *b = td_tensor_shape_text(first->values[i]);
    td_status s = td_invalid_argument(
        "Function output %d of row %lld has type %s and shape %s; declared is type %s, the first row has shape %s", i,
        (long long)row, td_dtype_name(e->values[i]->dtype), a, td_dtype_name(td_out_type(r->ctx, i)), b);
    td_free(a);
    td_free(b);
    return s;
  }
  return TD_STATUS_OK;
}

static td_status stack_results(defun_run *r) {
  for (int64_t row = 0; row < r->rows; row++) TD_TRY(check_row(r, row));
  for (int i = 0; i < r->ctx->kernel->output_count; i++) {
    const td_tensor *first = r->results[0]->values[i];
    td_shape shape;
    td_tensor *out;
    td_shape_vector(&shape, r->rows);
    for (int d = 0; d < first->rank; d++) TD_TRY(td_shape_append(&shape, first->dims[d]));
    TD_TRY(td_out_alloc(r->ctx, i, &shape, &out));
    for (int64_t row = 0; row < r->rows; row++)
      td_tensor_copy_elements(out, row * first->count, r->results[row]->values[i], 0, first->count);
  }
  return TD_STATUS_OK;
}

static void run_ended(defun_run *r) {
  td_kernel_ctx *ctx = r->ctx;
  td_status s = r->error ? r->error : stack_results(r);
  for (int64_t row = 0; row < r->rows; row++) td_element_free(r->results[row]);
  td_free(r->results);
  pthread_mutex_destroy(&r->lock);
  td_free(r);
  td_kernel_done(ctx, s);
}

/* ---- lanes ---- */

static void drop_rows(lane *l) {
  const defun_kernel *k = l->run->ctx->state;
  for (int i = 0; i < k->row_args; i++) td_tensor_release(l->args[i]);
}

/* The next row, or the lane's end, which may be the run's. */
static bool take_row(lane *l) {
  defun_run *r = l->run;
  pthread_mutex_lock(&r->lock);
  bool goes_on = !r->error && r->next < r->rows;
  if (goes_on) l->row = r->next++;
  bool last = !goes_on && !--r->lanes;
  pthread_mutex_unlock(&r->lock);
  if (goes_on) return true;
  td_free(l);
  if (last) run_ended(r);
  return false;
}

static void run_lane(lane *l);

static void call_done(td_function_call *fc, td_status s, td_tensor **results, int count) {
  lane *l = TD_CONTAINER_OF(fc, lane, call);
  defun_run *r = l->run;
  drop_rows(l);
  if (!s && count != r->ctx->kernel->output_count)
    s = td_internal("The function returns %d values, %d are expected", count, r->ctx->kernel->output_count);
  if (s) {
    for (int i = 0; i < count; i++) td_tensor_release(results[i]);
    pthread_mutex_lock(&r->lock);
    td_status_merge(&r->error, s);
    pthread_mutex_unlock(&r->lock);
  } else {
    r->results[l->row] = td_element_of(count, results);
  }
  /* acq_rel: whoever comes second, this or the lane's loop, goes on */
  if (atomic_exchange_explicit(&l->state, ENDED, memory_order_acq_rel) == RETURNED) run_lane(l);
}

static void run_lane(lane *l) {
  for (;;) {
    if (!take_row(l)) return;
    td_kernel_ctx *ctx = l->run->ctx;
    const defun_kernel *k = ctx->state;
    for (int i = 0; i < ctx->kernel->input_count; i++)
      l->args[i] = i < k->row_args ? td_tensor_row(td_in(ctx, i), l->row) : td_in(ctx, i);
    l->call = (td_function_call){
        .function = k->f, .step = ctx->step, .args = l->args, .arg_count = ctx->kernel->input_count, .done = call_done};
    atomic_store_explicit(&l->state, STARTED, memory_order_relaxed);
    k->functions->ops->run(k->functions, &l->call);
    if (atomic_exchange_explicit(&l->state, RETURNED, memory_order_acq_rel) != ENDED) return;
  }
}

static td_status check_arguments(td_kernel_ctx *ctx, int64_t *rows) {
  const defun_kernel *k = ctx->state;
  for (int i = 0; i < k->row_args; i++) {
    const td_tensor *t = td_in(ctx, i);
    if (!t->rank) return td_invalid_argument("All inputs must have rank at least 1. Input %d has a rank of 0", i);
    if (t->dims[0] != td_in(ctx, 0)->dims[0])
      return td_invalid_argument(
          "All inputs must have the same dimension 0. Input %d has leading dimension %lld, while "
          "all previous inputs have leading dimension %lld",
          i, (long long)t->dims[0], (long long)td_in(ctx, 0)->dims[0]);
  }
  *rows = k->row_args ? td_in(ctx, 0)->dims[0] : 0;
  return *rows ? TD_STATUS_OK : td_invalid_argument("MapDefun over no rows: the shape of its results is not known");
}

static void compute(td_kernel_ctx *ctx) {
  int64_t rows;
  td_status s = check_arguments(ctx, &rows);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  defun_run *r = td_new(defun_run);
  r->ctx = ctx;
  r->rows = rows;
  r->results = td_new_array(td_element *, (size_t)rows);
  pthread_mutex_init(&r->lock, NULL);
  int lanes = (int)TD_MIN(rows, TD_MIN(td_ctx_threads(ctx), MAX_LANES));
  r->lanes = lanes; /* all are counted before the first may end */
  for (int i = 0; i < lanes; i++) {
    lane *l = td_calloc(1, sizeof *l + (size_t)ctx->kernel->input_count * sizeof l->args[0]);
    l->run = r;
    run_lane(l);
  }
}

static const td_op_spec ops[] = {
    {"MapDefun", "arguments: Targuments; captured_inputs: Tcaptured", "output: output_types",
     "Targuments: list(type) >= 1; Tcaptured: list(type) >= 0 = []; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; f: func; max_intra_op_parallelism: int = 1",
     0},
};

static const td_kernel_def kernels[] = {
    {.op = "MapDefun",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(defun_kernel),
     .create = create,
     .destroy = destroy,
     .compute_async = compute},
};

TD_FAMILY(map_defun, ops, kernels);
