#include "ops/epilogue.h"

#include <math.h>

#include "base/mem.h"
#include "ops/gemm.h"

/* ---- attributes ---- */

static const struct {
  const char *name;
  td_activation activation;
} activations[] = {
    {"Relu", TD_ACT_RELU},
    {"Relu6", TD_ACT_RELU6},
    {"Elu", TD_ACT_ELU},
    {"LeakyRelu", TD_ACT_LEAKY_RELU},
    {"Tanh", TD_ACT_TANH},
    {"Sigmoid", TD_ACT_SIGMOID},
    {"GeluApproximate", TD_ACT_GELU_APPROXIMATE},
    {"GeluExact", TD_ACT_GELU_EXACT},
    {"_FusedTanh", TD_ACT_TANH},
    {"_FusedSigmoid", TD_ACT_SIGMOID},
};

static bool parse_activation(td_str s, td_activation *out) {
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
    if (td_str_is(s, activations[i].name)) {
      *out = activations[i].activation;
      return true;
    }
  }
  return false;
}

td_status td_fusion_parse(const td_node_def *n, td_fusion *out) {
  const Pb__AttrValue__ListValue *list;
  TD_TRY(td_attr_list(n, "fused_ops", &list));
  *out = (td_fusion){.alpha = 0.2f, .epsilon = 0.0001f};
  if (td_attr_find(n, "leakyrelu_alpha")) TD_TRY(td_attr_float(n, "leakyrelu_alpha", &out->alpha));
  if (td_attr_find(n, "epsilon")) TD_TRY(td_attr_float(n, "epsilon", &out->epsilon));
  if (!list->n_s) return td_invalid_argument("Fused op must have at least one fused op.");
  td_str first = {(const char *)list->s[0].data, list->s[0].len};
  out->bias = td_str_is(first, "BiasAdd");
  out->batch_norm = td_str_is(first, "FusedBatchNorm");
  out->add = out->bias && list->n_s > 1 && td_str_is((td_str){(const char *)list->s[1].data, list->s[1].len}, "Add");
  size_t read = out->add ? 2 : 1;
  bool ok = (out->bias || out->batch_norm) && list->n_s <= read + 1;
  if (ok && list->n_s > read)
    ok = parse_activation((td_str){(const char *)list->s[read].data, list->s[read].len}, &out->activation);
  if (ok) return TD_STATUS_OK;
  td_strbuf text = {0};
  for (size_t i = 0; i < list->n_s; i++) {
    if (i) td_strbuf_putc(&text, ',');
    td_strbuf_append(&text, (td_str){(const char *)list->s[i].data, list->s[i].len});
  }
  td_status status = td_unimplemented("Fusion is not implemented: [%s]", td_strbuf_cstr(&text));
  td_strbuf_deinit(&text);
  return status;
}

/* ---- values ---- */

static float gelu_approximate(float x) {
  return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

static void activate_f32(float *x, int64_t n, td_activation a, float alpha) {
  switch (a) {
    case TD_ACT_NONE:
      return;
    case TD_ACT_RELU: /* NaN stays */
      for (int64_t i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i];
      return;
    case TD_ACT_RELU6:
      for (int64_t i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i] > 6 ? 6 : x[i];
      return;
    case TD_ACT_LEAKY_RELU:
      for (int64_t i = 0; i < n; i++) x[i] = x[i] > 0 ? x[i] : alpha * x[i];
      return;
    case TD_ACT_ELU:
      for (int64_t i = 0; i < n; i++) x[i] = x[i] < 0 ? expm1f(x[i]) : x[i];
      return;
    case TD_ACT_TANH:
      for (int64_t i = 0; i < n; i++) x[i] = tanhf(x[i]);
      return;
    case TD_ACT_SIGMOID:
      for (int64_t i = 0; i < n; i++) x[i] = 1 / (1 + expf(-x[i]));
      return;
    case TD_ACT_GELU_APPROXIMATE:
      for (int64_t i = 0; i < n; i++) x[i] = gelu_approximate(x[i]);
      return;
    case TD_ACT_GELU_EXACT:
      for (int64_t i = 0; i < n; i++) x[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
      return;
  }
}

static void activate_f64(double *x, int64_t n, td_activation a, double alpha) {
  for (int64_t i = 0; i < n; i++) {
    double v = x[i];
    switch (a) {
      case TD_ACT_NONE:
        return;
      case TD_ACT_RELU:
        v = v < 0 ? 0 : v;
        break;
      case TD_ACT_RELU6:
        v = v < 0 ? 0 : v > 6 ? 6 : v;
        break;
      case TD_ACT_LEAKY_RELU:
        v = v > 0 ? v : alpha * v;
        break;
      case TD_ACT_ELU:
        v = v < 0 ? expm1(v) : v;
        break;
      case TD_ACT_TANH:
        v = tanh(v);
        break;
      case TD_ACT_SIGMOID:
        v = 1 / (1 + exp(-v));
        break;
      case TD_ACT_GELU_APPROXIMATE:
        v = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
        break;
      case TD_ACT_GELU_EXACT:
        v = 0.5 * v * (1 + erf(v * 0.7071067811865476));
        break;
    }
    x[i] = v;
  }
}

static void row_f32(float *x, const float *mul, const float *add, int64_t n) {
  if (mul && add) {
    for (int64_t i = 0; i < n; i++) x[i] = x[i] * mul[i] + add[i];
  } else if (add) {
    for (int64_t i = 0; i < n; i++) x[i] += add[i];
  }
}

void td_epilogue_run(void *epilogue, int64_t row_begin, int64_t row_end, int64_t from, int64_t to) {
  const td_epilogue *e = epilogue;
  int64_t n = to - from;
  for (int64_t r = row_begin; r < row_end; r++) {
    if (e->dtype == TD_FLOAT) {
      float *x = (float *)e->data + r * e->row_step + from;
      row_f32(x, e->mul ? (const float *)e->mul + from : NULL, e->add ? (const float *)e->add + from : NULL, n);
      if (e->side) row_f32(x, NULL, (const float *)e->side + r * e->row_step + from, n);
      activate_f32(x, n, e->activation, e->alpha);
    } else {
      double *x = (double *)e->data + r * e->row_step + from;
      const double *mul = e->mul, *add = e->add;
      for (int64_t i = 0; i < n; i++) x[i] = x[i] * (mul ? mul[from + i] : 1) + (add ? add[from + i] : 0);
      const double *side = e->side ? (const double *)e->side + r * e->row_step + from : NULL;
      for (int64_t i = 0; side && i < n; i++) x[i] += side[i];
      activate_f64(x, n, e->activation, (double)e->alpha);
    }
  }
}

td_status td_epilogue_side(td_tensor *side, const td_tensor *out, td_tensor **floats) {
  if (td_tensor_same_shape(side, out)) return td_floats_of(side, floats);
  char *a = td_tensor_shape_text(side), *b = td_tensor_shape_text(out);
  td_status s = td_invalid_argument("fused Add: shape %s of the added input is not the output's %s", a, b);
  td_free(a);
  td_free(b);
  return s;
}

void td_epilogue_batch_norm(const float *scale, const float *offset, const float *mean, const float *variance,
                            float epsilon, int64_t n, float *mul, float *add) {
  for (int64_t i = 0; i < n; i++) {
    mul[i] = scale[i] / sqrtf(variance[i] + epsilon);
    add[i] = offset[i] - mean[i] * mul[i];
  }
}
