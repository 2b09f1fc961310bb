/* The kernels in portable C: what those of every instruction set compute, bit by bit. */
#include "floats/fused.h"
#include "matrix.h"

#include <math.h>
#include <string.h>

void edgegen_quantize_portable(const Matrix *matrix, const float *x, Inputs *to, size_t m) {
  size_t block = matrix->block;
  int8_t *codes = to->codes + m * to->stride * block;
  memset(codes, 0, to->stride * block);
  for (size_t b = 0; b < to->stride; b++) {
    size_t begin = b * block;
    size_t count = begin >= matrix->columns ? 0 : matrix->columns - begin < block ? matrix->columns - begin : block;
    uint32_t most = 0; /* the bits of |x| are ordered as |x| is, and those of what is no number come last */
    for (size_t i = 0; i < count; i++) {
      uint32_t bits;
      memcpy(&bits, x + begin + i, 4);
      if ((bits & 0x7fffffff) > most) most = bits & 0x7fffffff;
    }
    float size, scale = 0;
    memcpy(&size, &most, 4);
    int32_t sum = 0;
    if (most >= 0x7f800000) {
      scale = NAN;
    } else if (size >= TINY) {
      float factor = 127.0f / size;
      for (size_t i = 0; i < count; i++) {
        int32_t code = (int32_t)nearbyintf(x[begin + i] * factor);
        codes[place_of(matrix, b, i)] = (int8_t)code;
        sum += code;
      }
      scale = size / 127.0f;
    }
    to->scales[m * to->stride + b] = scale;
    to->sums[m * to->stride + b] = sum;
  }
}

static int32_t dot(const Matrix *matrix, const uint8_t *codes, const int8_t *x) {
  int32_t sum = 0;
  if (matrix->bits == 8) {
    for (size_t i = 0; i < matrix->block; i++) sum += codes[i] * x[i];
  } else {
    size_t half = matrix->block / 2;
    for (size_t i = 0; i < half; i++) sum += (codes[i] & 15) * x[i] + (codes[i] >> 4) * x[half + i];
  }
  return sum;
}

/* Of block `b` of a row, by the codes of a row of x. */
static int32_t dot_narrow(const Matrix *matrix, size_t row, size_t b, const int8_t *x) {
  Words words = words_of(matrix, row, b);
  int32_t sum = 0;
  for (size_t i = 0; i < NARROW_BLOCK; i++) sum += narrow_code(words, matrix->bits, i) * x[place_of(matrix, b, i)];
  return sum;
}

void edgegen_multiply_portable(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last, float *y,
                               void *scratch) {
  (void)scratch;
  size_t block = matrix->block, size = block * (size_t)matrix->bits / 8;
  for (size_t m = 0; m < count; m++) {
    const int8_t *codes = x->codes + m * x->stride * block;
    const float *scales = x->scales + m * x->stride;
    const int32_t *sums = x->sums + m * x->stride;
    for (size_t n = first; n < last; n++) {
      float f[LANES] = {0};
      for (size_t b = 0; b < matrix->blocks; b++) {
        int32_t sum = is_narrow(matrix)
                          ? dot_narrow(matrix, n, b, codes)
                          : dot(matrix, matrix->codes + n * row_bytes(matrix) + b * size, codes + b * block);
        sum -= zero_at(matrix, n, b) * sums[b];
        f[b % LANES] = fused((float)sum, scale_at(matrix, n, b) * scales[b], f[b % LANES]);
      }
      float total = (f[0] + f[1]) + (f[2] + f[3]);
      y[m * matrix->rows + n] = matrix->bias ? total + matrix->bias[n] : total;
    }
  }
}

static size_t no_scratch(const Matrix *matrix, size_t count) {
  (void)matrix, (void)count;
  return 0;
}

const Kernels edgegen_portable = {"portable", edgegen_quantize_portable, edgegen_multiply_portable, no_scratch, 8,
                                  edgegen_sum_ternary_portable};
