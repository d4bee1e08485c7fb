#include "cluster/step_sequence.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/random.h"
#include "cluster/master_step.h"
#include "cluster/messages.h"
#include "cluster/step_table.h"
#include "proto/message.h"
#include "proto/wire.h"

enum { MAX_SEQUENCES = 65536 };
static const uint64_t ASK_NS = 30000000000u;

typedef struct sequence {
  td_step_sequences *table;
  int64_t key;
  td_str name;        /* in the table: key and leader; its bytes lie behind */
  const char *leader; /* likewise; "": this task */
  /* guarded by the table's lock */
  int64_t next;  /* 0: not known */
  bool is_taken; /* by a step, or while the leader is asked */
  td_sequence_wait *waits;
  td_peers *peers; /* while the leader is asked: retained */
} sequence;

struct td_step_sequences {
  td_task *task;
  pthread_mutex_t lock;
  td_map sequences; /* guarded by lock */
};

const char *td_configured_leader(const td_task *task) {
  const Pb__ConfigProto__Experimental *e = task->default_config->experimental;
  return e ? e->collective_group_leader : "";
}

td_step_sequences *td_step_sequences_create(td_task *task) {
  td_step_sequences *s = td_new(td_step_sequences);
  s->task = task;
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

void td_step_sequences_destroy(td_step_sequences *s) {
  void *q;
  if (!s) return;
  for (size_t i = 0; td_map_next(&s->sequences, &i, NULL, &q);) td_free(q);
  td_map_deinit(&s->sequences);
  pthread_mutex_destroy(&s->lock);
  td_free(s);
}

/* ---- graph keys ---- */

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

int64_t td_collective_graph_key(const td_graph *g) {
  static const char *const collectives[] = {"CollectiveBcastRecv", "CollectiveBcastSend", "CollectiveGather",
                                            "CollectiveReduce"};
  int64_t *keys = NULL, key;
  size_t count = 0, capacity = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    const td_node_def *n = &g->nodes[i]->def;
    bool is_one = false;
    for (size_t k = 0; k < TD_COUNT(collectives); k++) is_one |= td_str_is(n->op, collectives[k]);
    const Pb__AttrValue *v = is_one && !g->nodes[i]->is_removed ? td_attr_find(n, "instance_key") : NULL;
    if (!v || v->value_case != PB__ATTR_VALUE__VALUE_I) continue;
    key = v->i;
    TD_GROW(keys, count, capacity);
    keys[count++] = key;
  }
  if (count) qsort(keys, count, sizeof *keys, by_value);
  uint64_t hash = 0x8774aa605c729c72u;
  for (size_t i = 0; i < count; i++) {
    uint64_t a = (uint64_t)keys[i];
    if (i && keys[i] == keys[i - 1]) continue;
    hash = a ^ (hash + 0x9e3779b97f4a7800u + (a << 10) + (a >> 4)); /* Hash64Combine(key, hash) */
  }
  td_free(keys);
  return count ? (int64_t)hash : 0;
}

/* ---- the table ---- */

/* With the lock held, as all up to advance(). */
static td_status find(td_step_sequences *s, int64_t key, const char *leader, sequence **out) {
  char text[24];
  int n = snprintf(text, sizeof text, "%lld ", (long long)key);
  td_strbuf name = {0};
  td_strbuf_append(&name, td_str_n(text, (size_t)n));
  td_strbuf_puts(&name, leader);
  sequence *q = td_map_get(&s->sequences, td_strbuf_view(&name));
  td_status status = TD_STATUS_OK;
  if (!q && s->sequences.count >= MAX_SEQUENCES) {
    status = td_resource_exhausted("there are %d sequences of steps already; collective_graph_key %lld is refused",
                                   MAX_SEQUENCES, (long long)key);
  } else if (!q) {
    q = td_calloc(1, sizeof *q + name.size + 1);
    q->table = s;
    q->key = key;
    q->name = td_str_n(memcpy(q + 1, name.data, name.size), name.size);
    q->leader = q->name.data + n;
    td_map_put(&s->sequences, q->name, q);
  }
  td_strbuf_deinit(&name);
  *out = q;
  return status;
}

td_status td_step_sequences_peek(td_step_sequences *s, int64_t key, int64_t *out) {
  sequence *q;
  pthread_mutex_lock(&s->lock);
  td_status status = find(s, key, "", &q);
  if (!status && !q->next) q->next = td_master_step_new_id();
  if (!status) *out = q->next;
  pthread_mutex_unlock(&s->lock);
  return status;
}

static int64_t id_after(int64_t id, int by) { return (id + by) & (int64_t)((1ull << 57) - 1); }

/* ---- turns ---- */

static void ask(sequence *q);

/* Gives the sequence to who is first, if it is free. Takes the lock. */
static void advance(sequence *q) {
  td_step_sequences *s = q->table;
  td_sequence_wait *first = NULL;
  int64_t id = 0;
  bool asks = false;
  pthread_mutex_lock(&s->lock);
  if (!q->is_taken && q->waits) {
    q->is_taken = true;
    if (!q->next && !q->leader[0]) q->next = td_master_step_new_id();
    asks = !(id = q->next);
    if (asks) {
      q->peers = td_peers_retain(q->waits->peers);
    } else {
      first = q->waits;
      q->waits = first->next;
    }
  }
  pthread_mutex_unlock(&s->lock);
  if (first) first->ready(first, TD_STATUS_OK, id);
  if (asks) ask(q);
}

/* The leader's answer: an id, or an error for all who wait. */
static void answered(sequence *q, td_status status, int64_t id) {
  td_step_sequences *s = q->table;
  td_sequence_wait *failed = NULL;
  if (!status && id <= 0)
    status = td_error(TD_UNAVAILABLE, "%s gives no step id for collective_graph_key %lld: %lld", q->leader,
                      (long long)q->key, (long long)id);
  pthread_mutex_lock(&s->lock);
  q->is_taken = false;
  if (status) {
    failed = q->waits;
    q->waits = NULL;
  } else {
    q->next = id;
  }
  td_peers *peers = q->peers;
  q->peers = NULL;
  pthread_mutex_unlock(&s->lock);
  for (td_sequence_wait *next; failed; failed = next) {
    next = failed->next;
    failed->ready(failed, td_status_retain(status), 0);
  }
  if (!status) advance(q);
  td_status_free(status);
  td_peers_release(peers);
}

static void told(void *arg, td_status status, td_str reply, td_str details) {
  sequence *q = arg;
  td_arena arena = {0};
  Pb__GetStepSequenceResponse *m = NULL;
  int64_t id = 0;
  status = td_status_from_call(status, details);
  if (!status)
    status = td_message_decode(&pb__get_step_sequence_response__descriptor, reply, &arena, (ProtobufCMessage **)&m);
  for (size_t i = 0; !status && i < m->n_step_sequence; i++)
    if (m->step_sequence[i]->graph_key == q->key) id = m->step_sequence[i]->next_step_id;
  td_arena_deinit(&arena);
  answered(q, status, id);
}

static void ask(sequence *q) {
  td_worker *w = td_peers_find(q->peers, td_str_of(q->leader));
  if (!w || w->is_self) {
    answered(q, td_invalid_argument("collective_group_leader is no task of the cluster: %s", q->leader), 0);
    return;
  }
  td_strbuf b = {0}, keys = {0};
  td_payload message = {0};
  td_wire_put_varint(&keys, (uint64_t)q->key);
  td_wire_put_bytes(&b, 1, td_strbuf_view(&keys));
  td_strbuf_deinit(&keys);
  size_t size = b.size;
  td_payload_take(&message, td_strbuf_take(&b), size);
  td_client_call *call =
      w->ops->unary(w, "/tensorflow.WorkerService/GetStepSequence", &message, NULL, td_now_ns() + ASK_NS, told, q);
  if (call) td_client_call_release(call);
}

void td_step_sequences_acquire(td_step_sequences *s, td_peers *peers, const char *leader, int64_t key,
                               td_sequence_wait *w) {
  sequence *q;
  bool is_self = !strcmp(leader, td_peers_own_name(peers));
  pthread_mutex_lock(&s->lock);
  td_status status = find(s, key, is_self ? "" : leader, &q);
  w->sequence = q;
  if (!status) {
    td_sequence_wait **at = &q->waits;
    while (*at) at = &(*at)->next;
    w->next = NULL;
    *at = w;
    w->peers = peers;
  }
  pthread_mutex_unlock(&s->lock);
  if (status)
    w->ready(w, status, 0);
  else
    advance(q);
}

bool td_step_sequences_leave(td_step_sequences *s, td_sequence_wait *w) {
  sequence *q = w->sequence;
  if (!q) return false;
  pthread_mutex_lock(&s->lock);
  td_sequence_wait **at = &q->waits;
  while (*at && *at != w) at = &(*at)->next;
  bool waited = *at;
  if (waited) *at = w->next;
  pthread_mutex_unlock(&s->lock);
  return waited;
}

void td_step_sequences_release(td_step_sequences *s, td_sequence_wait *w, td_sequence_end end) {
  sequence *q = w->sequence;
  pthread_mutex_lock(&s->lock);
  int64_t id = q->next;
  bool begins_anew = end == TD_SEQUENCE_FAILED && !q->leader[0];
  q->is_taken = false;
  if (end == TD_SEQUENCE_DONE) q->next = id_after(q->next, 1);
  if (end == TD_SEQUENCE_FAILED) q->next = q->leader[0] ? 0 : td_master_step_new_id();
  pthread_mutex_unlock(&s->lock);
  /* Who is at that step, or has ended it well and is at the next, learns that there will be neither. */
  for (int i = 0; begins_anew && i < 2; i++) td_step_table_cleanup(s->task->steps, id_after(id, i));
  advance(q);
}
