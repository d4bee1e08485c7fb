/* Datasets: immutable values in variant tensors. A dataset names its inputs, so a program's datasets form a DAG; what
 * runs is a tree of iterators made from it (iterator.h).
 *
 * A kind of dataset is a struct that begins with td_dataset, a table of functions, and an op whose kernel makes it.
 * Reference-counted as every variant; thread-safe because immutable. Datasets cannot travel between devices' tasks.
 */
#ifndef TD_OPS_DATA_DATASET_H_
#define TD_OPS_DATA_DATASET_H_

#include "framework/kernel.h"
#include "ops/data/spec.h"

typedef struct td_dataset td_dataset;
typedef struct td_iterator td_iterator;
typedef struct td_archive td_archive; /* ops/data/archive.h */

enum {
  TD_DATASET_MAX_DEPTH = 1000, /* of a DAG, and of a tree of iterators: making and freeing them recurses */
  TD_CARDINALITY_INFINITE = -1,
  TD_CARDINALITY_UNKNOWN = -2,
};

/* What an iterator says when it is asked to go on. */
typedef enum td_next {
  TD_NEXT_READY, /* its result is set: an element, the end, or an error */
  TD_NEXT_PULL,  /* it needs the next element of the iterator in it->pulls, then it goes on */
  TD_NEXT_WAIT,  /* it waits: td_driver_wake() makes it go on */
  TD_NEXT_HOP,   /* what comes is costly: it goes on at once on a thread of the pool */
} td_next;

typedef struct td_dataset_ops {
  const char *name;     /* "Map": as TensorFlow's names begin */
  size_t iterator_size; /* of the struct that begins with td_iterator; zeroed before start() */
  /* Prepares an iterator: makes those of its inputs. What it made is released by stop(), also after a failure. NULL:
   * nothing to do. */
  td_status (*start)(td_iterator *it);
  /* Goes on towards the next element: first call of a request, a pulled result is there, or it was woken. Never
   * blocks. After the end or an error it may be called again. */
  td_next (*advance)(td_iterator *it);
  void (*stop)(td_iterator *it); /* NULL: nothing to do */
  /* Writes the state of an iterator that rests, or replaces that of a new one (archive.h). NULL: it cannot be saved. */
  td_status (*archive)(td_iterator *it, td_archive *a);
  void (*destroy)(td_dataset *d);              /* releases what the kind added; NULL: nothing to do */
  int64_t (*cardinality)(const td_dataset *d); /* or a TD_CARDINALITY_; NULL: unknown */
} td_dataset_ops;

/* The node of a kernel that makes datasets: its attributes, as entries of a NodeDef. Reference-counted. */
typedef struct td_data_node {
  _Atomic int refs;
  td_strbuf attrs;
} td_data_node;

/* How a dataset was made, for graphs of datasets (dataset_graph.h). */
typedef struct td_data_origin {
  char *op;
  td_data_node *node;                  /* retained; NULL: the defaults */
  struct td_function_runtime *runtime; /* of its functions, retained; NULL: it has none */
  td_tensor **inputs;                  /* retained */
  int input_count;
} td_data_origin;

struct td_dataset {
  td_variant variant; /* first */
  const td_dataset_ops *ops;
  td_data_spec spec;
  td_dataset **inputs; /* retained */
  int input_count, depth;
  td_data_origin *origin; /* own; NULL: no op made it. Set before anybody else sees the dataset */
};

/* ---- making datasets ---- */

/* What kernels that make datasets keep. */
typedef struct td_dataset_kernel {
  td_data_spec spec;
  struct td_data_function *functions; /* those the op names */
  int function_count;
  td_data_node *node;
} td_dataset_kernel;

/* Reads `types` (NULL: the op has no attributes of elements) and "output_shapes". For create(); the state begins with a
 * td_dataset_kernel, td_dataset_kernel_destroy() is its destroy(). */
td_status td_dataset_kernel_init(td_kernel_builder *b, td_dataset_kernel *k, const char *types) TD_MUST_USE;
td_status td_dataset_kernel_create(td_kernel_builder *b, void *state) TD_MUST_USE; /* types: "output_types" */
void td_dataset_kernel_destroy(void *state);

/* Attributes that nearly all dataset ops have. */
#define TD_DATASET_TYPES "output_types: list(type) >= 1; output_shapes: list(shape) >= 1"
#define TD_DATASET_META  "; metadata: string = ''"
/* A kernel that makes a dataset and needs no more than a td_dataset_kernel. */
#define TD_DATASET_KERNEL(name, create_fn, compute_fn)                                               \
  {                                                                                                  \
    .op = name, .cost = TD_COST_CHEAP, .state_size = sizeof(td_dataset_kernel), .create = create_fn, \
    .destroy = td_dataset_kernel_destroy, .compute = compute_fn                                      \
  }

/* A new dataset of `size` bytes, zeroed but for its head, with the kernel's element spec. `inputs` are retained. One
 * reference. INVALID_ARGUMENT when the DAG becomes too deep. */
td_status td_dataset_create(const td_dataset_ops *ops, size_t size, const td_data_spec *spec, td_dataset *const *inputs,
                            int input_count, td_dataset **out) TD_MUST_USE;
static inline td_dataset *td_dataset_retain(td_dataset *d) { return (td_dataset *)td_variant_retain(&d->variant); }
static inline void td_dataset_release(td_dataset *d) {
  if (d) td_variant_release(&d->variant);
}
/* The dataset in a scalar variant tensor, borrowed. INVALID_ARGUMENT. */
td_status td_dataset_of(const td_tensor *t, td_dataset **out) TD_MUST_USE;
static inline td_status td_in_dataset(td_kernel_ctx *ctx, int i, td_dataset **out) {
  return td_dataset_of(td_in(ctx, i), out);
}
/* A scalar variant tensor with `d`, whose reference it takes, also on failure. */
td_status td_dataset_tensor(td_dataset *d, td_tensor **out) TD_MUST_USE;
/* Sets output 0; takes the reference, or hands on the error `s`. */
td_status td_out_dataset(td_kernel_ctx *ctx, td_status s, td_dataset *d) TD_MUST_USE;
/* A scalar argument; INVALID_ARGUMENT "<name> must be a scalar". */
td_status td_in_int(td_kernel_ctx *ctx, int i, const char *name, int64_t *out) TD_MUST_USE; /* int32 or int64 */
td_status td_in_bool(td_kernel_ctx *ctx, int i, const char *name, bool *out) TD_MUST_USE;
td_status td_in_text(td_kernel_ctx *ctx, int i, const char *name, td_str *out) TD_MUST_USE; /* borrowed */

static inline int64_t td_dataset_cardinality(const td_dataset *d) {
  return d->ops->cardinality ? d->ops->cardinality(d) : TD_CARDINALITY_UNKNOWN;
}
int64_t td_dataset_input_cardinality(const td_dataset *d); /* that of its first input, for .cardinality */

/* ---- elements ---- */

typedef struct td_element {
  int count;
  td_tensor *values[];
} td_element;

td_element *td_element_create(int count); /* NULLs */
td_element *td_element_copy(const td_element *e);
void td_element_free(td_element *e); /* NULL is fine */
/* An element of given values; takes the references, not the array. */
td_element *td_element_of(int count, td_tensor *const *values);
/* Sets a kernel's outputs to the components; takes the element. INTERNAL "The <what> gives …" for another number. */
td_status td_out_element(td_kernel_ctx *ctx, td_element *e, const char *what) TD_MUST_USE;

#endif /* TD_OPS_DATA_DATASET_H_ */
