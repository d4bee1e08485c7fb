#include "rpc/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/un.h>

#include "base/mem.h"
#include "base/str.h"

static td_status parse_unix(td_str path, td_addresses *out) {
  struct sockaddr_un *u = (struct sockaddr_un *)&out->items[0].storage;
  if (!path.size || path.size >= sizeof u->sun_path)
    return td_invalid_argument("A unix socket's path has 1 to %zu bytes, not %zu: \"%.*s\"", sizeof u->sun_path - 1,
                               path.size, TD_STR_ARG(path));
  memset(u, 0, sizeof *u);
  u->sun_family = AF_UNIX;
  memcpy(u->sun_path, path.data, path.size);
  out->items[0].size = sizeof *u;
  out->count = 1;
  return TD_STATUS_OK;
}

/* Splits "host:port" and "[v6]:port". */
static bool split(td_str text, char host[256], uint16_t *port) {
  const char *colon = text.size ? memrchr(text.data, ':', text.size) : NULL;
  if (!colon || memchr(text.data, '/', text.size)) return false;
  td_str h = {text.data, (size_t)(colon - text.data)};
  uint64_t n;
  if (!td_str_to_u64(td_str_n(colon + 1, text.size - h.size - 1), &n) || n > 65535) return false;
  if (h.size >= 2 && h.data[0] == '[' && h.data[h.size - 1] == ']') h = td_str_n(h.data + 1, h.size - 2);
  if (h.size > 255) return false;
  memcpy(host, h.data, h.size);
  host[h.size] = 0;
  *port = (uint16_t)n;
  return true;
}

static void add_v4(td_addresses *out, struct in_addr ip, uint16_t port) {
  td_address *a = &out->items[out->count++];
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = ip};
  memset(a, 0, sizeof *a);
  memcpy(&a->storage, &in, sizeof in);
  a->size = sizeof in;
}

static void add_v6(td_addresses *out, struct in6_addr ip, uint16_t port) {
  td_address *a = &out->items[out->count++];
  struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = ip};
  memset(a, 0, sizeof *a);
  memcpy(&a->storage, &in, sizeof in);
  a->size = sizeof in;
}

static td_status parse(const char *text, td_addresses *out, char host[256], uint16_t *port) {
  td_str t = td_str_of(text);
  out->count = 0;
  if (td_str_starts(t, TD_STR("unix:"))) {
    t = td_str_n(t.data + 5, t.size - 5);
    if (td_str_starts(t, TD_STR("//"))) t = td_str_n(t.data + 2, t.size - 2);
    return parse_unix(t, out);
  }
  if (!split(t, host, port)) return td_invalid_argument("Could not interpret \"%s\" as a host-port pair.", text);
  struct in_addr v4;
  struct in6_addr v6;
  if (!*host) {
    add_v4(out, (struct in_addr){htonl(INADDR_ANY)}, *port);
  } else if (inet_pton(AF_INET, host, &v4) == 1) {
    add_v4(out, v4, *port);
  } else if (inet_pton(AF_INET6, host, &v6) == 1) {
    add_v6(out, v6, *port);
  } else if (!strcmp(host, "localhost")) {
    add_v4(out, (struct in_addr){htonl(INADDR_LOOPBACK)}, *port);
    add_v6(out, in6addr_loopback, *port);
  }
  return TD_STATUS_OK;
}

td_status td_address_parse(const char *text, td_addresses *out) {
  char host[256];
  uint16_t port;
  return parse(text, out, host, &port);
}

td_status td_address_resolve(const char *text, td_addresses *out) {
  char host[256], service[8];
  uint16_t port = 0;
  TD_TRY(parse(text, out, host, &port));
  if (out->count) return TD_STATUS_OK;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
  snprintf(service, sizeof service, "%u", port);
  int rc = getaddrinfo(host, service, &hints, &found);
  if (rc) return td_error(TD_UNAVAILABLE, "Cannot resolve \"%s\": %s", text, gai_strerror(rc));
  for (struct addrinfo *a = found; a && out->count < TD_ADDRESSES_MAX; a = a->ai_next) {
    if (a->ai_addrlen > sizeof out->items[0].storage) continue;
    td_address *item = &out->items[out->count++];
    memcpy(&item->storage, a->ai_addr, a->ai_addrlen);
    item->size = a->ai_addrlen;
  }
  freeaddrinfo(found);
  if (!out->count) return td_error(TD_UNAVAILABLE, "Cannot resolve \"%s\": no address", text);
  return TD_STATUS_OK;
}

char *td_address_name(const struct sockaddr *address) {
  char ip[INET6_ADDRSTRLEN] = "?";
  if (address->sa_family == AF_INET) {
    const struct sockaddr_in *in = (const struct sockaddr_in *)address;
    inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
    return td_asprintf("ipv4:%s:%u", ip, ntohs(in->sin_port));
  }
  if (address->sa_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
    inet_ntop(AF_INET6, &in->sin6_addr, ip, sizeof ip);
    return td_asprintf("ipv6:[%s]:%u", ip, ntohs(in->sin6_port));
  }
  return td_strdup("unix:");
}

int td_address_port(const struct sockaddr *address) {
  if (address->sa_family == AF_INET) return ntohs(((const struct sockaddr_in *)address)->sin_port);
  if (address->sa_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
  return 0;
}

/* ---- off the loop ------------------------------------------------------------------------------------------ */

struct td_resolution {
  td_work work;
  char *text;
  void (*done)(void *arg, td_status status, const td_addresses *found);
  void *arg;
  td_addresses found;
  td_status status;
  pthread_mutex_t lock;
  td_loop *loop; /* guarded by lock; NULL once cancelled: the loop may be gone before the name service answers */
};

static void resolution_free(td_resolution *r) {
  pthread_mutex_destroy(&r->lock);
  td_status_free(r->status);
  td_free(r->text);
  td_free(r);
}

static void resolved(td_work *w) {
  td_resolution *r = TD_CONTAINER_OF(w, td_resolution, work);
  pthread_mutex_lock(&r->lock); /* the thread that posted has let go of it */
  bool wanted = r->loop;
  pthread_mutex_unlock(&r->lock);
  td_status status = r->status;
  r->status = TD_STATUS_OK;
  if (wanted) {
    r->done(r->arg, status, &r->found);
  } else {
    td_status_free(status);
  }
  resolution_free(r);
}

static void *resolve_main(void *arg) {
  td_resolution *r = arg;
  r->status = td_address_resolve(r->text, &r->found);
  pthread_mutex_lock(&r->lock);
  td_loop *l = r->loop;
  if (l) td_loop_post(l, &r->work);
  pthread_mutex_unlock(&r->lock);
  if (!l) resolution_free(r);
  return NULL;
}

td_resolution *td_resolution_start(td_loop *l, const char *text,
                                   void (*done)(void *arg, td_status status, const td_addresses *found), void *arg) {
  td_resolution *r = td_new(td_resolution);
  r->work.run = resolved;
  r->text = td_strdup(text);
  r->done = done;
  r->arg = arg;
  r->loop = l;
  pthread_mutex_init(&r->lock, NULL);
  pthread_t thread;
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  int rc = pthread_create(&thread, &detached, resolve_main, r);
  pthread_attr_destroy(&detached);
  if (rc) {
    r->status = td_error(TD_UNAVAILABLE, "Cannot resolve \"%s\": no thread: %s", text, strerror(rc));
    td_loop_post(l, &r->work);
  }
  return r;
}

void td_resolution_cancel(td_resolution *r) {
  pthread_mutex_lock(&r->lock);
  r->loop = NULL;
  pthread_mutex_unlock(&r->lock);
}
