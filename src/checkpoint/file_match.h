/* Names of files that match a pattern. Blocks on the file system. */
#ifndef TD_CHECKPOINT_FILE_MATCH_H_
#define TD_CHECKPOINT_FILE_MATCH_H_

#include "base/status.h"
#include "base/str.h"

typedef struct td_names { /* zeroed: none */
  char **items;           /* own */
  size_t count, capacity;
} td_names;

void td_names_deinit(td_names *n);
void td_names_add(td_names *n, const char *prefix, const char *path); /* both, as one name */
void td_names_sort(td_names *n);                                      /* bytewise */

/* Appends the files and folders that match `pattern` (td_file_path()'s rules): '*' and '?' stand for anything but '/',
 * "[a-z]" for one of these, '\\' takes a character's meaning away; a name's leading dot is a character like others.
 * Names of a pattern without a folder begin with "./", as TensorFlow's do. A folder that cannot be read holds nothing.
 */
td_status td_file_match(td_str pattern, td_names *out) TD_MUST_USE;

#endif /* TD_CHECKPOINT_FILE_MATCH_H_ */
