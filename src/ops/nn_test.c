#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/mem.h"
#include "ops/families.h"
#include "ops/testing.h"

/* ---- values that TensorFlow computes ---- */

typedef struct literal {
  td_dtype dtype;
  const char *shape, *values;
} literal;

static const struct vector {
  const char *op, *attrs;
  double tolerance;
  int in_count, out_count;
  literal in[5], out[5];
} vectors[] = {
#include "ops/nn_vectors.inc"
};

static void values_are_those_of_tensorflow(void **state) {
  for (size_t i = 0; i < TD_COUNT(vectors); i++) {
    const struct vector *v = &vectors[i];
    td_tensor *in[5];
    for (int k = 0; k < v->in_count; k++) in[k] = td_test_tensor(v->in[k].dtype, v->in[k].shape, v->in[k].values);
    td_op_run run = {.op = v->op, .attrs = v->attrs, .in = in, .in_count = v->in_count};
    td_status s = td_op_test_run(&run);
    if (s) fail_msg("vector %zu, %s: %s", i, v->op, td_status_message(s));
    assert_int_equal(run.out_count, v->out_count);
    for (int k = 0; k < run.out_count; k++) {
      td_assert_tensor(run.out[k], v->out[k].dtype, v->out[k].shape, v->out[k].values, v->tolerance);
      td_tensor_release(run.out[k]);
    }
    for (int k = 0; k < v->in_count; k++) td_tensor_release(in[k]);
  }
}

/* ---- errors ---- */

static void expect(td_code code, const char *text, const char *op, const char *attrs, int n, ...) {
  td_tensor *in[6];
  va_list args;
  va_start(args, n);
  for (int i = 0; i < n; i++) {
    td_dtype dtype = (td_dtype)va_arg(args, int);
    const char *shape = va_arg(args, const char *);
    in[i] = td_test_tensor(dtype, shape, va_arg(args, const char *));
  }
  va_end(args);
  td_op_run run = {.op = op, .attrs = attrs, .in = in, .in_count = n};
  td_assert_run_fails(&run, code, text);
  for (int i = 0; i < n; i++) td_tensor_release(in[i]);
}

#define ONES(shape)         TD_FLOAT, shape, "1"
#define INTS(shape, values) TD_INT32, shape, values
#define CONV                "T: float; strides: [1,1,1,1]; padding: 'VALID'"

static void products_refuse_shapes(void **state) {
  expect(TD_INVALID_ARGUMENT, "Matrix size-incompatible: In[0]: [2,3], In[1]: [4,5]", "MatMul", "T: float", 2,
         ONES("[2,3]"), ONES("[4,5]"));
  expect(TD_INVALID_ARGUMENT, "In[0] is not a matrix. Instead it has shape [2,3,1]", "MatMul", "T: float", 2,
         ONES("[2,3,1]"), ONES("[3,5]"));
  expect(TD_INVALID_ARGUMENT, "In[0].dim(0) and In[1].dim(0) must be the same: [2,3,4] vs [3,4,5]", "BatchMatMul",
         "T: float", 2, ONES("[2,3,4]"), ONES("[3,4,5]"));
  expect(TD_INVALID_ARGUMENT, "In[0] and In[1] must have compatible batch dimensions: [2,3,4] vs. [3,4,5]",
         "BatchMatMulV2", "T: float", 2, ONES("[2,3,4]"), ONES("[3,4,5]"));
  expect(TD_INVALID_ARGUMENT, "In[1] ndims must be >= 2: 1", "BatchMatMulV2", "T: float", 2, ONES("[2,3,4]"),
         ONES("[4]"));
  expect(TD_INVALID_ARGUMENT, "Must provide as many biases as the last dimension of the input tensor: [4] vs. [2,3]",
         "BiasAdd", "T: float", 2, ONES("[2,3]"), ONES("[4]"));
  expect(TD_INVALID_ARGUMENT, "Biases must be 1D: [3,1]", "BiasAdd", "T: float", 2, ONES("[2,3]"), ONES("[3,1]"));
  expect(TD_INVALID_ARGUMENT, "Input tensor must be at least 2D: [2]", "BiasAddGrad", "T: float", 1, ONES("[2]"));
}

static void convolutions_refuse_shapes(void **state) {
  expect(TD_INVALID_ARGUMENT, "input must be 4-dimensional[2,3,4]", "Conv2D", CONV, 2, ONES("[2,3,4]"),
         ONES("[2,2,4,1]"));
  expect(TD_INVALID_ARGUMENT, "input depth must be evenly divisible by filter depth: 3 vs 2", "Conv2D", CONV, 2,
         ONES("[2,3,3,3]"), ONES("[2,2,2,2]"));
  expect(TD_INVALID_ARGUMENT,
         "Computed output size would be negative: -1 [input_size: 3, effective_filter_size: 5, stride: 1]", "Conv2D",
         CONV, 2, ONES("[2,3,3,1]"), ONES("[5,5,1,1]"));
  expect(TD_UNIMPLEMENTED, "only supports the NHWC tensor format on the CPU. The op was given the format: NCHW",
         "Conv2D", CONV "; data_format: 'NCHW'", 2, ONES("[2,1,3,3]"), ONES("[2,2,1,1]"));
  expect(TD_INVALID_ARGUMENT, "should be larger than 0", "Conv2D", "T: float; strides: [1,0,1,1]; padding: 'SAME'", 2,
         ONES("[2,3,3,1]"), ONES("[2,2,1,1]"));
  expect(TD_INVALID_ARGUMENT, "Size of out_backprop doesn't match computed: actual = 3, computed = 2",
         "Conv2DBackpropInput", CONV, 3, INTS("[4]", "1 4 4 1"), ONES("[3,3,1,2]"), ONES("[1,3,2,2]"));
  expect(TD_INVALID_ARGUMENT, "must have the same batch size", "Conv2DBackpropFilter", CONV, 3, ONES("[2,4,4,1]"),
         INTS("[4]", "3 3 1 2"), ONES("[1,2,2,2]"));
  expect(TD_INVALID_ARGUMENT, "input and filter must have the same depth: 2 vs 3", "DepthwiseConv2dNative", CONV, 2,
         ONES("[1,4,4,2]"), ONES("[3,3,3,1]"));
  expect(TD_INVALID_ARGUMENT, "depth_multiplier * in_depth not equal to out_depth",
         "DepthwiseConv2dNativeBackpropInput", CONV, 3, INTS("[4]", "1 4 4 2"), ONES("[3,3,2,1]"), ONES("[1,2,2,3]"));
}

#define POOL "T: float; ksize: [1,2,2,1]; strides: [1,1,1,1]; padding: 'VALID'"

static void pools_and_losses_refuse_values(void **state) {
  expect(TD_INVALID_ARGUMENT, "tensor_in must be 4-dimensional", "MaxPool", POOL, 1, ONES("[3,3]"));
  expect(TD_INVALID_ARGUMENT, "only supports NHWC", "MaxPool", POOL "; data_format: 'NCHW'", 1, ONES("[1,1,3,3]"));
  expect(TD_INVALID_ARGUMENT, "Expected grad shape to be [1,2,2,1], but got [1,3,2,1]", "MaxPoolGrad", POOL, 3,
         ONES("[1,3,3,1]"), ONES("[1,2,2,1]"), ONES("[1,3,2,1]"));
  expect(TD_INVALID_ARGUMENT, "Invalid input backprop index: 9, 0, 9", "MaxPoolGradWithArgmax", POOL "; Targmax: int32",
         3, ONES("[1,3,3,1]"), ONES("[1,2,2,1]"), INTS("[1,2,2,1]", "0 1 9 2"));
  expect(TD_INVALID_ARGUMENT,
         "Received a label value of 5 which is outside the valid range of [0, 3).  Label values: 1 5",
         "SparseSoftmaxCrossEntropyWithLogits", "T: float; Tlabels: int32", 2, ONES("[2,3]"), INTS("[2]", "1 5"));
  expect(TD_INVALID_ARGUMENT, "logits and labels must have the same first dimension",
         "SparseSoftmaxCrossEntropyWithLogits", "T: float; Tlabels: int32", 2, ONES("[2,3]"), INTS("[3]", "1 1 1"));
  expect(TD_INVALID_ARGUMENT, "logits and labels must be broadcastable: logits_size=[2,3] labels_size=[3,3]",
         "SoftmaxCrossEntropyWithLogits", "T: float", 2, ONES("[2,3]"), ONES("[3,3]"));
  expect(TD_INVALID_ARGUMENT, "input must be 4-dimensional[2,3]", "FusedBatchNorm", "T: float", 5, ONES("[2,3]"),
         ONES("[3]"), ONES("[3]"), ONES("[3]"), ONES("[3]"));
}

/* ---- fused ops do what their parts do ---- */

static td_tensor *random_tensor(unsigned *seed, int rank, const int64_t *dims) {
  td_tensor *t;
  td_status s = td_tensor_create_dims(TD_FLOAT, rank, dims, &t);
  assert_null(s);
  for (int64_t i = 0; i < t->count; i++) TD_DATA(t, float)[i] = (float)(rand_r(seed) % 2001 - 1000) / 300;
  return t;
}

static td_tensor *run_op(const char *op, const char *attrs, int n, td_tensor **in) {
  td_op_run run = {.op = op, .attrs = attrs, .in = in, .in_count = n};
  td_assert_runs(&run);
  for (int i = 1; i < run.out_count; i++) td_tensor_release(run.out[i]);
  return run.out[0];
}

static void assert_near(td_tensor *a, td_tensor *b) {
  assert_true(td_tensor_same_shape(a, b));
  for (int64_t i = 0; i < a->count; i++) {
    double x = TD_DATA(a, float)[i], y = TD_DATA(b, float)[i], limit = 1e-4 * (y < -1 ? -y : y > 1 ? y : 1);
    if (!(x - y <= limit && y - x <= limit)) fail_msg("element %lld: %g, not %g", (long long)i, x, y);
  }
  td_tensor_release(a);
  td_tensor_release(b);
}

static void fused_product_is_its_parts(void **state) {
  unsigned seed = 1;
  td_tensor *in[3] = {random_tensor(&seed, 2, (const int64_t[]){33, 70}),
                      random_tensor(&seed, 2, (const int64_t[]){70, 19}),
                      random_tensor(&seed, 1, (const int64_t[]){19})};
  td_tensor *product = run_op("MatMul", "T: float", 2, in), *pair[2] = {product, in[2]};
  td_tensor *sum = run_op("BiasAdd", "T: float", 2, pair);
  td_tensor *fused = run_op("_FusedMatMul", "T: float; num_args: 1; fused_ops: ['BiasAdd']", 3, in);
  td_tensor *clipped = run_op("_FusedMatMul", "T: float; num_args: 1; fused_ops: ['BiasAdd', 'Relu6']", 3, in);
  for (int64_t i = 0; i < clipped->count; i++) {
    float x = TD_DATA(sum, float)[i];
    assert_true(TD_DATA(clipped, float)[i] == (x < 0 ? 0 : x > 6 ? 6 : x));
  }
  td_tensor *four[4] = {in[0], in[1], in[2], sum},
            *twice =
                run_op("_FusedMatMul", "T: float; num_args: 2; fused_ops: ['BiasAdd', 'Add', 'LeakyRelu']", 4, four);
  for (int64_t i = 0; i < twice->count; i++) {
    float x = 2 * TD_DATA(sum, float)[i];
    TD_DATA(twice, float)[i] -= x > 0 ? x : 0.2f * x;
    assert_true(TD_DATA(twice, float)[i] < 1e-3f && TD_DATA(twice, float)[i] > -1e-3f);
  }
  td_tensor_release(twice);
  assert_near(fused, sum);
  td_tensor_release(clipped);
  td_tensor_release(product);
  for (int i = 0; i < 3; i++) td_tensor_release(in[i]);
}

static void fused_convolution_is_its_parts(void **state) {
  unsigned seed = 2;
  static const char attrs[] = "T: float; strides: [1,1,1,1]; padding: 'SAME'";
  td_tensor *in[6] = {random_tensor(&seed, 4, (const int64_t[]){3, 9, 8, 16}),
                      random_tensor(&seed, 4, (const int64_t[]){3, 3, 16, 32})};
  for (int i = 2; i < 6; i++) in[i] = random_tensor(&seed, 1, (const int64_t[]){32});
  for (int i = 0; i < 32; i++) TD_DATA(in[5], float)[i] = (float)(i + 1); /* variances */
  td_tensor *conv = run_op("Conv2D", attrs, 2, in), *bias[2] = {conv, in[2]},
            *norm[5] = {conv, in[2], in[3], in[4], in[5]};
  assert_near(
      run_op("_FusedConv2D",
             "T: float; TArgs: [float]; num_args: 1; strides: [1,1,1,1]; padding: 'SAME'; fused_ops: ['BiasAdd']", 3,
             in),
      run_op("BiasAdd", "T: float", 2, bias));
  assert_near(run_op("_FusedConv2D",
                     "T: float; num_args: 4; strides: [1,1,1,1]; padding: 'SAME'; "
                     "fused_ops: ['FusedBatchNorm']; epsilon: 0.01",
                     6, in),
              run_op("FusedBatchNorm", "T: float; is_training: false; epsilon: 0.01", 5, norm));
  td_tensor_release(conv);
  for (int i = 0; i < 6; i++) td_tensor_release(in[i]);
}

static void patterns_of_newer_masters(void **state) {
  td_tensor *in[4] = {td_test_tensor(TD_FLOAT, "[1,2,2]", "1 2 3 4"), td_test_tensor(TD_FLOAT, "[1,2,2]", "1 0 0 1"),
                      td_test_tensor(TD_FLOAT, "[]", "0.5"), td_test_tensor(TD_FLOAT, "[1,1,2]", "10 20")};
  td_tensor *out = run_op("_MklFusedBatchMatMulV2", "T: float; num_args: 2; fused_ops: ['Mul', 'Add']", 4, in);
  td_assert_tensor(out, TD_FLOAT, "[1,2,2]", "10.5 21 11.5 22", 1e-6);
  td_tensor_release(out);
  out = run_op("_MklSwish", "T: float", 1, in);
  td_assert_tensor(out, TD_FLOAT, "[1,2,2]", "0.73105858 1.76159416 2.85772238 3.92805516", 1e-6);
  td_tensor_release(out);
  td_tensor *norm[3] = {in[0], td_test_tensor(TD_FLOAT, "[2]", "1 2"), td_test_tensor(TD_FLOAT, "[2]", "0 1")};
  out = run_op("_MklLayerNorm", "T: float; epsilon: 0.0", 3, norm);
  td_assert_tensor(out, TD_FLOAT, "[1,2,2]", "-1 3 -1 3", 1e-5);
  td_tensor_release(out);
  for (int i = 0; i < 4; i++) td_tensor_release(in[i]);
  td_tensor_release(norm[1]);
  td_tensor_release(norm[2]);
  td_tensor *conv[3] = {td_test_tensor(TD_FLOAT, "[1,2,2,1]", "1 -2 3 4"), td_test_tensor(TD_FLOAT, "[1,1,1,2]", "1 2"),
                        td_test_tensor(TD_FLOAT, "[2]", "0.5 -1")};
  out = run_op("_FusedDepthwiseConv2dNative",
               "T: float; num_args: 1; strides: [1,1,1,1]; padding: 'SAME'; fused_ops: ['BiasAdd', 'Relu']", 3, conv);
  td_assert_tensor(out, TD_FLOAT, "[1,2,2,2]", "1.5 1 0 0 3.5 5 4.5 7", 1e-6);
  td_tensor_release(out);
  for (int i = 0; i < 3; i++) td_tensor_release(conv[i]);
}

int main(void) {
  td_status s = td_ops_register();
  if (s) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_those_of_tensorflow), cmocka_unit_test(products_refuse_shapes),
      cmocka_unit_test(convolutions_refuse_shapes),     cmocka_unit_test(pools_and_losses_refuse_values),
      cmocka_unit_test(fused_product_is_its_parts),     cmocka_unit_test(fused_convolution_is_its_parts),
      cmocka_unit_test(patterns_of_newer_masters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
