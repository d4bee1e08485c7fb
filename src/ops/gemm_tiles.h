/* Products of float on the processor's matrix tiles (x86-64 AMX, bfloat16 to float), to the precision of float.
 *
 * A float is the sum of three bfloat16: its upper 8 bits of mantissa, the next 8 and the last 8. Of the nine products
 * of two such sums the six largest are added up; what is left out is about 2^-23 of a product (the source of the idea:
 * G. Henry, P. Tang, A. Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
 * Computations", 2019). Six products on tiles take half the time, or less, of one in vector registers.
 */
#ifndef TD_OPS_GEMM_TILES_H_
#define TD_OPS_GEMM_TILES_H_

#include "ops/gemm.h"

enum { TD_GEMM_TILES_SIDE = 512, TD_GEMM_TILES_DEPTH = 512 };

/* Whether this machine has tiles and a product of that type and size gains from them. */
bool td_gemm_tiles_suit(const td_gemm *g);
/* Computes `g`, which suits and is at most TD_GEMM_TILES_SIDE by TD_GEMM_TILES_SIDE by TD_GEMM_TILES_DEPTH (k), and
 * returns true; or leaves it alone and returns false: without memory, and when three bfloat16 do not hold A
 * (infinities, NaN, rows of numbers so tiny that their lower parts vanish). Where they do not hold B, its columns' part
 * of the result is computed by td_gemm_run_vectors(). The result depends on the operands alone, not on how many threads
 * worked on it. `ctx`: its step's threads share the work; NULL: the calling thread alone. */
bool td_gemm_tiles_run(td_kernel_ctx *ctx, const td_heavy_ops *heavy, const td_gemm *g);

#endif /* TD_OPS_GEMM_TILES_H_ */
