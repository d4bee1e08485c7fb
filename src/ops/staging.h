/* What the staging families (stage.c, map_stage.c) share: where a kernel's staging area is found, its bounds, and
 * the values that are put in together. */
#ifndef TD_OPS_STAGING_H_
#define TD_OPS_STAGING_H_

#include "framework/kernel.h"
#include "ops/waiting.h"

#define TD_STAGING_CANCELLED "Waiting for a staging area was cancelled."

/* The state of every kernel of these families; also what a new area is made from. */
typedef struct td_staging_state {
  char *container, *name;          /* own copies */
  uint64_t capacity, memory_limit; /* 0: none */
  int dtype_count;                 /* of the attribute dtypes */
} td_staging_state;

td_status td_staging_create(td_kernel_builder *b, void *state) TD_MUST_USE;
void td_staging_destroy(void *state);

/* Tensors staged together; those already taken are NULL. */
typedef struct td_staged {
  int64_t key; /* map_stage.c's */
  int count;
  td_tensor *tensors[];
} td_staged;

td_staged *td_staged_create(int count); /* all NULL */
void td_staged_free(td_staged *s);      /* NULL is fine */
uint64_t td_staged_tensor_bytes(const td_tensor *t);

/* RESOURCE_EXHAUSTED when `bytes` alone are more than the limit. */
td_status td_staging_check_limit(uint64_t bytes, uint64_t memory_limit) TD_MUST_USE;

/* Sets output 0, an int32 scalar. */
td_status td_staging_out_size(td_kernel_ctx *ctx, uint64_t size) TD_MUST_USE;
/* Sets output `i` to `t`, whose reference it takes; INVALID_ARGUMENT when the types differ. */
td_status td_staging_out(td_kernel_ctx *ctx, int i, td_tensor *t) TD_MUST_USE;

#endif /* TD_OPS_STAGING_H_ */
