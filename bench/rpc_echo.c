/* A gRPC echo server and a client that measures it, on src/rpc alone.
 *
 *   rpc_echo serve ADDRESS... [--threads N]
 *   rpc_echo bench ADDRESS [--seconds S] [--only ROW]: a line of JSON a figure
 *   rpc_echo call ADDRESS METHOD REQUEST [--timeout S] [--wait] [--cancel S] [--repeat N]
 *     (REQUEST "@N": N zero bytes; prints code, message, reply or its size, details, milliseconds)
 *
 * Methods: /bench.Echo/Echo answers with the request; /bench.Echo/Give with as many bytes as the decimal number in
 * the request; /bench.Echo/Take with the request's size; /bench.Echo/Hold when it is cancelled;
 * /bench.Echo/Fail with the error "CODE MESSAGE" of the request, details included; /bench.Echo/Later echoes from
 * another thread.
 */
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "figure.h"
#include "rpc/rpc.h"

enum { GIVE_MAX = 1 << 30 };

static char *big_buffer(size_t size) {
  size_t huge = 2u << 20;
  char *p = mmap(NULL, size + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
  p = (char *)(((uintptr_t)p + huge - 1) & ~(uintptr_t)(huge - 1));
  madvise(p, size, MADV_HUGEPAGE);
  return p;
}

/* ---- server ----------------------------------------------------------------------------------------------- */

typedef struct echo_service {
  char *bytes;
  td_pool *pool;
} echo_service;

static void echo(void *service, td_call *call, td_str request) {
  td_payload reply = {0};
  td_payload_copy(&reply, request.data, request.size);
  td_call_reply(call, &reply);
}

typedef struct later_work {
  td_work work;
  td_call *call;
  td_str request;
} later_work;

static void later_run(td_work *w) {
  later_work *l = TD_CONTAINER_OF(w, later_work, work);
  echo(NULL, l->call, l->request);
  td_free(l);
}

static void later(void *service, td_call *call, td_str request) {
  later_work *l = td_new(later_work);
  *l = (later_work){.work.run = later_run, .call = call, .request = request};
  td_pool_submit(((echo_service *)service)->pool, &l->work);
}

static void give(void *service, td_call *call, td_str request) {
  uint64_t n;
  if (!td_str_to_u64(request, &n) || n > GIVE_MAX) {
    td_call_fail(call, td_invalid_argument("Cannot give \"%.*s\" bytes", TD_STR_ARG(request)), (td_str){0});
    return;
  }
  td_payload reply = {0};
  td_payload_add(&reply, ((echo_service *)service)->bytes, n, NULL, NULL);
  td_call_reply(call, &reply);
}

static void take(void *service, td_call *call, td_str request) {
  char text[24];
  int n = snprintf(text, sizeof text, "%zu", request.size);
  td_payload reply = {0};
  td_payload_copy(&reply, text, (size_t)n);
  td_call_reply(call, &reply);
}

static _Atomic int held, cancelled;

static void hold_cancelled(void *arg) {
  atomic_fetch_sub(&held, 1);
  atomic_fetch_add(&cancelled, 1);
  td_call_fail(arg, td_cancelled("held until cancelled"), (td_str){0});
}

static void hold(void *service, td_call *call, td_str request) {
  atomic_fetch_add(&held, 1);
  td_call_on_cancel(call, hold_cancelled, call);
}

static void fail(void *service, td_call *call, td_str request) {
  uint64_t code = TD_UNKNOWN;
  td_str rest = request, first = td_str_split(&rest, ' ');
  if (!td_str_to_u64(first, &code) || !code || code > TD_UNAUTHENTICATED) code = TD_UNKNOWN;
  td_call_fail(call, td_error_bytes((td_code)code, rest.data, rest.size), TD_STR("\x00\x01\xff details"));
}

static void count_held(void *service, td_call *call, td_str request) {
  char text[48];
  int n = snprintf(text, sizeof text, "%d %d", atomic_load(&held), atomic_load(&cancelled));
  td_payload reply = {0};
  td_payload_copy(&reply, text, (size_t)n);
  td_call_reply(call, &reply);
}

static const td_method METHODS[] = {
    {"/bench.Echo/Echo", echo, NULL},       {"/bench.Echo/Later", later, NULL}, {"/bench.Echo/Give", give, NULL},
    {"/bench.Echo/Take", take, NULL},       {"/bench.Echo/Hold", hold, NULL},   {"/bench.Echo/Fail", fail, NULL},
    {"/bench.Echo/Held", count_held, NULL},
};

static void must(td_status s) {
  if (!s) return;
  fprintf(stderr, "rpc_echo: %s: %s\n", td_code_name(td_status_code(s)), td_status_message(s));
  exit(2);
}

static int serve(char **addresses, int count, int threads) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, NULL);
  td_loop *loops[64];
  for (int i = 0; i < threads; i++) must(td_loop_create("td-loop", "echo", &loops[i]));
  echo_service service = {big_buffer(GIVE_MAX), td_pool_create("td-pool", "echo", 1)};
  td_rpc_server_options options = {.loops = loops,
                                   .loop_count = threads,
                                   .methods = METHODS,
                                   .method_count = TD_COUNT(METHODS),
                                   .service = &service};
  td_rpc_server *server;
  must(td_rpc_server_create(&options, &server));
  for (int i = 0; i < count; i++) {
    int port;
    must(td_rpc_server_listen(server, addresses[i], &port));
    printf("listening on %s (port %d)\n", addresses[i], port);
  }
  td_rpc_server_start(server);
  fflush(stdout);
  int sig;
  sigwait(&ends, &sig);
  td_rpc_server_stop_accepting(server);
  bool clean = td_rpc_server_drain(server, td_now_ns() + 2000000000u);
  td_rpc_server_destroy(server);
  td_pool_destroy(service.pool);
  for (int i = 0; i < threads; i++) {
    td_loop_stop(loops[i]);
    td_loop_destroy(loops[i]);
  }
  printf("%s\n", clean ? "drained" : "cancelled what was left");
  return 0;
}

/* ---- client ----------------------------------------------------------------------------------------------- */

typedef struct landing {
  td_receiver receiver;
  char *buffer;
  size_t got, copied;
} landing;

static td_status landing_begin(td_receiver *r, size_t size) {
  landing *l = (landing *)r;
  l->got = 0;
  return size > GIVE_MAX ? td_resource_exhausted("%zu bytes", size) : TD_STATUS_OK;
}
static td_status landing_bytes(td_receiver *r, const void *data, size_t size) {
  landing *l = (landing *)r;
  memcpy(l->buffer + l->got, data, size);
  l->got += size;
  l->copied += size;
  return TD_STATUS_OK;
}
static void *landing_window(td_receiver *r, size_t *size) { return ((landing *)r)->buffer + ((landing *)r)->got; }
static td_status landing_landed(td_receiver *r, size_t size) {
  ((landing *)r)->got += size;
  return TD_STATUS_OK;
}
static const td_receiver_ops LANDING = {landing_begin, landing_bytes, landing_window, landing_landed, NULL};

typedef struct run {
  td_work work;
  td_channel *channel;
  const char *path, *request;
  landing *landing, *background; /* background: a 64 MiB answer is always under way on the same connection */
  int in_flight;
  uint64_t started_ns, until_ns, *samples;
  size_t count, capacity;
  sem_t done;
} run;

typedef struct one {
  run *run;
  uint64_t at_ns;
} one;

static void send_one(run *r, one *o);

static void one_done(void *arg, td_status status, td_str reply, td_str details) {
  one *o = arg;
  run *r = o->run;
  must(status);
  uint64_t now = td_now_ns();
  TD_GROW(r->samples, r->count, r->capacity);
  r->samples[r->count++] = now - o->at_ns;
  if (now < r->until_ns) {
    send_one(r, o);
    return;
  }
  td_free(o);
  if (!--r->in_flight) sem_post(&r->done);
}

static void background_done(void *arg, td_status status, td_str reply, td_str details);

static void background_send(run *r) {
  td_payload message = {0};
  td_payload_add(&message, "67108864", 8, NULL, NULL);
  td_call_options options = {.path = "/bench.Echo/Give",
                             .deadline_ns = TD_NO_DEADLINE,
                             .wait_for_ready = true,
                             .receiver = &r->background->receiver,
                             .done = background_done,
                             .arg = r};
  td_client_call_release(td_channel_call(r->channel, &options, &message));
}

static void background_done(void *arg, td_status status, td_str reply, td_str details) {
  run *r = arg;
  must(status);
  if (td_now_ns() < r->until_ns) {
    background_send(r);
  } else if (!--r->in_flight) {
    sem_post(&r->done);
  }
}

static void send_one(run *r, one *o) {
  o->at_ns = td_now_ns();
  td_payload message = {0};
  td_payload_add(&message, r->request, strlen(r->request), NULL, NULL);
  td_call_options options = {.path = r->path,
                             .deadline_ns = TD_NO_DEADLINE,
                             .wait_for_ready = true,
                             .receiver = r->landing ? &r->landing->receiver : NULL,
                             .done = one_done,
                             .arg = o};
  td_client_call_release(td_channel_call(r->channel, &options, &message));
}

static void run_begin(td_work *w) {
  run *r = TD_CONTAINER_OF(w, run, work);
  int calls = r->in_flight;
  if (r->background) {
    r->in_flight++;
    background_send(r);
  }
  for (int i = 0; i < calls; i++) {
    one *o = td_new(one);
    o->run = r;
    send_one(r, o);
  }
}

/* The latencies of a run, and its rate in calls or, where calls have `bytes`, in gigabytes a second. */
static void report(const char *row, run *r, double took, size_t bytes) {
  char name[64];
  double count = (double)r->count, p50 = (double)bench_quantile(r->samples, r->count, 0.5);
  double best = (double)bench_quantile(r->samples, r->count, 0),
         p99 = (double)bench_quantile(r->samples, r->count, 0.99);
  if (bytes) {
    snprintf(name, sizeof name, "rpc/%s", row);
    bench_print(name, (double)bytes * count / took / 1e9, (double)bytes / best, "GB/s", true);
    if (r->landing && r->landing->copied)
      fprintf(stderr, "%s: %.2f %% copied\n", row, 100.0 * (double)r->landing->copied / ((double)bytes * count));
    return;
  }
  snprintf(name, sizeof name, "rpc/%s", row);
  bench_print(name, p50 / 1e3, best / 1e3, "us", false);
  snprintf(name, sizeof name, "rpc/%s, p99", row);
  bench_print(name, p99 / 1e3, p99 / 1e3, "us", false);
  snprintf(name, sizeof name, "rpc/%s, calls", row);
  bench_print(name, count / took, count / took, "/s", true);
}

static void measure(td_loop *loop, td_channel *channel, const char *name, const char *path, const char *request,
                    int in_flight, landing *l, landing *background, double seconds, size_t bytes) {
  if (!bench_is_wanted(name)) return;
  run r = {.work.run = run_begin,
           .channel = channel,
           .path = path,
           .request = request,
           .in_flight = in_flight,
           .landing = l,
           .background = background};
  sem_init(&r.done, 0, 0);
  r.started_ns = td_now_ns();
  r.until_ns = r.started_ns + (uint64_t)(seconds * 1e9);
  if (l) l->copied = 0;
  td_loop_post(loop, &r.work);
  sem_wait(&r.done);
  double took = (double)(td_now_ns() - r.started_ns) / 1e9;
  if (strcmp(name, "warm-up") != 0) report(name, &r, took, bytes);
  td_free(r.samples);
  sem_destroy(&r.done);
}

static int bench(const char *address) {
  double seconds = bench_seconds();
  td_loop *loop;
  must(td_loop_create("td-client", "bench", &loop));
  td_channel *channel;
  must(td_channel_create(loop, address, NULL, &channel));
  landing l = {.receiver.ops = &LANDING, .buffer = big_buffer((size_t)1 << 30)};
  measure(loop, channel, "warm-up", "/bench.Echo/Echo", "hello", 1, NULL, NULL, 0.1, 0);
  measure(loop, channel, "echo, 1 in flight", "/bench.Echo/Echo", "hello", 1, NULL, NULL, seconds, 0);
  measure(loop, channel, "later, 1 in flight", "/bench.Echo/Later", "hello", 1, NULL, NULL, seconds, 0);
  measure(loop, channel, "echo, 64 in flight", "/bench.Echo/Echo", "hello", 64, NULL, NULL, seconds, 0);
  measure(loop, channel, "4 KB", "/bench.Echo/Give", "4096", 1, &l, NULL, seconds, 4096);
  measure(loop, channel, "1 MB", "/bench.Echo/Give", "1000000", 1, &l, NULL, seconds, 1000000);
  measure(loop, channel, "16 MB", "/bench.Echo/Give", "16000000", 1, &l, NULL, seconds, 16000000);
  measure(loop, channel, "64 MiB", "/bench.Echo/Give", "67108864", 1, &l, NULL, seconds, 67108864);
  measure(loop, channel, "1 GiB", "/bench.Echo/Give", "1073741824", 1, &l, NULL, seconds, 1073741824);
  measure(loop, channel, "16 MB gathered", "/bench.Echo/Give", "16000000", 1, NULL, NULL, seconds, 16000000);
  measure(loop, channel, "echo beside bulk", "/bench.Echo/Echo", "hello", 1, NULL, &l, seconds, 0);
  td_channel_destroy(channel);
  td_loop_stop(loop);
  td_loop_destroy(loop);
  return 0;
}

/* ---- one call --------------------------------------------------------------------------------------------- */

typedef struct call_options {
  double timeout, cancel;
  bool wait;
  int repeat;
} call_options;

typedef struct single {
  sem_t done;
  uint64_t begun_ns;
} single;

static void print_text(td_str s) {
  for (size_t i = 0; i < s.size; i++) {
    unsigned char c = (unsigned char)s.data[i];
    printf(c < 32 || c == '\\' || c == 127 ? "\\x%02x" : "%c", c);
  }
}

static void single_done(void *arg, td_status status, td_str reply, td_str details) {
  single *s = arg;
  printf("code=%d message=", td_status_code(status));
  print_text(td_str_of(td_status_message(status)));
  printf(" reply=");
  if (reply.size > 100) printf("%zu bytes", reply.size);
  if (reply.size <= 100) print_text(reply);
  printf(" details=%zu ms=%.1f\n", details.size, (double)(td_now_ns() - s->begun_ns) / 1e6);
  fflush(stdout);
  td_status_free(status);
  sem_post(&s->done);
}

static int call_once(const char *address, const char *path, const char *request, call_options o) {
  td_loop *loop;
  must(td_loop_create("td-client", "call", &loop));
  td_channel *channel;
  must(td_channel_create(loop, address, NULL, &channel));
  single s;
  sem_init(&s.done, 0, 0);
  for (int i = 0; i < o.repeat; i++) {
    s.begun_ns = td_now_ns();
    td_payload message = {0};
    size_t zeros = *request == '@' ? strtoul(request + 1, NULL, 10) : 0;
    if (zeros) td_payload_take(&message, td_calloc(1, zeros), zeros);
    if (!zeros) td_payload_copy(&message, request, strlen(request));
    td_call_options options = {.path = path,
                               .deadline_ns = o.timeout > 0 ? s.begun_ns + (uint64_t)(o.timeout * 1e9) : TD_NO_DEADLINE,
                               .wait_for_ready = o.wait,
                               .done = single_done,
                               .arg = &s};
    td_client_call *call = td_channel_call(channel, &options, &message);
    if (o.cancel > 0) {
      usleep((useconds_t)(o.cancel * 1e6));
      td_client_call_cancel(call);
    }
    sem_wait(&s.done);
    td_client_call_release(call);
  }
  td_channel_destroy(channel);
  td_loop_stop(loop);
  td_loop_destroy(loop);
  return 0;
}

int main(int argc, char **argv) {
  int threads = 1, count = 0;
  argc = bench_options(argc, argv);
  call_options call = {.repeat = 1};
  char *addresses[16];
  for (int i = 2; i < argc; i++) {
    if (!strcmp(argv[i], "--threads") && i + 1 < argc) {
      threads = atoi(argv[++i]);
    } else if (!strcmp(argv[i], "--timeout") && i + 1 < argc) {
      call.timeout = atof(argv[++i]);
    } else if (!strcmp(argv[i], "--cancel") && i + 1 < argc) {
      call.cancel = atof(argv[++i]);
    } else if (!strcmp(argv[i], "--repeat") && i + 1 < argc) {
      call.repeat = atoi(argv[++i]);
    } else if (!strcmp(argv[i], "--wait")) {
      call.wait = true;
    } else if (count < (int)TD_COUNT(addresses)) {
      addresses[count++] = argv[i];
    }
  }
  if (threads < 1 || threads > 64) threads = 1;
  if (argc > 2 && count && !strcmp(argv[1], "serve")) return serve(addresses, count, threads);
  if (argc > 2 && count == 1 && !strcmp(argv[1], "bench")) return bench(addresses[0]);
  if (count == 3 && !strcmp(argv[1], "call")) return call_once(addresses[0], addresses[1], addresses[2], call);
  fprintf(stderr,
          "usage: rpc_echo serve ADDRESS... [--threads N] | bench ADDRESS [--seconds S] [--only ROW] |\n"
          "       call ADDRESS METHOD REQUEST [--timeout S] [--wait] [--cancel S] [--repeat N]\n");
  return 2;
}
