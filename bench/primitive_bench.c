/* A bare loop over the oneDNN primitive that a matrix product or a convolution is made of: what the machine can do.
 *
 *   primitive_bench matmul TA TB M N K          TA, TB: N as it is, T transposed
 *   primitive_bench conv forward|input|filter BATCH SIZE IN OUT    square images, NHWC, 3 x 3 filters, same size out
 *
 * The same job as a step of so many operations (--calls N, default 100): threads that sleep are woken, as many as there
 * are cores (or --threads N; one: the caller itself), share the calls, each on matrices of its own, and wake the
 * caller. The figure is the time of a step, divided by its calls.
 */
#include <dnnl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "figure.h"

enum { MOST_THREADS = 256, MOST_ARGS = 4 };

extern void omp_set_num_threads(int n); /* libgomp's, which oneDNN runs on */

typedef struct problem {
  bool is_conv;
  dnnl_prop_kind_t direction;
  char ta, tb;
  int64_t m, n, k;
  int64_t batch, size, in_c, out_c;
} problem;

typedef struct worker {
  pthread_t thread;
  const problem *p;
  /* matmul */
  float *a, *b, *c;
  /* convolution */
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[MOST_ARGS];
} worker;

/* The step that all threads work on. */
static struct {
  int threads, calls;
  _Atomic int next; /* call */
  pthread_mutex_t lock;
  pthread_cond_t begins, is_over;
  /* guarded by lock */
  int number; /* of the step; -1: there is no other */
  int running;
} step = {.calls = 100,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .begins = PTHREAD_COND_INITIALIZER,
          .is_over = PTHREAD_COND_INITIALIZER};

static void must(dnnl_status_t s) {
  if (s == dnnl_success) return;
  fprintf(stderr, "primitive_bench: oneDNN says %d\n", (int)s);
  exit(2);
}

static void *filled(size_t size) {
  float *p = aligned_alloc(64, (size + 63) / 64 * 64);
  if (!p) abort();
  for (size_t i = 0; i < size / sizeof *p; i++) p[i] = 0.001f * (float)(i % 1000);
  return p;
}

/* ---- convolution ---- */

static dnnl_memory_desc_t describe(const dnnl_dims_t dims, dnnl_format_tag_t tag) {
  dnnl_memory_desc_t md;
  must(dnnl_memory_desc_init_by_tag(&md, 4, dims, dnnl_f32, tag));
  return md;
}

static dnnl_primitive_desc_t make_desc(const worker *w, dnnl_prop_kind_t direction, dnnl_primitive_desc_t hint) {
  const problem *p = w->p;
  const dnnl_dims_t in = {p->batch, p->in_c, p->size, p->size}, out = {p->batch, p->out_c, p->size, p->size},
                    filter = {p->out_c, p->in_c, 3, 3}, one = {1, 1}, zero = {0, 0};
  dnnl_memory_desc_t x = describe(in, dnnl_nhwc), f = describe(filter, dnnl_format_tag_any),
                     y = describe(out, dnnl_nhwc);
  dnnl_convolution_desc_t d;
  if (direction == dnnl_backward_data)
    must(
        dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &x, &f, &y, one, zero, one, one));
  else if (direction == dnnl_backward_weights)
    must(dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &x, &f, NULL, &y, one, zero,
                                                             one, one));
  else
    must(dnnl_dilated_convolution_forward_desc_init(&d, direction, dnnl_convolution_direct, &x, &f, NULL, &y, one, zero,
                                                    one, one));
  dnnl_primitive_desc_t pd;
  must(dnnl_primitive_desc_create(&pd, &d, NULL, w->engine, hint));
  return pd;
}

static dnnl_exec_arg_t memory_arg(const worker *w, dnnl_primitive_desc_t pd, dnnl_query_t what, int arg) {
  const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what, 0);
  dnnl_memory_t m;
  must(dnnl_memory_create(&m, md, w->engine, filled(dnnl_memory_desc_get_size(md))));
  return (dnnl_exec_arg_t){arg, m};
}

static void prepare_conv(worker *w) {
  static const struct {
    dnnl_query_t query;
    int arg;
  } OPERANDS[][3] = {
      {{dnnl_query_src_md, DNNL_ARG_SRC}, {dnnl_query_weights_md, DNNL_ARG_WEIGHTS}, {dnnl_query_dst_md, DNNL_ARG_DST}},
      {{dnnl_query_diff_src_md, DNNL_ARG_DIFF_SRC},
       {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
       {dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST}},
      {{dnnl_query_src_md, DNNL_ARG_SRC},
       {dnnl_query_diff_weights_md, DNNL_ARG_DIFF_WEIGHTS},
       {dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST}}};
  must(dnnl_engine_create(&w->engine, dnnl_cpu, 0));
  must(dnnl_stream_create(&w->stream, w->engine, dnnl_stream_default_flags));
  dnnl_prop_kind_t direction = w->p->direction;
  dnnl_primitive_desc_t forward = make_desc(w, dnnl_forward_training, NULL);
  dnnl_primitive_desc_t pd = direction == dnnl_forward_training ? forward : make_desc(w, direction, forward);
  must(dnnl_primitive_create(&w->primitive, pd));
  int kind = direction == dnnl_forward_training ? 0 : direction == dnnl_backward_data ? 1 : 2;
  for (int i = 0; i < 3; i++) w->args[i] = memory_arg(w, pd, OPERANDS[kind][i].query, OPERANDS[kind][i].arg);
}

/* ---- running ---- */

static void call(worker *w) {
  const problem *p = w->p;
  if (p->is_conv) {
    must(dnnl_primitive_execute(w->primitive, w->stream, 3, w->args));
    must(dnnl_stream_wait(w->stream));
    return;
  }
  must(dnnl_sgemm(p->ta, p->tb, p->m, p->n, p->k, 1, w->a, p->ta == 'N' ? p->k : p->m, w->b, p->tb == 'N' ? p->n : p->k,
                  0, w->c, p->n));
}

static void prepare(worker *w) {
  const problem *p = w->p;
  if (p->is_conv) {
    prepare_conv(w);
    return;
  }
  w->a = filled((size_t)(p->m * p->k) * sizeof(float));
  w->b = filled((size_t)(p->k * p->n) * sizeof(float));
  w->c = filled((size_t)(p->m * p->n) * sizeof(float));
}

static void run_calls(worker *w) {
  /* relaxed: only the numbers must differ */
  while (atomic_fetch_add_explicit(&step.next, 1, memory_order_relaxed) < step.calls) call(w);
}

static void *thread_main(void *arg) {
  worker *w = arg;
  omp_set_num_threads(1);
  prepare(w);
  call(w);
  pthread_mutex_lock(&step.lock);
  for (int seen = 0;; seen = step.number) {
    if (!--step.running) pthread_cond_signal(&step.is_over);
    while (step.number == seen) pthread_cond_wait(&step.begins, &step.lock);
    if (step.number < 0) break;
    pthread_mutex_unlock(&step.lock);
    run_calls(w);
    pthread_mutex_lock(&step.lock);
  }
  pthread_mutex_unlock(&step.lock);
  return NULL;
}

static void wait_for_all(void) {
  while (step.running) pthread_cond_wait(&step.is_over, &step.lock);
}

static void start(worker *workers) {
  if (step.threads == 1) {
    omp_set_num_threads(1);
    prepare(workers);
    call(workers);
    return;
  }
  pthread_mutex_lock(&step.lock);
  step.running = step.threads;
  for (int i = 0; i < step.threads; i++) {
    if (pthread_create(&workers[i].thread, NULL, thread_main, &workers[i])) abort();
  }
  wait_for_all();
  pthread_mutex_unlock(&step.lock);
}

static void run_step(worker *workers) {
  atomic_store_explicit(&step.next, 0, memory_order_relaxed);
  if (step.threads == 1) {
    run_calls(workers);
    return;
  }
  pthread_mutex_lock(&step.lock);
  step.number++;
  step.running = step.threads;
  pthread_cond_broadcast(&step.begins);
  wait_for_all();
  pthread_mutex_unlock(&step.lock);
}

static void stop(worker *workers) {
  if (step.threads == 1) return;
  pthread_mutex_lock(&step.lock);
  step.number = -1;
  pthread_cond_broadcast(&step.begins);
  pthread_mutex_unlock(&step.lock);
  for (int i = 0; i < step.threads; i++) pthread_join(workers[i].thread, NULL);
}

static void measure(worker *workers, const char *name) {
  uint64_t *samples = NULL, until = td_now_ns() + (uint64_t)(bench_seconds() * 1e9), began, now;
  size_t count = 0, capacity = 0;
  run_step(workers);
  do {
    began = td_now_ns();
    run_step(workers);
    now = td_now_ns();
    TD_GROW(samples, count, capacity);
    samples[count++] = now - began;
  } while (now < until);
  double calls = step.calls;
  bench_print(name, (double)bench_quantile(samples, count, 0.5) / calls,
              (double)bench_quantile(samples, count, 0) / calls, "ns", false);
  td_free(samples);
}

static bool parse(int argc, char **argv, problem *out) {
  if (argc == 7 && !strcmp(argv[1], "matmul")) {
    *out = (problem){.ta = argv[2][0], .tb = argv[3][0], .m = atol(argv[4]), .n = atol(argv[5]), .k = atol(argv[6])};
    return out->m > 0 && out->n > 0 && out->k > 0 && strchr("NT", out->ta) && strchr("NT", out->tb);
  }
  if (argc != 7 || strcmp(argv[1], "conv") != 0) return false;
  *out = (problem){.is_conv = true,
                   .direction = !strcmp(argv[2], "forward") ? dnnl_forward_training
                                : !strcmp(argv[2], "input") ? dnnl_backward_data
                                                            : dnnl_backward_weights,
                   .batch = atol(argv[3]),
                   .size = atol(argv[4]),
                   .in_c = atol(argv[5]),
                   .out_c = atol(argv[6])};
  return out->batch > 0 && out->size > 0 && out->in_c > 0 && out->out_c > 0;
}

/* Takes --threads N and --calls N out of argv; without the first as many as there are cores. */
static void step_options(int *argc, char **argv) {
  cpu_set_t cores;
  int kept = 0;
  step.threads = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
  for (int i = 0; i < *argc; i++) {
    if (!strcmp(argv[i], "--threads") && i + 1 < *argc)
      step.threads = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--calls") && i + 1 < *argc)
      step.calls = atoi(argv[++i]);
    else
      argv[kept++] = argv[i];
  }
  *argc = kept;
  step.threads = TD_MAX(1, TD_MIN(step.threads, MOST_THREADS));
  step.calls = TD_MAX(1, step.calls);
}

int main(int argc, char **argv) {
  problem p;
  argc = bench_options(argc, argv);
  step_options(&argc, argv);
  if (!parse(argc, argv, &p)) {
    fprintf(stderr,
            "usage: primitive_bench matmul TA TB M N K | conv forward|input|filter BATCH SIZE IN OUT [--seconds S] "
            "[--threads N] [--calls N]\n");
    return 2;
  }
  worker *workers = td_new_array(worker, (size_t)step.threads);
  for (int i = 0; i < step.threads; i++) workers[i] = (worker){.p = &p};
  start(workers);
  measure(workers, p.is_conv ? "primitive/conv" : "primitive/matmul");
  stop(workers);
  td_free(workers);
  return 0;
}
