/* Send and Recv: a program's ends of edges to other devices, tasks and the client. sendrecv_ops.cc. */
#include <stdatomic.h>

#include "base/mem.h"
#include "framework/rendezvous.h"
#include "ops/families.h"
#include "tensor/memory.h"

/* A large tensor is asked for by a message of its own, since others need not wait for it, unless it is lent: whether a
 * peer lends is found out by asking now and then. */
enum { ALONE = 64 };

typedef struct port {
  td_rendezvous_key key;
  atomic_uint alone; /* receives: so many will ask alone */
} port;

static td_status port_create(td_kernel_builder *b, void *state) {
  port *p = state;
  td_str src, dst, edge;
  int64_t incarnation;
  TD_TRY(td_attr_str(b->node, "send_device", &src));
  TD_TRY(td_attr_str(b->node, "recv_device", &dst));
  TD_TRY(td_attr_str(b->node, "tensor_name", &edge));
  TD_TRY(td_attr_int(b->node, "send_device_incarnation", &incarnation));
  td_rendezvous_key_make(b->arena, src, (uint64_t)incarnation, dst, edge, &p->key);
  return TD_STATUS_OK;
}

static td_status no_rendezvous(const td_kernel_ctx *ctx) {
  return td_internal("%.*s runs in a step without a rendezvous", TD_STR_ARG(ctx->kernel->op));
}

static td_status send_compute(td_kernel_ctx *ctx) {
  port *p = ctx->state;
  if (!ctx->step->rendezvous) return no_rendezvous(ctx);
  td_tensor *t = NULL;
  if (!ctx->is_dead && ctx->is_ref) { /* a receiver that is ordered after an update elsewhere sees the update */
    td_variable *v = ctx->in[0].ref;
    ctx->in[0].ref = NULL;
    return td_rendezvous_send_variable(ctx->step->rendezvous, &p->key, ctx->frame, v);
  }
  if (!ctx->is_dead) {
    t = ctx->in[0].tensor;
    ctx->in[0].tensor = NULL;
  }
  ctx->out_dead = ctx->is_dead; /* for control edges */
  return td_rendezvous_send(ctx->step->rendezvous, &p->key, ctx->frame, t, ctx->is_dead);
}

typedef struct receive {
  td_recv request;
  td_kernel_ctx *ctx;
} receive;

static bool asks_alone(port *p) {
  unsigned left = atomic_load_explicit(&p->alone, memory_order_relaxed);
  if (left) atomic_store_explicit(&p->alone, left - 1, memory_order_relaxed); /* of two at once one may count */
  return left;
}

/* What came says how to ask next. */
static void learn(port *p, const td_tensor *t, bool came_alone) {
  bool shares = t->size <= TD_RECV_SHARED_MAX || td_tensor_is_foreign(t);
  if (shares == came_alone) atomic_store_explicit(&p->alone, shares ? 0 : ALONE, memory_order_relaxed);
}

static void received(td_recv *request, td_status status, td_tensor *t, bool is_dead) {
  receive *r = TD_CONTAINER_OF(request, receive, request);
  td_kernel_ctx *ctx = r->ctx;
  if (t) learn(ctx->state, t, r->request.is_large);
  td_memory_object_free(r, sizeof *r);
  if (is_dead) {
    td_tensor_release(t);
    t = NULL;
    ctx->out_dead = true;
  }
  ctx->out[0].tensor = t;
  td_kernel_done(ctx, status);
}

static void recv_compute(td_kernel_ctx *ctx) {
  port *p = ctx->state;
  if (!ctx->step->rendezvous) {
    td_kernel_done(ctx, no_rendezvous(ctx));
    return;
  }
  receive *r = td_memory_object_alloc(sizeof *r);
  *r = (receive){.request = {.done = received, .is_large = asks_alone(p)}, .ctx = ctx};
  td_rendezvous_recv(ctx->step->rendezvous, &p->key, ctx->frame, &r->request);
}

#define ATTRS                                                                                     \
  "tensor_name: string; send_device: string; send_device_incarnation: int; recv_device: string; " \
  "client_terminated: bool = false"

static const td_op_spec ops[] = {
    {.name = "_HostRecv",
     .outputs = "tensor: tensor_type",
     .attrs = "tensor_type: type; " ATTRS,
     .flags = TD_OP_STATEFUL},
    {.name = "_HostSend", .inputs = "tensor: T", .attrs = "T: type; " ATTRS, .flags = TD_OP_STATEFUL},
    {.name = "_Recv", .outputs = "tensor: tensor_type", .attrs = "tensor_type: type; " ATTRS, .flags = TD_OP_STATEFUL},
    {.name = "_Send", .inputs = "tensor: T", .attrs = "T: type; " ATTRS, .flags = TD_OP_STATEFUL},
};

#define PORT(name)                                                                                                    \
  .op = name, .cost = TD_COST_CHEAP, .flags = TD_KERNEL_DEAD_AWARE | TD_KERNEL_TAKES_REF, .state_size = sizeof(port), \
  .create = port_create

static const td_kernel_def kernels[] = {
    {PORT("_HostRecv"), .compute_async = recv_compute},
    {PORT("_HostSend"), .compute = send_compute},
    {PORT("_Recv"), .compute_async = recv_compute},
    {PORT("_Send"), .compute = send_compute},
};

TD_FAMILY(sendrecv, ops, kernels);
