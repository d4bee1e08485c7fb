#include "framework/session_state.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "base/mem.h"

enum { MAX_TENSORS = 1000000 };

typedef struct kept_tensor {
  td_tensor *tensor;
  int64_t step_id;          /* while the step runs */
  struct kept_tensor *next; /* likewise: among the pending ones */
  size_t node_size;         /* the handle begins with the node's name */
  td_str handle;
} kept_tensor;

struct td_session_state {
  atomic_size_t pending_count; /* relaxed: who put one in looks again, in the same step */
  pthread_mutex_t lock;
  /* guarded by lock */
  td_map tensors;       /* handle -> kept_tensor */
  kept_tensor *pending; /* of steps that run */
  uint64_t next_id;
};

td_session_state *td_session_state_create(void) {
  td_session_state *s = td_new(td_session_state);
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

static void free_kept(kept_tensor *k) {
  td_tensor_release(k->tensor);
  td_free((char *)k->handle.data);
  td_free(k);
}

static void free_pending(kept_tensor *list) {
  for (kept_tensor *next; list; list = next) {
    next = list->next;
    free_kept(list);
  }
}

void td_session_state_destroy(td_session_state *s) {
  void *v;
  if (!s) return;
  for (size_t i = 0; td_map_next(&s->tensors, &i, NULL, &v);) free_kept(v);
  td_map_deinit(&s->tensors);
  free_pending(s->pending);
  pthread_mutex_destroy(&s->lock);
  td_free(s);
}

static td_str node_of(const kept_tensor *k) { return td_str_n(k->handle.data, k->node_size); }

/* With the lock held. */
static td_status check_new(const td_session_state *s, int64_t step_id, td_str node) {
  for (const kept_tensor *k = s->pending; k; k = k->next)
    if (k->step_id == step_id && td_str_eq(node_of(k), node))
      return td_invalid_argument("Failed to add a tensor with name '%.*s' to the tensor store.", TD_STR_ARG(node));
  if (s->tensors.count >= MAX_TENSORS)
    return td_resource_exhausted("the session keeps %d tensors already", MAX_TENSORS);
  return TD_STATUS_OK;
}

td_status td_session_state_put(td_session_state *s, int64_t step_id, td_str node, td_str device, td_tensor *t,
                               td_strbuf *out_handle) {
  td_strbuf handle = {0};
  pthread_mutex_lock(&s->lock);
  td_status status = check_new(s, step_id, node);
  if (!status) {
    td_strbuf_append(&handle, node);
    td_strbuf_printf(&handle, ";%llu;", (unsigned long long)s->next_id++);
    td_strbuf_append(&handle, device);
    td_strbuf_append(out_handle, td_strbuf_view(&handle));
    kept_tensor *k = td_new(kept_tensor);
    k->tensor = td_tensor_retain(t);
    k->step_id = step_id;
    k->node_size = node.size;
    size_t size = handle.size;
    k->handle = (td_str){td_strbuf_take(&handle), size};
    k->next = s->pending;
    s->pending = k;
    atomic_fetch_add_explicit(&s->pending_count, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

void td_session_state_end_step(td_session_state *s, int64_t step_id, bool (*is_kept)(void *, td_str), void *arg) {
  kept_tensor *dropped = NULL;
  if (!atomic_load_explicit(&s->pending_count, memory_order_relaxed)) return;
  pthread_mutex_lock(&s->lock);
  for (kept_tensor **at = &s->pending, *k; (k = *at);) {
    if (k->step_id != step_id) {
      at = &k->next;
      continue;
    }
    *at = k->next;
    atomic_fetch_sub_explicit(&s->pending_count, 1, memory_order_relaxed);
    if (is_kept(arg, node_of(k))) {
      td_map_put(&s->tensors, k->handle, k); /* handles are numbered: it is new */
    } else {
      k->next = dropped;
      dropped = k;
    }
  }
  pthread_mutex_unlock(&s->lock);
  free_pending(dropped);
}

td_status td_session_state_get(td_session_state *s, td_str handle, td_tensor **out) {
  pthread_mutex_lock(&s->lock);
  const kept_tensor *k = td_map_get(&s->tensors, handle);
  *out = k ? td_tensor_retain(k->tensor) : NULL;
  pthread_mutex_unlock(&s->lock);
  return *out ? TD_STATUS_OK
              : td_invalid_argument("The tensor with handle '%.*s' is not in the session store.", TD_STR_ARG(handle));
}

td_status td_session_state_delete(td_session_state *s, td_str handle) {
  pthread_mutex_lock(&s->lock);
  kept_tensor *k = td_map_remove(&s->tensors, handle);
  pthread_mutex_unlock(&s->lock);
  if (!k)
    return td_invalid_argument("Failed to delete a tensor with handle '%.*s' in the session store.",
                               TD_STR_ARG(handle));
  free_kept(k);
  return TD_STATUS_OK;
}
