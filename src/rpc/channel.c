#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "rpc/channel_internal.h"
#include "rpc/loop_internal.h"
#include "rpc/neighbour.h"

static const uint64_t FIRST_BACKOFF_NS = 10 * 1000000ull, MAX_BACKOFF_NS = 1000 * 1000000ull,
                      ATTEMPT_NS = 20 * 1000000000ull;

/* ---- life ------------------------------------------------------------------------------------------------- */

static void attempt_ready(td_watch *w, uint32_t events);
static void timer_fired(td_timer *t);

td_status td_channel_create(td_loop *loop, const char *address, const td_channel_options *options, td_channel **out) {
  td_addresses parsed;
  TD_TRY(td_address_parse(address, &parsed));
  td_channel *c = td_new(td_channel);
  c->loop = loop;
  if (options) c->options = *options;
  if (!c->options.max_message_bytes) c->options.max_message_bytes = INT32_MAX;
  if (!c->options.max_backoff_ns) c->options.max_backoff_ns = MAX_BACKOFF_NS;
  c->address = td_strdup(address);
  c->authority = td_strdup(td_str_starts(td_str_of(address), TD_STR("unix:")) ? "localhost" : address);
  c->user_agent = td_strdup(c->options.user_agent ? c->options.user_agent : "tensord/" TD_VERSION);
  c->options.user_agent = NULL;
  atomic_init(&c->references, 1);
  c->connecting = (td_watch){.ready = attempt_ready, .fd = -1};
  c->timer.fire = timer_fired;
  c->company.fire = td_client_call_company_ended;
  c->backoff_ns = FIRST_BACKOFF_NS;
  *out = c;
  return TD_STATUS_OK;
}

void td_channel_release(td_channel *c) {
  if (atomic_fetch_sub(&c->references, 1) != 1) return;
  td_status_free(c->failure);
  td_free(c->address);
  td_free(c->authority);
  td_free(c->user_agent);
  td_free(c);
}

bool td_channel_is_connected(const td_channel *c) {
  return atomic_load_explicit(&((td_channel *)c)->connected, memory_order_relaxed); /* a hint */
}

td_neighbour td_channel_neighbour(const td_channel *c) {
  return c->current ? td_conn_neighbour(c->current->h2) : (td_neighbour){.memory = -1};
}

/* ---- attempts to connect ------------------------------------------------------------------------------------ */

static void stop_attempt(td_channel *c) {
  if (c->resolution) td_resolution_cancel(c->resolution);
  c->resolution = NULL;
  td_timer_stop(c->loop, &c->timer);
  if (c->connecting.fd < 0) return;
  td_watch_stop(c->loop, &c->connecting);
  close(c->connecting.fd);
  c->connecting.fd = -1;
}

/* The attempt has failed (consumes `why`): calls that do not wait end with it, the next attempt comes later. */
static void attempt_failed(td_channel *c, td_status why) {
  stop_attempt(c);
  td_status_free(c->failure);
  c->failure = why;
  c->state = TD_CHANNEL_BACKOFF;
  uint64_t jitter = c->backoff_ns / 5; /* ±20 %: a cluster's tasks should not all come back at once */
  uint64_t wait = c->backoff_ns - jitter + td_random_fast_u64() % (2 * jitter + 1);
  td_timer_start(c->loop, &c->timer, td_now_ns() + wait);
  c->backoff_ns = TD_MIN(c->backoff_ns + c->backoff_ns * 3 / 5, c->options.max_backoff_ns);
  td_client_call *next = c->waiting;
  while (next) { /* each end may add or end others: look again from the front */
    td_client_call *call = next;
    next = call->next;
    if (call->options.wait_for_ready) continue;
    td_client_call_end(call, td_status_retain(c->failure));
    next = c->waiting;
  }
}

/* A port of the ephemeral range with nobody listening can get connected to itself. */
static bool is_connected_to_itself(int fd) {
  struct sockaddr_storage own = {0}, peer = {0};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (getsockname(fd, (struct sockaddr *)&own, &own_size) || getpeername(fd, (struct sockaddr *)&peer, &peer_size))
    return false;
  return own.ss_family != AF_UNIX && own_size == peer_size && !memcmp(&own, &peer, own_size);
}

static void attempt_connected(td_channel *c, td_stream *io) {
  td_client_conn *conn = td_new(td_client_conn);
  conn->channel = c;
  td_conn_options options = {
      .loop = c->loop,
      .ops = &td_client_conn_ops,
      .owner = conn,
      .peer = c->address,
      .keepalive_ns = c->options.keepalive_ns,
      .max_buffered_bytes = SIZE_MAX,
  };
  td_status status = td_conn_create(&options, io, &conn->h2);
  if (status) {
    td_free(conn);
    attempt_failed(c, status);
    return;
  }
  conn->next = c->conns;
  if (conn->next) conn->next->previous = conn;
  c->conns = conn;
  c->current = conn;
}

/* Tries the addresses found, one after another. `error`: why the last one did not do. */
static void try_next(td_channel *c, int error) {
  while (c->next_address < c->found.count) {
    td_address *a = &c->found.items[c->next_address++];
    td_stream *neighbour = c->options.neighbours ? td_neighbour_connect(a, c->options.lane) : NULL;
    if (neighbour) {
      attempt_connected(c, neighbour);
      return;
    }
    int fd = socket(a->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      error = errno;
      continue;
    }
    td_socket_tune(fd);
    if (!connect(fd, (struct sockaddr *)&a->storage, a->size) && !is_connected_to_itself(fd)) {
      attempt_connected(c, td_socket_stream_create(fd));
      return;
    }
    error = errno;
    c->connecting.fd = fd;
    if (error == EINPROGRESS && !td_watch_start(c->loop, &c->connecting, EPOLLOUT)) return;
    close(fd);
    c->connecting.fd = -1;
  }
  attempt_failed(c, td_error(TD_UNAVAILABLE, "Cannot connect to %s: %s", c->address, strerror(error)));
}

static void attempt_ready(td_watch *w, uint32_t events) {
  td_channel *c = TD_CONTAINER_OF(w, td_channel, connecting);
  int fd = w->fd, error = 0;
  socklen_t size = sizeof error;
  td_watch_stop(c->loop, w);
  w->fd = -1;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size)) error = errno;
  if (!error && is_connected_to_itself(fd)) error = ECONNREFUSED;
  if (!error) {
    attempt_connected(c, td_socket_stream_create(fd));
  } else {
    close(fd);
    try_next(c, error);
  }
}

static void resolved(void *arg, td_status status, const td_addresses *found) {
  td_channel *c = arg;
  c->resolution = NULL;
  if (status) {
    attempt_failed(c, status);
    return;
  }
  c->found = *found;
  c->next_address = 0;
  try_next(c, 0);
}

static void attempt(td_channel *c) {
  c->attempting = true;
  td_timer_start(c->loop, &c->timer, td_now_ns() + ATTEMPT_NS);
  c->next_address = 0;
  td_status status = td_address_parse(c->address, &c->found);
  if (status) {
    attempt_failed(c, status);
  } else if (c->found.count) {
    try_next(c, 0);
  } else {
    c->resolution = td_resolution_start(c->loop, c->address, resolved, c);
  }
}

void td_channel_connect(td_channel *c) {
  if (c->state != TD_CHANNEL_IDLE || c->destroyed) return;
  c->state = TD_CHANNEL_CONNECTING;
  c->attempting = false;
  td_timer_start(c->loop, &c->timer, 0); /* not here: an attempt that fails at once ends calls */
}

static void timer_fired(td_timer *t) {
  td_channel *c = TD_CONTAINER_OF(t, td_channel, timer);
  if (c->state == TD_CHANNEL_BACKOFF) {
    c->state = TD_CHANNEL_IDLE;
    if (c->waiting) td_channel_connect(c);
    return;
  }
  if (c->state != TD_CHANNEL_CONNECTING) return;
  if (!c->attempting) {
    attempt(c);
    return;
  }
  td_status why = td_error(TD_UNAVAILABLE, "Cannot connect to %s: no answer within %d s", c->address,
                           (int)(ATTEMPT_NS / 1000000000u));
  if (c->current) {
    td_conn_close(c->current->h2, why); /* lost() goes on from there */
  } else {
    attempt_failed(c, why);
  }
}

/* ---- connections ------------------------------------------------------------------------------------------ */

void td_channel_on_settled(td_conn *h2) {
  td_client_conn *conn = td_conn_owner(h2);
  td_channel *c = conn->channel;
  conn->settled = true;
  if (c->current != conn) return;
  td_timer_stop(c->loop, &c->timer);
  c->state = TD_CHANNEL_READY;
  c->backoff_ns = FIRST_BACKOFF_NS;
  atomic_store_explicit(&c->connected, true, memory_order_relaxed);
  while (c->waiting && c->current == conn) td_client_call_send(c->waiting);
  if (c->options.trunks && c->current == conn) td_client_trunk_open(conn);
}

/* The connection is not for new calls any more. */
static void detach(td_channel *c, td_client_conn *conn) {
  if (c->current != conn) return;
  td_client_trunk_detach(conn, false);
  c->current = NULL;
  c->state = TD_CHANNEL_IDLE;
  atomic_store_explicit(&c->connected, false, memory_order_relaxed);
}

void td_channel_check(td_channel *c) {
  if (c->state == TD_CHANNEL_READY && td_conn_is_going(c->current->h2)) detach(c, c->current);
}

void td_channel_on_goaway(td_conn *h2, int32_t last, uint32_t error) {
  td_client_conn *conn = td_conn_owner(h2);
  td_channel *c = conn->channel;
  if (!conn->settled) return; /* the loss of the connection will follow */
  detach(c, conn);
  if (c->waiting) td_channel_connect(c);
}

void td_channel_on_lost(td_conn *h2, td_status why) {
  td_client_conn *conn = td_conn_owner(h2);
  td_channel *c = conn->channel;
  if (conn->previous) conn->previous->next = conn->next;
  if (!conn->previous) c->conns = conn->next;
  if (conn->next) conn->next->previous = conn->previous;
  bool current = c->current == conn, settled = conn->settled;
  td_client_trunk_detach(conn, true);
  detach(c, conn);
  td_free(conn);
  td_status_free(c->failure);
  c->failure = why ? td_status_retain(why) : td_error(TD_UNAVAILABLE, "Connection to %s was closed", c->address);
  if (!current || c->destroyed) return;
  if (settled) {
    td_channel_connect(c); /* calls that were refused come back to wait */
  } else {
    attempt_failed(c, td_status_retain(c->failure));
  }
}

/* ---- end -------------------------------------------------------------------------------------------------- */

static void destroy_run(td_work *w) {
  td_channel *c = TD_CONTAINER_OF(w, td_channel, destroy);
  c->destroyed = true;
  stop_attempt(c);
  td_timer_stop(c->loop, &c->company);
  c->state = TD_CHANNEL_IDLE;
  while (c->conns) td_conn_close_now(c->conns->h2, td_error(TD_UNAVAILABLE, "The channel to %s is closed", c->address));
  while (c->waiting)
    td_client_call_end(c->waiting, td_error(TD_UNAVAILABLE, "The channel to %s is closed", c->address));
  td_channel_release(c);
}

void td_channel_destroy(td_channel *c) {
  if (!c) return;
  c->destroy.run = destroy_run;
  td_loop_post(c->loop, &c->destroy);
}
