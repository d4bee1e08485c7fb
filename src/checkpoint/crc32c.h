/* CRC-32C (Castagnoli), as TensorFlow's files carry it. Thread-safe: no state. */
#ifndef TD_CHECKPOINT_CRC32C_H_
#define TD_CHECKPOINT_CRC32C_H_

#include <stddef.h>
#include <stdint.h>

/* The CRC of what `crc` covers followed by `size` bytes at `data`; 0 covers nothing. */
uint32_t td_crc32c_extend(uint32_t crc, const void *data, size_t size);
static inline uint32_t td_crc32c(const void *data, size_t size) { return td_crc32c_extend(0, data, size); }

/* The form stored in files: a CRC over bytes that hold CRCs would be weak. */
static inline uint32_t td_crc32c_mask(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }
static inline uint32_t td_crc32c_unmask(uint32_t masked) {
  uint32_t rotated = masked - 0xa282ead8u;
  return rotated >> 17 | rotated << 15;
}

#endif /* TD_CHECKPOINT_CRC32C_H_ */
