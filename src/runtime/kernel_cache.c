#include <pthread.h>

#include "base/map.h"
#include "base/mem.h"
#include "runtime/kernel_cache.h"

struct td_kernel_cache {
  pthread_mutex_t lock;
  td_map kernels; /* guarded by lock; name -> td_kernel, one reference each; keys lie in the kernels */
};

td_kernel_cache *td_kernel_cache_create(void) {
  td_kernel_cache *c = td_new(td_kernel_cache);
  pthread_mutex_init(&c->lock, NULL);
  return c;
}

void td_kernel_cache_destroy(td_kernel_cache *c) {
  if (!c) return;
  void *kernel;
  for (size_t i = 0; td_map_next(&c->kernels, &i, NULL, &kernel);) td_kernel_release(kernel);
  td_map_deinit(&c->kernels);
  pthread_mutex_destroy(&c->lock);
  td_free(c);
}

static bool same_types(const int *a, const int *b, int n) { return !n || !memcmp(a, b, (size_t)n * sizeof *a); }

/* A node of that name in another graph may be something else; its kernel must not run this one. */
static bool fits(const td_kernel *k, const td_node *n) {
  return td_str_eq(k->op, n->def.op) && k->input_count == n->input_count && k->output_count == n->output_count &&
         same_types(k->input_types, n->input_types, k->input_count) &&
         same_types(k->output_types, n->output_types, k->output_count);
}

td_status td_kernel_cache_get(td_kernel_cache *c, const td_node *n, const td_kernel_options *options, td_kernel **out) {
  pthread_mutex_lock(&c->lock);
  td_kernel *k = td_map_get(&c->kernels, n->def.name);
  bool taken = k != NULL;
  if (k) k = fits(k, n) ? td_kernel_retain(k) : NULL;
  pthread_mutex_unlock(&c->lock);
  if (k) {
    *out = k;
    return TD_STATUS_OK;
  }
  TD_TRY(td_kernel_create(options, &k)); /* without the lock: it may load a file */
  if (!taken) {
    pthread_mutex_lock(&c->lock);
    td_kernel *other = td_map_insert(&c->kernels, k->name, k);
    if (!other) {
      td_kernel_retain(k);
    } else if (fits(other, n)) { /* another graph was faster: both must share one state */
      td_kernel_retain(other);
      pthread_mutex_unlock(&c->lock);
      td_kernel_release(k);
      *out = other;
      return TD_STATUS_OK;
    }
    pthread_mutex_unlock(&c->lock);
  }
  *out = k;
  return TD_STATUS_OK;
}
