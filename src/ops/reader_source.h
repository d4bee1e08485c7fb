/* What a reader is within a file. Blocks; belongs to who holds the reader. */
#ifndef TD_OPS_READER_SOURCE_H_
#define TD_OPS_READER_SOURCE_H_

#include "ops/reader_data.h"

typedef struct td_reader_source { /* zeroed: nothing is open */
  td_input *in;
  int64_t number;  /* lines or records so far */
  td_strbuf ahead; /* fixed length: bytes read beyond the next record's beginning */
} td_reader_source;

/* Opens a file, unless the kind does that when it reads. */
td_status td_reader_source_open(td_reader_source *s, const td_reader_options *o, td_str name) TD_MUST_USE;
void td_reader_source_close(td_reader_source *s);

/* The next record into *key and *value. *produced: there was one. *at_end: the file has no more. */
td_status td_reader_source_read(td_reader_source *s, const td_reader_options *o, td_str name, td_strbuf *key,
                                td_strbuf *value, bool *produced, bool *at_end) TD_MUST_USE;

#endif /* TD_OPS_READER_SOURCE_H_ */
