/* What the quantizer calls: sizes are checked, then the best kernels run. */
#include "gptq.h"

static const GptqKernels *checked(BlockShape *shape, size_t columns, size_t rows, int bits, int symmetric) {
  const Kernels *kernels = edgegen_kernels(NULL);
  if (!columns || columns > MOST_COLUMNS || bits < 2 || bits > 8) return NULL;
  *shape = (BlockShape){columns, rows, (float)(1 << (bits - 1)), (float)((1 << bits) - 1), symmetric != 0};
  return edgegen_gptq_kernels(kernels->name);
}

EXPORT int edgegen_search_scales(size_t columns, size_t rows, int bits, int symmetric, const float *x,
                                 const float *importance, float *scales, float *zeros) {
  BlockShape shape;
  const GptqKernels *kernels = checked(&shape, columns, rows, bits, symmetric);
  if (!kernels) return 1;
  kernels->search(&shape, x, importance, scales, zeros);
  return 0;
}

EXPORT int edgegen_gptq_block(size_t columns, size_t rows, int bits, int symmetric, float *x, const float *factor,
                              size_t stride, float *scales, float *zeros, uint8_t *codes, float *errors) {
  BlockShape shape;
  const GptqKernels *kernels = checked(&shape, columns, rows, bits, symmetric);
  if (!kernels || stride < columns) return 1;
  kernels->round(&shape, x, factor, stride, scales, zeros, codes, errors);
  return 0;
}

EXPORT int edgegen_round_nearest(size_t blocks, size_t size, int bits, const float *x, float *scales, uint8_t *codes) {
  const GptqKernels *kernels = edgegen_gptq_kernels(edgegen_kernels(NULL)->name);
  if (!size || size % NEAREST_LANES || size > MOST_COLUMNS || bits < 2 || bits > 8) return 1;
  kernels->nearest(blocks, size, bits, x, scales, codes);
  return 0;
}
