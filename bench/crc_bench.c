/* CRC-32C, as checkpoints and records carry it, by size. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/crc32c.h"
#include "figure.h"

typedef struct piece {
  char *data;
  size_t size;
  uint32_t crc;
} piece;

static void run(void *arg) {
  piece *p = arg;
  p->crc = td_crc32c_extend(p->crc, p->data, p->size);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    size_t size;
  } SIZES[] = {{"crc32c/64B", 64}, {"crc32c/4KB", 4 << 10}, {"crc32c/256KB", 256 << 10}, {"crc32c/16MB", 16 << 20}};
  bench_options(argc, argv);
  for (size_t i = 0; i < TD_COUNT(SIZES); i++) {
    piece p = {td_calloc(1, SIZES[i].size), SIZES[i].size, 0};
    memset(p.data, 7, p.size);
    bench_measure(&(bench_case){SIZES[i].name, run, &p, (double)p.size, BENCH_GB});
    td_free(p.data);
  }
  return 0;
}
