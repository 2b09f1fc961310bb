/* Ternary matrices: rows of x are rounded as a whole, and products of codes of 2 bits are summed by each instruction
 * set. What is computed stands in matrix.h. */
#include "matrix.h"

#include <math.h>
#include <string.h>

enum { QUARTER = TERNARY_GROUP / 4 };

/* To the nearest even integer, for sizes below 2^22: what is added leaves no room for a fraction. */
static inline float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

void edgegen_quantize_ternary(const Matrix *matrix, const float *x, Inputs *to, size_t m) {
  int8_t *codes = to->codes + m * input_size(matrix);
  int32_t most = 0; /* the bits of |x| are ordered as |x| is, and those of what is no number come last */
  for (size_t i = 0; i < matrix->columns; i++) {
    int32_t bits;
    memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  float size, factor = NAN;
  int32_t sum = 0;
  memcpy(&size, &most, 4);
  if (most < 0x7f800000) factor = 127.0f / (size > LEAST_SIZE ? size : LEAST_SIZE);
  for (size_t begin = 0; begin < matrix->columns; begin += TERNARY_GROUP) {
    size_t left = matrix->columns - begin, count = left < TERNARY_GROUP ? left : TERNARY_GROUP;
    int8_t some[TERNARY_GROUP] = {0};
    for (size_t i = 0; most < 0x7f800000 && i < count; i++) {
      int32_t code = (int32_t)nearest(x[begin + i] * factor);
      some[i] = (int8_t)code;
      sum += code;
    }
    for (size_t i = 0; i < QUARTER; i++) {
      codes[begin + i] = some[4 * i], codes[begin + QUARTER + i] = some[4 * i + 1];
      codes[begin + 2 * QUARTER + i] = some[4 * i + 2], codes[begin + 3 * QUARTER + i] = some[4 * i + 3];
    }
  }
  for (size_t i = (matrix->columns + TERNARY_GROUP - 1) / TERNARY_GROUP * TERNARY_GROUP; i < input_size(matrix); i++)
    codes[i] = 0;
  to->scales[m] = factor;
  to->sums[m] = sum;
}

void edgegen_multiply_ternary(const Kernels *kernels, const Matrix *matrix, const Inputs *x, size_t count, size_t first,
                              size_t last, float *y) {
  const size_t bytes = row_bytes(matrix), size = input_size(matrix);
  for (size_t m = 0; m < count; m += TERNARY_ROWS) {
    size_t some = count - m < TERNARY_ROWS ? count - m : TERNARY_ROWS;
    for (size_t n = first; n < last; n++) {
      int32_t sums[TERNARY_ROWS];
      kernels->sum_ternary(matrix->codes + n * bytes, bytes, x->codes + m * size, size, some, sums);
      for (size_t i = 0; i < some; i++) {
        float total = (float)(sums[i] - 2 * x->sums[m + i]) / x->scales[m + i] * scale_at(matrix, n, 0);
        y[(m + i) * matrix->rows + n] = matrix->bias ? total + matrix->bias[n] : total;
      }
    }
  }
}

/* The codes of a group that has fewer, the others zero, so that what reads whole groups can. */
const uint8_t *edgegen_ternary_group(const uint8_t *codes, size_t bytes, uint8_t *padded) {
  if (bytes >= QUARTER) return codes;
  memset(padded, 0, QUARTER);
  memcpy(padded, codes, bytes);
  return padded;
}

void edgegen_sum_ternary_portable(const uint8_t *codes, size_t bytes, const int8_t *x, size_t stride, size_t count,
                                  int32_t *sums) {
  for (size_t m = 0; m < count; m++, x += stride) {
    sums[m] = 0;
    for (size_t i = 0; i < bytes; i++) {
      const int8_t *four = x + i / QUARTER * TERNARY_GROUP + i % QUARTER;
      for (size_t part = 0; part < 4; part++) sums[m] += (codes[i] >> 2 * part & 3) * four[part * QUARTER];
    }
  }
}
