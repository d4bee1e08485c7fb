/* TFRecord: a file of records, each with its length and checksums of both (TensorFlow's record_reader.h):
 *   u64 length, u32 masked CRC-32C of it, the bytes, u32 masked CRC-32C of them.
 * Blocks, as what it reads from.
 */
#ifndef TD_CHECKPOINT_RECORD_H_
#define TD_CHECKPOINT_RECORD_H_

#include "checkpoint/input.h"

enum { TD_RECORD_HEADER = 12, TD_RECORD_FOOTER = 4 };

/* The next record replaces what is in *record; *end: there is none. DATA_LOSS "truncated record at <offset>" or
 * "corrupted record at <offset>" with the file; after an error the input stands where the record begins, so that
 * another try has the same outcome, or succeeds if the file has grown. A length is believed only as far as its bytes
 * are there. */
td_status td_record_read(td_input *in, td_strbuf *record, bool *end) TD_MUST_USE;

/* Appends the form in which `record` stands in a file. */
void td_record_append(td_strbuf *to, td_str record);

#endif /* TD_CHECKPOINT_RECORD_H_ */
