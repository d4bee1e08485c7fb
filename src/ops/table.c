#include "ops/table.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/move.h"

/* ---- keys ---- */

static bool keys_equal(const td_tensor *a, int64_t i, const td_tensor *b, int64_t j) {
  switch (a->dtype) {
    case TD_INT32:
      return TD_DATA(a, int32_t)[i] == TD_DATA(b, int32_t)[j];
    case TD_INT64:
      return TD_DATA(a, int64_t)[i] == TD_DATA(b, int64_t)[j];
    default:
      return td_str_eq(td_string_view(TD_DATA(a, td_string) + i), td_string_view(TD_DATA(b, td_string) + j));
  }
}

static uint64_t key_hash(const td_tensor *t, int64_t i) {
  if (t->dtype == TD_STRING) {
    td_str s = td_string_view(TD_DATA(t, td_string) + i);
    return td_hash(s.data, s.size);
  }
  uint64_t x = (uint64_t)td_tensor_int_at(t, i) * 0x9e3779b97f4a7c15u;
  return x ^ x >> 32;
}

/* ---- rows ---- */

void td_table_rows_deinit(td_table_rows *r) {
  td_tensor_release(r->keys);
  td_tensor_release(r->values);
  td_free(r->slots);
  *r = (td_table_rows){.key_type = r->key_type, .value_type = r->value_type, .value_size = r->value_size};
}

static uint64_t slot_mask(const td_table_rows *r) { return (uint64_t)r->capacity * 2 - 1; }

/* The slot that holds the key, or the free one where it would go. The table has free slots. */
static uint64_t slot_of(const td_table_rows *r, const td_tensor *keys, int64_t i) {
  uint64_t mask = slot_mask(r), at = key_hash(keys, i) & mask;
  while (r->slots[at] && !keys_equal(r->keys, r->slots[at] - 1, keys, i)) at = (at + 1) & mask;
  return at;
}

static int64_t rows_find(const td_table_rows *r, const td_tensor *keys, int64_t i) { /* -1: absent */
  return r->count ? r->slots[slot_of(r, keys, i)] - 1 : -1;
}

/* Elements are moved as bytes; the old tensor is left with zeroes, so that its end destroys nothing. */
static void move_rows(td_tensor *to, td_tensor *from, size_t bytes) {
  if (!bytes) return;
  memcpy(to->data, from->data, bytes);
  memset(from->data, 0, bytes);
}

static td_status rows_grow(td_table_rows *r) {
  int64_t capacity = r->capacity ? r->capacity * 2 : 8;
  td_tensor *keys = NULL, *values = NULL;
  int64_t *slots = NULL;
  td_status s = td_tensor_create_dims(r->key_type, 1, &capacity, &keys);
  if (!s) s = td_tensor_create_dims(r->value_type, 2, (int64_t[]){capacity, r->value_size}, &values);
  if (!s && !(slots = td_try_malloc((size_t)capacity * 2 * sizeof *slots)))
    s = td_resource_exhausted("OOM when growing a table to %lld entries", (long long)capacity);
  if (s) {
    td_tensor_release(keys);
    td_tensor_release(values);
    return s;
  }
  memset(slots, 0, (size_t)capacity * 2 * sizeof *slots);
  if (r->count) {
    move_rows(keys, r->keys, (size_t)r->count * td_dtype_size(r->key_type));
    move_rows(values, r->values, (size_t)r->count * (size_t)r->value_size * td_dtype_size(r->value_type));
  }
  int64_t count = r->count;
  td_table_rows_deinit(r);
  r->keys = keys;
  r->values = values;
  r->slots = slots;
  r->capacity = capacity;
  r->count = count;
  for (int64_t i = 0; i < count; i++) slots[slot_of(r, keys, i)] = i + 1;
  return TD_STATUS_OK;
}

/* The row of the key, new if it is absent (then *is_new, and its value is for the caller to set). */
static td_status rows_enter(td_table_rows *r, const td_tensor *keys, int64_t i, int64_t *row, bool *is_new) {
  if (r->count == r->capacity) {
    *row = rows_find(r, keys, i);
    *is_new = *row < 0;
    if (!*is_new) return TD_STATUS_OK;
    TD_TRY(rows_grow(r));
  }
  uint64_t at = slot_of(r, keys, i);
  *is_new = !r->slots[at];
  if (*is_new) {
    td_tensor_copy_elements(r->keys, r->count, keys, i, 1);
    r->slots[at] = ++r->count;
  }
  *row = r->slots[at] - 1;
  return TD_STATUS_OK;
}

static td_status rows_put(td_table_rows *r, const td_tensor *keys, const td_tensor *values, int64_t i) {
  int64_t row;
  bool is_new;
  TD_TRY(rows_enter(r, keys, i, &row, &is_new));
  td_tensor_copy_elements(r->values, row * r->value_size, values, i * r->value_size, r->value_size);
  return TD_STATUS_OK;
}

static void swap_bytes(char *a, char *b, size_t n) {
  for (size_t i = 0; i < n; i++) {
    char c = a[i];
    a[i] = b[i];
    b[i] = c;
  }
}

/* The last row takes the place of the one that goes; what goes stays behind the end until it is overwritten. */
static void rows_remove(td_table_rows *r, const td_tensor *keys, int64_t i) {
  if (!r->count) return;
  uint64_t mask = slot_mask(r), at = slot_of(r, keys, i);
  int64_t row = r->slots[at] - 1, last = r->count - 1;
  if (row < 0) return;
  r->slots[slot_of(r, r->keys, last)] = row + 1;
  r->slots[at] = 0;
  size_t key_bytes = td_dtype_size(r->key_type), value_bytes = (size_t)r->value_size * td_dtype_size(r->value_type);
  if (row != last) {
    swap_bytes((char *)r->keys->data + (size_t)row * key_bytes, (char *)r->keys->data + (size_t)last * key_bytes,
               key_bytes);
    swap_bytes((char *)r->values->data + (size_t)row * value_bytes,
               (char *)r->values->data + (size_t)last * value_bytes, value_bytes);
  }
  r->count--;
  /* Close the gap: entries that probed past the freed slot move back into it. */
  for (uint64_t next = (at + 1) & mask; r->slots[next]; next = (next + 1) & mask) {
    uint64_t home = key_hash(r->keys, r->slots[next] - 1) & mask;
    if (((next - home) & mask) < ((next - at) & mask)) continue;
    r->slots[at] = r->slots[next];
    r->slots[next] = 0;
    at = next;
  }
}

static void show_element(const td_tensor *t, int64_t i, td_strbuf *b) {
  switch (t->dtype) {
    case TD_STRING:
      td_strbuf_append(b, td_string_view(TD_DATA(t, td_string) + i));
      break;
    case TD_FLOAT:
      td_strbuf_printf(b, "%g", (double)TD_DATA(t, float)[i]);
      break;
    case TD_DOUBLE:
      td_strbuf_printf(b, "%g", TD_DATA(t, double)[i]);
      break;
    case TD_BOOL:
      td_strbuf_printf(b, "%d", TD_DATA(t, uint8_t)[i]);
      break;
    case TD_INT32:
    case TD_INT64:
      td_strbuf_printf(b, "%lld", (long long)td_tensor_int_at(t, i));
      break;
    default:
      td_strbuf_puts(b, td_dtype_name(t->dtype));
  }
}

static bool values_equal(const td_tensor *a, int64_t i, const td_tensor *b, int64_t j) {
  if (a->dtype == TD_STRING) return keys_equal(a, i, b, j);
  if (a->dtype == TD_FLOAT) return TD_DATA(a, float)[i] == TD_DATA(b, float)[j];
  if (a->dtype == TD_DOUBLE) return TD_DATA(a, double)[i] == TD_DATA(b, double)[j];
  size_t n = td_dtype_size((td_dtype)a->dtype);
  return !memcmp((const char *)a->data + (size_t)i * n, (const char *)b->data + (size_t)j * n, n);
}

td_status td_table_rows_add_once(td_table_rows *r, const td_tensor *keys, const td_tensor *values, int64_t i) {
  int64_t row;
  bool is_new;
  TD_TRY(rows_enter(r, keys, i, &row, &is_new));
  if (is_new) {
    td_tensor_copy_elements(r->values, row, values, i, 1);
    return TD_STATUS_OK;
  }
  if (values_equal(r->values, row, values, i)) return TD_STATUS_OK;
  td_strbuf b = {0};
  td_strbuf_puts(&b, "HashTable has different value for same key. Key ");
  show_element(keys, i, &b);
  td_strbuf_puts(&b, " has ");
  show_element(r->values, row, &b);
  td_strbuf_puts(&b, " and trying to add value ");
  show_element(values, i, &b);
  td_status s = td_error_bytes(TD_FAILED_PRECONDITION, b.data, b.size);
  td_strbuf_deinit(&b);
  return s;
}

/* ---- dense buckets ---- */

/* The layout is TensorFlow's: its hash, its order of probing. */
static uint64_t dense_hash_scalar(const td_tensor *t, int64_t i) {
  if (t->dtype != TD_STRING) return (uint64_t)td_tensor_int_at(t, i);
  td_str s = td_string_view(TD_DATA(t, td_string) + i);
  return td_hash64(s.data, s.size);
}

static uint64_t dense_hash(const td_table *t, const td_tensor *keys, int64_t row) {
  if (t->key_size == 1) return dense_hash_scalar(keys, row);
  uint64_t hash = 0;
  for (int64_t i = 0; i < t->key_size; i++)
    hash ^= dense_hash_scalar(keys, row * t->key_size + i) + 0x9e3779b97f4a7800u + (hash << 10) + (hash >> 4);
  return hash;
}

static bool dense_equal(const td_table *t, const td_tensor *a, int64_t i, const td_tensor *b, int64_t j) {
  for (int64_t k = 0; k < t->key_size; k++)
    if (!keys_equal(a, i * t->key_size + k, b, j * t->key_size + k)) return false;
  return true;
}

static td_status dense_check_key(const td_table *t, const td_tensor *keys, int64_t i) {
  if (dense_equal(t, t->empty_key, 0, keys, i))
    return td_invalid_argument("Using the empty_key as a table key is not allowed");
  if (dense_equal(t, t->deleted_key, 0, keys, i))
    return td_invalid_argument("Using the deleted_key as a table key is not allowed");
  return TD_STATUS_OK;
}

/* The bucket of the key or -1; *free_at: where it could go (a deleted or empty bucket), -1 when there is none. */
static int64_t dense_probe(const td_table *t, const td_tensor *keys, int64_t i, int64_t *free_at) {
  uint64_t mask = (uint64_t)t->buckets - 1, at = dense_hash(t, keys, i) & mask;
  *free_at = -1;
  for (int64_t probes = 1; probes <= t->buckets; probes++) {
    if (dense_equal(t, t->key_buckets, (int64_t)at, keys, i)) return (int64_t)at;
    bool empty = dense_equal(t, t->key_buckets, (int64_t)at, t->empty_key, 0);
    if (*free_at < 0 && (empty || dense_equal(t, t->key_buckets, (int64_t)at, t->deleted_key, 0)))
      *free_at = (int64_t)at;
    if (empty) return -1;
    at = (at + (uint64_t)probes) & mask;
  }
  return -1;
}

static td_status dense_allocate(td_table *t, int64_t buckets) {
  td_tensor *keys = NULL, *values = NULL;
  td_shape shape = {.rank = 2, .dims = {buckets, t->value_size}};
  if (buckets < 4 || (buckets & (buckets - 1)))
    return td_invalid_argument("Number of buckets must be at least 4 and a power of 2, got: %lld", (long long)buckets);
  TD_TRY(td_tensor_create_dims(t->key_type, 2, (int64_t[]){buckets, t->key_size}, &keys));
  td_status s = td_tensor_create_zeros(t->value_type, &shape, &values);
  if (s) {
    td_tensor_release(keys);
    return s;
  }
  for (int64_t i = 0; i < buckets; i++) td_tensor_copy_elements(keys, i * t->key_size, t->empty_key, 0, t->key_size);
  td_tensor_release(t->key_buckets);
  td_tensor_release(t->value_buckets);
  t->key_buckets = keys;
  t->value_buckets = values;
  t->buckets = buckets;
  t->entries = 0;
  return TD_STATUS_OK;
}

static td_status dense_put(td_table *t, const td_tensor *keys, const td_tensor *values, int64_t i) {
  int64_t free_at, at = dense_probe(t, keys, i, &free_at);
  if (at < 0) {
    if (free_at < 0) return td_internal("Internal error in MutableDenseHashTable insert");
    at = free_at;
    td_tensor_copy_elements(t->key_buckets, at * t->key_size, keys, i * t->key_size, t->key_size);
    t->entries++;
  }
  td_tensor_copy_elements(t->value_buckets, at * t->value_size, values, i * t->value_size, t->value_size);
  return TD_STATUS_OK;
}

/* Exports share the buckets until the table changes. */
static td_status dense_make_own(td_tensor **t) {
  td_tensor *own;
  if (td_tensor_is_exclusive(*t)) return TD_STATUS_OK;
  TD_TRY(td_tensor_copy(*t, &own));
  td_tensor_release(*t);
  *t = own;
  return TD_STATUS_OK;
}
static td_status dense_own(td_table *t) {
  TD_TRY(dense_make_own(&t->key_buckets));
  return dense_make_own(&t->value_buckets);
}

static td_status dense_rebucket(td_table *t, int64_t buckets) {
  td_tensor *keys = td_tensor_retain(t->key_buckets), *values = td_tensor_retain(t->value_buckets);
  int64_t old = t->buckets;
  td_status s = dense_allocate(t, buckets);
  for (int64_t i = 0; i < old && !s; i++) {
    if (dense_equal(t, t->empty_key, 0, keys, i) || dense_equal(t, t->deleted_key, 0, keys, i)) continue;
    s = dense_put(t, keys, values, i);
  }
  td_tensor_release(keys);
  td_tensor_release(values);
  return s;
}

static td_status dense_insert(td_table *t, const td_tensor *keys, const td_tensor *values, int64_t n) {
  int64_t buckets = t->buckets;
  double wanted = (double)(t->entries + n);
  while (wanted > (double)buckets * t->max_load_factor && buckets < INT64_MAX / 4) buckets *= 2;
  if (buckets != t->buckets) TD_TRY(dense_rebucket(t, buckets));
  TD_TRY(dense_own(t));
  for (int64_t i = 0; i < n; i++) {
    TD_TRY(dense_check_key(t, keys, i));
    TD_TRY(dense_put(t, keys, values, i));
  }
  return TD_STATUS_OK;
}

static td_status dense_remove(td_table *t, const td_tensor *keys, int64_t n) {
  TD_TRY(dense_own(t));
  for (int64_t i = 0; i < n; i++) {
    TD_TRY(dense_check_key(t, keys, i));
    int64_t free_at, at = dense_probe(t, keys, i, &free_at);
    if (at < 0) continue;
    td_tensor_copy_elements(t->key_buckets, at * t->key_size, t->deleted_key, 0, t->key_size);
    t->entries--;
  }
  return TD_STATUS_OK;
}

static td_status dense_import(td_table *t, td_tensor *keys, td_tensor *values) {
  if (keys->rank != 2 || keys->dims[1] != t->key_size)
    return td_invalid_argument("Expected key shape [?,%lld] got %s", (long long)t->key_size, TD_SHOW(keys));
  int64_t n = keys->dims[0];
  if (n < 1 || (n & (n - 1)))
    return td_invalid_argument("Number of buckets must be a power of 2, got: %lld", (long long)n);
  td_tensor_release(t->key_buckets);
  td_tensor_release(t->value_buckets);
  t->key_buckets = td_tensor_retain(keys);
  t->value_buckets = td_tensor_retain(values);
  t->buckets = n;
  t->entries = 0;
  for (int64_t i = 0; i < n; i++)
    if (!dense_equal(t, keys, i, t->empty_key, 0) && !dense_equal(t, keys, i, t->deleted_key, 0)) t->entries++;
  return TD_STATUS_OK;
}

static td_status dense_create(td_table *t, const td_table_options *o) {
  const td_tensor *empty = o->empty_key, *deleted = o->deleted_key;
  if (!(o->max_load_factor > 0 && o->max_load_factor < 1))
    return td_invalid_argument("max_load_factor must be between 0 and 1, got: %g", (double)o->max_load_factor);
  if (empty->rank > 1)
    return td_invalid_argument("Empty key must be a scalar or a vector, got shape %s", TD_SHOW(empty));
  if (!td_tensor_same_shape(empty, deleted))
    return td_invalid_argument("Empty and deleted keys must have same shape, got shapes: %s and %s", TD_SHOW(empty),
                               TD_SHOW(deleted));
  t->key_rank = empty->rank;
  t->key_size = empty->count;
  t->max_load_factor = o->max_load_factor;
  if (dense_equal(t, empty, 0, deleted, 0)) return td_invalid_argument("Empty and deleted keys cannot be equal");
  TD_TRY(td_tensor_copy(empty, &t->empty_key));
  TD_TRY(td_tensor_copy(deleted, &t->deleted_key));
  return dense_allocate(t, o->initial_buckets);
}

/* How many keys a dense table sees in `keys`. */
static td_status dense_count(const td_table *t, const td_tensor *keys, int64_t *out) {
  int64_t expected, n = keys->rank ? keys->dims[0] : 1;
  *out = n;
  if (!__builtin_mul_overflow(n, t->key_size, &expected) && expected == keys->count) return TD_STATUS_OK;
  if (t->key_rank)
    return td_invalid_argument("Expected key shape [%lld,%lld] got %s", (long long)n, (long long)t->key_size,
                               TD_SHOW(keys));
  return td_invalid_argument("Expected key shape [%lld] got %s", (long long)n, TD_SHOW(keys));
}

/* ---- tables ---- */

static void destroy(td_resource *r) {
  td_table *t = (td_table *)r;
  td_table_rows_deinit(&t->rows);
  td_tensor_release(t->key_buckets);
  td_tensor_release(t->value_buckets);
  td_tensor_release(t->empty_key);
  td_tensor_release(t->deleted_key);
  pthread_rwlock_destroy(&t->lock);
  td_free(t);
}

const td_resource_type td_table_type = {.name = "N10tensorflow6lookup15LookupInterfaceE", .destroy = destroy};

td_status td_table_create(const td_table_options *o, td_table **out) {
  td_table *t = td_new(td_table);
  td_resource_init(&t->resource, &td_table_type);
  pthread_rwlock_init(&t->lock, NULL);
  t->kind = o->kind;
  t->key_type = t->rows.key_type = o->key_type;
  t->value_type = t->rows.value_type = o->value_type;
  t->value_rank = o->value_rank;
  t->value_size = t->rows.value_size = o->value_size;
  t->key_size = 1;
  td_status s = o->kind == TD_TABLE_DENSE ? dense_create(t, o) : TD_STATUS_OK;
  if (s) {
    td_resource_release(t);
    return s;
  }
  *out = t;
  return TD_STATUS_OK;
}

int64_t td_table_size(td_table *t) {
  pthread_rwlock_rdlock(&t->lock);
  int64_t n = t->kind == TD_TABLE_DENSE ? t->entries : t->rows.count;
  pthread_rwlock_unlock(&t->lock);
  return n;
}

bool td_table_is_initialized(td_table *t) {
  pthread_rwlock_rdlock(&t->lock);
  bool result = t->initialized;
  pthread_rwlock_unlock(&t->lock);
  return result;
}

static td_status find_locked(td_table *t, const td_tensor *keys, int64_t n, const td_tensor *default_value,
                             td_tensor *out) {
  bool dense = t->kind == TD_TABLE_DENSE;
  if (t->kind == TD_TABLE_HASH && !t->initialized) return td_failed_precondition("Table not initialized.");
  for (int64_t i = 0; i < n; i++) {
    int64_t free_at, row;
    if (dense) TD_TRY(dense_check_key(t, keys, i));
    row = dense ? dense_probe(t, keys, i, &free_at) : rows_find(&t->rows, keys, i);
    const td_tensor *from = row < 0 ? default_value : dense ? t->value_buckets : t->rows.values;
    td_tensor_copy_elements(out, i * t->value_size, from, row < 0 ? 0 : row * t->value_size, t->value_size);
  }
  return TD_STATUS_OK;
}

td_status td_table_find(td_table *t, const td_tensor *keys, const td_tensor *default_value, td_tensor *out) {
  int64_t n = keys->count;
  if (t->kind == TD_TABLE_DENSE) TD_TRY(dense_count(t, keys, &n));
  pthread_rwlock_rdlock(&t->lock);
  td_status s = find_locked(t, keys, n, default_value, out);
  pthread_rwlock_unlock(&t->lock);
  return s;
}

td_status td_table_insert(td_table *t, const td_tensor *keys, const td_tensor *values) {
  int64_t n = keys->count;
  td_status s = TD_STATUS_OK;
  if (t->kind == TD_TABLE_HASH)
    return td_unimplemented("Insert not supported by InitializableLookupTable implementations");
  if (t->kind == TD_TABLE_DENSE) TD_TRY(dense_count(t, keys, &n));
  pthread_rwlock_wrlock(&t->lock);
  if (t->kind == TD_TABLE_DENSE) {
    s = dense_insert(t, keys, values, n);
  } else {
    for (int64_t i = 0; i < n && !s; i++) s = rows_put(&t->rows, keys, values, i);
  }
  pthread_rwlock_unlock(&t->lock);
  return s;
}

td_status td_table_remove(td_table *t, const td_tensor *keys) {
  int64_t n = keys->count;
  td_status s = TD_STATUS_OK;
  if (t->kind == TD_TABLE_HASH)
    return td_unimplemented("Remove not supported by InitializableLookupTable implementations");
  if (t->kind == TD_TABLE_DENSE) TD_TRY(dense_count(t, keys, &n));
  pthread_rwlock_wrlock(&t->lock);
  if (t->kind == TD_TABLE_DENSE) {
    s = dense_remove(t, keys, n);
  } else {
    for (int64_t i = 0; i < n; i++) rows_remove(&t->rows, keys, i);
  }
  pthread_rwlock_unlock(&t->lock);
  return s;
}

td_status td_table_initialize(td_table *t, td_table_rows *rows, int64_t total) {
  td_status s = TD_STATUS_OK;
  pthread_rwlock_wrlock(&t->lock);
  if (!t->initialized) {
    td_table_rows old = t->rows;
    t->rows = *rows;
    *rows = old;
    t->initialized = true;
  } else if (t->rows.count != total) {
    s = td_failed_precondition("Table was already initialized with different data.");
  }
  pthread_rwlock_unlock(&t->lock);
  td_table_rows_deinit(rows);
  return s;
}

static td_status initialize_by(td_table *t, const td_tensor *keys, const td_tensor *values) {
  td_table_rows rows = {.key_type = t->key_type, .value_type = t->value_type, .value_size = 1};
  td_status s = TD_STATUS_OK;
  if (!keys->count) return td_invalid_argument("keys and values cannot be empty tensors.");
  if (!td_table_is_initialized(t))
    for (int64_t i = 0; i < keys->count && !s; i++) s = td_table_rows_add_once(&rows, keys, values, i);
  if (!s) return td_table_initialize(t, &rows, keys->count);
  td_table_rows_deinit(&rows);
  return s;
}

td_status td_table_import(td_table *t, td_tensor *keys, td_tensor *values) {
  td_status s = TD_STATUS_OK;
  if (t->kind == TD_TABLE_HASH) return initialize_by(t, keys, values);
  pthread_rwlock_wrlock(&t->lock);
  if (t->kind == TD_TABLE_DENSE) {
    s = dense_import(t, keys, values);
  } else {
    td_table_rows_deinit(&t->rows);
    for (int64_t i = 0; i < keys->count && !s; i++) s = rows_put(&t->rows, keys, values, i);
  }
  pthread_rwlock_unlock(&t->lock);
  return s;
}

static td_status export_rows(td_table *t, td_tensor **keys, td_tensor **values) {
  const td_table_rows *r = &t->rows;
  TD_TRY(td_tensor_create_dims(r->key_type, 1, &r->count, keys));
  TD_TRY(td_tensor_create_dims(r->value_type, 1 + t->value_rank, (int64_t[]){r->count, r->value_size}, values));
  if (!r->count) return TD_STATUS_OK;
  td_tensor_copy_elements(*keys, 0, r->keys, 0, r->count);
  td_tensor_copy_elements(*values, 0, r->values, 0, r->count * r->value_size);
  return TD_STATUS_OK;
}

td_status td_table_export(td_table *t, td_tensor **keys, td_tensor **values) {
  td_status s = TD_STATUS_OK;
  *keys = *values = NULL;
  pthread_rwlock_rdlock(&t->lock);
  if (t->kind == TD_TABLE_DENSE) {
    *keys = td_tensor_retain(t->key_buckets);
    *values = td_tensor_retain(t->value_buckets);
  } else if (t->kind == TD_TABLE_HASH && !t->initialized) {
    s = td_aborted("HashTable is not initialized.");
  } else {
    s = export_rows(t, keys, values);
  }
  pthread_rwlock_unlock(&t->lock);
  if (!s) return TD_STATUS_OK;
  td_tensor_release(*keys);
  td_tensor_release(*values);
  *keys = *values = NULL;
  return s;
}
