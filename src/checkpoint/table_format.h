/* Constants of the table format (checkpoint/table.h). */
#ifndef TD_CHECKPOINT_TABLE_FORMAT_H_
#define TD_CHECKPOINT_TABLE_FORMAT_H_

#include <stdint.h>

#define TABLE_MAGIC UINT64_C(0xdb4775248b80fb57)

enum {
  TABLE_PLAIN = 0,
  TABLE_SNAPPY = 1,
  TABLE_TRAILER_SIZE = 5, /* compression, masked CRC */
  TABLE_FOOTER_SIZE = 48,
  TABLE_BLOCK_SIZE = 262144,
  TABLE_RESTART_INTERVAL = 16,
};

#endif /* TD_CHECKPOINT_TABLE_FORMAT_H_ */
