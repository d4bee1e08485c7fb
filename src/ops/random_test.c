#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "framework/cancellation.h"
#include "framework/resource.h"
#include "ops/random_fill.h"
#include "ops/testing.h"

/* Shape [3,3], seed 5, seed2 7, two runs of one kernel; TensorFlow 1.15.5 and 2.15.1 agree on all of them. */
typedef struct stream_case {
  const char *op;
  td_dtype dtype;
  const char *values[2];
} stream_case;

static const stream_case stateful[] = {
    {"RandomUniform",
     TD_FLOAT,
     {"0.447463751 0.620756984 0.259069324 0.300779819 0.205548167 0.583257198 0.511648178 0.510899305 0.275777102",
      "0.490515113 0.116616011 0.743338346 0.407312393 0.286141157 0.41705668 0.432407498 0.144566536 0.705606103"}},
    {"RandomStandardNormal",
     TD_FLOAT,
     {"-0.872526765 -0.920334995 1.56061959 -0.51554364 -0.888665974 -1.5409162 -0.0792189613 -1.15497196 1.44001484",
      "0.798368752 0.887246072 0.423615783 -0.643239856 0.787611485 -1.37193584 1.02100861 0.796438873 -0.225345969"}},
    {"TruncatedNormal",
     TD_FLOAT,
     {"-0.872526765 -0.920334995 1.56061959 -0.51554364 -1.25133121 -1.28964627 -0.958612978 -1.35921609 -1.28157175",
      "0.798368752 0.887246072 0.423615783 -0.643239856 -1.49034429 1.78021801 0.321702123 0.275620371 -0.60943675"}},
    {"RandomUniform",
     TD_DOUBLE,
     {"0.57971029844276045 0.072555419617853723 0.64438572075824663 0.093186046017146307 0.20621745348501141 "
      "0.89123645220776315 0.021392659081886478 0.63977480971352962 0.68385789155430787",
      "0.92412173956002297 0.94670736120513155 0.28912928964394458 0.45926079553471233 0.64484935355090678 "
      "0.66185613574613744 0.15196890587353429 0.43968399875795905 0.13783413172384695"}},
    {"RandomStandardNormal",
     TD_DOUBLE,
     {"0.4597320444091908 0.9376033376020686 0.51808446596932078 0.78134759225043793 -1.1220168511910575 "
      "1.3779427856959263 -2.1341142845291499 -1.7705849652839731 0.64361228199797904",
      "-0.13055270242871664 0.37520516838865303 0.3988591114183031 -1.5240321692920378 -0.79671341073542412 "
      "-0.4926711285009383 0.71817614380189054 -1.8034360864310517 -1.8901787253258231"}},
    {"TruncatedNormal",
     TD_DOUBLE,
     {"0.4597320444091908 0.9376033376020686 0.8056042320022011 0.91377812540108261 1.3109853325759753 "
      "0.42753971528264467 0.24362856718444079 0.71518596305253945 0.13085964929653726",
      "-0.13055270242871664 0.37520516838865303 0.73757507991238669 -0.93904439970514797 -0.68777082747782259 "
      "0.87085525984896495 -0.051167767863188995 0.048528630873434724 1.2163441507197037"}},
    {"RandomUniform",
     TD_HALF,
     {"0.623046875 0.241210938 0.295898438 0.98828125 0.850585938 0.04296875 0.421875 0.287109375 0.166015625",
      "0.299804688 0.318359375 0.427734375 0.703125 0.068359375 0.528320312 0.282226562 0.2890625 0.325195312"}},
    {"RandomStandardNormal",
     TD_HALF,
     {"-0.872558594 -0.920410156 1.56054688 -0.515625 -0.888671875 -1.54101562 -0.0792236328 -1.15527344 1.44042969",
      "0.798339844 0.887207031 0.423583984 -0.643066406 0.787597656 -1.37207031 1.02148438 0.796386719 -0.225341797"}},
    {"TruncatedNormal",
     TD_HALF,
     {"-0.872558594 -0.920410156 1.56054688 -0.515625 -1.25097656 -1.29003906 -0.958496094 -1.359375 -1.28125",
      "0.798339844 0.887207031 0.423583984 -0.643066406 -1.49023438 1.78027344 0.321777344 0.275634766 -0.609375"}},
    {"RandomUniform",
     TD_BFLOAT16,
     {"0.984375 0.9296875 0.3671875 0.90625 0.8046875 0.34375 0.375 0.296875 0.328125",
      "0.3984375 0.546875 0.421875 0.625 0.546875 0.2265625 0.2578125 0.3125 0.6015625"}},
    {"RandomStandardNormal",
     TD_BFLOAT16,
     {"-0.87109375 -0.921875 1.5625 -0.515625 -0.88671875 -1.5390625 -0.0791015625 -1.15625 1.4375",
      "0.796875 0.88671875 0.423828125 -0.64453125 0.7890625 -1.375 1.0234375 0.796875 -0.225585938"}},
    {"TruncatedNormal",
     TD_BFLOAT16,
     {"-0.87109375 -0.921875 1.5625 -0.515625 -1.25 -1.2890625 -0.95703125 -1.359375 -1.28125",
      "0.796875 0.88671875 0.423828125 -0.64453125 -1.4921875 1.78125 0.322265625 0.275390625 -0.609375"}},
};

/* Seeds [-3, 1234567890123]; V2: key 0x123456789abcdef0, counter [1, 2^63 + 5]. */
static const stream_case stateless[] = {
    {"StatelessRandomUniform",
     TD_FLOAT,
     {"0.110880017 0.116261601 0.103672743 0.0109834671 0.522258043 0.0669555664 0.650749922 0.607474446 0.805088162",
      NULL}},
    {"StatelessRandomUniform",
     TD_DOUBLE,
     {"0.88704051285285801 0.82938247921128472 0.1780651399250246 0.20599997156760552 0.44070561755599402 "
      "0.940890056673783 0.72392837785505182 0.098467099340504793 0.37400735379099315",
      NULL}},
    {"StatelessRandomNormal",
     TD_FLOAT,
     {"1.39938748 1.56215453 0.146814495 2.12402391 0.465495437 1.04043305 -0.579460442 -0.723522902 -0.594384015",
      NULL}},
    {"StatelessRandomNormal",
     TD_DOUBLE,
     {"-0.42997059186987002 0.23421045562642867 1.7872007625473934 0.50707505987803281 -0.46458702266677726 "
      "1.192860100352662 0.46618797549456764 0.65482395016766093 -1.3677672070982934",
      NULL}},
    {"StatelessTruncatedNormal",
     TD_FLOAT,
     {"1.39938748 1.56215453 0.146814495 0.465495437 -0.582844794 0.644204497 1.06528151 -1.21265543 0.228983045",
      NULL}},
    {"StatelessTruncatedNormal",
     TD_DOUBLE,
     {"-0.42997059186987002 0.23421045562642867 -0.024359965831208925 0.34476461606522818 1.0692991643487251 "
      "0.54973939853620835 -0.4120264014837442 -0.39189139355455421 -0.20835093637347787",
      NULL}},
    {"StatelessRandomUniformV2",
     TD_FLOAT,
     {"0.334219575 0.343976498 0.489926219 0.287878394 0.59224093 0.631332994 0.634512067 0.901936412 0.380254388",
      NULL}},
    {"StatelessRandomNormalV2",
     TD_FLOAT,
     {"1.22982848 -0.824278951 1.16089904 -0.281628042 -0.751988292 -0.694404125 -0.551219046 0.778431416 0.446072876",
      NULL}},
    {"StatelessTruncatedNormalV2",
     TD_FLOAT,
     {"1.22982848 -0.824278951 1.16089904 -0.281628042 0.784036875 0.927583516 -0.0321936086 -1.07707012 0.677259624",
      NULL}},
};

static double tolerance_of(const stream_case *c) {
  if (strstr(c->op, "Uniform")) return 0; /* the very bits */
  return c->dtype == TD_HALF ? 1e-3 : c->dtype == TD_BFLOAT16 ? 8e-3 : c->dtype == TD_DOUBLE ? 1e-14 : 1e-6;
}

static void test_stateful_streams(void **state) {
  td_tensor *shape = td_test_tensor(TD_INT32, "[2]", "3 3");
  for (size_t i = 0; i < TD_COUNT(stateful); i++) {
    char attrs[128];
    snprintf(attrs, sizeof attrs, "T: int32; dtype: %s; seed: 5; seed2: 7", td_dtype_name(stateful[i].dtype));
    td_kernel *k = NULL;
    td_op_run run = {.op = stateful[i].op, .attrs = attrs, .in = &shape, .in_count = 1, .kernel = &k};
    for (int round = 0; round < 2; round++) {
      td_assert_runs(&run);
      td_assert_tensor(run.out[0], stateful[i].dtype, "[3,3]", stateful[i].values[round], tolerance_of(&stateful[i]));
      td_tensor_release(run.out[0]);
    }
    td_kernel_release(k);
  }
  td_tensor_release(shape);
}

static void test_stateless_streams(void **state) {
  td_tensor *old[] = {td_test_tensor(TD_INT32, "[2]", "3 3"), td_test_tensor(TD_INT64, "[2]", "-3 1234567890123")};
  td_tensor *v2[] = {old[0], td_test_tensor(TD_UINT64, "[1]", "0x123456789abcdef0"),
                     td_test_tensor(TD_UINT64, "[2]", "1 9223372036854775813"), td_test_tensor(TD_INT32, "[]", "1")};
  for (size_t i = 0; i < TD_COUNT(stateless); i++) {
    char attrs[128];
    bool is_v2 = strstr(stateless[i].op, "V2");
    snprintf(attrs, sizeof attrs, "%s; dtype: %s", is_v2 ? "Tshape: int32" : "T: int32; Tseed: int64",
             td_dtype_name(stateless[i].dtype));
    td_op_run run = {.op = stateless[i].op, .attrs = attrs, .in = is_v2 ? v2 : old, .in_count = is_v2 ? 4 : 2};
    td_assert_runs(&run);
    td_assert_tensor(run.out[0], stateless[i].dtype, "[3,3]", stateless[i].values[0], tolerance_of(&stateless[i]));
    td_tensor_release(run.out[0]);
  }
  for (int i = 1; i < 4; i++) td_tensor_release(v2[i]);
  td_tensor_release(old[0]);
  td_tensor_release(old[1]);
}

/* Runs an op whose inputs it releases, and checks its first output. */
static void expect(const char *op, const char *attrs, td_tensor **in, int in_count, td_dtype dtype, const char *shape,
                   const char *first, const char *second) {
  td_kernel *k = NULL;
  td_op_run run = {.op = op, .attrs = attrs, .in = in, .in_count = in_count, .kernel = &k};
  for (int round = 0; round < (second ? 2 : 1); round++) {
    td_assert_runs(&run);
    td_assert_tensor(run.out[0], dtype, shape, round ? second : first, 0);
    for (int i = 0; i < run.out_count; i++) td_tensor_release(run.out[i]);
  }
  td_kernel_release(k);
  for (int i = 0; i < in_count; i++) td_tensor_release(in[i]);
}

static td_tensor *key(void) { return td_test_tensor(TD_UINT64, "[1]", "0x123456789abcdef0"); }
static td_tensor *counter(void) { return td_test_tensor(TD_UINT64, "[2]", "1 9223372036854775813"); }
static td_tensor *int32_scalar(const char *v) { return td_test_tensor(TD_INT32, "[]", v); }
static td_tensor *shape_of(const char *shape, const char *dims) { return td_test_tensor(TD_INT32, shape, dims); }

static void test_integers(void **state) {
  expect("RandomUniformInt", "T: int32; Tout: int32; seed: 5; seed2: 7",
         (td_tensor *[]){shape_of("[2]", "3 3"), int32_scalar("-5"), int32_scalar("1000")}, 3, TD_INT32, "[3,3]",
         "875 665 689 207 -1 466 408 328 827", "971 638 872 852 299 971 795 834 191");
  expect("RandomUniformInt", "T: int32; Tout: int64; seed: 5; seed2: 7",
         (td_tensor *[]){shape_of("[2]", "3 3"), td_test_tensor(TD_INT64, "[]", "-1000000000000"),
                         td_test_tensor(TD_INT64, "[]", "1000000000000000")},
         3, TD_INT64, "[3,3]",
         "219464920098430 616209223231791 517445205249895 992496232152496 142835359689898 991559349650049 "
         "35519418472351 476357279861892 434232519971092",
         "966396381591859 385837697095094 888601050705990 79466635110689 517494826185037 897060668765942 "
         "819997896060534 252254320122098 45791403852945");
  expect("StatelessRandomUniformInt", "T: int32; dtype: int64; Tseed: int32",
         (td_tensor *[]){shape_of("[2]", "3 3"), td_test_tensor(TD_INT32, "[2]", "7 -9"),
                         td_test_tensor(TD_INT64, "[]", "-5"), td_test_tensor(TD_INT64, "[]", "1099511627776")},
         4, TD_INT64, "[3,3]",
         "915219940248 676112383139 22613612057 1085706777960 778686422418 631905671536 925761007367 750945753243 "
         "691895214416",
         NULL);
  expect("StatelessRandomUniformFullIntV2", "dtype: int32; Tshape: int32",
         (td_tensor *[]){shape_of("[1]", "5"), key(), counter(), int32_scalar("1")}, 4, TD_INT32, "[5]",
         "-232077387 900466540 1765717479 757389619 592170637", NULL);
  expect("StatelessRandomUniformFullIntV2", "dtype: uint64; Tshape: int32",
         (td_tensor *[]){shape_of("[1]", "5"), key(), counter(), int32_scalar("1")}, 4, TD_UINT64, "[5]",
         "3867474344505165749 3252963645700617703 8993916626588651149 1005273206628628401 12900181796707150893", NULL);
  expect("StatelessRandomUniformFullInt", "dtype: uint64; T: int32; Tseed: int64",
         (td_tensor *[]){shape_of("[1]", "5"), td_test_tensor(TD_INT64, "[2]", "3 4")}, 2, TD_UINT64, "[5]",
         "15563846067247064075 4520458231610095266 15018079513829641671 8685440493091131194 11564747806564350872",
         NULL);
  expect(
      "StatelessRandomUniformIntV2", "dtype: int32; Tshape: int32",
      (td_tensor *[]){shape_of("[1]", "5"), key(), counter(), int32_scalar("3"), int32_scalar("-7"), int32_scalar("9")},
      6, TD_INT32, "[5]", "-2 5 0 -4 6", NULL);
  expect("StatelessRandomGetKeyCounterAlg", "Tseed: int64", (td_tensor *[]){td_test_tensor(TD_INT64, "[2]", "3 4")}, 1,
         TD_UINT64, "[1]", "5186321457711525117", NULL);
}

static void test_shuffle(void **state) {
  expect("RandomShuffle", "T: int32; seed: 5; seed2: 7",
         (td_tensor *[]){td_test_tensor(TD_INT32, "[10]", "0 1 2 3 4 5 6 7 8 9")}, 1, TD_INT32, "[10]",
         "0 2 9 4 5 6 3 7 8 1", "9 5 6 8 4 3 1 2 0 7");
  expect("RandomShuffle", "T: float; seed: 5; seed2: 7",
         (td_tensor *[]){td_test_tensor(TD_FLOAT, "[6,2]", "0 1 2 3 4 5 6 7 8 9 10 11")}, 1, TD_FLOAT, "[6,2]",
         "8 9 2 3 10 11 4 5 6 7 0 1", "8 9 4 5 6 7 2 3 10 11 0 1");
  expect("RandomShuffle", "T: string; seed: 5; seed2: 7",
         (td_tensor *[]){td_test_tensor(TD_STRING, "[10]", "0 1 2 3 4 5 6 7 8 9")}, 1, TD_STRING, "[10]",
         "0 2 9 4 5 6 3 7 8 1", "9 5 6 8 4 3 1 2 0 7");
  expect("RandomShuffle", "T: int32", (td_tensor *[]){td_test_tensor(TD_INT32, "[]", "4")}, 1, TD_INT32, "[]", "4",
         NULL);
  expect("RandomShuffle", "T: int32", (td_tensor *[]){td_test_tensor(TD_INT32, "[3,0]", "")}, 1, TD_INT32, "[3,0]", "",
         NULL);
  expect("StatelessShuffle", "T: int32",
         (td_tensor *[]){td_test_tensor(TD_INT32, "[10]", "0 1 2 3 4 5 6 7 8 9"), key(), counter(), int32_scalar("1")},
         4, TD_INT32, "[10]", "9 8 0 3 5 7 4 6 2 1", NULL);
}

static td_tensor *logits(void) {
  char text[256] = "";
  static const double p[] = {.1, .2, .3, .4, .7, .1, .1, .1, .25, .25, .25, .25};
  for (int i = 0; i < 12; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%.9g ", (double)logf((float)p[i]));
  return td_test_tensor(TD_FLOAT, "[3,4]", text);
}

static void test_multinomial(void **state) {
  expect("Multinomial", "T: float; seed: 5; seed2: 7", (td_tensor *[]){logits(), int32_scalar("7")}, 2, TD_INT64,
         "[3,7]", "2 0 3 0 1 3 0 0 0 0 0 1 3 0 2 1 1 3 3 2 3", "3 3 0 3 3 3 3 1 0 0 0 2 0 0 2 0 1 0 3 0 2");
  expect("StatelessMultinomial", "T: float; Tseed: int32",
         (td_tensor *[]){logits(), int32_scalar("5"), td_test_tensor(TD_INT32, "[2]", "3 4")}, 3, TD_INT64, "[3,5]",
         "3 3 1 3 3 0 0 0 0 0 0 2 3 0 1", NULL);
  /* classes of no probability never come */
  expect("Multinomial", "T: float; output_dtype: int32",
         (td_tensor *[]){td_test_tensor(TD_FLOAT, "[1,3]", "-inf 0 nan"), int32_scalar("4")}, 2, TD_INT32, "[1,4]",
         "1 1 1 1", NULL);
}

static void expect_failure(const char *op, const char *attrs, td_tensor **in, int in_count, const char *text) {
  td_op_run run = {.op = op, .attrs = attrs, .in = in, .in_count = in_count};
  td_assert_run_fails(&run, TD_INVALID_ARGUMENT, text);
  for (int i = 0; i < in_count; i++) td_tensor_release(in[i]);
}

static void test_errors(void **state) {
  const char *int_attrs = "T: int32; Tout: int32";
  expect_failure("RandomUniformInt", int_attrs,
                 (td_tensor *[]){shape_of("[1]", "3"), int32_scalar("5"), int32_scalar("5")}, 3,
                 "Need minval < maxval, got 5 >= 5");
  expect_failure("RandomUniformInt", int_attrs,
                 (td_tensor *[]){shape_of("[1]", "3"), shape_of("[1]", "5"), int32_scalar("5")}, 3,
                 "minval must be 0-D, got shape [1]");
  /* nothing to draw: an impossible range is fine */
  expect("RandomUniformInt", int_attrs, (td_tensor *[]){shape_of("[1]", "0"), int32_scalar("5"), int32_scalar("5")}, 3,
         TD_INT32, "[0]", "", NULL);
  expect_failure("RandomUniform", "T: int32; dtype: float", (td_tensor *[]){shape_of("[2]", "3 -1")}, 1, "");
  expect_failure("StatelessRandomUniform", "T: int32; Tseed: int32; dtype: float",
                 (td_tensor *[]){shape_of("[1]", "3"), shape_of("[3]", "1 2 3")}, 2,
                 "seed must have shape [2], not [3]");
  expect_failure("StatelessRandomUniformV2", "Tshape: int32; dtype: float",
                 (td_tensor *[]){shape_of("[1]", "3"), key(), counter(), int32_scalar("9")}, 4,
                 "Unsupported algorithm id: 9");
  expect_failure("StatelessRandomUniformV2", "Tshape: int32; dtype: float",
                 (td_tensor *[]){shape_of("[1]", "3"), key(), key(), int32_scalar("1")}, 4, "counter must be");
  expect_failure("Multinomial", "T: float", (td_tensor *[]){logits(), int32_scalar("-1")}, 2,
                 "num_samples should be nonnegative, got -1");
  expect_failure("Multinomial", "T: float", (td_tensor *[]){td_test_tensor(TD_FLOAT, "[2,0]", ""), int32_scalar("1")},
                 2, "num_classes should be positive, got 0");
}

/* The same numbers whatever the number of threads, and for every length of the last group. */
static void test_independent_of_threads(void **state) {
  td_pool *pool = td_pool_create("test", NULL, 3);
  td_step step = {.id = 1,
                  .pool = pool,
                  .cancellation = td_cancellation_create(),
                  .step_resources = td_resource_mgr_create(TD_STR("step"))};
  static const char *const ops[] = {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"};
  for (int64_t n = 99997; n < 100002; n++)
    for (int op = 0; op < 3; op++)
      for (int wide = 0; wide < 2; wide++) {
        char dims[32], attrs[96];
        snprintf(dims, sizeof dims, "%lld", (long long)n);
        snprintf(attrs, sizeof attrs, "T: int32; dtype: %s; seed: 1; seed2: 2", wide ? "double" : "float");
        td_tensor *shape = shape_of("[1]", dims);
        td_op_run alone = {.op = ops[op], .attrs = attrs, .in = &shape, .in_count = 1}, shared = alone;
        shared.step = &step;
        td_assert_runs(&alone);
        td_assert_runs(&shared);
        assert_int_equal(alone.out[0]->count, n);
        assert_memory_equal(alone.out[0]->data, shared.out[0]->data, alone.out[0]->size);
        td_tensor_release(alone.out[0]);
        td_tensor_release(shared.out[0]);
        td_tensor_release(shape);
      }
  td_pool_destroy(pool);
  td_cancellation_release(step.cancellation);
  td_resource_mgr_release(step.step_resources);
}

static void test_distribution(void **state) {
  td_tensor *shape = shape_of("[1]", "1000000");
  td_op_run run = {.op = "RandomStandardNormal", .attrs = "T: int32; dtype: float", .in = &shape, .in_count = 1};
  td_assert_runs(&run);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < run.out[0]->count; i++) {
    double v = TD_DATA(run.out[0], float)[i];
    sum += v;
    squares += v * v;
  }
  assert_true(fabs(sum / 1e6) < 0.006);
  assert_true(fabs(squares / 1e6 - 1) < 0.01);
  td_tensor_release(run.out[0]);
  td_tensor_release(shape);
}

/* Concurrent runs of one kernel take different parts of the stream. */
typedef struct draw {
  td_kernel **kernel;
  td_tensor *shape, *out[50];
} draw;

static void *draw_main(void *arg) {
  draw *d = arg;
  td_kernel *k = *d->kernel; /* a copy: the harness writes it back */
  for (int i = 0; i < 50; i++) {
    td_op_run run = {.op = "RandomUniform", .in = &d->shape, .in_count = 1, .kernel = &k};
    td_status s = td_op_test_run(&run);
    if (s) return s;
    d->out[i] = run.out[0];
  }
  return NULL;
}

static void test_shared_kernel(void **state) {
  td_tensor *shape = shape_of("[1]", "2");
  td_kernel *k = NULL;
  td_op_run first = {
      .op = "RandomUniform", .attrs = "T: int32; dtype: float; seed: 3", .in = &shape, .in_count = 1, .kernel = &k};
  td_assert_runs(&first);
  draw draws[3];
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) {
    draws[i] = (draw){.kernel = &k, .shape = shape};
    assert_int_equal(pthread_create(&threads[i], NULL, draw_main, &draws[i]), 0);
  }
  for (int i = 0; i < 3; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    assert_null(failed);
  }
  for (int a = 0; a < 150; a++)
    for (int b = 0; b < a; b++)
      assert_memory_not_equal(draws[a / 50].out[a % 50]->data, draws[b / 50].out[b % 50]->data, 8);
  for (int a = 0; a < 150; a++) td_tensor_release(draws[a / 50].out[a % 50]);
  td_tensor_release(first.out[0]);
  td_kernel_release(k);
  td_tensor_release(shape);
}

/* Word by word, with the C library's functions. */
static void test_truncated_group_by_group(void **state) {
  enum { COUNT = 40001, GROUP = 4, STEPS = 256 };
  static const td_random_spec spec = {TD_RANDOM_TRUNCATED, TD_FLOAT, 0, 0};
  td_philox stream = td_philox_from_key_counter(77, UINT32_MAX - 1000000, 5); /* a carry is on the way */
  float *out = td_new_array(float, COUNT);
  td_random_fill(&spec, &stream, out, COUNT, 0, (COUNT + GROUP - 1) / GROUP);
  for (int g = 0; g * GROUP < COUNT; g++) {
    td_philox_words words = td_philox_words_of(td_philox_at(&stream, (uint64_t)g * STEPS));
    for (int i = g * GROUP; i < TD_MIN((g + 1) * GROUP, COUNT);) {
      uint32_t x0 = td_philox_word(&words), x1 = td_philox_word(&words);
      float pair[2];
      td_random_normal_pair(x0, x1, pair);
      for (int k = 0; k < 2 && i < TD_MIN((g + 1) * GROUP, COUNT); k++)
        if (fabsf(pair[k]) < 2.0f) assert_true(fabsf(out[i++] - pair[k]) < 2e-6f);
    }
  }
  td_free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stateful_streams),
      cmocka_unit_test(test_stateless_streams),
      cmocka_unit_test(test_truncated_group_by_group),
      cmocka_unit_test(test_integers),
      cmocka_unit_test(test_shuffle),
      cmocka_unit_test(test_multinomial),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_independent_of_threads),
      cmocka_unit_test(test_distribution),
      cmocka_unit_test(test_shared_kernel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
