#include "debug/gates.h"

#include <pthread.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "proto/wire.h"

enum { MAX_OPEN = 100000, SCHEME = sizeof "grpc://" - 1 };

/* An open gate: its key "<address> <watch>" lies behind it. */
typedef struct gate {
  td_debug_gate state;
  char key[];
} gate;

struct td_debug_gates {
  pthread_mutex_t lock;
  td_map open; /* guarded by lock: key -> gate * */
};

td_debug_gates *td_debug_gates_create(void) {
  td_debug_gates *g = td_new(td_debug_gates);
  pthread_mutex_init(&g->lock, NULL);
  return g;
}

void td_debug_gates_destroy(td_debug_gates *g) {
  void *value;
  for (size_t i = 0; td_map_next(&g->open, &i, NULL, &value);) td_free(value);
  td_map_deinit(&g->open);
  pthread_mutex_destroy(&g->lock);
  td_free(g);
}

static void put_key(td_strbuf *b, td_str address, td_str watch) {
  td_strbuf_append(b, address);
  td_strbuf_putc(b, ' ');
  td_strbuf_append(b, watch);
}

void td_debug_gates_set(td_debug_gates *g, td_str address, td_str watch, td_debug_gate state) {
  td_strbuf key = {0};
  if (state == TD_DEBUG_GATE_UNSPECIFIED) return;
  put_key(&key, address, watch);
  td_str view = td_strbuf_view(&key);
  pthread_mutex_lock(&g->lock);
  gate *found = td_map_get(&g->open, view), *closed = NULL;
  if (state == TD_DEBUG_GATE_CLOSED) {
    closed = td_map_remove(&g->open, view);
    if (!closed)
      td_warn("The debugger at %.*s disables a watch that is not enabled: %.*s", TD_STR_ARG(address),
              TD_STR_ARG(watch));
  } else if (found) {
    found->state = state;
  } else if (g->open.count < MAX_OPEN) {
    found = td_malloc(sizeof *found + view.size);
    found->state = state;
    memcpy(found->key, view.data, view.size);
    td_map_put(&g->open, td_str_n(found->key, view.size), found);
  } else {
    td_warn("The debugger at %.*s enables more than %d watches", TD_STR_ARG(address), MAX_OPEN);
  }
  pthread_mutex_unlock(&g->lock);
  td_free(closed);
  td_strbuf_deinit(&key);
}

td_debug_gate td_debug_gates_get(td_debug_gates *g, td_str address, td_str watch) {
  td_strbuf key = {0};
  put_key(&key, address, watch);
  pthread_mutex_lock(&g->lock);
  const gate *found = td_map_get(&g->open, td_strbuf_view(&key));
  td_debug_gate state = found ? found->state : TD_DEBUG_GATE_CLOSED;
  pthread_mutex_unlock(&g->lock);
  td_strbuf_deinit(&key);
  return state;
}

/* ---- EventReply ---- */

enum { REPLY_CHANGES = 1, CHANGE_STATE = 1, CHANGE_NODE = 2, CHANGE_SLOT = 3, CHANGE_OP = 4 };

static bool apply_change(td_debug_gates *g, td_str address, td_str bytes) {
  td_wire w = td_wire_of(bytes);
  td_wire_field f;
  bool bad = false;
  uint64_t state = 0;
  int32_t slot = 0;
  td_str node = TD_STR(""), op = TD_STR("");
  while (td_wire_next(&w, &f, &bad)) {
    if (f.type == TD_WIRE_VARINT && f.number == CHANGE_STATE) state = f.value;
    if (f.type == TD_WIRE_VARINT && f.number == CHANGE_SLOT) slot = (int32_t)f.value;
    if (f.type == TD_WIRE_BYTES && f.number == CHANGE_NODE) node = f.bytes;
    if (f.type == TD_WIRE_BYTES && f.number == CHANGE_OP) op = f.bytes;
  }
  if (bad || state > TD_DEBUG_GATE_READ_WRITE) return false;
  td_strbuf watch = {0};
  td_strbuf_append(&watch, node);
  td_strbuf_printf(&watch, ":%d:", slot);
  td_strbuf_append(&watch, op);
  td_debug_gates_set(g, address, td_strbuf_view(&watch), (td_debug_gate)state);
  td_strbuf_deinit(&watch);
  return true;
}

bool td_debug_gates_apply(td_debug_gates *g, td_str address, td_str reply) {
  td_wire w = td_wire_of(reply);
  td_wire_field f;
  bool bad = false;
  while (td_wire_next(&w, &f, &bad))
    if (f.number == REPLY_CHANGES && f.type == TD_WIRE_BYTES && !apply_change(g, address, f.bytes)) return false;
  return !bad;
}

/* ---- URLs ---- */

td_str td_debug_url_path(td_str url) {
  td_str rest = td_str_n(url.data + SCHEME, url.size - SCHEME);
  const char *slash = rest.size ? memchr(rest.data, '/', rest.size) : NULL;
  return slash ? td_str_n(slash, (size_t)(rest.data + rest.size - slash)) : TD_STR("");
}

td_str td_debug_url_address(td_str url) {
  td_str rest = td_str_n(url.data + SCHEME, url.size - SCHEME);
  return td_str_split(&rest, '/');
}
