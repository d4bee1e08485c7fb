/* GeneratorDataset: elements from three functions. init makes a state, next gives elements of it until it runs out of
 * range, finalize ends it; also when the iterator ends before that. */
#include "base/mem.h"
#include "ops/data/archive.h"
#include "ops/families.h"

typedef struct generator {
  td_dataset base;
  td_captured init, next, finalize;
} generator;

typedef struct generator_iterator {
  td_iterator base;
  td_data_call call;
  td_element *state; /* what init returned */
  enum { NEW, INITIALISING, READY, NEXT, FINALISING, OVER } phase;
} generator_iterator;

static void generator_destroy(td_dataset *base) {
  generator *g = (generator *)base;
  td_captured_deinit(&g->init);
  td_captured_deinit(&g->next);
  td_captured_deinit(&g->finalize);
}

/* ---- a finalize call that nobody waits for ---- */

typedef struct farewell {
  td_data_call call;
  td_dataset *dataset; /* retained: it holds the function */
} farewell;

static void farewell_ended(td_data_call *call) {
  farewell *f = TD_CONTAINER_OF(call, farewell, call);
  td_data_call_deinit(&f->call);
  td_dataset_release(f->dataset);
  td_free(f);
}

static void generator_stop(td_iterator *it) {
  generator_iterator *g = (generator_iterator *)it;
  td_data_call_deinit(&g->call);
  if (g->state && g->phase != OVER) {
    farewell *f = td_new(farewell);
    f->dataset = td_dataset_retain(it->dataset);
    f->call.ended = farewell_ended;
    if (td_data_call_start(&f->call, &((generator *)it->dataset)->finalize, td_driver_pool(it->driver), g->state))
      farewell_ended(&f->call);
    g->state = NULL;
  }
  td_element_free(g->state);
}

/* ---- the iterator ---- */

/* Starts a call; true when it has ended already. */
static bool calls(td_iterator *it, int phase, const td_captured *f, td_element *e) {
  generator_iterator *g = (generator_iterator *)it;
  g->phase = phase;
  return td_iterator_call(it, &g->call, f, e) == TD_NEXT_READY;
}

static td_next generator_advance(td_iterator *it) {
  generator_iterator *g = (generator_iterator *)it;
  const generator *d = (const generator *)it->dataset;
  for (;;) {
    td_status s;
    td_element *e;
    switch (g->phase) {
      case NEW:
        if (!calls(it, INITIALISING, &d->init, NULL)) return TD_NEXT_WAIT;
        break;
      case INITIALISING:
        g->phase = NEW;
        e = td_data_call_take(&g->call, &s);
        if (s) return td_iterator_fail(it, s);
        g->state = e;
        g->phase = READY;
        break;
      case READY:
        if (!calls(it, NEXT, &d->next, td_element_copy(g->state))) return TD_NEXT_WAIT;
        break;
      case NEXT:
        g->phase = READY;
        e = td_data_call_take(&g->call, &s);
        if (!s) return td_iterator_give(it, e);
        if (td_status_code(s) != TD_OUT_OF_RANGE) return td_iterator_fail(it, s);
        td_status_free(s);
        e = g->state;
        g->state = NULL;
        if (!calls(it, FINALISING, &d->finalize, e)) return TD_NEXT_WAIT;
        break;
      case FINALISING:
        g->phase = OVER;
        e = td_data_call_take(&g->call, &s);
        td_element_free(e);
        return s ? td_iterator_fail(it, s) : td_iterator_give(it, NULL);
      case OVER:
        return td_iterator_give(it, NULL);
    }
  }
}

static const td_dataset_ops generator_ops = {.name = "Generator",
                                             .iterator_size = sizeof(generator_iterator),
                                             .advance = generator_advance,
                                             .stop = generator_stop,
                                             .destroy = generator_destroy};

static td_status create(td_kernel_builder *b, void *state) {
  TD_TRY(td_dataset_kernel_create(b, state));
  TD_TRY(td_dataset_kernel_add_function(b, state, "init_func", "init_func_other_args"));
  TD_TRY(td_dataset_kernel_add_function(b, state, "next_func", "next_func_other_args"));
  return td_dataset_kernel_add_function(b, state, "finalize_func", "finalize_func_other_args");
}

static td_status compute(td_kernel_ctx *ctx) {
  td_dataset *d;
  TD_TRY(td_dataset_create(&generator_ops, sizeof(generator), &((td_dataset_kernel *)ctx->state)->spec, NULL, 0, &d));
  generator *g = (generator *)d;
  td_captured_init(&g->init, ctx, 0);
  td_captured_init(&g->next, ctx, 1);
  td_captured_init(&g->finalize, ctx, 2);
  return td_out_dataset(ctx, TD_STATUS_OK, d);
}

static const td_op_spec ops[] = {
    {"GeneratorDataset",
     "init_func_other_args: Tinit_func_args; next_func_other_args: Tnext_func_args; finalize_func_other_args: "
     "Tfinalize_func_args",
     "handle: variant",
     "init_func: func; next_func: func; finalize_func: func; Tinit_func_args: list(type) >= 0; Tnext_func_args: "
     "list(type) >= 0; Tfinalize_func_args: list(type) >= 0; " TD_DATASET_TYPES TD_DATASET_META,
     TD_OP_STATEFUL},
};

static const td_kernel_def kernels[] = {TD_DATASET_KERNEL("GeneratorDataset", create, compute)};

TD_FAMILY(data_generator, ops, kernels);
