/* Conv2D, its gradients, and _FusedConv2D. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "ops/conv_run.h"
#include "ops/families.h"

#define CONV_ATTRS                                                                                                   \
  "strides: list(int); use_cudnn_on_gpu: bool = true; padding: string in {'SAME', 'VALID', 'EXPLICIT'}; "            \
  "explicit_paddings: list(int) = []; data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, " \
  "1, 1, 1]"
#define FORWARD_TYPES "T: type in {half, bfloat16, float, double, int32}; "
#define FILTER_TYPES  "T: type in {half, bfloat16, float, double}; "

static const td_op_spec ops[] = {
    {"Conv2D", "input: T; filter: T", "output: T", FORWARD_TYPES CONV_ATTRS, 0},
    {"Conv2DBackpropInput", "input_sizes: int32; filter: T; out_backprop: T", "output: T", FORWARD_TYPES CONV_ATTRS, 0},
    {"Conv2DBackpropInputV2", "input: T; filter: T; out_backprop: T", "output: T", FORWARD_TYPES CONV_ATTRS, 0},
    {"Conv2DBackpropFilter", "input: T; filter_sizes: int32; out_backprop: T", "output: T", FILTER_TYPES CONV_ATTRS, 0},
    {"Conv2DBackpropFilterV2", "input: T; filter: T; out_backprop: T", "output: T", FILTER_TYPES CONV_ATTRS, 0},
    /* Newer masters give the types of args in TArgs, older ones know no such attribute; on a CPU they are all T. */
    {"_FusedConv2D", "input: T; filter: T; args: num_args * T; host_args: num_host_args * float", "output: T",
     "T: type in {half, float, double, int8, qint8}; TArgs: list(type) = []; num_args: int >= 0; num_host_args: int >= "
     "0 "
     "= 0; strides: list(int); padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; "
     "data_format: string in {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'; filter_format: string in {'HWIO', 'OIHW', "
     "'OIHW_VECT_I'} = 'HWIO'; dilations: list(int) = [1, 1, 1, 1]; use_cudnn_on_gpu: bool = true; fused_ops: "
     "list(string) = []; epsilon: float = 9.999999747378752e-05; leakyrelu_alpha: float = 0.20000000298023224",
     0},
};

typedef struct state {
  td_window_attrs attrs;
  const td_heavy_ops *heavy;
  td_fusion fusion;
} state;

static td_status create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(td_window_parse_conv(b->node, &s->attrs));
  s->heavy = td_gemm_heavy_for(td_dtype_base(b->output_types[0]));
  return TD_STATUS_OK;
}

static td_status fused_create(td_kernel_builder *b, void *state_) {
  state *s = state_;
  TD_TRY(create(b, s));
  TD_TRY(td_fusion_parse(b->node, &s->fusion));
  int want = s->fusion.batch_norm ? 6 : s->fusion.add ? 4 : 3;
  if (b->input_count != want)
    return td_invalid_argument("Fused Conv2D must have %d extra arguments, got %d", want - 2, b->input_count - 2);
  return TD_STATUS_OK;
}

static td_status with_shape(const char *text, const td_shape *shape) {
  char *shape_text = td_shape_text(shape);
  td_status s = td_invalid_argument("%s%s", text, shape_text);
  td_free(shape_text);
  return s;
}

/* Everything but what the output's gradient must agree with. `who`: what starts the errors of a gradient, or NULL. */
static td_status dimensions(const state *s, const td_shape *input, const td_shape *filter, const char *who,
                            td_conv *c) {
  char text[128];
  if (input->rank != 4) {
    snprintf(text, sizeof text, "%s%sinput must be 4-dimensional", who ? who : "", who ? ": " : "");
    return with_shape(text, input);
  }
  if (filter->rank != 4) {
    snprintf(text, sizeof text, "%s%sfilter must be 4-dimensional: ", who ? who : "", who ? ": " : "");
    return with_shape(text, filter);
  }
  for (int i = 0; i < 4; i++) {
    if (filter->dims[i] > INT_MAX) return with_shape("filter too large: ", filter);
    if (input->dims[i] > INT_MAX) return with_shape("input too large: ", input);
  }
  int64_t in_c = input->dims[3], filter_c = filter->dims[2];
  if (s->attrs.format != TD_NHWC) {
    if (who) return td_invalid_argument("%sOp only supports NHWC.", who);
    return td_unimplemented(
        "The Conv2D op currently only supports the NHWC tensor format on the CPU. The op was given the "
        "format: %s",
        td_format_name(s->attrs.format));
  }
  if (filter_c ? in_c % filter_c != 0 : in_c != 0)
    return td_invalid_argument("%s%sinput depth must be evenly divisible by filter depth: %lld vs %lld", who ? who : "",
                               who ? ": " : "", (long long)in_c, (long long)filter_c);
  c->batch = input->dims[0];
  c->in_c = in_c;
  c->out_c = filter->dims[3];
  c->groups = filter_c && in_c ? in_c / filter_c : 1;
  if (c->out_c % c->groups)
    return td_invalid_argument("%s%soutput depth must be evenly divisible by number of groups: %lld vs %lld",
                               who ? who : "", who ? ": " : "", (long long)c->out_c, (long long)c->groups);
  for (int i = 0; i < 2; i++) {
    c->dim[i] = (td_window_dim){.in = input->dims[1 + i],
                                .filter = filter->dims[i],
                                .stride = s->attrs.stride[i],
                                .dilation = s->attrs.dilation[i],
                                .before = s->attrs.explicit_pad[i][0],
                                .after = s->attrs.explicit_pad[i][1]};
    if (!c->dim[i].filter && c->dim[i].in) return with_shape("filter must not have zero rows or columns: ", filter);
    if (!c->dim[i].filter) c->dim[i].filter = 1; /* no input: nothing is computed */
    TD_TRY(td_window_compute(s->attrs.padding, &c->dim[i]));
  }
  c->heavy = s->heavy;
  return td_conv_check(c);
}

/* ---- forward ---- */

/* The fused arguments as what the epilogue wants. Tensors in `hold` live until it ran. */
static td_status epilogue(td_kernel_ctx *ctx, const td_fusion *f, int64_t channels, td_epilogue *e,
                          td_tensor *hold[5]) {
  int count = f->bias ? 1 : 4;
  if (f->add) {
    TD_TRY(td_epilogue_side(td_in(ctx, 3), ctx->out[0].tensor, &hold[4]));
    e->side = hold[4]->data;
  }
  for (int i = 0; i < count; i++) {
    td_tensor *arg = td_in(ctx, 2 + i);
    if (arg->rank != 1 || arg->dims[0] != channels) {
      td_shape shape;
      td_tensor_shape(arg, &shape);
      return with_shape(f->bias ? "bias must be 1-dimensional and as long as the output depth: "
                                : "batch normalization arguments must be as long as the output depth: ",
                        &shape);
    }
    TD_TRY(td_floats_of(arg, &hold[i]));
  }
  e->activation = f->activation;
  e->alpha = f->alpha;
  e->add = hold[0]->data;
  if (f->bias) return TD_STATUS_OK;
  TD_TRY(td_tensor_create_dims(e->dtype, 2, (const int64_t[]){2, channels}, &hold[4]));
  e->mul = hold[4]->data;
  e->add = (char *)hold[4]->data + (size_t)channels * td_dtype_size(e->dtype);
  if (e->dtype == TD_FLOAT) {
    td_epilogue_batch_norm(TD_DATA(hold[0], float), TD_DATA(hold[1], float), TD_DATA(hold[2], float),
                           TD_DATA(hold[3], float), f->epsilon, channels, TD_DATA(hold[4], float),
                           TD_DATA(hold[4], float) + channels);
    return TD_STATUS_OK;
  }
  double *mul = TD_DATA(hold[4], double), *add = mul + channels;
  for (int64_t i = 0; i < channels; i++) {
    mul[i] = TD_DATA(hold[0], double)[i] / sqrt(TD_DATA(hold[3], double)[i] + (double)f->epsilon);
    add[i] = TD_DATA(hold[1], double)[i] - TD_DATA(hold[2], double)[i] * mul[i];
  }
  return TD_STATUS_OK;
}

static td_status forward(td_kernel_ctx *ctx) {
  const state *s = ctx->state;
  td_tensor *input = NULL, *filter = NULL, *work = NULL, *hold[5] = {0};
  td_shape in, fil;
  td_tensor_shape(td_in(ctx, 0), &in);
  td_tensor_shape(td_in(ctx, 1), &fil);
  td_conv c = {.dtype = td_compute_type(td_out_type(ctx, 0))};
  TD_TRY(dimensions(s, &in, &fil, NULL, &c));
  td_status status;
  bool fused = s->fusion.bias || s->fusion.batch_norm;
  td_epilogue e = {.dtype = c.dtype, .row_step = c.out_c};
  TD_TRY_GOTO(td_floats_out(ctx, 0, 4, (const int64_t[]){c.batch, c.dim[0].out, c.dim[1].out, c.out_c}, &work));
  if (work->count) {
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 0), &input));
    TD_TRY_GOTO(td_floats_of(td_in(ctx, 1), &filter));
    if (fused) {
      TD_TRY_GOTO(epilogue(ctx, &s->fusion, c.out_c, &e, hold));
      e.data = work->data;
      c.epilogue = &e;
    }
    TD_TRY_GOTO(td_conv_forward(ctx, &c, input->data, filter->data, work->data));
  }
  td_floats_finish(ctx, 0, work);
  work = NULL;
  status = TD_STATUS_OK;
cleanup:
  for (int i = 0; i < 5; i++) td_tensor_release(hold[i]);
  td_tensor_release(input);
  td_tensor_release(filter);
  td_tensor_release(work);
  return status;
}

/* ---- gradients ---- */

/* A shape given as a vector of sizes (or, in the V2 ops, by a tensor of that shape). */
static td_status given_shape(td_tensor *t, bool by_sizes, const char *who, const char *what, td_shape *out) {
  if (!by_sizes) {
    td_tensor_shape(t, out);
    return TD_STATUS_OK;
  }
  if (t->rank != 1) return td_invalid_argument("%s: %s input must be 1-dim, not %d", who, what, t->rank);
  return td_shape_from_tensor(t, false, out);
}

static td_status check_gradient(const td_conv *c, const td_tensor *grad, const char *who) {
  if (grad->rank != 4) return td_invalid_argument("%s: out_backprop must be 4-dimensional", who);
  if (grad->dims[0] != c->batch)
    return td_invalid_argument(
        "%s: input and out_backprop must have the same batch size. Input batch: %lld, outbackprop "
        "batch: %lld",
        who, (long long)c->batch, (long long)grad->dims[0]);
  if (grad->dims[3] != c->out_c)
    return td_invalid_argument("%s: filter and out_backprop must have the same out_depth: %lld vs %lld", who,
                               (long long)c->out_c, (long long)grad->dims[3]);
  for (int i = 0; i < 2; i++) {
    const td_window_dim *d = &c->dim[i];
    if (grad->dims[1 + i] != d->out)
      return td_invalid_argument(
          "%s: Size of out_backprop doesn't match computed: actual = %lld, computed = %lld spatial_dim: "
          "%d input: %lld filter: %lld output: %lld stride: %lld dilation: %lld",
          who, (long long)grad->dims[1 + i], (long long)d->out, 1 + i, (long long)d->in, (long long)d->filter,
          (long long)grad->dims[1 + i], (long long)d->stride, (long long)d->dilation);
  }
  return TD_STATUS_OK;
}

typedef td_status (*direction)(td_kernel_ctx *, const td_conv *, const void *, const void *, void *);

/* `shape` of the output; run(x, y) with the tensors of inputs `x` and `y`. */
static td_status gradient(td_kernel_ctx *ctx, const td_conv *c, const td_shape *shape, direction run, int x, int y) {
  td_tensor *a = NULL, *b = NULL, *work = NULL;
  td_status status;
  TD_TRY_GOTO(td_floats_out(ctx, 0, shape->rank, shape->dims, &work));
  TD_TRY_GOTO(td_floats_of(td_in(ctx, x), &a));
  TD_TRY_GOTO(td_floats_of(td_in(ctx, y), &b));
  if (work->count) TD_TRY_GOTO(run(ctx, c, a->data, b->data, work->data));
  td_floats_finish(ctx, 0, work);
  work = NULL;
cleanup:
  td_tensor_release(a);
  td_tensor_release(b);
  td_tensor_release(work);
  return status;
}

/* input_sizes may hold just rows and columns; the rest then follows from the other inputs. */
static void complete(td_shape *in, const td_shape *filter, const td_tensor *grad) {
  if (in->rank != 2 || grad->rank != 4 || filter->rank != 4) return;
  int64_t rows = in->dims[0], columns = in->dims[1];
  td_shape_set(in, 4, (const int64_t[]){grad->dims[0], rows, columns, filter->dims[2]});
}

static td_status backward_input(td_kernel_ctx *ctx) {
  static const char who[] = "Conv2DCustomBackpropInput";
  const state *s = ctx->state;
  bool by_sizes = td_in_type(ctx, 0) == TD_INT32 && td_str_is(ctx->kernel->op, "Conv2DBackpropInput");
  td_shape in, filter;
  TD_TRY(given_shape(td_in(ctx, 0), by_sizes, who, "input_sizes", &in));
  td_tensor_shape(td_in(ctx, 1), &filter);
  complete(&in, &filter, td_in(ctx, 2));
  td_conv c = {.dtype = td_compute_type(td_out_type(ctx, 0))};
  TD_TRY(dimensions(s, &in, &filter, who, &c));
  TD_TRY(check_gradient(&c, td_in(ctx, 2), who));
  return gradient(ctx, &c, &in, td_conv_backward_input, 2, 1);
}

static td_status backward_filter(td_kernel_ctx *ctx) {
  static const char who[] = "Conv2DCustomBackpropFilter";
  const state *s = ctx->state;
  bool by_sizes = td_str_is(ctx->kernel->op, "Conv2DBackpropFilter");
  td_shape in, filter;
  td_tensor_shape(td_in(ctx, 0), &in);
  TD_TRY(given_shape(td_in(ctx, 1), by_sizes, who, "filter_sizes", &filter));
  td_conv c = {.dtype = td_compute_type(td_out_type(ctx, 0))};
  TD_TRY(dimensions(s, &in, &filter, who, &c));
  TD_TRY(check_gradient(&c, td_in(ctx, 2), who));
  return gradient(ctx, &c, &filter, td_conv_backward_filter, 0, 2);
}

#define KERNEL(op_name, make, run) \
  .op = op_name, .cost = TD_COST_EXPENSIVE, .state_size = sizeof(state), .create = make, .compute = run

static const td_kernel_def kernels[] = {
    {KERNEL("Conv2D", create, forward)},
    {KERNEL("Conv2DBackpropInput", create, backward_input)},
    {KERNEL("Conv2DBackpropInputV2", create, backward_input)},
    {KERNEL("Conv2DBackpropFilter", create, backward_filter)},
    {KERNEL("Conv2DBackpropFilterV2", create, backward_filter)},
    {KERNEL("_FusedConv2D", fused_create, forward),
     .types = {{"T", TD_SET(TD_HALF) | TD_SET(TD_FLOAT) | TD_SET(TD_DOUBLE)}}},
};

TD_FAMILY(conv, ops, kernels);
