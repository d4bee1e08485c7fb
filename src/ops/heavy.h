/* The heavy plug-in: what oneDNN and OpenBLAS do for kernels.
 *
 * Both libraries are large, so they are not linked to the program: libtensord_heavy.so holds the calls into them and
 * is loaded when the first kernel that can use it is created (never during a step). Where it is missing, kernels
 * use their own plain loops: slower, same results.
 *
 * Everything here runs on the calling thread alone. Kernels split large problems themselves and hand the pieces to
 * the step's pool, so that there is one set of compute threads and no OpenMP team.
 */
#ifndef TD_OPS_HEAVY_H_
#define TD_OPS_HEAVY_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_HEAVY_ABI = 2 };

/* One 2-D convolution of float, input and output NHWC, filter HWIO, dense. */
typedef struct td_heavy_conv {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c, filter_h, filter_w;
  int64_t stride_h, stride_w, dilation_h, dilation_w; /* dilation 1: dense */
  int64_t pad_top, pad_bottom, pad_left, pad_right;
} td_heavy_conv;

/* All matrices are row-major; `ta`, `tb`: 'N' as it is, 'T' transposed, 'C' conjugate transposed. C = op(A) op(B) +
 * beta C; with beta 0, C need not be initialised. Thread-safe. Functions return false when the libraries cannot do
 * the case (or have no memory): the caller then uses its own loops. */
typedef struct td_heavy_ops {
  int abi;
  bool (*sgemm)(char ta, char tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                int64_t ldb, float beta, float *c, int64_t ldc);
  /* For matrices of up to some hundred lines: starts in a tenth of the time. NULL on processors that it has no such
   * kernels for. */
  bool (*sgemm_small)(char ta, char tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                      int64_t ldb, float beta, float *c, int64_t ldc);
  bool (*dgemm)(char ta, char tb, int64_t m, int64_t n, int64_t k, const double *a, int64_t lda, const double *b,
                int64_t ldb, double beta, double *c, int64_t ldc);
  bool (*cgemm)(char ta, char tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                int64_t ldb, float beta, void *c, int64_t ldc);
  bool (*zgemm)(char ta, char tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                int64_t ldb, double beta, void *c, int64_t ldc);
  bool (*conv_forward)(const td_heavy_conv *p, const float *input, const float *filter, float *output);
  bool (*conv_backward_input)(const td_heavy_conv *p, const float *grad, const float *filter, float *input_grad);
  bool (*conv_backward_filter)(const td_heavy_conv *p, const float *input, const float *grad, float *filter_grad);
} td_heavy_ops;

/* What the plug-in exports: "td_heavy_table". */
typedef const td_heavy_ops *(*td_heavy_table_fn)(void);

/* For main(), before there are threads: tells OpenBLAS by its environment to start no threads of its own, one a core
 * otherwise when it is loaded; and (unless $OPENBLAS_CORETYPE is set) what an Intel processor can do, which a version
 * older than the processor takes for a Pentium 4, 3 to 6 times slower. */
void td_heavy_prepare(void);

/* The plug-in, loaded by the first call (which blocks for some 20 ms); NULL when it cannot be loaded. It is looked
 * for as $TENSORD_HEAVY, then beside the executable, one folder up, and in ../lib/tensord. Thread-safe. */
const td_heavy_ops *td_heavy_get(void);

#endif /* TD_OPS_HEAVY_H_ */
