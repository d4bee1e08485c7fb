/* Whole files. */
#ifndef TD_TOOLS_FILES_H_
#define TD_TOOLS_FILES_H_

#include "base/status.h"
#include "base/str.h"

/* Appends the file's bytes. INVALID_ARGUMENT "<what> <path>: <reason>" when it cannot be read or is longer than
 * `max_bytes`. Blocks. */
td_status td_file_read(const char *what, const char *path, size_t max_bytes, td_strbuf *out) TD_MUST_USE;

#endif /* TD_TOOLS_FILES_H_ */
