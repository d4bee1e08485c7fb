#include <errno.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/address.h"
#include "rpc/loop_internal.h"
#include "rpc/neighbour.h"
#include "rpc/server_internal.h"

enum {
  BACKLOG = 1024,
  ACCEPTS_PER_TURN = 64,
  ACCEPT_PAUSE_NS = 100 * 1000 * 1000,
  UNREAD_GRACE_NS = 500 * 1000 * 1000
};

struct td_listener {
  td_listener *next;
  td_rpc_server *server;
  td_watch watch;
  td_timer resume; /* after running out of descriptors */
  char *unix_path; /* to be removed at the end; NULL: none */
  bool watched, is_for_neighbours;
  int lane; /* of neighbours: which loop serves them */
};

/* ---- creation --------------------------------------------------------------------------------------------- */

td_status td_rpc_server_create(const td_rpc_server_options *options, td_rpc_server **out) {
  if (options->loop_count < 1) return td_invalid_argument("A server needs at least one loop");
  td_rpc_server *s = td_new(td_rpc_server);
  s->options = *options;
  if (!s->options.max_message_bytes) s->options.max_message_bytes = INT32_MAX;
  if (!s->options.max_buffered_bytes) s->options.max_buffered_bytes = (size_t)4 << 30;
  if (!s->options.max_streams) s->options.max_streams = 65536;
  s->buffered.max = s->options.max_buffered_bytes;
  s->methods = td_new_array(td_method, (size_t)options->method_count + 1);
  for (int i = 0; i < options->method_count; i++) {
    s->methods[i] = options->methods[i];
    td_map_put(&s->by_path, td_str_of(s->methods[i].path), &s->methods[i]);
  }
  s->shard_count = options->loop_count;
  s->shards = td_new_array(td_server_shard, (size_t)s->shard_count);
  for (int i = 0; i < s->shard_count; i++) {
    s->shards[i].server = s;
    s->shards[i].loop = options->loops[i];
  }
  s->options.loops = NULL;
  s->options.methods = NULL;
  pthread_mutex_init(&s->lock, NULL);
  atomic_init(&s->references, 1 + s->shard_count);
  *out = s;
  return TD_STATUS_OK;
}

static void listeners_free(td_rpc_server *s) {
  while (s->listeners) {
    td_listener *l = s->listeners;
    s->listeners = l->next;
    td_free(l->unix_path);
    td_free(l);
  }
}

void td_server_release(td_rpc_server *s) {
  if (atomic_fetch_sub(&s->references, 1) != 1) return;
  for (int i = 0; i < s->shard_count; i++) td_call_spares_free(&s->shards[i]);
  listeners_free(s);
  td_map_deinit(&s->by_path);
  pthread_mutex_destroy(&s->lock);
  td_free(s->methods);
  td_free(s->shards);
  td_free(s);
}

td_pool *td_server_inflaters(td_rpc_server *s) {
  pthread_mutex_lock(&s->lock);
  if (!s->inflaters) s->inflaters = td_pool_create("td-inflate", td_log_task(), 1);
  td_pool *p = s->inflaters;
  pthread_mutex_unlock(&s->lock);
  return p;
}

/* ---- listening -------------------------------------------------------------------------------------------- */

/* A socket file that nobody answers on was left by a process that is gone. */
static void remove_stale(const struct sockaddr_un *u) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  if (connect(fd, (const struct sockaddr *)u, sizeof *u) && errno == ECONNREFUSED) unlink(u->sun_path);
  close(fd);
}

static td_status open_listener(const td_address *a, int *out_fd) {
  const struct sockaddr *address = (const struct sockaddr *)&a->storage;
  int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
  if (fd < 0) return td_error(TD_UNKNOWN, "%s", strerror(errno));
  if (address->sa_family == AF_UNIX) {
    if (((const struct sockaddr_un *)address)->sun_path[0]) remove_stale((const struct sockaddr_un *)address);
  } else {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    td_socket_tune(fd);
  }
  if (bind(fd, address, a->size) || listen(fd, BACKLOG)) {
    int error = errno;
    close(fd);
    return td_error(TD_UNKNOWN, "%s", strerror(error));
  }
  *out_fd = fd;
  return TD_STATUS_OK;
}

static void accept_ready(td_watch *w, uint32_t events);
static void accept_resume(td_timer *t);

static td_listener *add_listener(td_rpc_server *s, int fd) {
  td_listener *l = td_new(td_listener);
  l->server = s;
  l->watch = (td_watch){.ready = accept_ready, .fd = fd};
  l->resume.fire = accept_resume;
  l->next = s->listeners;
  s->listeners = l;
  return l;
}

/* Neighbours come by addresses of their own, one a loop. Those of the first loop serve for lanes that are not there;
 * without any they come by TCP. */
static void listen_for_neighbours(td_rpc_server *s, const td_address *bound) {
  td_status status = TD_STATUS_OK;
  td_address address;
  for (int lane = 0; lane < s->shard_count && !status && td_neighbour_address(bound, lane, &address); lane++) {
    int fd;
    status = open_listener(&address, &fd);
    if (status) {
      td_info("Neighbours %s: %s", lane ? "cannot choose their loop" : "will connect by TCP",
              td_status_message(status));
      continue;
    }
    td_listener *l = add_listener(s, fd);
    l->is_for_neighbours = true;
    l->lane = lane;
  }
  td_status_free(status);
}

td_status td_rpc_server_listen(td_rpc_server *s, const char *address, int *out_port) {
  td_addresses found;
  TD_TRY(td_address_resolve(address, &found));
  td_status status = TD_STATUS_OK;
  int fd = -1, used = -1;
  for (int i = 0; i < found.count && fd < 0; i++) {
    td_status failed = open_listener(&found.items[i], &fd);
    if (!failed) used = i;
    td_status_merge(&status, failed);
  }
  if (fd < 0) {
    td_code code = td_status_code(status);
    td_status named =
        td_error(code, "Could not start gRPC server: cannot listen on %s: %s", address, td_status_message(status));
    td_status_free(status);
    return named;
  }
  td_status_free(status);
  td_address bound = {.size = sizeof bound.storage};
  getsockname(fd, (struct sockaddr *)&bound.storage, &bound.size);
  td_listener *l = add_listener(s, fd);
  if (found.items[used].storage.ss_family == AF_UNIX)
    l->unix_path = td_strdup(((struct sockaddr_un *)&found.items[used].storage)->sun_path);
  if (out_port) *out_port = td_address_port((struct sockaddr *)&bound.storage);
  if (s->options.neighbours) listen_for_neighbours(s, &bound);
  return TD_STATUS_OK;
}

/* ---- accepting -------------------------------------------------------------------------------------------- */

typedef struct new_conn {
  td_work work;
  td_server_shard *shard;
  td_stream *io;
  char *peer;
} new_conn;

td_conn *td_server_conn_begin(td_server_shard *shard, td_stream *io, const char *peer) {
  if (shard->closed) {
    io->ops->close(io);
    atomic_fetch_sub_explicit(&shard->conn_count, 1, memory_order_relaxed);
    return NULL;
  }
  const td_rpc_server_options *o = &shard->server->options;
  td_server_conn *conn = td_new(td_server_conn);
  conn->shard = shard;
  td_conn_options options = {
      .loop = shard->loop,
      .ops = &td_server_conn_ops,
      .owner = conn,
      .peer = peer,
      .server = true,
      .max_streams = o->max_streams,
      .keepalive_ns = o->keepalive_ns,
      .keepalive_idle = true,
      .max_buffered_bytes = o->max_buffered_bytes,
  };
  td_status status = td_conn_create(&options, io, &conn->h2);
  if (status) {
    td_warn("%s", td_status_message(status));
    td_status_free(status);
    td_free(conn);
    atomic_fetch_sub_explicit(&shard->conn_count, 1, memory_order_relaxed);
    return NULL;
  }
  conn->next = shard->conns;
  if (conn->next) conn->next->previous = conn;
  shard->conns = conn;
  if (shard->stopping) td_conn_go_away(conn->h2);
  return conn->h2;
}

static void new_conn_run(td_work *w) {
  new_conn *n = TD_CONTAINER_OF(w, new_conn, work);
  td_rpc_server *s = n->shard->server;
  td_server_conn_begin(n->shard, n->io, n->peer);
  td_free(n->peer);
  td_free(n);
  td_server_release(s);
}

/* The first of those with the fewest connections. */
static td_server_shard *emptiest(td_rpc_server *s) {
  td_server_shard *found = s->shards;
  for (td_server_shard *x = s->shards + 1; x < s->shards + s->shard_count; x++)
    if (atomic_load_explicit(&x->conn_count, memory_order_relaxed) <
        atomic_load_explicit(&found->conn_count, memory_order_relaxed))
      found = x;
  return found;
}

static td_stream *neighbour_stream(const td_rpc_server *s, int fd) {
  return td_neighbour_stream_create(fd, s->options.memory ? s->options.memory() : -1);
}

static void accepted(td_listener *l, int fd, const struct sockaddr *address) {
  td_rpc_server *s = l->server;
  td_stream *io = l->is_for_neighbours ? neighbour_stream(s, fd) : td_socket_stream_create(fd);
  if (!io) return; /* another user's process: not for it */
  td_server_shard *shard = l->is_for_neighbours ? &s->shards[l->lane] : emptiest(s);
  atomic_fetch_add_explicit(&shard->conn_count, 1, memory_order_relaxed);
  char *peer = td_address_name(address);
  if (td_loop_is_current(shard->loop)) {
    td_server_conn_begin(shard, io, peer);
    td_free(peer);
    return;
  }
  new_conn *n = td_new(new_conn);
  *n = (new_conn){.work.run = new_conn_run, .shard = shard, .io = io, .peer = peer};
  atomic_fetch_add(&s->references, 1);
  td_loop_post(shard->loop, &n->work);
}

static void accept_ready(td_watch *w, uint32_t events) {
  td_listener *l = TD_CONTAINER_OF(w, td_listener, watch);
  td_loop *loop = l->server->shards[0].loop;
  for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    int fd = accept4(w->fd, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      accepted(l, fd, (struct sockaddr *)&address);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) { /* out of descriptors or memory: asking again at once would only burn the core */
      td_warn("Cannot accept connections for now: %s", strerror(errno));
      td_watch_stop(loop, w);
      l->watched = false;
      td_timer_start(loop, &l->resume, td_loop_now_ns(loop) + ACCEPT_PAUSE_NS);
    }
    return;
  }
}

static void listener_watch(td_listener *l) {
  td_status status = td_watch_start(l->server->shards[0].loop, &l->watch, EPOLLIN);
  l->watched = !status;
  if (status) td_warn("%s", td_status_message(status));
  td_status_free(status);
}

static void accept_resume(td_timer *t) { listener_watch(TD_CONTAINER_OF(t, td_listener, resume)); }

/* ---- work on every loop ----------------------------------------------------------------------------------- */

typedef struct shard_work {
  td_work work;
  td_server_shard *shard;
  void (*fn)(td_server_shard *shard, bool *result);
  bool result;
  sem_t *done; /* NULL: nobody waits, the item frees itself and holds a reference */
} shard_work;

static void shard_work_run(td_work *w) {
  shard_work *item = TD_CONTAINER_OF(w, shard_work, work);
  item->fn(item->shard, &item->result);
  if (item->done) {
    sem_post(item->done);
    return;
  }
  td_rpc_server *s = item->shard->server;
  td_free(item);
  td_server_release(s);
}

static void on_every_loop(td_rpc_server *s, void (*fn)(td_server_shard *shard, bool *result)) {
  for (int i = 0; i < s->shard_count; i++) {
    shard_work *item = td_new(shard_work);
    *item = (shard_work){.work.run = shard_work_run, .shard = &s->shards[i], .fn = fn};
    atomic_fetch_add(&s->references, 1);
    td_loop_post(s->shards[i].loop, &item->work);
  }
}

/* Waits for it; whether any result is true. */
static bool ask_every_loop(td_rpc_server *s, void (*fn)(td_server_shard *shard, bool *result)) {
  bool any = false;
  sem_t done;
  sem_init(&done, 0, 0);
  for (int i = 0; i < s->shard_count; i++) {
    shard_work item = {.work.run = shard_work_run, .shard = &s->shards[i], .fn = fn, .done = &done};
    td_loop_post(s->shards[i].loop, &item.work);
    while (sem_wait(&done)) continue;
    any |= item.result;
  }
  sem_destroy(&done);
  return any;
}

/* ---- start and stop --------------------------------------------------------------------------------------- */

static void start_listening(td_server_shard *shard, bool *result) {
  if (shard != &shard->server->shards[0] || shard->stopping) return;
  for (td_listener *l = shard->server->listeners; l; l = l->next)
    if (!l->watched && l->watch.fd >= 0) listener_watch(l);
}

void td_rpc_server_start(td_rpc_server *s) { on_every_loop(s, start_listening); }

static void stop_listening(td_server_shard *shard) {
  if (shard != &shard->server->shards[0]) return;
  for (td_listener *l = shard->server->listeners; l; l = l->next) {
    if (l->watch.fd < 0) continue;
    if (l->watched) td_watch_stop(shard->loop, &l->watch);
    td_timer_stop(shard->loop, &l->resume);
    close(l->watch.fd);
    l->watch.fd = -1;
    l->watched = false;
    if (l->unix_path) unlink(l->unix_path);
  }
}

static void stop_accepting(td_server_shard *shard, bool *result) {
  shard->stopping = true;
  stop_listening(shard);
  for (td_server_conn *c = shard->conns; c; c = c->next) td_conn_go_away(c->h2);
}

void td_rpc_server_stop_accepting(td_rpc_server *s) { on_every_loop(s, stop_accepting); }

static void is_busy(td_server_shard *shard, bool *result) {
  *result = td_calls_are_running(shard);
  for (td_server_conn *c = shard->conns; c; c = c->next) *result |= !td_conn_is_idle(c->h2, c->resting);
}

static void cancel_calls(td_server_shard *shard, bool *result) { td_calls_cancel(shard); }

static void close_conns(td_server_shard *shard, bool *result) {
  while (shard->conns) td_conn_close_now(shard->conns->h2, td_error(TD_UNAVAILABLE, "The server is closed"));
}

bool td_rpc_server_drain(td_rpc_server *s, uint64_t deadline_ns) {
  bool cancelled = false, closed = false;
  struct timespec pause = {0, 200 * 1000};
  while (ask_every_loop(s, is_busy)) {
    uint64_t now = td_now_ns();
    if (!cancelled && now >= deadline_ns) {
      cancelled = true;
      ask_every_loop(s, cancel_calls);
    } else if (cancelled && !closed && now - deadline_ns > UNREAD_GRACE_NS) {
      closed = true;
      ask_every_loop(s, close_conns); /* whoever has not read its answer by now does not read */
    }
    nanosleep(&pause, NULL);
    if (pause.tv_nsec < 5 * 1000 * 1000) pause.tv_nsec *= 2;
  }
  return !cancelled;
}

void td_server_shard_check(td_server_shard *shard) {
  if (!shard->closed || shard->calls) return;
  td_server_release(shard->server);
}

static void close_shard(td_server_shard *shard, bool *result) {
  shard->stopping = shard->closed = true;
  stop_listening(shard);
  td_call *guard = shard->calls; /* with calls left, the last of them drops the shard's reference */
  close_conns(shard, result);
  if (!guard) td_server_release(shard->server);
}

void td_rpc_server_destroy(td_rpc_server *s) {
  if (!s) return;
  ask_every_loop(s, close_shard);
  td_pool_destroy(s->inflaters);
  td_server_release(s);
}
