/* Readers: resources that take file names ("work") from a queue and hand out what is in the files, record by record.
 *
 * A read holds the reader for itself until it ends, though it may wait: for its turn, then for a file name. Nothing of
 * that holds a thread, and cancelling the step ends it; files are read on the step's pool. Thread-safe.
 */
#ifndef TD_OPS_READER_DATA_H_
#define TD_OPS_READER_DATA_H_

#include "checkpoint/input.h"
#include "ops/queue_data.h"
#include "ops/waiting.h"

typedef enum td_reader_kind {
  TD_READER_LINES,
  TD_READER_FIXED_LENGTH,
  TD_READER_RECORDS,
  TD_READER_WHOLE_FILE,
  TD_READER_IDENTITY, /* hands the names themselves out */
} td_reader_kind;

typedef struct td_reader_options {
  td_reader_kind kind;
  td_compression compression;          /* records, fixed length */
  int64_t skip_lines;                  /* lines */
  int64_t header, record, footer, hop; /* fixed length: bytes */
} td_reader_options;

typedef struct td_reader td_reader;
extern const td_resource_type td_reader_type;

/* One reference. `node`: what errors call it by. */
td_reader *td_reader_create(const td_reader_options *options, td_str node);

/* ends the run, now or later: */
/* One record: scalar outputs 0 (key) and 1 (value). Waits for names in `queue`. */
void td_reader_read(td_reader *r, td_queue *queue, td_kernel_ctx *ctx);
/* At least one record, and at most `n` or up to the end of a file: vector outputs 0 and 1. */
void td_reader_read_up_to(td_reader *r, td_queue *queue, int64_t n, td_kernel_ctx *ctx);
/* Output 0: the state, for td_reader_restore(). UNIMPLEMENTED for readers that are within files. */
void td_reader_save(td_reader *r, td_kernel_ctx *ctx);
/* From input 1. A failure resets the reader. */
void td_reader_restore(td_reader *r, td_kernel_ctx *ctx);
void td_reader_reset(td_reader *r, td_kernel_ctx *ctx);

/* These never wait. */
int64_t td_reader_records_produced(td_reader *r);
int64_t td_reader_files_finished(td_reader *r);

#endif /* TD_OPS_READER_DATA_H_ */
