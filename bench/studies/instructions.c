/* Multiplies rows of x by a matrix a few times, for bench/studies/instructions.py, which counts the instructions.
 * Arguments: rows of x, block, bits, times. */
#include "matmul/matrix.h"

#include <stdlib.h>

int main(int count, char **words) {
  if (count != 5) return 2;
  enum { COLUMNS = 512, ROWS = 64 };
  const size_t rows = (size_t)atoi(words[1]), block = (size_t)atoi(words[2]), blocks = COLUMNS / block;
  Matrix matrix = {.columns = COLUMNS, .rows = ROWS, .block = block, .blocks = blocks, .bits = atoi(words[3])};
  const Kernels *kernels = edgegen_kernels(NULL);
  Inputs x = {.stride = blocks};
  const size_t scratch_size = kernels->scratch_size(&matrix, rows);
  matrix.codes = calloc(ROWS * blocks, block), matrix.scales = calloc(ROWS * blocks, sizeof(float));
  x.codes = calloc(rows * blocks, block), x.scales = calloc(rows * blocks, sizeof(float));
  x.sums = calloc(rows * blocks, sizeof *x.sums);
  float *y = calloc(rows * ROWS, sizeof *y);
  void *scratch = aligned_alloc(64, (scratch_size / 64 + 1) * 64);
  if (!matrix.codes || !matrix.scales || !x.codes || !x.scales || !x.sums || !y || !scratch) return 1;
  for (int i = 0; i < atoi(words[4]); i++) kernels->multiply(&matrix, &x, rows, 0, ROWS, y, scratch);
  return 0;
}
