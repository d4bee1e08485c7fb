/* The queues behind queue ops: tuples of tensors, in order, at random, by priority, or padded to one shape.
 *
 * Nothing here blocks a thread. What cannot be done at once becomes an attempt that waits in the queue, first come,
 * first served, enqueues and dequeues apart, until the queue allows it, the queue is closed or the step is cancelled;
 * then the kernel's run ends, on whichever thread made that possible. Thread-safe.
 */
#ifndef TD_OPS_QUEUE_DATA_H_
#define TD_OPS_QUEUE_DATA_H_

#include "framework/kernel.h"
#include "framework/resource.h"
#include "ops/partial_shape.h"

typedef enum td_queue_kind { TD_QUEUE_FIFO, TD_QUEUE_SHUFFLE, TD_QUEUE_PADDING, TD_QUEUE_PRIORITY } td_queue_kind;

typedef struct td_queue td_queue;
extern const td_resource_type td_queue_type;

/* What a queue is made of; also what a second node asks for that shares it. */
typedef struct td_queue_spec {
  td_queue_kind kind;
  int64_t capacity;         /* INT32_MAX: unbounded */
  td_dtype *types;          /* of the components; own */
  td_partial_shape *shapes; /* own; shape_count of them: as many as types, or none */
  int type_count, shape_count;
  int64_t min_after_dequeue, seed, seed2; /* shuffling */
} td_queue_spec;
void td_queue_spec_deinit(td_queue_spec *s);
/* INVALID_ARGUMENT for one that makes no sense, or unless `own` is what `want` asks for. */
td_status td_queue_spec_check(const td_queue_spec *s, td_str name) TD_MUST_USE;
td_status td_queue_spec_matches(const td_queue_spec *own, const td_queue_spec *want, const char *name, td_str node,
                                td_str op) TD_MUST_USE;
/* The part of it about types and shapes, for a `noun` of that name. */
td_status td_queue_components_match(const td_queue_spec *own, const td_queue_spec *want, const char *noun,
                                    const char *name) TD_MUST_USE;
char *td_queue_types_text(const td_queue_spec *s); /* "int64, float"; td_free()d by the caller */
const char *td_queue_kind_name(td_queue_kind kind);

/* Takes the contents of `spec`. INVALID_ARGUMENT for one that makes no sense. */
td_status td_queue_create(td_queue_spec *spec, td_str name, td_queue **out) TD_MUST_USE;
/* INVALID_ARGUMENT unless the queue is what `spec` asks for. */
td_status td_queue_matches(const td_queue *q, const td_queue_spec *spec, td_str node, td_str op) TD_MUST_USE;

/* The operations end the run `ctx`, at once or later. Components are inputs from `first` on, outputs from 0 on. */
void td_queue_enqueue(td_queue *q, td_kernel_ctx *ctx, int first);
void td_queue_enqueue_many(td_queue *q, td_kernel_ctx *ctx, int first);
void td_queue_dequeue(td_queue *q, td_kernel_ctx *ctx);
void td_queue_dequeue_many(td_queue *q, td_kernel_ctx *ctx, int32_t n, bool allow_small);
void td_queue_close(td_queue *q, td_kernel_ctx *ctx, bool cancel_pending);
/* Types of the components; as long as the queue. */
const td_dtype *td_queue_types(const td_queue *q, int *count);
/* Outside of any run, for who keeps a queue inside another structure. Put: an element of the queue's types and shapes
 * (the caller's business), taking one reference to each part; neither capacity nor closing stops it. Shut: closes, and
 * cancels the enqueues that wait. */
void td_queue_put(td_queue *q, td_tensor **parts);
void td_queue_shut(td_queue *q);
int64_t td_queue_size(td_queue *q);
bool td_queue_is_closed(td_queue *q);

#endif /* TD_OPS_QUEUE_DATA_H_ */
