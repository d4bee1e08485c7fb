/* The variables that one kernel run updates together: found, locked in a fixed order, made writable, let go. */
#ifndef TD_OPS_UPDATE_SET_H_
#define TD_OPS_UPDATE_SET_H_

#include "framework/kernel.h"
#include "framework/variable.h"
#include "ops/rows.h"

enum { TD_UPDATE_MAX = 6 };

/* A zeroed set is empty. */
typedef struct td_update_set {
  int count, unique;
  bool is_shared;
  td_variable *vars[TD_UPDATE_MAX];  /* by argument, retained */
  td_variable *order[TD_UPDATE_MAX]; /* each once, by address: the order of locking */
  td_tensor *old[TD_UPDATE_MAX];     /* by `order`, after td_update_prepare_dense(): where elements come from */
} td_update_set;

/* Locks the variables behind the first `count` inputs (ref edges or resource handles) exclusively and checks that
 * each is initialised and of `dtype`: NOT_FOUND, FAILED_PRECONDITION, INVALID_ARGUMENT. td_update_end() afterwards,
 * whatever this returned. */
td_status td_update_begin(td_kernel_ctx *ctx, int count, td_dtype dtype, td_update_set *s) TD_MUST_USE;
/* The same with shared locks: values stay where they are, and others may write their elements meanwhile, as sparse
 * updates of ref variables without use_locking may. Only for td_racy_ functions. */
td_status td_update_begin_shared(td_kernel_ctx *ctx, int count, td_dtype dtype, td_update_set *s) TD_MUST_USE;
/* Makes every value writable in place: no reader holds it, or, for sparse updates, readers do not mind. Call it
 * after all checks, so that a refused update changes nothing. */
td_status td_update_prepare(td_update_set *s, bool sparse) TD_MUST_USE;
/* Whether `t` shares memory with a value of the set: a snapshot of the variable that serves as its own update. */
bool td_update_overlaps(const td_update_set *s, const td_tensor *t);
/* Whether a value of the set may be lent, as it is, to another process. */
bool td_update_is_lendable(const td_update_set *s);
/* For dense updates that go through all elements once: where a reader holds a value, the variable gets a fresh buffer
 * without the elements, and the update reads them from td_update_old(), so that memory is read only once. */
td_status td_update_prepare_dense(td_update_set *s) TD_MUST_USE;
/* After td_update_prepare_dense(): what argument `i` was, which is its value where that is updated in place. */
const td_tensor *td_update_old(const td_update_set *s, int i);
/* The whole of a dense update of the set's only variable by `update`, of the same shape. */
td_status td_update_dense(td_kernel_ctx *ctx, td_update_set *s, td_rows_fn *rows, const td_tensor *update) TD_MUST_USE;
void td_update_end(td_update_set *s);
/* If input 0 is a ref edge, hands it on as output 0. */
void td_update_forward_ref(td_kernel_ctx *ctx);

static inline td_tensor *td_update_value(const td_update_set *s, int i) { return s->vars[i]->value; }

/* The variable behind input `i`, one reference: the ref edge's or the handle's. NOT_FOUND when there is none. */
td_status td_update_variable(td_kernel_ctx *ctx, int i, td_variable **out) TD_MUST_USE;
/* FAILED_PRECONDITION "Error while reading resource variable <n> from Container: <c>. …" for a handle whose variable
 * has no value (why NULL) or does not exist (`why` is consumed). */
td_status td_variable_not_readable(const td_tensor *handle, td_device *device, td_status why) TD_MUST_USE;

#endif /* TD_OPS_UPDATE_SET_H_ */
