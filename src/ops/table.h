/* Lookup tables: what the kernels of lookup.c keep as resources.
 *
 * Three kinds: TD_TABLE_HASH is filled once (initialised) and read-only after; TD_TABLE_MUTABLE takes scalar keys and
 * scalar or vector values; TD_TABLE_DENSE keeps its buckets in two tensors exactly as TensorFlow lays them out,
 * because those tensors are what exports, imports and checkpoints carry.
 *
 * Keys are int32, int64 or string. All functions are thread-safe and lock the table for as long as they work on it;
 * they expect tensors of the table's types (lookup.c checks them), and check shapes themselves where they say so.
 */
#ifndef TD_OPS_TABLE_H_
#define TD_OPS_TABLE_H_

#include <pthread.h>

#include "framework/resource.h"
#include "tensor/tensor.h"

typedef enum td_table_kind { TD_TABLE_HASH, TD_TABLE_MUTABLE, TD_TABLE_DENSE } td_table_kind;

/* Rows of a key and a value, found by key. A zeroed one of given types is empty. */
typedef struct td_table_rows {
  td_dtype key_type, value_type;
  int64_t value_size;       /* elements of one value */
  td_tensor *keys, *values; /* [capacity], [capacity, value_size]; never shared; NULL while capacity is 0 */
  int64_t count, capacity;
  int64_t *slots; /* row + 1; 0: free. Twice as many as capacity, a power of two */
} td_table_rows;

typedef struct td_table_options {
  td_table_kind kind;
  td_dtype key_type, value_type;
  int value_rank; /* 0 or 1 */
  int64_t value_size;
  /* TD_TABLE_DENSE */
  const td_tensor *empty_key, *deleted_key; /* scalars or vectors, borrowed */
  int64_t initial_buckets;
  float max_load_factor;
} td_table_options;

typedef struct td_table {
  td_resource resource;
  /* immutable */
  td_table_kind kind;
  td_dtype key_type, value_type;
  int key_rank, value_rank; /* 0 or 1 */
  int64_t key_size, value_size;
  td_tensor *empty_key, *deleted_key;
  float max_load_factor;
  pthread_rwlock_t lock; /* guards what follows */
  bool initialized;      /* TD_TABLE_HASH */
  td_table_rows rows;
  td_tensor *key_buckets, *value_buckets; /* dense; [buckets, size]; may be shared with exports */
  int64_t buckets, entries;
} td_table;

extern const td_resource_type td_table_type;

/* One reference. INVALID_ARGUMENT for bad dense options, RESOURCE_EXHAUSTED. */
td_status td_table_create(const td_table_options *o, td_table **out) TD_MUST_USE;

int64_t td_table_size(td_table *t);
/* Values of `keys` into `out` (exclusively the caller's, shape known to fit). FAILED_PRECONDITION when not initialised;
 * dense: INVALID_ARGUMENT for key shapes and for the two special keys. */
td_status td_table_find(td_table *t, const td_tensor *keys, const td_tensor *default_value, td_tensor *out) TD_MUST_USE;
/* Sets entries; takes entries out. UNIMPLEMENTED for a TD_TABLE_HASH; INVALID_ARGUMENT as above. */
td_status td_table_insert(td_table *t, const td_tensor *keys, const td_tensor *values) TD_MUST_USE;
td_status td_table_remove(td_table *t, const td_tensor *keys) TD_MUST_USE;
/* Replaces the contents; a TD_TABLE_HASH is initialised. */
td_status td_table_import(td_table *t, td_tensor *keys, td_tensor *values) TD_MUST_USE;
/* One reference each. ABORTED when not initialised. */
td_status td_table_export(td_table *t, td_tensor **keys, td_tensor **values) TD_MUST_USE;

/* Rows built outside of any table: adds row `i` of both; FAILED_PRECONDITION when the key has another value. */
td_status td_table_rows_add_once(td_table_rows *r, const td_tensor *keys, const td_tensor *values,
                                 int64_t i) TD_MUST_USE;
void td_table_rows_deinit(td_table_rows *r);
/* Initialises a TD_TABLE_HASH by `rows`, which it takes. Already initialised: fine if there are `total` entries, else
 * FAILED_PRECONDITION. */
td_status td_table_initialize(td_table *t, td_table_rows *rows, int64_t total) TD_MUST_USE;
bool td_table_is_initialized(td_table *t);

/* Which part of a line is meant. */
enum { TD_TABLE_LINE_NUMBER = -1, TD_TABLE_WHOLE_LINE = -2 };
typedef struct td_table_file_options {
  int64_t vocab_size; /* lines to read; -1: all */
  int64_t key_index, value_index, offset;
  char delimiter;
} td_table_file_options;
/* Initialises a TD_TABLE_HASH from a text file (reads it: not for a loop thread). A table that is initialised stays as
 * it is. */
td_status td_table_init_from_file(td_table *t, const char *path, const td_table_file_options *o) TD_MUST_USE;

#endif /* TD_OPS_TABLE_H_ */
