/* GPTQ's inner part: the scales of a block of columns, and the rounding of its columns one after the other.
 *
 * What quantize/scale_search.py, quantize/gptq.py and quantize/blockwise.py of edgegen_export do with NumPy, operation
 * by operation, so that the results have the same bits: sums run over the columns in ascending order, each product is
 * rounded before it is added. For GPTQ a matrix is given columns first, [columns, rows]: rows do not depend on each
 * other.
 */
#ifndef EDGEGEN_GPTQ_H
#define EDGEGEN_GPTQ_H

#include "matmul/matrix.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_COLUMNS = 256 }; /* of a block */
enum { NEAREST_LANES = 16 }; /* whatever the instruction set */

typedef struct {
  size_t columns, rows;
  float half, levels; /* the code of zero in a symmetric block, the last code */
  bool symmetric;
} BlockShape;

typedef struct {
  const char *name;
  /* Scale and zero of each row of x [columns, rows]: of those tried the least sum of importance * (x - rounded)^2. */
  void (*search)(const BlockShape *shape, const float *x, const float *importance, float *scales, float *zeros);
  /* Rounds x, which is written, by the searched scales; `factor` [columns, columns] in rows of `stride` is upper
   * triangular. `errors` [columns, rows] are what rounding changed, by the diagonal of the factor. */
  void (*round)(const BlockShape *shape, float *x, const float *factor, size_t stride, float *scales, float *zeros,
                uint8_t *codes, float *errors);
  /* Codes [blocks, size] and scales [blocks] of x [blocks, size], each value rounded to the nearest code; `size` is a
   * multiple of NEAREST_LANES. */
  void (*nearest)(size_t blocks, size_t size, int bits, const float *x, float *scales, uint8_t *codes);
} GptqKernels;

/* Those of the instruction set whose matrix kernels have that name. */
const GptqKernels *edgegen_gptq_kernels(const char *name);

/* All answer 0, or 1 where sizes are not those of a block: columns 1 to MOST_COLUMNS, bits 2 to 8, columns <= stride.
 */
EXPORT int edgegen_search_scales(size_t columns, size_t rows, int bits, int symmetric, const float *x,
                                 const float *importance, float *scales, float *zeros);
EXPORT int edgegen_gptq_block(size_t columns, size_t rows, int bits, int symmetric, float *x, const float *factor,
                              size_t stride, float *scales, float *zeros, uint8_t *codes, float *errors);
/* Symmetric, as `round_rows` of quantize/blockwise.py; x is [blocks, size], of 16, 32, ... columns. */
EXPORT int edgegen_round_nearest(size_t blocks, size_t size, int bits, const float *x, float *scales, uint8_t *codes);

#endif
