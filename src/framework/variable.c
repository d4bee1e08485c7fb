#include "framework/variable.h"

#include <string.h>

#include "base/mem.h"

static void destroy(td_resource *r) {
  td_variable *v = (td_variable *)r;
  td_tensor_release(v->value);
  pthread_rwlock_destroy(&v->lock);
  td_free(v->declared_dims);
  td_free(v->name);
  td_free(v);
}

const td_resource_type td_ref_variable_type = {.name = "N10tensorflow9LegacyVarE", .destroy = destroy};
const td_resource_type td_resource_variable_type = {.name = "N10tensorflow3VarE", .destroy = destroy};

td_variable *td_variable_create(const td_resource_type *type, td_dtype dtype, td_str name) {
  td_variable *v = td_new(td_variable);
  td_resource_init(&v->resource, type);
  v->dtype = dtype;
  v->name = td_strndup(name.data ? name.data : "", name.size);
  pthread_rwlockattr_t attr;
  pthread_rwlockattr_init(&attr);
  /* Readers that keep coming must not starve a writer; nobody takes the read lock twice. */
  pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init(&v->lock, &attr);
  pthread_rwlockattr_destroy(&attr);
  return v;
}

void td_variable_declare_shape(td_variable *v, int rank, const int64_t *dims) {
  td_free(v->declared_dims);
  v->declared_dims = NULL;
  v->declared_rank = rank;
  if (!rank) return;
  v->declared_dims = td_new_array(int64_t, (size_t)rank);
  memcpy(v->declared_dims, dims, (size_t)rank * sizeof *dims);
}

td_status td_variable_read(td_variable *v, td_tensor **out) {
  td_status status = TD_STATUS_OK;
  *out = NULL;
  pthread_rwlock_rdlock(&v->lock);
  if (v->value) {
    if (v->copy_on_read)
      status = td_tensor_copy(v->value, out);
    else
      *out = td_tensor_retain(v->value);
  }
  pthread_rwlock_unlock(&v->lock);
  return status;
}

void td_variable_set(td_variable *v, td_tensor *value) {
  td_tensor *old = v->value;
  v->value = value;
  td_tensor_release(old);
}

bool td_variable_is_writable(const td_variable *v) {
  return td_tensor_is_exclusive(v->value) && (td_tensor_is_private(v->value) || !td_tensor_could_be_lendable(v->value));
}

/* By a value of its own; `keep`: of the same elements. */
static td_status replace(td_variable *v, bool keep) {
  td_tensor *own = NULL;
  if (keep)
    TD_TRY(td_tensor_copy(v->value, &own));
  else
    TD_TRY(td_tensor_create_dims(v->dtype, v->value->rank, v->value->dims, &own));
  td_variable_set(v, own);
  return TD_STATUS_OK;
}

td_status td_variable_make_exclusive(td_variable *v, bool keep) {
  return td_variable_is_writable(v) ? TD_STATUS_OK : replace(v, keep);
}

td_status td_variable_prepare_sparse(td_variable *v) {
  bool copies = v->resource.type == &td_resource_variable_type; /* for readers; else they see what is written */
  if (copies ? v->copy_on_read : !td_tensor_is_lendable(v->value)) return TD_STATUS_OK;
  if (!td_tensor_is_exclusive(v->value)) TD_TRY(replace(v, true));
  td_tensor_keep_private(v->value);
  v->copy_on_read = copies;
  return TD_STATUS_OK;
}

char *td_variable_shape_text(const td_variable *v) {
  return v->value ? td_tensor_shape_text(v->value) : td_dims_text(v->declared_rank, v->declared_dims);
}
