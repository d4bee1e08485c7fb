/* Ops that run a dataset within one step: DatasetToSingleElement, ReduceDataset. */
#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/families.h"

typedef struct consumer {
  td_request request;
  td_kernel_ctx *ctx;
  td_driver *driver; /* retained until the end */
} consumer;

static void consumer_destroy(td_request *r) { td_free(TD_CONTAINER_OF(r, consumer, request)); }

/* Runs `d` for its first element, which is all that is asked for. */
static void consume(td_kernel_ctx *ctx, td_dataset *d, void (*done)(td_request *, td_status, td_element *)) {
  td_driver *driver = td_driver_create(ctx->step->pool);
  td_status s = td_driver_set_root(driver, d, NULL);
  if (s) {
    td_driver_release(driver);
    td_kernel_done(ctx, s);
    return;
  }
  consumer *c = td_new(consumer);
  c->ctx = ctx;
  c->driver = driver;
  c->request = (td_request){.cancellation = ctx->step->cancellation, .done = done, .destroy = consumer_destroy};
  td_driver_next(driver, &c->request);
}

static void element_done(td_request *r, td_status s, td_element *e) {
  consumer *c = TD_CONTAINER_OF(r, consumer, request);
  td_driver *driver = c->driver;
  if (!s) s = e ? td_out_element(c->ctx, e, "dataset") : td_invalid_argument("Dataset was empty.");
  td_kernel_done(c->ctx, s);
  td_driver_release(driver);
}

/* ---- DatasetToSingleElement: a dataset that gives its input's only element ---- */

typedef struct only_iterator {
  td_iterator base;
  td_iterator *input;
  td_element *found;
  bool is_asked;
} only_iterator;

static td_status only_start(td_iterator *it) { return td_iterator_create_input(it, 0, &((only_iterator *)it)->input); }

static void only_stop(td_iterator *it) {
  td_element_free(((only_iterator *)it)->found);
  td_iterator_destroy(((only_iterator *)it)->input);
}

static td_next only_advance(td_iterator *it) {
  only_iterator *o = (only_iterator *)it;
  if (o->is_asked) {
    if (o->input->status || (td_iterator_ended(o->input) && !o->found)) return td_iterator_pass(it, o->input);
    if (td_iterator_ended(o->input)) {
      td_element *e = o->found;
      o->found = NULL;
      return td_iterator_give(it, e);
    }
    if (o->found) return td_iterator_fail(it, td_invalid_argument("Dataset had more than one element."));
    o->found = td_iterator_take(o->input);
  }
  o->is_asked = true;
  return td_iterator_pull(it, o->input);
}

static const td_dataset_ops only_ops = {.name = "SingleElement",
                                        .iterator_size = sizeof(only_iterator),
                                        .start = only_start,
                                        .advance = only_advance,
                                        .stop = only_stop};

static void compute_single(td_kernel_ctx *ctx) {
  td_dataset *input, *d = NULL;
  td_status s = td_in_dataset(ctx, 0, &input);
  if (!s) s = td_dataset_create(&only_ops, sizeof(td_dataset), &input->spec, &input, 1, &d);
  if (s)
    td_kernel_done(ctx, s);
  else
    consume(ctx, d, element_done);
  td_dataset_release(d);
}

/* ---- Reduce: a dataset of one element, the last state ---- */

typedef struct reduced {
  td_dataset base;
  td_captured f;
  td_element *initial;
} reduced;

typedef struct reduce_iterator {
  td_iterator base;
  td_iterator *input;
  td_data_call call;
  td_element *state;
  enum { START, PULLED, CALLED } phase;
} reduce_iterator;

static void reduced_destroy(td_dataset *d) {
  td_captured_deinit(&((reduced *)d)->f);
  td_element_free(((reduced *)d)->initial);
}

static td_status reduce_start(td_iterator *it) {
  ((reduce_iterator *)it)->state = td_element_copy(((reduced *)it->dataset)->initial);
  return td_iterator_create_input(it, 0, &((reduce_iterator *)it)->input);
}

static void reduce_stop(td_iterator *it) {
  reduce_iterator *r = (reduce_iterator *)it;
  td_iterator_destroy(r->input);
  td_data_call_deinit(&r->call);
  td_element_free(r->state);
}

static td_element *reduce_args(reduce_iterator *r) {
  td_element *x = td_iterator_take(r->input), *args = td_element_create(r->state->count + x->count);
  for (int i = 0; i < r->state->count; i++) args->values[i] = td_tensor_retain(r->state->values[i]);
  for (int i = 0; i < x->count; i++) args->values[r->state->count + i] = x->values[i];
  td_free(x);
  return args;
}

static td_next reduce_advance(td_iterator *it) {
  reduce_iterator *r = (reduce_iterator *)it;
  for (;;) {
    td_status s;
    if (r->phase == START) {
      r->phase = PULLED;
      return td_iterator_pull(it, r->input);
    }
    if (r->phase == PULLED) {
      r->phase = START;
      if (r->input->status) return td_iterator_pass(it, r->input);
      if (td_iterator_ended(r->input)) {
        td_element *e = r->state;
        r->state = NULL;
        return td_iterator_give(it, e);
      }
      r->phase = CALLED;
      if (td_iterator_call(it, &r->call, &((reduced *)it->dataset)->f, reduce_args(r)) == TD_NEXT_WAIT)
        return TD_NEXT_WAIT;
    }
    r->phase = START;
    td_element *state = td_data_call_take(&r->call, &s);
    if (!s && state->count != r->state->count) {
      s = td_invalid_argument("The reduce function returned %d components, the state has %d", state->count,
                              r->state->count);
      td_element_free(state);
    }
    if (s) return td_iterator_fail(it, s);
    td_element_free(r->state);
    r->state = state;
  }
}

static const td_dataset_ops reduce_ops = {.name = "Reduce",
                                          .iterator_size = sizeof(reduce_iterator),
                                          .start = reduce_start,
                                          .advance = reduce_advance,
                                          .stop = reduce_stop,
                                          .destroy = reduced_destroy};

typedef struct reduce_kernel {
  td_dataset_kernel common; /* first */
  int begin, end;           /* the initial state's inputs */
} reduce_kernel;

static td_status create_reduce(td_kernel_builder *b, void *state) {
  reduce_kernel *k = state;
  TD_TRY(td_dataset_kernel_create_f(b, state));
  return td_node_input_range(b->node, b->op, "initial_state", &k->begin, &k->end);
}

static void compute_reduce(td_kernel_ctx *ctx) {
  const reduce_kernel *k = ctx->state;
  td_dataset *input, *d = NULL;
  td_status s = td_in_dataset(ctx, 0, &input);
  if (!s) s = td_dataset_create(&reduce_ops, sizeof(reduced), &k->common.spec, &input, 1, &d);
  if (s) {
    td_kernel_done(ctx, s);
    return;
  }
  reduced *r = (reduced *)d;
  td_captured_init(&r->f, ctx, 0);
  r->initial = td_element_create(k->end - k->begin);
  for (int i = 0; i < r->initial->count; i++) r->initial->values[i] = td_tensor_retain(td_in(ctx, k->begin + i));
  consume(ctx, d, element_done);
  td_dataset_release(d);
}

static const td_op_spec ops[] = {
    {"DatasetToSingleElement", "dataset: variant", "components: output_types", TD_DATASET_TYPES TD_DATASET_META,
     TD_OP_STATEFUL},
    {"ReduceDataset", "input_dataset: variant; initial_state: Tstate; other_arguments: Targuments",
     "components: output_types",
     "f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0; " TD_DATASET_TYPES
     "; use_inter_op_parallelism: bool = true" TD_DATASET_META,
     TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {
    {.op = "DatasetToSingleElement", .cost = TD_COST_CHEAP, .compute_async = compute_single},
    {.op = "ReduceDataset",
     .cost = TD_COST_CHEAP,
     .state_size = sizeof(reduce_kernel),
     .create = create_reduce,
     .destroy = td_dataset_kernel_destroy,
     .compute_async = compute_reduce},
};

TD_FAMILY(data_consume, ops, kernels);
