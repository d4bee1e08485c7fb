/* Sorted string tables (leveldb's format): keys to values in blocks with checksums, an index of blocks, a footer.
 *
 * The file format of a checkpoint's index (V2) and of whole V1 checkpoints. Reading takes one block at a time; nothing
 * is believed: sizes are held against the file's before memory is taken. Errors of content are DATA_LOSS with file and
 * offset. Not thread-safe.
 */
#ifndef TD_CHECKPOINT_TABLE_H_
#define TD_CHECKPOINT_TABLE_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "checkpoint/file.h"

/* ---- writing ---- */

typedef struct td_table_builder { /* zeroed, then td_table_builder_init() */
  td_new_file *file;
  td_strbuf block, index, key, restarts;
  size_t in_block, since_restart, index_count;
} td_table_builder;

/* `file` is the caller's, open and empty. */
void td_table_builder_init(td_table_builder *b, td_new_file *file);
/* Keys must come in strictly increasing order (INTERNAL otherwise). */
td_status td_table_builder_add(td_table_builder *b, td_str key, td_str value) TD_MUST_USE;
td_status td_table_builder_finish(td_table_builder *b) TD_MUST_USE;
void td_table_builder_deinit(td_table_builder *b);

/* ---- reading ---- */

typedef struct td_table td_table;

/* `unchecked`: checksums are not compared (for the fuzzer, which could not make any). */
td_status td_table_open(const char *path, bool unchecked, td_table **out) TD_MUST_USE;
void td_table_close(td_table *t);
/* The value of a key, borrowed until the next call on this table; *found. */
td_status td_table_get(td_table *t, td_str key, td_str *value, bool *found) TD_MUST_USE;
/* All entries in order; key and value are borrowed during the call. Ends at the first error. */
typedef td_status (*td_table_visit_fn)(void *arg, td_str key, td_str value);
td_status td_table_each(td_table *t, td_table_visit_fn visit, void *arg) TD_MUST_USE;

#endif /* TD_CHECKPOINT_TABLE_H_ */
