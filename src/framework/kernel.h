/* Kernels: what runs a node.
 *
 * A family registers td_kernel_defs. At registration of a graph each node gets a td_kernel: the definition of the
 * highest priority whose type constraints fit, with its state created once from the node's attributes. At a step
 * the executor calls compute() with a td_kernel_ctx; a kernel never blocks (what must wait is compute_async).
 */
#ifndef TD_FRAMEWORK_KERNEL_H_
#define TD_FRAMEWORK_KERNEL_H_

#include <assert.h>

#include "framework/op.h"
#include "framework/step.h"
#include "tensor/tensor.h"

typedef struct td_kernel td_kernel;
typedef struct td_kernel_ctx td_kernel_ctx;
typedef struct td_kernel_builder td_kernel_builder;
typedef struct td_variable td_variable; /* framework/variable.h: what a ref edge carries */

/* What a compute costs, known before the first run, decides where it runs. */
typedef enum td_cost {
  TD_COST_BY_SIZE,   /* by the bytes of its inputs: inline below 32 KiB, on the pool above (element-wise work) */
  TD_COST_CHEAP,     /* always inline (moves references, tiny work, whatever the size) */
  TD_COST_EXPENSIVE, /* inline below 2 KiB of inputs, on the pool above (work grows faster than bytes) */
} td_cost;

enum {
  TD_KERNEL_DEAD_AWARE = 1, /* runs though its inputs are dead (Send, Recv); sees ctx->is_dead */
  TD_KERNEL_TAKES_REF = 16, /* a value input fed by a ref edge may arrive as the (initialised) variable: ctx->is_ref */
  TD_KERNEL_KEPT = 32,      /* kept by the session though it names functions, whose runtime it retains */
  /* What the executor may do itself instead of calling compute(): */
  TD_KERNEL_FORWARDS = 2, /* all it does is hand input 0 on as output 0 (one input, one output) */
  TD_KERNEL_NOTHING = 4,  /* no outputs, no data inputs, nothing to do */
  TD_KERNEL_CONSTANT = 8, /* its state begins with the td_tensor * that is always its only output */
};

typedef td_status (*td_compute_fn)(td_kernel_ctx *ctx);
typedef void (*td_compute_async_fn)(td_kernel_ctx *ctx);

typedef struct td_type_constraint {
  const char *attr; /* a type attribute (for a list(type) attribute: each entry) */
  td_dtype_set types;
} td_type_constraint;

/* One value on an edge. Which member is meant is known from the edge's type. */
typedef union td_value {
  td_tensor *tensor;
  td_variable *ref; /* the edge of a ref type */
} td_value;

typedef struct td_kernel_def {
  const char *op;
  const char *device_type;     /* NULL: "CPU" */
  td_type_constraint types[4]; /* unused entries zero: any type */
  int priority;                /* the highest that fits wins; two equal ones for one case are an error */
  td_cost cost;
  /* Optional, where bytes say too little: about how long compute() takes on one core with these inputs, which it has
   * not checked yet, in nanoseconds. Outranks `cost` where the inputs are known (in the executor); what is decided
   * before any step (the order of receives, graph/scheduler.h) goes by `cost`: give both. */
  double (*work_ns)(const td_kernel *k, const td_value *in);
  uint32_t flags;
  size_t state_size; /* bytes of state, zeroed before create() */
  /* Optional: reads attributes, may choose compute by type. What it acquired is released by destroy(), which also
   * runs after a failed create(). */
  td_status (*create)(td_kernel_builder *b, void *state);
  void (*destroy)(void *state);
  /* Optional, of ops without state: input `in` will be this tensor in every run. Before the first one. */
  void (*learn_constant)(void *state, int in, const td_tensor *t);
  td_compute_fn compute;             /* one of the two, or set by create() */
  td_compute_async_fn compute_async; /* must lead to exactly one td_kernel_done() */
} td_kernel_def;

/* What create() sees. */
struct td_kernel_builder {
  const td_node_def *node;
  const td_op_def *op;
  const int *input_types, *output_types; /* ref types for Ref arguments */
  int input_count, output_count;
  td_device *device;
  td_function_runtime *functions; /* NULL where there is none */
  td_arena *arena;                /* for what the state refers to: it lives as long as the kernel */
  td_str session;                 /* handle of the session; for names private to a kernel */
  td_compute_fn compute;          /* as in the definition; create() may replace them */
  td_compute_async_fn compute_async;
  td_cost cost;
};

/* A kernel bound to a node. Immutable after creation but for what its state guards itself: one kernel of a
 * stateful op serves all graphs of a session, and concurrent steps share it. Reference-counted. */
struct td_kernel {
  td_str name, op; /* the node's */
  td_arena arena;  /* of what lives as long as the kernel */
  /* What every run reads is a cache line of its own, and behind it come types and state: a step runs through thousands
   * of kernels, and what it takes from memory for each adds up. */
  td_compute_fn compute;
  td_compute_async_fn compute_async;
  void *state;
  const td_kernel_def *def;
  const int *output_types, *input_types;
  int input_count, output_count;
  uint8_t cost; /* td_cost */
  bool is_stateful;
  _Atomic uint32_t refs;
};

/* It will run soon. */
static inline void td_kernel_prefetch(const td_kernel *k) {
  __builtin_prefetch(&k->compute);
  __builtin_prefetch(k + 1);
}

/* One run of a kernel. The executor owns it; an asynchronous kernel may use it until td_kernel_done(). */
struct td_kernel_ctx {
  td_kernel *kernel;
  void *state; /* the kernel's */
  td_step *step;
  td_device *device;
  td_value *in;           /* one reference each, the kernel may take it (set NULL) */
  td_value *out;          /* zeroed; what is set here passes to the executor */
  td_frame_id frame;      /* frame and iteration this run belongs to */
  bool is_dead;           /* dead-aware kernels: some input is dead */
  bool is_ref;            /* TD_KERNEL_TAKES_REF: inputs fed by ref edges are variables */
  bool out_dead;          /* dead-aware kernels may set it: all outputs are dead */
  uint32_t out_live_mask; /* used if nonzero: Switch and its kind: bit i set = output i is live, others dead */
  void (*done)(td_kernel_ctx *ctx, td_status status); /* the executor's */
};

/* Ends an asynchronous run; `ctx` is gone for the kernel. Any thread, no lock held. */
static inline void td_kernel_done(td_kernel_ctx *ctx, td_status status) { ctx->done(ctx, status); }

/* "Op \"node\"", for a wait's description. */
static inline void td_ctx_describe(const td_kernel_ctx *ctx, td_strbuf *out) {
  td_strbuf_printf(out, "%.*s \"%.*s\"", TD_STR_ARG(ctx->kernel->op), TD_STR_ARG(ctx->kernel->name));
}

/* ---- registry ---- */

/* One file under src/ops/. */
typedef struct td_op_family {
  const char *name;
  const td_op_spec *ops;
  size_t op_count;
  const td_kernel_def *kernels;
  size_t kernel_count;
} td_op_family;

/* Registers a family in the process-wide registry (start-up only; not thread-safe against itself). Refuses
 * incomplete entries and ops registered twice: ALREADY_EXISTS, INTERNAL. */
td_status td_family_register(const td_op_family *family) TD_MUST_USE;
/* The kernel definition that would run `n` on a device of that type; NULL when none fits. */
const td_kernel_def *td_kernel_find(const td_node_def *n, td_str device_type);
bool td_kernel_any_for_op(td_str op); /* some kernel of this op exists, whatever the types */
/* Finds two kernels of equal priority that fit one case; for a test over everything registered. */
td_status td_registry_check(void) TD_MUST_USE;
/* for (size_t i = 0; td_registry_next(&i, &op);) — the names of all registered ops, in any order. */
bool td_registry_next(size_t *i, td_str *op);

/* Binds a kernel to a node: NOT_FOUND ("No OpKernel was registered …") or create()'s error. One reference. */
typedef struct td_kernel_options {
  const td_node_def *node;
  td_device *device;
  td_function_runtime *functions;
  td_str session;
  const td_op_def *op; /* NULL: td_op_find(node->op) */
} td_kernel_options;
td_status td_kernel_create(const td_kernel_options *options, td_kernel **out) TD_MUST_USE;
td_kernel *td_kernel_retain(td_kernel *k);
void td_kernel_release(td_kernel *k);

/* ---- inputs and outputs ---- */

static inline td_tensor *td_in(td_kernel_ctx *ctx, int i) { return ctx->in[i].tensor; }    /* borrowed */
static inline td_variable *td_in_ref(td_kernel_ctx *ctx, int i) { return ctx->in[i].ref; } /* borrowed */
static inline td_dtype td_in_type(const td_kernel_ctx *ctx, int i) {
  return td_dtype_base(ctx->kernel->input_types[i]);
}
static inline td_dtype td_out_type(const td_kernel_ctx *ctx, int i) {
  return td_dtype_base(ctx->kernel->output_types[i]);
}

/* Sets an output; takes the reference. */
static inline void td_out_set(td_kernel_ctx *ctx, int i, td_tensor *t) {
  assert(!ctx->out[i].tensor);
  ctx->out[i].tensor = t;
}
static inline void td_out_set_ref(td_kernel_ctx *ctx, int i, td_variable *v) { ctx->out[i].ref = v; } /* takes it */
/* Hands input `in` on as output `out` (moves the reference). */
static inline void td_out_forward(td_kernel_ctx *ctx, int in, int out) {
  ctx->out[out].tensor = ctx->in[in].tensor;
  ctx->in[in].tensor = NULL;
}
/* Allocates output `i` of its declared type; *out is borrowed (the context holds it), writable. */
td_status td_out_alloc(td_kernel_ctx *ctx, int i, const td_shape *shape, td_tensor **out) TD_MUST_USE;
td_status td_out_alloc_dims(td_kernel_ctx *ctx, int i, int rank, const int64_t *dims, td_tensor **out) TD_MUST_USE;
td_status td_out_alloc_like(td_kernel_ctx *ctx, int i, const td_tensor *like,
                            td_tensor **out) TD_MUST_USE; /* its shape */
/* The same, but in place of input `in` if nobody else can see that input's elements and dtype size and element
 * count agree; then *out shares its data with td_in(ctx, in), which stays readable as the old values. */
td_status td_out_reuse(td_kernel_ctx *ctx, int in, int i, const td_shape *shape, td_tensor **out) TD_MUST_USE;
td_status td_out_reuse_like(td_kernel_ctx *ctx, int in, int i, td_tensor **out) TD_MUST_USE; /* the input's own shape */

/* Threads of this step's pool; 1 if it has none. */
int td_ctx_threads(const td_kernel_ctx *ctx);
/* Runs fn over [0, n) on this step's pool (base/pool.h); `unit_ns`: cost of one unit. */
void td_ctx_parallel_for(td_kernel_ctx *ctx, int64_t n, double unit_ns,
                         void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);

/* ---- checks every family needs ---- */
td_status td_check_scalar(const td_tensor *t,
                          const char *what) TD_MUST_USE; /* "<what> must be a scalar, got shape [..]" */
td_status td_check_vector(const td_tensor *t, const char *what) TD_MUST_USE;
/* Input and output types are these (ref types included): INVALID_ARGUMENT "Signature mismatch, have: <types>-><types>
 * expected: <types>-><types>". */
td_status td_check_signature(const td_kernel_ctx *ctx, const int *in, int in_count, const int *out,
                             int out_count) TD_MUST_USE;
/* A shape from a 1-D int32/int64 tensor: dims >= 0 (or -1 where allowed), product checked. */
td_status td_shape_from_tensor(const td_tensor *t, bool allow_unknown, td_shape *out) TD_MUST_USE;

#endif /* TD_FRAMEWORK_KERNEL_H_ */
