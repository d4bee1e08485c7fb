#include "ops/loops/loops.h"
#include "ops/nn/loops.h"

extern const td_nn_loops td_nn_loops_base;
#ifdef __x86_64__
extern const td_nn_loops td_nn_loops_avx2, td_nn_loops_avx512;
#endif

const td_nn_loops *td_nn_loops_get(void) {
#ifdef __x86_64__
  int isa = td_isa_best();
  if (isa == 2) return &td_nn_loops_avx512;
  if (isa == 1) return &td_nn_loops_avx2;
#endif
  return &td_nn_loops_base;
}
