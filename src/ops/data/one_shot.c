/* OneShotIterator: an iterator that makes its own dataset, once, by a function. */
#include "base/mem.h"
#include "ops/data/iterator_resource.h"
#include "ops/families.h"

typedef struct waiting {
  td_kernel_ctx *ctx;
  struct waiting *next;
} waiting;

typedef struct one_shot {
  td_iterator_place place;      /* its lock guards the rest */
  td_function_runtime *runtime; /* retained: the kernel lives on when the graph that it came with has gone */
  td_function_handle factory;
  enum { NEW, RUNNING, READY, FAILED } state;
  td_status error;  /* what went wrong stays so */
  waiting *waiting; /* runs that came while it was being made */
} one_shot;

static td_status create(td_kernel_builder *b, void *state) {
  one_shot *o = state;
  const Pb__NameAttrList *function;
  TD_TRY(td_iterator_place_init(b, &o->place));
  if (!b->functions) return td_internal("No function library is provided.");
  o->runtime = b->functions;
  o->runtime->ops->retain(o->runtime);
  TD_TRY(td_attr_func(b->node, "dataset_factory", &function));
  return o->runtime->ops->instantiate(o->runtime, function, b->device, &o->factory);
}

static void destroy(void *state) {
  one_shot *o = state;
  td_status_free(o->error);
  if (o->runtime) o->runtime->ops->release(o->runtime);
  td_iterator_place_deinit(&o->place);
}

typedef struct making {
  td_function_call call;
  td_kernel_ctx *ctx;
} making;

static void end_run(td_kernel_ctx *ctx, one_shot *o, td_status error) {
  td_kernel_done(ctx, error ? td_status_retain(error) : td_iterator_place_out(&o->place, ctx));
}

static td_status use_dataset(one_shot *o, td_kernel_ctx *ctx, td_tensor **results, int count) {
  td_dataset *d;
  if (count != 1)
    return td_invalid_argument("The `dataset_factory` function must return exactly one component, not %d", count);
  TD_TRY(td_dataset_of(results[0], &d));
  return td_iterator_resource_set(o->place.resource, d, ctx->step->pool);
}

static void made(td_function_call *fc, td_status s, td_tensor **results, int count) {
  making *m = TD_CONTAINER_OF(fc, making, call);
  td_kernel_ctx *ctx = m->ctx;
  one_shot *o = ctx->state;
  td_free(m);
  if (!s) s = use_dataset(o, ctx, results, count);
  for (int i = 0; i < count; i++) td_tensor_release(results[i]);
  bool again = td_status_code(s) == TD_CANCELLED; /* that was its step's doing */
  pthread_mutex_lock(&o->place.lock);
  o->state = !s ? READY : again ? NEW : FAILED;
  if (!again) o->error = s ? td_status_retain(s) : NULL;
  waiting *w = o->waiting;
  o->waiting = NULL;
  pthread_mutex_unlock(&o->place.lock);
  for (waiting *next; w; w = next) {
    next = w->next;
    end_run(w->ctx, o, s);
    td_free(w);
  }
  end_run(ctx, o, s);
  td_status_free(s);
}

static void compute(td_kernel_ctx *ctx) {
  one_shot *o = ctx->state;
  td_status s = td_iterator_place_open(&o->place);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  pthread_mutex_lock(&o->place.lock);
  int state = o->state;
  if (state == NEW) o->state = RUNNING;
  if (state == RUNNING) {
    waiting *w = td_new(waiting);
    *w = (waiting){ctx, o->waiting};
    o->waiting = w;
  }
  pthread_mutex_unlock(&o->place.lock);
  if (state == NEW) {
    making *m = td_new(making);
    m->ctx = ctx;
    m->call = (td_function_call){.function = o->factory, .step = ctx->step, .done = made};
    o->runtime->ops->run(o->runtime, &m->call);
  } else if (state != RUNNING) {
    end_run(ctx, o, o->error);
  }
}

static const td_op_spec ops[] = {
    {"OneShotIterator", NULL, "handle: resource",
     "dataset_factory: func; output_types: list(type) >= 1; output_shapes: list(shape) >= 1; container: string = ''; "
     "shared_name: string = ''",
     TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "OneShotIterator",
     .cost = TD_COST_CHEAP,
     .flags = TD_KERNEL_KEPT,
     .state_size = sizeof(one_shot),
     .create = create,
     .destroy = destroy,
     .compute_async = compute},
};

TD_FAMILY(one_shot, ops, kernels);
