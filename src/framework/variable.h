/* Variables: a named tensor that steps read and update. One kind serves ref variables (the ref edge carries the
 * td_variable itself) and resource variables.
 *
 * Rules: `lock` guards the `value` pointer. A reader retains the value under the shared lock and lets go of the
 * lock (td_variable_read); so a buffer that a reader still holds must not be changed: a dense writer that finds the
 * buffer shared writes into a copy and swaps it in (td_variable_make_exclusive). Sparse writers of large tables do not
 * copy: on ref variables they write in place, without use_locking several at a time (the race that TensorFlow allows);
 * on resource variables the first sparse write sets copy_on_read, after which plain reads copy and gathers hold the
 * shared lock. What may be lent to other tasks (tensor/loan.h) is never written while others hold it, sparsely or not.
 */
#ifndef TD_FRAMEWORK_VARIABLE_H_
#define TD_FRAMEWORK_VARIABLE_H_

#include <pthread.h>

#include "framework/kernel.h"
#include "framework/resource.h"
#include "tensor/tensor.h"

struct td_variable {
  td_resource resource; /* its type tells ref and resource variables apart */
  pthread_rwlock_t lock;
  td_dtype dtype;    /* immutable */
  char *name;        /* immutable; for errors */
  int declared_rank; /* immutable; the shape a ref variable claims before its first value */
  int64_t *declared_dims;
  /* guarded by lock */
  td_tensor *value; /* NULL: not initialised */
  bool copy_on_read;
};

extern const td_resource_type td_ref_variable_type;      /* VariableV2 and its kind */
extern const td_resource_type td_resource_variable_type; /* VarHandleOp: "N10tensorflow3VarE" */

td_variable *td_variable_create(const td_resource_type *type, td_dtype dtype, td_str name);
/* Before the variable is shared: the shape that Assign compares with while there is no value (else a scalar's). */
void td_variable_declare_shape(td_variable *v, int rank, const int64_t *dims);
static inline td_variable *td_variable_retain(td_variable *v) { return td_resource_retain(v); }
static inline void td_variable_release(td_variable *v) { td_resource_release(v); }

/* A snapshot: one reference to the value, or NULL if it is not initialised. Copies if copy_on_read. */
td_status td_variable_read(td_variable *v, td_tensor **out) TD_MUST_USE;
/* With the lock held exclusively: whether a dense update may go to the value in place. False if a reader holds it, and
 * for one that should move to where it can be lent (tensor.h). */
bool td_variable_is_writable(const td_variable *v);
/* With the lock held exclusively: makes the value writable (copying it if it is not), for an update in
 * place. The value must be initialised. `keep`: whether the old elements matter (false: a fresh buffer will do). */
td_status td_variable_make_exclusive(td_variable *v, bool keep) TD_MUST_USE;
/* With the lock held exclusively: makes ready for sparse writes in place. The value becomes private (tensor.h), a copy
 * of it if others hold it; a resource variable goes to copy-on-read. Nothing to do, and a shared lock will do, for ref
 * variables whose value is not lendable. The value must be initialised. */
td_status td_variable_prepare_sparse(td_variable *v) TD_MUST_USE;
/* With the lock held exclusively: replaces the value by `value`, whose reference it takes. */
void td_variable_set(td_variable *v, td_tensor *value);
/* The value's shape, or the declared one; "[2,3]", td_free()d by the caller. With the lock held (either way). */
char *td_variable_shape_text(const td_variable *v);

#endif /* TD_FRAMEWORK_VARIABLE_H_ */
