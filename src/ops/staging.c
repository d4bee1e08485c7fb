#include "ops/staging.h"

#include <stdint.h>

#include "base/mem.h"
#include "framework/device.h"

td_status td_staging_create(td_kernel_builder *b, void *state) {
  td_staging_state *st = state;
  td_str container, name, key_container, key_name;
  int64_t capacity, memory_limit;
  const Pb__AttrValue__ListValue *dtypes;
  TD_TRY(td_attr_str(b->node, "container", &container));
  TD_TRY(td_attr_str(b->node, "shared_name", &name));
  TD_TRY(td_attr_int(b->node, "capacity", &capacity));
  TD_TRY(td_attr_int(b->node, "memory_limit", &memory_limit));
  TD_TRY(td_attr_list(b->node, "dtypes", &dtypes));
  if (capacity < 0 || memory_limit < 0) {
    return td_invalid_argument("capacity %lld and memory_limit %lld must not be negative", (long long)capacity,
                               (long long)memory_limit);
  }
  TD_TRY(td_container_info(b->device->resources, container, name, b->node->name, &key_container, &key_name));
  st->container = td_strndup(key_container.data, key_container.size);
  st->name = td_strndup(key_name.data, key_name.size);
  st->capacity = (uint64_t)capacity;
  st->memory_limit = (uint64_t)memory_limit;
  st->dtype_count = (int)dtypes->n_type;
  return TD_STATUS_OK;
}

void td_staging_destroy(void *state) {
  td_staging_state *st = state;
  td_free(st->container);
  td_free(st->name);
}

td_staged *td_staged_create(int count) {
  td_staged *s = td_calloc(1, sizeof *s + (size_t)count * sizeof s->tensors[0]);
  s->count = count;
  return s;
}

void td_staged_free(td_staged *s) {
  for (int i = 0; s && i < s->count; i++) td_tensor_release(s->tensors[i]);
  td_free(s);
}

uint64_t td_staged_tensor_bytes(const td_tensor *t) {
  uint64_t bytes = t->size;
  for (int64_t i = 0; t->dtype == TD_STRING && i < t->count; i++) bytes += TD_DATA(t, td_string)[i].size;
  return bytes;
}

td_status td_staging_check_limit(uint64_t bytes, uint64_t memory_limit) {
  if (!memory_limit || bytes <= memory_limit) return TD_STATUS_OK;
  return td_resource_exhausted(
      "Attempted to insert tensors with combined size of '%llu' bytes into Staging Area with a memory limit of '%llu'.",
      (unsigned long long)bytes, (unsigned long long)memory_limit);
}

td_status td_staging_out_size(td_kernel_ctx *ctx, uint64_t size) {
  td_tensor *out;
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  TD_DATA(out, int32_t)[0] = size > INT32_MAX ? INT32_MAX : (int32_t)size;
  return TD_STATUS_OK;
}

td_status td_staging_out(td_kernel_ctx *ctx, int i, td_tensor *t) {
  td_dtype want = td_out_type(ctx, i);
  if (t->dtype != want) {
    td_status s = td_invalid_argument("Output %d is to be %s, but the staged tensor is %s", i, td_dtype_name(want),
                                      td_dtype_name(t->dtype));
    td_tensor_release(t);
    return s;
  }
  td_out_set(ctx, i, t);
  return TD_STATUS_OK;
}
