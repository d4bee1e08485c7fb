/* One node of any op, with attributes and inputs made from the fuzzer's bytes, created and run: whatever comes must
 * end in a status or in outputs of the declared types, never in a crash.
 *
 * Attributes are drawn from what the op's definition allows (with a few values that it does not), shapes are small and
 * often agree with each other, so that runs get past the checks; values are small numbers mixed with extreme ones.
 * When the bytes are used up, a generator seeded by them goes on.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "framework/cancellation.h"
#include "framework/device.h"
#include "framework/variable.h"
#include "ops/families.h"
#include "tensor/memory.h"
#include "tensor/number.h"

enum { MOST_EDGES = 64, MOST_ELEMENTS = 4096, MOST_MEMORY = 64 << 20 };

typedef struct fuzz {
  const uint8_t *data;
  size_t size;
  uint64_t seed;
  td_arena arena;
  td_device *device;
  const td_op_def *op;
  td_node_def node;
  int base_rank; /* the shape that most inputs of this run have */
  int64_t base_dims[8];
  int variables; /* made so far; their names are numbered */
} fuzz;

/* ---- choices ---- */

static uint8_t next_byte(fuzz *f) {
  if (f->size) {
    f->size--;
    f->seed = (f->seed ^ *f->data) * 0x100000001b3ull;
    return *f->data++;
  }
  f->seed ^= f->seed << 13;
  f->seed ^= f->seed >> 7;
  f->seed ^= f->seed << 17;
  return (uint8_t)(f->seed >> 32);
}

static unsigned below(fuzz *f, unsigned n) {
  unsigned v = next_byte(f);
  if (n > 256) v = v << 8 | next_byte(f);
  return n ? v % n : 0;
}

static bool chance(fuzz *f, unsigned percent) { return below(f, 100) < percent; }

static uint64_t next_bits(fuzz *f) {
  uint64_t v = 0;
  for (int i = 0; i < 8; i++) v = v << 8 | next_byte(f);
  return v;
}

static int64_t next_int(fuzz *f) {
  static const int64_t extremes[] = {INT64_MIN,     INT64_MAX, INT32_MIN,        INT32_MAX, (int64_t)INT32_MAX + 1,
                                     UINT32_MAX,    INT16_MIN, INT8_MIN,         1 << 20,   (int64_t)1 << 40,
                                     INT64_MIN + 1, -1,        (int64_t)1 << 62, 255,       64};
  return chance(f, 8) ? extremes[below(f, TD_COUNT(extremes))] : (int64_t)below(f, 10) - 2;
}

static double next_real(fuzz *f) {
  static const double extremes[] = {NAN,   INFINITY, -INFINITY, -0.0,         1e30,  -1e30,
                                    1e308, 1e-40,    5e-324,    2147483648.0, 9.3e18};
  return chance(f, 12) ? extremes[below(f, TD_COUNT(extremes))] : ((double)below(f, 256) - 100) / 16;
}

static int64_t next_dim(fuzz *f) {
  static const uint8_t dims[] = {1, 2, 3, 4, 0, 5, 7, 8, 16, 33, 1, 2, 3, 4, 2, 1};
  return dims[below(f, sizeof dims)];
}

static int next_dims(fuzz *f, int64_t *dims) {
  int rank = (int)below(f, 7);
  int64_t count = 1;
  for (int i = 0; i < rank; i++) {
    dims[i] = next_dim(f);
    if (count * dims[i] > MOST_ELEMENTS) dims[i] = 1;
    count *= dims[i];
  }
  return rank;
}

static td_str next_text(fuzz *f) {
  static const char *const texts[] = {"",    "a", "v1",     "%d",        "NHWC",     "NCHW", "SAME", "VALID",
                                      "x/y", "1", "-3.5e9", "[a-z]+(b|", "\xff\xfe", "loc",  "sum",  "Relu"};
  return td_str_of(texts[below(f, TD_COUNT(texts))]);
}

static td_dtype next_type(fuzz *f, td_dtype_set allowed) {
  static const td_dtype common[] = {TD_FLOAT, TD_INT32,     TD_INT64,  TD_DOUBLE,
                                    TD_HALF,  TD_COMPLEX64, TD_STRING, TD_UINT8};
  if (!allowed) allowed = TD_SET_ALL;
  td_dtype t = common[below(f, TD_COUNT(common))];
  if (chance(f, 60) && td_dtype_in(t, allowed)) return t;
  for (t = (td_dtype)below(f, TD_DTYPE_LIMIT);; t = (td_dtype)((t + 1) % TD_DTYPE_LIMIT))
    if (td_dtype_in(t, allowed)) return t;
}

/* ---- tensors ---- */

static td_resource_handle *next_handle(fuzz *f, td_dtype dtype);

static void fill(fuzz *f, td_tensor *t, td_dtype variable_type) {
  bool is_noise = chance(f, 10), is_ramp = chance(f, 20);
  for (int64_t i = 0; i < t->count; i++) {
    double d = is_ramp ? (double)i : 0;
    int64_t n = is_ramp ? i : next_int(f);
    size_t size = td_dtype_size((td_dtype)t->dtype);
    switch (t->dtype) {
      case TD_STRING: {
        td_status_free(td_string_set(&TD_DATA(t, td_string)[i], next_text(f)));
        continue;
      }
      case TD_RESOURCE:
        TD_DATA(t, td_resource_handle *)[i] = next_handle(f, variable_type);
        continue;
      case TD_VARIANT:
        continue;
      case TD_BOOL:
        TD_DATA(t, bool)[i] = n & 1;
        continue;
      default:
        break;
    }
    if (is_noise) {
      uint64_t bits[2] = {next_bits(f), next_bits(f)};
      memcpy((char *)t->data + (size_t)i * size, bits, size);
      continue;
    }
    if (!is_ramp) d = next_real(f);
    if (td_dtype_in((td_dtype)t->dtype, TD_SET_FLOATING))
      td_tensor_set_complex(t, i, d, 0);
    else if (td_dtype_in((td_dtype)t->dtype, TD_SET_COMPLEX))
      td_tensor_set_complex(t, i, d, (double)next_int(f));
    else
      memcpy((char *)t->data + (size_t)i * size, &n, size);
  }
}

/* What shape an argument of this name needs, so that runs get past the checks: S a scalar, R one entry per dimension, P
 * two per dimension, B as many as rows, C as many as channels, F a filter, V the common shape, a digit:
 * a vector so long. */
static char shape_hint(td_str name) {
  static const struct {
    char kind;
    const char *names;
  } hints[] = {
      {'S',
       " lr l1 l2 l2_shrinkage lr_power rho epsilon momentum beta1 beta2 beta1_power beta2_power alpha beta logbase "
       "grad_scale "
       "sign_decay global_step axis dim split_dim concat_dim dimension num_segments k depth on_value off_value "
       "default_value "
       "constant_values start limit delta stop num alg minval maxval means num_lower num_upper size fill_value "
       "padding_value "
       "index pattern output_dim0 "},
      {'R',
       " perm multiples begin end strides dims input_sizes output_shape sparse_shape orig_input_shape "
       "paddings_vector "},
      {'P', " paddings crops "},
      {'B', " segment_ids seq_lengths targets labels_vector partitions "},
      {'C',
       " scale offset bias biases mean variance estimated_mean estimated_variance reserve_space_1 reserve_space_2 "},
      {'F', " filter "},
      {'1', " key "},
      {'2', " seed counter block_shape "},
      {'4', " filter_sizes ksize "},
  };
  char text[64];
  snprintf(text, sizeof text, " %.*s ", (int)TD_MIN(name.size, (size_t)60), name.data);
  for (size_t i = 0; i < TD_COUNT(hints); i++)
    if (strstr(hints[i].names, text)) return hints[i].kind;
  return 0;
}

/* The input's dimensions into `dims`; returns the rank. */
static int choose_shape(fuzz *f, td_dtype dtype, char hint, int64_t *dims) {
  int rank = f->base_rank;
  memcpy(dims, f->base_dims, sizeof f->base_dims);
  if (dtype == TD_RESOURCE && chance(f, 95)) return 0; /* handles are scalars */
  if (hint && chance(f, 90)) {
    switch (hint) {
      case 'S':
        return 0;
      case 'R':
        return dims[0] = rank, 1;
      case 'P':
        return dims[0] = rank, dims[1] = 2, 2;
      case 'B':
        return rank ? 1 : 0;
      case 'C':
        return dims[0] = rank ? dims[chance(f, 80) ? rank - 1 : rank > 1] : 1, 1;
      case 'F':
        return dims[2] = rank ? f->base_dims[rank - 1] : 1, dims[0] = 1 + below(f, 3), dims[1] = 1 + below(f, 3),
               dims[3] = chance(f, 50) ? dims[2] : 1 + below(f, 4), 4;
      case 'V':
        return rank;
      default:
        return dims[0] = hint - '0', 1;
    }
  }
  unsigned kind = below(f, 20);
  if (kind < 11) return rank;
  if (kind < 14) return 0;
  if (kind < 17) return dims[0] = chance(f, 40) ? rank : next_dim(f), 1;
  if (kind < 18 && rank > 1) { /* a broadcast or a transposed relative of the common shape */
    dims[below(f, (unsigned)rank)] = 1;
    return rank;
  }
  if (kind < 19 && rank > 1) {
    memmove(dims, dims + 1, sizeof *dims * (size_t)(rank - 1));
    return rank - 1;
  }
  return next_dims(f, dims);
}

static td_tensor *next_tensor(fuzz *f, td_dtype dtype, td_dtype variable_type, char hint) {
  int64_t dims[8];
  int rank = choose_shape(f, dtype, hint, dims);
  td_tensor *t;
  td_status s = td_tensor_create_dims(dtype, rank, dims, &t);
  if (s) {
    td_status_free(s);
    return NULL;
  }
  fill(f, t, variable_type);
  if ((hint == 'R' || hint == '4') && (dtype == TD_INT32 || dtype == TD_INT64) &&
      chance(f, 50)) { /* sizes that are some tensor's */
    for (int64_t i = 0; i < TD_MIN(t->count, f->base_rank); i++) {
      if (dtype == TD_INT32)
        TD_DATA(t, int32_t)[i] = (int32_t)f->base_dims[i];
      else
        TD_DATA(t, int64_t)[i] = f->base_dims[i];
    }
  }
  if (t->rank && t->count && td_dtype_is_pod(dtype) && chance(f, 5)) { /* a view that starts in the middle */
    td_tensor *view = td_tensor_slice(t, t->dims[0] / 2, t->dims[0]);
    td_tensor_release(t);
    t = view;
  }
  return t;
}

static td_variable *next_variable(fuzz *f, const td_resource_type *type, td_dtype dtype, bool with_value) {
  char name[16];
  snprintf(name, sizeof name, "v%d", f->variables++);
  td_variable *v = td_variable_create(type, dtype, td_str_of(name));
  if (chance(f, 80)) td_variable_declare_shape(v, f->base_rank, f->base_dims);
  if (with_value) v->value = next_tensor(f, dtype, TD_FLOAT, chance(f, 85) ? 'V' : 0);
  td_status s = td_resource_add(f->device->resources, TD_STR(""), td_str_of(name), &v->resource);
  td_status_free(s);
  return v;
}

static td_resource_handle *next_handle(fuzz *f, td_dtype dtype) {
  if (dtype == TD_RESOURCE || dtype == TD_VARIANT || !dtype) dtype = TD_FLOAT;
  char name[16];
  snprintf(name, sizeof name, "v%d", f->variables);
  const td_resource_type *type = chance(f, 95) ? &td_resource_variable_type : &td_ref_variable_type;
  if (chance(f, 95)) td_variable_release(next_variable(f, type, dtype, chance(f, 90)));
  td_str device = chance(f, 97) ? td_str_of(f->device->name) : TD_STR("/job:other/task:0");
  return td_resource_handle_create(device, TD_STR("test"), td_str_of(name), td_str_of(td_resource_variable_type.name),
                                   0);
}

/* ---- attributes ---- */

static Pb__TensorShapeProto *next_shape_message(fuzz *f) {
  Pb__TensorShapeProto *p = td_arena_new(&f->arena, Pb__TensorShapeProto);
  pb__tensor_shape_proto__init(p);
  int64_t dims[8];
  int rank = f->base_rank;
  memcpy(dims, f->base_dims, sizeof dims);
  if (chance(f, 50)) rank = next_dims(f, dims);
  p->unknown_rank = chance(f, 15);
  if (p->unknown_rank) return p;
  p->dim = td_arena_array(&f->arena, Pb__TensorShapeProto__Dim *, 8);
  for (; p->n_dim < (size_t)rank; p->n_dim++) {
    Pb__TensorShapeProto__Dim *d = p->dim[p->n_dim] = td_arena_new(&f->arena, Pb__TensorShapeProto__Dim);
    pb__tensor_shape_proto__dim__init(d);
    d->size = chance(f, 10) ? next_int(f) : dims[p->n_dim];
  }
  return p;
}

static Pb__TensorProto *next_tensor_message(fuzz *f) {
  Pb__TensorProto *p = td_arena_new(&f->arena, Pb__TensorProto);
  pb__tensor_proto__init(p);
  p->dtype = next_type(f, 0);
  p->tensor_shape = next_shape_message(f);
  p->n_float_val = p->n_int_val = p->n_int64_val = below(f, 3);
  p->float_val = td_arena_array(&f->arena, float, 4);
  p->int_val = td_arena_array(&f->arena, int32_t, 4);
  p->int64_val = td_arena_array(&f->arena, int64_t, 4);
  if (chance(f, 30)) {
    p->tensor_content.len = below(f, 65);
    p->tensor_content.data = td_arena_calloc(&f->arena, 1, 65);
  }
  return p;
}

static ProtobufCBinaryData next_string(fuzz *f, const td_attr_def *def) {
  td_str s = def->allowed_string_count && chance(f, 97)
                 ? def->allowed_strings[below(f, (unsigned)def->allowed_string_count)]
                 : next_text(f);
  return (ProtobufCBinaryData){s.size, (uint8_t *)td_arena_strndup(&f->arena, s.data, s.size)};
}

static Pb__NameAttrList *next_function(fuzz *f) {
  Pb__NameAttrList *p = td_arena_new(&f->arena, Pb__NameAttrList);
  pb__name_attr_list__init(p);
  p->name = td_arena_strdup(&f->arena, "f");
  return p;
}

static int64_t next_int_attr(fuzz *f, const td_attr_def *def) {
  int64_t n = next_int(f);
  return def->has_minimum && n < def->minimum && chance(f, 97) ? def->minimum : n;
}

static Pb__AttrValue *next_list(fuzz *f, const td_attr_def *def, Pb__AttrValue *v) {
  Pb__AttrValue__ListValue *l = td_arena_new(&f->arena, Pb__AttrValue__ListValue);
  pb__attr_value__list_value__init(l);
  size_t n = chance(f, 50) ? 4 : below(f, 7);
  if (def->has_minimum && n < (size_t)def->minimum) n = (size_t)TD_MIN(def->minimum, 16);
  v->value_case = PB__ATTR_VALUE__VALUE_LIST;
  v->list = l;
#define LIST(field, type, make)                      \
  l->n_##field = n;                                  \
  l->field = td_arena_array(&f->arena, type, n + 1); \
  for (size_t i = 0; i < n; i++) l->field[i] = (make)
  switch (def->kind) {
    case TD_ATTR_STRING:
      LIST(s, ProtobufCBinaryData, next_string(f, def));
      break;
    case TD_ATTR_INT:
      LIST(i, int64_t, next_int(f));
      break;
    case TD_ATTR_FLOAT:
      LIST(f, float, (float)next_real(f));
      break;
    case TD_ATTR_BOOL:
      LIST(b, protobuf_c_boolean, chance(f, 50));
      break;
    case TD_ATTR_TYPE:
      LIST(type, int32_t, next_type(f, def->allowed_types));
      break;
    case TD_ATTR_SHAPE:
      LIST(shape, Pb__TensorShapeProto *, next_shape_message(f));
      break;
    case TD_ATTR_TENSOR:
      LIST(tensor, Pb__TensorProto *, next_tensor_message(f));
      break;
    case TD_ATTR_FUNC:
      LIST(func, Pb__NameAttrList *, next_function(f));
      break;
  }
#undef LIST
  /* windows and strides: ones where images have their batches and channels */
  if (def->kind == TD_ATTR_INT && n == 4 && chance(f, 75)) {
    for (int i = 0; i < 4; i++) l->i[i] = i == 0 || i == 3 ? 1 : 1 + below(f, 3);
    if (chance(f, 30)) l->i[1] = 1, l->i[3] = 1 + below(f, 3);
    if (chance(f, 40)) l->i[1] = l->i[2] = l->i[3] = 1;
  }
  return v;
}

static Pb__AttrValue *next_attr(fuzz *f, const td_attr_def *def) {
  Pb__AttrValue *v = td_arena_new(&f->arena, Pb__AttrValue);
  pb__attr_value__init(v);
  if (def->is_list) return next_list(f, def, v);
  switch (def->kind) {
    case TD_ATTR_STRING:
      v->value_case = PB__ATTR_VALUE__VALUE_S, v->s = next_string(f, def);
      break;
    case TD_ATTR_INT:
      v->value_case = PB__ATTR_VALUE__VALUE_I, v->i = next_int_attr(f, def);
      break;
    case TD_ATTR_FLOAT:
      v->value_case = PB__ATTR_VALUE__VALUE_F, v->f = (float)next_real(f);
      break;
    case TD_ATTR_BOOL:
      v->value_case = PB__ATTR_VALUE__VALUE_B, v->b = chance(f, 50);
      break;
    case TD_ATTR_TYPE:
      v->value_case = PB__ATTR_VALUE__VALUE_TYPE, v->type = next_type(f, def->allowed_types);
      break;
    case TD_ATTR_SHAPE:
      v->value_case = PB__ATTR_VALUE__VALUE_SHAPE, v->shape = next_shape_message(f);
      break;
    case TD_ATTR_TENSOR:
      v->value_case = PB__ATTR_VALUE__VALUE_TENSOR, v->tensor = next_tensor_message(f);
      break;
    case TD_ATTR_FUNC:
      v->value_case = PB__ATTR_VALUE__VALUE_FUNC, v->func = next_function(f);
      break;
  }
  return v;
}

static void make_node(fuzz *f) {
  td_node_def *n = &f->node;
  n->name = TD_STR("node");
  n->op = f->op->name;
  n->attrs = td_arena_array(&f->arena, td_attr, f->op->attr_count * 2 + 1); /* room for the defaults */
  for (size_t i = 0; i < f->op->attr_count; i++) {
    const td_attr_def *def = &f->op->attrs[i];
    if (def->default_value && chance(f, 40)) continue;
    n->attrs[n->attr_count++] = (td_attr){def->name, next_attr(f, def)};
  }
  td_node_add_defaults(n, f->op, &f->arena);
}

/* The type that a variable behind a handle should have: that of the node. */
static td_dtype variable_type(const td_node_def *n) {
  static const char *const names[] = {"dtype", "T", "Tparams"};
  for (size_t i = 0; i < TD_COUNT(names); i++) {
    const Pb__AttrValue *v = td_attr_find(n, names[i]);
    if (v && v->value_case == PB__ATTR_VALUE__VALUE_TYPE) return (td_dtype)v->type;
  }
  return TD_FLOAT;
}

/* ---- one run ---- */

typedef struct waiter {
  td_kernel_ctx ctx;
  pthread_mutex_t lock;
  pthread_cond_t cond;
  bool done;
  td_status status;
} waiter;

static void async_done(td_kernel_ctx *ctx, td_status status) {
  waiter *w = TD_CONTAINER_OF(ctx, waiter, ctx);
  pthread_mutex_lock(&w->lock);
  if (w->done) abort(); /* ended twice */
  w->done = true;
  w->status = status;
  pthread_cond_signal(&w->cond);
  pthread_mutex_unlock(&w->lock);
}

static bool wait_for(waiter *w, int milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += (milliseconds % 1000) * 1000000L;
  until.tv_sec += milliseconds / 1000 + until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&w->lock);
  while (!w->done && !pthread_cond_timedwait(&w->cond, &w->lock, &until)) continue;
  bool done = w->done;
  pthread_mutex_unlock(&w->lock);
  return done;
}

static td_status compute(td_kernel *k, waiter *w) {
  if (k->compute) return k->compute(&w->ctx);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->cond, NULL);
  w->ctx.done = async_done;
  k->compute_async(&w->ctx);
  if (!wait_for(w, 50)) {
    td_cancellation_cancel(w->ctx.step->cancellation);
    if (!wait_for(w, 10000)) abort(); /* waits though it was cancelled */
  }
  return w->status;
}

static void check_outputs(const td_kernel *k, const td_kernel_ctx *ctx) {
  for (int i = 0; i < k->output_count; i++) {
    const td_tensor *t = ctx->out[i].tensor;
    if (td_dtype_is_ref(k->output_types[i]) || !t) continue;
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->dims[d];
    if (t->dtype != k->output_types[i] || t->count != count) abort();
  }
}

static char input_hint(const fuzz *f, int input) {
  for (size_t i = 0; i < f->op->input_count; i++) {
    char name[64];
    int begin, end;
    snprintf(name, sizeof name, "%.*s", TD_STR_ARG(f->op->inputs[i].name));
    td_status s = td_node_input_range(&f->node, f->op, name, &begin, &end);
    if (s)
      td_status_free(s);
    else if (input >= begin && input < end)
      return shape_hint(f->op->inputs[i].name);
  }
  return 0;
}

static void run_kernel(fuzz *f, td_kernel *k) {
  td_value in[MOST_EDGES] = {0}, out[MOST_EDGES] = {0};
  td_step step = {.id = 1};
  waiter w = {.ctx = {.kernel = k, .state = k->state, .step = &step, .device = f->device, .in = in, .out = out}};
  td_dtype type = variable_type(&f->node);
  bool ready = true;
  for (int i = 0; i < k->input_count; i++) {
    td_dtype base = td_dtype_base(k->input_types[i]);
    if (!td_dtype_is_ref(k->input_types[i])) {
      in[i].tensor = next_tensor(f, base, type, input_hint(f, i));
      ready &= in[i].tensor != NULL;
    } else if (i && in[i - 1].ref && td_dtype_is_ref(k->input_types[i - 1]) && in[i - 1].ref->dtype == base &&
               chance(f, 10)) {
      in[i].ref = td_variable_retain(in[i - 1].ref); /* one variable twice */
    } else {
      in[i].ref =
          next_variable(f, &td_ref_variable_type, base, !(f->op->flags & TD_OP_ALLOWS_UNINITIALIZED) || chance(f, 70));
    }
  }
  step.cancellation = td_cancellation_create();
  step.step_resources = td_resource_mgr_create(TD_STR("__per_step_1"));
  if (ready) {
    td_status s = compute(k, &w);
    if (!s) check_outputs(k, &w.ctx);
    if (getenv("TD_FUZZ_VERBOSE")) fprintf(stderr, "compute: %s\n", s ? td_status_message(s) : "OK");
    td_status_free(s);
  }
  for (int i = 0; i < k->input_count; i++) {
    if (td_dtype_is_ref(k->input_types[i]))
      td_variable_release(in[i].ref);
    else
      td_tensor_release(in[i].tensor);
  }
  for (int i = 0; i < k->output_count; i++) {
    if (td_dtype_is_ref(k->output_types[i]))
      td_variable_release(out[i].ref);
    else
      td_tensor_release(out[i].tensor);
  }
  td_cancellation_release(step.cancellation);
  td_resource_mgr_release(step.step_resources);
}

/* ---- which op ---- */

static bool has_part(td_str op, const char *const *parts, size_t count) {
  char name[128];
  snprintf(name, sizeof name, "%.*s", (int)TD_MIN(op.size, sizeof name - 1), op.data);
  for (size_t i = 0; i < count; i++)
    if (strstr(name, parts[i])) return true;
  return false;
}

static bool wants_images(td_str op) {
  static const char *const parts[] = {"Conv", "Pool", "BatchNorm", "LRN", "ToSpace", "SpaceTo"};
  return has_part(op, parts, TD_COUNT(parts));
}

static void make_image_shape(fuzz *f) {
  f->base_rank = 4;
  f->base_dims[0] = below(f, 4);
  f->base_dims[1] = 1 + below(f, 9);
  f->base_dims[2] = 1 + below(f, 9);
  f->base_dims[3] = 1 + below(f, 5);
}

/* Ops that wait for another node by design or touch files. */
static bool is_skipped(td_str op) {
  static const char *const parts[] = {"Recv",    "Send",    "Save",  "File",    "Checkpoint",
                                      "Restore", "Dequeue", "Stage", "Barrier", "ReaderRead"};
  return has_part(op, parts, TD_COUNT(parts));
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static struct {
  char *names[2048];
  size_t count;
} ops;

/* TD_FUZZ_OPS: only ops whose names contain it. */
static void prepare(void) {
  if (ops.count) return;
  td_status s = td_ops_register();
  if (s) abort();
  const char *only = getenv("TD_FUZZ_OPS");
  td_str op;
  for (size_t i = 0; ops.count < TD_COUNT(ops.names) && td_registry_next(&i, &op);) {
    if (is_skipped(op)) continue;
    char *name = td_strndup(op.data, op.size);
    if (!only || strstr(name, only))
      ops.names[ops.count++] = name;
    else
      td_free(name);
  }
  if (!ops.count) abort();
  qsort(ops.names, ops.count, sizeof *ops.names, by_name);
  td_log_set_level(TD_LOG_ERROR);
  td_memory_set_limit(MOST_MEMORY);
}

/* "<op>;" (so that seeds stay with their op when others are added), or else two bytes that choose among all. */
static const td_op_def *choose_op(fuzz *f) {
  const uint8_t *end = f->size ? memchr(f->data, ';', TD_MIN(f->size, (size_t)64)) : NULL;
  td_str name = end ? td_str_n(f->data, (size_t)(end - f->data)) : TD_STR("");
  const td_op_def *op = end && !is_skipped(name) ? td_op_find(name) : NULL;
  if (op) {
    f->size -= name.size + 1;
    f->data = end + 1;
    return op;
  }
  unsigned choice = next_byte(f);
  choice = choice << 8 | next_byte(f);
  return td_op_find(td_str_of(ops.names[choice % ops.count]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz f = {.data = data, .size = size, .seed = 0xcbf29ce484222325ull ^ size};
  prepare();
  f.op = choose_op(&f);
  if (getenv("TD_FUZZ_VERBOSE")) fprintf(stderr, "%.*s\n", TD_STR_ARG(f.op->name));
  td_device_name name;
  td_device_name_parse(TD_STR("/job:test/replica:0/task:0/device:CPU:0"), &name);
  td_resource_mgr *resources = td_resource_mgr_create(TD_STR("test"));
  f.device = td_device_create(&name, 1, resources);
  td_resource_mgr_release(resources);
  f.base_rank = next_dims(&f, f.base_dims);
  if (wants_images(f.op->name) && chance(&f, 90)) make_image_shape(&f);
  make_node(&f);
  td_kernel *k = NULL;
  td_status s = td_node_validate(&f.node, f.op, false);
  if (!s)
    s = td_kernel_create(&(td_kernel_options){.node = &f.node, .device = f.device, .op = f.op, .session = TD_STR("s")},
                         &k);
  if (!s && k->input_count <= MOST_EDGES && k->output_count <= MOST_EDGES && (k->compute || k->compute_async))
    run_kernel(&f, k);
  if (getenv("TD_FUZZ_VERBOSE") && s) fprintf(stderr, "create: %s\n", td_status_message(s));
  td_status_free(s);
  td_kernel_release(k);
  td_device_release(f.device);
  td_arena_deinit(&f.arena);
  return 0;
}
