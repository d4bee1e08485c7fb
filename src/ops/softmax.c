/* Softmax, LogSoftmax and the cross entropies. */
#include <string.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/nn/loops.h"

#define TYPES "T: type in {half, bfloat16, float, double}"

static const td_op_spec ops[] = {
    {"Softmax", "logits: T", "softmax: T", TYPES, 0},
    {"LogSoftmax", "logits: T", "logsoftmax: T", TYPES, 0},
    {"SoftmaxCrossEntropyWithLogits", "features: T; labels: T", "loss: T; backprop: T", TYPES, 0},
    {"SparseSoftmaxCrossEntropyWithLogits", "features: T; labels: Tlabels", "loss: T; backprop: T",
     TYPES "; Tlabels: type in {int32, int64} = int64", 0},
};

typedef td_softmax_job job;

static double row_ns(int64_t columns, td_dtype t) { return (double)columns * (t == TD_FLOAT ? 2 : 8) + 10; }

/* ---- Softmax ---- */

typedef struct state {
  bool log;
} state;

static td_status create(td_kernel_builder *b, void *state_) {
  ((state *)state_)->log = td_str_is(b->node->op, "LogSoftmax");
  return TD_STATUS_OK;
}

static td_status softmax(td_kernel_ctx *ctx) {
  td_tensor *logits = td_in(ctx, 0), *in = NULL, *work = NULL;
  if (logits->rank < 1) return td_invalid_argument("logits must have >= 1 dimension, got []");
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, logits->rank, logits->dims, &work));
  if (work->count) {
    TD_TRY_GOTO(td_floats_of(logits, &in));
    int64_t columns = logits->dims[logits->rank - 1];
    job j = {.logits = in->data, .out = work->data, .columns = columns, .log = ((const state *)ctx->state)->log};
    td_ctx_parallel_for(ctx, work->count / columns, row_ns(columns, (td_dtype)work->dtype),
                        td_nn_loops_get()->softmax[work->dtype != TD_FLOAT], &j);
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
  status = TD_STATUS_OK;
cleanup:
  td_tensor_release(in);
  td_tensor_release(work);
  return status;
}

/* ---- cross entropies ---- */

static td_status two_shapes(const char *before, const td_tensor *a, const char *between, const td_tensor *b) {
  char *at = td_tensor_shape_text(a), *bt = td_tensor_shape_text(b);
  td_status s = td_invalid_argument("%s%s%s%s", before, at, between, bt);
  td_free(at);
  td_free(bt);
  return s;
}

/* Broadcasts both to one matrix: rows and columns, and the steps through each. */
static td_status broadcast(const td_tensor *logits, const td_tensor *labels, job *j, int64_t dims[2]) {
  const td_tensor *t[2] = {logits, labels};
  int64_t d[2][2];
  if (logits->rank > 2 || labels->rank > 2 || (logits->rank < 2 && labels->rank < 2))
    return two_shapes(
        "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional: logits_size=", logits,
        " labels_size=", labels);
  for (int i = 0; i < 2; i++) {
    d[i][0] = t[i]->rank == 2 ? t[i]->dims[0] : 1;
    d[i][1] = t[i]->rank == 2 ? t[i]->dims[1] : t[i]->rank == 1 ? t[i]->dims[0] : 1;
  }
  for (int k = 0; k < 2; k++) {
    if (d[0][k] != d[1][k] && d[0][k] != 1 && d[1][k] != 1)
      return two_shapes("logits and labels must be broadcastable: logits_size=", logits, " labels_size=", labels);
    dims[k] = d[0][k] == 1 ? d[1][k] : d[0][k];
  }
  j->logits_step[0] = d[0][0] == 1 ? 0 : d[0][1];
  j->logits_step[1] = d[0][1] == 1 ? 0 : 1;
  j->labels_step[0] = d[1][0] == 1 ? 0 : d[1][1];
  j->labels_step[1] = d[1][1] == 1 ? 0 : 1;
  return TD_STATUS_OK;
}

static td_status cross_entropy(td_kernel_ctx *ctx) {
  td_tensor *logits = NULL, *labels = NULL, *loss = NULL, *back = NULL;
  job j = {0};
  int64_t dims[2];
  TD_TRY(broadcast(td_in(ctx, 0), td_in(ctx, 1), &j, dims));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 1, dims, &loss));
  TD_TRY_GOTO(td_floats_out(ctx, 1, 2, dims, &back));
  if (!back->count) {
    memset(loss->data, 0, loss->size);
  } else {
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 0), &logits));
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 1), &labels));
    j.logits = logits->data;
    j.labels = labels->data;
    j.loss = loss->data;
    j.out = back->data;
    j.columns = dims[1];
    td_ctx_parallel_for(ctx, dims[0], row_ns(dims[1], (td_dtype)back->dtype),
                        td_nn_loops_get()->dense[back->dtype != TD_FLOAT], &j);
  }
  td_floats_finish(ctx, 0, loss);
  td_floats_finish(ctx, 1, back);
  loss = back = NULL;
  status = TD_STATUS_OK;
cleanup:
  td_tensor_release(logits);
  td_tensor_release(labels);
  td_tensor_release(loss);
  td_tensor_release(back);
  return status;
}

static td_status sparse_check(const td_tensor *logits, const td_tensor *labels) {
  if (logits->rank != 2) {
    char *text = td_tensor_shape_text(logits);
    td_status s = td_invalid_argument("logits must be 2-D, but got shape %s", text);
    td_free(text);
    return s;
  }
  if (labels->rank != 1) {
    char *text = td_tensor_shape_text(labels);
    td_status s = td_invalid_argument("labels must be 1-D, but got shape %s", text);
    td_free(text);
    return s;
  }
  if (logits->dims[0] != labels->dims[0])
    return two_shapes("logits and labels must have the same first dimension, got logits shape ", logits,
                      " and labels shape ", labels);
  if (logits->dims[1] <= 0) {
    char *text = td_tensor_shape_text(logits);
    td_status s = td_invalid_argument("Must have at least one class, but got logits shape %s", text);
    td_free(text);
    return s;
  }
  for (int64_t i = 0; i < labels->count; i++) {
    int64_t label = td_tensor_int_at(labels, i);
    if (label >= 0 && label < logits->dims[1]) continue;
    char *all = td_tensor_summarize(labels, 1000);
    td_status s = td_invalid_argument(
        "Received a label value of %lld which is outside the valid range of [0, %lld).  Label "
        "values: %s",
        (long long)label, (long long)logits->dims[1], all);
    td_free(all);
    return s;
  }
  return TD_STATUS_OK;
}

static td_status sparse_cross_entropy(td_kernel_ctx *ctx) {
  td_tensor *logits = NULL, *loss = NULL, *back = NULL, *in = td_in(ctx, 0), *labels = td_in(ctx, 1);
  TD_TRY(sparse_check(in, labels));
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, 1, in->dims, &loss));
  TD_TRY_GOTO(td_floats_out(ctx, 1, 2, in->dims, &back));
  TD_TRY_GOTO(td_floats_of(in, &logits));
  job j = {.logits = logits->data,
           .labels = labels->data,
           .loss = loss->data,
           .out = back->data,
           .columns = in->dims[1],
           .label_type = (td_dtype)labels->dtype};
  if (back->count)
    td_ctx_parallel_for(ctx, in->dims[0], row_ns(j.columns, (td_dtype)back->dtype),
                        td_nn_loops_get()->sparse[back->dtype != TD_FLOAT], &j);
  td_floats_finish(ctx, 0, loss);
  td_floats_finish(ctx, 1, back);
  loss = back = NULL;
cleanup:
  td_tensor_release(logits);
  td_tensor_release(loss);
  td_tensor_release(back);
  return status;
}

static const td_kernel_def kernels[] = {
    {.op = "Softmax", .state_size = sizeof(state), .create = create, .compute = softmax},
    {.op = "LogSoftmax", .state_size = sizeof(state), .create = create, .compute = softmax},
    {.op = "SoftmaxCrossEntropyWithLogits", .compute = cross_entropy},
    {.op = "SparseSoftmaxCrossEntropyWithLogits", .compute = sparse_cross_entropy},
};

TD_FAMILY(softmax, ops, kernels);
