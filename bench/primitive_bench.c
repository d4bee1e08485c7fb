/* A bare loop over the oneDNN primitive that a matrix product or a convolution is made of: what the machine can do.
 *
 *   primitive_bench matmul TA TB M N K          TA, TB: N as it is, T transposed
 *   primitive_bench conv forward|input|filter BATCH SIZE IN OUT    square images, NHWC, 3 x 3 filters, same size out
 *
 * As many threads as there are cores (or --threads N) each run single-threaded calls on matrices of their own; the
 * figure is the time of a call, by the rate of all of them.
 */
#include <dnnl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "figure.h"

enum { MOST_THREADS = 256, ROUNDS = 10, MOST_ARGS = 4 };

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
  /* of a round */
  uint64_t until_ns;
  double calls_per_ns;
} worker;

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

static void *run_round(void *arg) {
  worker *w = arg;
  uint64_t began, now, calls = 0;
  omp_set_num_threads(1);
  if (!w->a && !w->primitive) prepare(w);
  call(w);
  began = td_now_ns();
  do {
    call(w);
    calls++;
    now = td_now_ns();
  } while (now < w->until_ns);
  w->calls_per_ns = (double)calls / (double)(now - began);
  return NULL;
}

/* Nanoseconds of a call, by the rate of all threads. */
static double measure(worker *workers, int threads, double seconds) {
  double rate = 0;
  uint64_t until = td_now_ns() + (uint64_t)(seconds * 1e9);
  for (int i = 0; i < threads; i++) {
    workers[i].until_ns = until;
    if (pthread_create(&workers[i].thread, NULL, run_round, &workers[i])) abort();
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(workers[i].thread, NULL);
    rate += workers[i].calls_per_ns;
  }
  return 1 / rate;
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

/* Takes --threads N out of argv; without it as many as there are cores. */
static int thread_count(int *argc, char **argv) {
  cpu_set_t cores;
  int count = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores), kept = 0;
  for (int i = 0; i < *argc; i++) {
    if (!strcmp(argv[i], "--threads") && i + 1 < *argc)
      count = atoi(argv[++i]);
    else
      argv[kept++] = argv[i];
  }
  *argc = kept;
  return TD_MAX(1, TD_MIN(count, MOST_THREADS));
}

int main(int argc, char **argv) {
  problem p;
  argc = bench_options(argc, argv);
  int threads = thread_count(&argc, argv);
  if (!parse(argc, argv, &p)) {
    fprintf(stderr,
            "usage: primitive_bench matmul TA TB M N K | conv forward|input|filter BATCH SIZE IN OUT [--seconds S] "
            "[--threads N]\n");
    return 2;
  }
  worker *workers = td_new_array(worker, (size_t)threads);
  for (int i = 0; i < threads; i++) workers[i] = (worker){.p = &p};
  uint64_t samples[ROUNDS];
  measure(workers, threads, 0);
  for (int i = 0; i < ROUNDS; i++) samples[i] = (uint64_t)measure(workers, threads, bench_seconds() / ROUNDS);
  bench_print(p.is_conv ? "primitive/conv" : "primitive/matmul", (double)bench_quantile(samples, ROUNDS, 0.5),
              (double)bench_quantile(samples, ROUNDS, 0), "ns", false);
  td_free(workers);
  return 0;
}
