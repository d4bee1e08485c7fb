#include "checkpoint/crc32c.h"

#include <isa-l/crc.h>

#include "base/mem.h"

uint32_t td_crc32c_extend(uint32_t crc, const void *data, size_t size) {
  unsigned char *next = (unsigned char *)data; /* the library only reads */
  crc = ~crc;
  for (size_t n; size; size -= n, next += n) { /* it counts bytes in an int */
    n = TD_MIN(size, (size_t)1 << 30);
    crc = crc32_iscsi(next, (int)n, crc);
  }
  return ~crc;
}
