#include "ops/update_set.h"

#include <string.h>

#include "base/mem.h"
#include "framework/device.h"

td_status td_variable_not_readable(const td_tensor *handle, td_device *device, td_status why) {
  td_resource_handle *h;
  if (why && td_status_code(why) != TD_NOT_FOUND) return why;
  td_status bad = td_handle_of(handle, device, &h);
  if (bad) {
    td_status_free(why);
    return bad;
  }
  td_status s = td_failed_precondition(
      "Error while reading resource variable %s from Container: %s. This could mean that the variable was "
      "uninitialized. %s%s",
      h->name, h->container, why ? "Not found: " : "Variable has no value.", td_status_message(why));
  td_status_free(why);
  return s;
}

td_status td_update_variable(td_kernel_ctx *ctx, int i, td_variable **out) {
  if (td_dtype_is_ref(ctx->kernel->input_types[i])) {
    *out = td_variable_retain(td_in_ref(ctx, i));
    return TD_STATUS_OK;
  }
  void *v = NULL;
  TD_TRY(td_handle_lookup(td_in(ctx, i), ctx->device, &td_resource_variable_type, &v));
  *out = v;
  return TD_STATUS_OK;
}

static void insert_by_address(td_update_set *s, td_variable *v) {
  int at = s->unique;
  for (int i = 0; i < s->unique; i++)
    if (s->order[i] == v) return;
  for (; at > 0 && (uintptr_t)s->order[at - 1] > (uintptr_t)v; at--) s->order[at] = s->order[at - 1];
  s->order[at] = v;
  s->unique++;
}

static td_status begin(td_kernel_ctx *ctx, int count, td_dtype dtype, bool is_shared, td_update_set *s) {
  *s = (td_update_set){.is_shared = is_shared};
  for (int i = 0; i < count; i++) {
    TD_TRY(td_update_variable(ctx, i, &s->vars[i]));
    s->count++;
  }
  for (int i = 0; i < count; i++) insert_by_address(s, s->vars[i]);
  for (int i = 0; i < s->unique; i++) {
    if (is_shared)
      pthread_rwlock_rdlock(&s->order[i]->lock);
    else
      pthread_rwlock_wrlock(&s->order[i]->lock);
  }
  for (int i = 0; i < count; i++) {
    if (!s->vars[i]->value)
      return td_failed_precondition("Attempting to use uninitialized variables: %s", s->vars[i]->name);
    if (s->vars[i]->dtype != dtype)
      return td_invalid_argument("Trying to update variable %s of type %s as if it were of type %s", s->vars[i]->name,
                                 td_dtype_name(s->vars[i]->dtype), td_dtype_name(dtype));
  }
  return TD_STATUS_OK;
}

td_status td_update_begin(td_kernel_ctx *ctx, int count, td_dtype dtype, td_update_set *s) {
  return begin(ctx, count, dtype, false, s);
}

td_status td_update_begin_shared(td_kernel_ctx *ctx, int count, td_dtype dtype, td_update_set *s) {
  return begin(ctx, count, dtype, true, s);
}

td_status td_update_prepare(td_update_set *s, bool sparse) {
  for (int i = 0; i < s->unique; i++)
    TD_TRY(sparse ? td_variable_prepare_sparse(s->order[i]) : td_variable_make_exclusive(s->order[i], true));
  return TD_STATUS_OK;
}

bool td_update_overlaps(const td_update_set *s, const td_tensor *t) {
  for (int i = 0; i < s->unique; i++) {
    const td_tensor *v = s->order[i]->value;
    uintptr_t a = (uintptr_t)v->data, b = (uintptr_t)t->data;
    if (a < b + t->size && b < a + v->size) return true;
  }
  return false;
}

bool td_update_is_lendable(const td_update_set *s) {
  for (int i = 0; i < s->unique; i++)
    if (td_tensor_is_lendable(s->order[i]->value)) return true;
  return false;
}

td_status td_update_prepare_dense(td_update_set *s) {
  /* A variable that is there twice reads what it has just written. */
  if (s->unique < s->count) return td_update_prepare(s, false);
  td_tensor *fresh[TD_UPDATE_MAX] = {0};
  td_status status = TD_STATUS_OK;
  for (int i = 0; i < s->unique && !status; i++) {
    const td_tensor *value = s->order[i]->value;
    if (!td_variable_is_writable(s->order[i]))
      status = td_tensor_create_dims((td_dtype)value->dtype, value->rank, value->dims, &fresh[i]);
  }
  for (int i = 0; i < s->unique; i++) {
    if (status) {
      td_tensor_release(fresh[i]);
    } else if (fresh[i]) {
      s->old[i] = s->order[i]->value;
      s->order[i]->value = fresh[i];
    }
  }
  return status;
}

const td_tensor *td_update_old(const td_update_set *s, int i) {
  for (int k = 0; k < s->unique; k++)
    if (s->order[k] == s->vars[i] && s->old[k]) return s->old[k];
  return s->vars[i]->value;
}

enum { CHUNK = 1024 }; /* elements that stay in the nearest cache between copy and update */

typedef struct dense_job {
  td_rows_fn *rows;
  char *dst;
  const char *old, *src;
  size_t size;
} dense_job;

static void dense_part(void *arg, int64_t begin, int64_t end) {
  const dense_job *j = arg;
  int64_t step = j->old != j->dst ? CHUNK : end - begin;
  for (int64_t at = begin; at < end; at += step) {
    int64_t to = TD_MIN(end, at + step);
    size_t from = (size_t)at * j->size;
    if (j->old != j->dst) memcpy(j->dst + from, j->old + from, (size_t)(to - at) * j->size);
    j->rows(j->dst + from, j->src + from, to - at, false);
  }
}

td_status td_update_dense(td_kernel_ctx *ctx, td_update_set *s, td_rows_fn *rows, const td_tensor *update) {
  TD_TRY(td_update_prepare_dense(s));
  size_t size = td_dtype_size((td_dtype)update->dtype);
  dense_job job = {rows, td_update_value(s, 0)->data, td_update_old(s, 0)->data, update->data, size};
  td_ctx_parallel_for(ctx, update->count, (double)size * 0.03, dense_part, &job);
  return TD_STATUS_OK;
}

void td_update_end(td_update_set *s) {
  for (int i = 0; i < s->unique; i++) td_tensor_release(s->old[i]);
  for (int i = s->unique; i-- > 0;) pthread_rwlock_unlock(&s->order[i]->lock);
  for (int i = 0; i < s->count; i++) td_variable_release(s->vars[i]);
  *s = (td_update_set){0};
}

void td_update_forward_ref(td_kernel_ctx *ctx) {
  if (!td_dtype_is_ref(ctx->kernel->input_types[0])) return;
  td_out_set_ref(ctx, 0, td_in_ref(ctx, 0));
  ctx->in[0].ref = NULL;
}
