#include "runtime/local_rendezvous.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "framework/variable.h"
#include "tensor/memory.h"

/* What waits is kept in buckets by key and iteration only: a value sent inside a frame has two frame ids, one a
 * dialect, and must be found by either. Entries of a bucket are compared in full. */

enum { SHARDS = 8, FIRST_BUCKETS = 16 };
static const size_t MAX_ENTRIES = 1 << 20;

typedef struct entry entry;
struct entry {
  entry *next;              /* of its bucket; each key, frame and kind is there once */
  entry *same, **same_last; /* later ones of that key: a queue, whose head stands in the bucket */
  uint64_t hash;
  td_frame_id frame;
  td_recv *request; /* NULL: a value that was sent */
  td_tensor *value;
  td_variable *variable; /* sent in place of a value: read when it is received */
  bool is_dead;
  uint64_t since_ns; /* receives */
  size_t key_size;
  char key[];
};

typedef struct shard {
  pthread_mutex_t lock;
  /* guarded by lock */
  entry **buckets;
  uint32_t bucket_count, count;
  td_status aborted;
} shard;

typedef struct local {
  td_rendezvous base;
  atomic_size_t entries; /* relaxed: a cap need not be exact */
  shard shards[SHARDS];
} local;

static uint64_t hash_of(const td_rendezvous_key *key, td_frame_id frame) {
  return key->hash ^ ((uint64_t)frame.iter * 0x9e3779b97f4a7c15ull);
}

static shard *shard_of(local *l, uint64_t hash) { return &l->shards[hash >> 61]; }

/* The frames have a common name in one of the dialects. A key from the wire has one id in both members. */
static bool same_frame(td_frame_id a, td_frame_id b) {
  if (a.iter != b.iter) return false;
  return a.id_1x == b.id_1x || a.id_2x == b.id_2x || a.id_1x == b.id_2x || a.id_2x == b.id_1x;
}

static bool matches(const entry *e, uint64_t hash, const td_rendezvous_key *key, td_frame_id frame) {
  return e->hash == hash && e->key_size == key->text.size && same_frame(e->frame, frame) &&
         !memcmp(e->key, key->text.data, e->key_size);
}

static void grow(shard *s) {
  uint32_t n = s->bucket_count ? s->bucket_count * 2 : FIRST_BUCKETS;
  entry **bigger = td_new_array(entry *, n);
  for (uint32_t i = 0; i < s->bucket_count; i++) {
    entry **low = &bigger[i], **high = &bigger[i + s->bucket_count]; /* order within a bucket is kept */
    for (entry *e = s->buckets[i], *next; e; e = next) {
      next = e->next;
      entry ***to = e->hash & s->bucket_count ? &high : &low;
      e->next = NULL;
      **to = e;
      *to = &e->next;
    }
  }
  td_free(s->buckets);
  s->buckets = bigger;
  s->bucket_count = n;
}

/* The place of an entry of this kind that matches; NULL: there is none. */
static entry **find(shard *s, uint64_t hash, const td_rendezvous_key *key, td_frame_id frame, bool is_request) {
  if (!s->bucket_count) return NULL;
  entry **at = &s->buckets[hash & (s->bucket_count - 1)];
  while (*at && !(((*at)->request != NULL) == is_request && matches(*at, hash, key, frame))) at = &(*at)->next;
  return *at ? at : NULL;
}

static void entry_free(entry *e) {
  if (e) td_memory_object_free(e, sizeof *e + e->key_size);
}

/* Takes the entry out; the next of its queue steps into its place. */
static entry *take(local *l, shard *s, entry **at) {
  entry *e = *at, *heir = e->same;
  if (heir) {
    heir->next = e->next;
    if (heir->same) heir->same_last = e->same_last;
    *at = heir;
  } else {
    *at = e->next;
  }
  s->count--;
  atomic_fetch_sub_explicit(&l->entries, 1, memory_order_relaxed);
  return e;
}

/* What one side brings: a receive, or a value, or the variable to take it from. */
typedef struct offer {
  td_recv *request;
  td_tensor *value;
  td_variable *variable;
  bool is_dead;
} offer;

/* Puts a request or a value behind what waits there. */
static td_status add(local *l, shard *s, uint64_t hash, const td_rendezvous_key *key, td_frame_id frame, offer o) {
  if (atomic_fetch_add_explicit(&l->entries, 1, memory_order_relaxed) >= MAX_ENTRIES) {
    atomic_fetch_sub_explicit(&l->entries, 1, memory_order_relaxed);
    return td_resource_exhausted("More than %zu tensors and receives wait at the rendezvous of one step (key %.*s)",
                                 MAX_ENTRIES, TD_STR_ARG(key->text));
  }
  if (s->count >= s->bucket_count) grow(s);
  entry *e = td_memory_object_alloc(sizeof *e + key->text.size);
  *e = (entry){.hash = hash,
               .frame = frame,
               .request = o.request,
               .value = o.value,
               .variable = o.variable,
               .is_dead = o.is_dead,
               .key_size = key->text.size};
  memcpy(e->key, key->text.data, key->text.size);
  if (o.request) {
    e->since_ns = td_now_ns();
    o.request->impl = s;
  }
  entry **head = &s->buckets[hash & (s->bucket_count - 1)], **at = find(s, hash, key, frame, o.request != NULL);
  if (at) {
    entry *first = *at;
    *(first->same ? first->same_last : &first->same) = e;
    first->same_last = &e->same;
  } else {
    e->next = *head;
    *head = e;
  }
  s->count++;
  return TD_STATUS_OK;
}

/* Takes the variable. */
static td_status read_variable(td_variable *v, td_tensor **out) {
  td_status s = td_variable_read(v, out);
  if (!s && !*out) s = td_failed_precondition("Attempting to use uninitialized value %s", v->name);
  td_variable_release(v);
  return s;
}

static void drop_value(entry *e) {
  td_tensor_release(e->value);
  if (e->variable) td_variable_release(e->variable);
}

static td_status offer_value(local *l, const td_rendezvous_key *key, td_frame_id frame, offer o) {
  uint64_t hash = hash_of(key, frame);
  shard *s = shard_of(l, hash);
  pthread_mutex_lock(&s->lock);
  td_status status = td_status_retain(s->aborted);
  entry **at = status ? NULL : find(s, hash, key, frame, true);
  entry *e = at ? take(l, s, at) : NULL;
  if (!e && !status) {
    status = add(l, s, hash, key, frame, o);
    if (!status) o = (offer){0};
  }
  pthread_mutex_unlock(&s->lock);
  if (e) {
    td_status read = o.variable ? read_variable(o.variable, &o.value) : TD_STATUS_OK;
    e->request->done(e->request, read, o.value, o.is_dead);
    entry_free(e);
  } else {
    td_tensor_release(o.value);
    if (o.variable) td_variable_release(o.variable);
  }
  return status;
}

static td_status local_send(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_tensor *t,
                            bool is_dead) {
  return offer_value((local *)r, key, frame, (offer){.value = t, .is_dead = is_dead});
}

static td_status local_send_variable(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame,
                                     td_variable *v) {
  return offer_value((local *)r, key, frame, (offer){.variable = v});
}

static void local_recv(td_rendezvous *r, const td_rendezvous_key *key, td_frame_id frame, td_recv *request) {
  local *l = (local *)r;
  uint64_t hash = hash_of(key, frame);
  shard *s = shard_of(l, hash);
  pthread_mutex_lock(&s->lock);
  td_status status = td_status_retain(s->aborted);
  entry **at = status ? NULL : find(s, hash, key, frame, false);
  entry *e = at ? take(l, s, at) : NULL;
  bool waits = false;
  request->impl = NULL;
  if (!e && !status) {
    status = add(l, s, hash, key, frame, (offer){.request = request});
    waits = !status;
  }
  pthread_mutex_unlock(&s->lock);
  if (waits) return; /* `request` may be done already */
  td_tensor *value = e ? e->value : NULL;
  bool is_dead = e && e->is_dead;
  if (e && e->variable) status = read_variable(e->variable, &value);
  entry_free(e);
  request->done(request, status, value, is_dead);
}

/* Takes the entry of `request` out of the queue that begins at *at; NULL: it is not there. */
static entry *take_request(local *l, shard *s, entry **at, const td_recv *request) {
  entry *first = *at;
  if (first->request == request) return take(l, s, at);
  for (entry **in = &first->same; *in; in = &(*in)->same) {
    entry *e = *in;
    if (e->request != request) continue;
    *in = e->same;
    if (!e->same) first->same_last = in;
    s->count--;
    atomic_fetch_sub_explicit(&l->entries, 1, memory_order_relaxed);
    return e;
  }
  return NULL;
}

bool td_local_rendezvous_cancel_recv(td_rendezvous *r, td_recv *request) {
  shard *s = request->impl; /* set before recv() returned */
  entry *e = NULL;
  if (!s) return false;
  pthread_mutex_lock(&s->lock);
  for (uint32_t b = 0; b < s->bucket_count && !e; b++)
    for (entry **at = &s->buckets[b]; *at && !e; at = &(*at)->next) {
      e = (*at)->request ? take_request((local *)r, s, at, request) : NULL;
      if (e || !*at) break;
    }
  pthread_mutex_unlock(&s->lock);
  entry_free(e);
  return e != NULL;
}

/* Empties a shard: the list of what was in it, in reverse. */
static entry *take_all(local *l, shard *s) {
  entry *all = NULL;
  for (uint32_t b = 0; b < s->bucket_count; b++) {
    while (s->buckets[b]) {
      entry *e = take(l, s, &s->buckets[b]);
      e->next = all;
      all = e;
    }
  }
  return all;
}

static void local_abort(td_rendezvous *r, td_status status) {
  local *l = (local *)r;
  for (int i = 0; i < SHARDS; i++) {
    shard *s = &l->shards[i];
    pthread_mutex_lock(&s->lock);
    if (!s->aborted) s->aborted = td_status_retain(status);
    entry *all = take_all(l, s);
    pthread_mutex_unlock(&s->lock);
    for (entry *e = all, *next; e; e = next) {
      next = e->next;
      if (e->request)
        e->request->done(e->request, td_status_retain(status), NULL, false);
      else
        drop_value(e);
      entry_free(e);
    }
  }
}

void td_local_rendezvous_visit_waiting(td_rendezvous *r, void (*visit)(void *arg, td_str key, uint64_t since_ns),
                                       void *arg) {
  local *l = (local *)r;
  for (int i = 0; i < SHARDS; i++) {
    shard *s = &l->shards[i];
    pthread_mutex_lock(&s->lock);
    for (uint32_t b = 0; b < s->bucket_count; b++)
      for (const entry *e = s->buckets[b]; e; e = e->next)
        for (const entry *q = e; q; q = q->same)
          if (q->request) visit(arg, td_str_n(q->key, q->key_size), q->since_ns);
    pthread_mutex_unlock(&s->lock);
  }
}

static void local_destroy(td_rendezvous *r) {
  local *l = (local *)r;
  for (int i = 0; i < SHARDS; i++) {
    shard *s = &l->shards[i];
    for (entry *e = take_all(l, s), *next; e; e = next) {
      next = e->next;
      drop_value(e);
      entry_free(e);
    }
    td_free(s->buckets);
    td_status_free(s->aborted);
    pthread_mutex_destroy(&s->lock);
  }
  td_free(l);
}

td_rendezvous *td_local_rendezvous_create(void) {
  static const td_rendezvous_ops ops = {.send = local_send,
                                        .send_variable = local_send_variable,
                                        .recv = local_recv,
                                        .abort = local_abort,
                                        .destroy = local_destroy};
  local *l = td_new(local);
  l->base.ops = &ops;
  atomic_init(&l->base.refs, 1);
  for (int i = 0; i < SHARDS; i++) pthread_mutex_init(&l->shards[i].lock, NULL);
  return &l->base;
}
