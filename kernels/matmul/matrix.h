/* Block-quantized matrices: what is computed, and the functions of each instruction set that compute it.
 *
 * y[m][n] = sum over k of x[m][k] * w[n][k], plus bias[n], with w[n][k] = (code - zero) * scale of its block.
 *
 * The arithmetic is the same on every instruction set, so that results have the same bits for every batch, chunk and
 * number of threads:
 *   - Each block of x is rounded to 8 bits: a = max |x|, q = x * (127 / a) to the nearest even integer, scale a / 127.
 *     Where a is less than TINY, all of them are 0; where it is infinite or not a number, the scale is not a number.
 *   - The products of a block are summed exactly, in 32 bits: s = sum (code - zero) * q.
 *   - Blocks b are summed in four floats, that of b % 4 in ascending order: f = fma(s, wscale * xscale, f).
 *   - y = ((f0 + f1) + (f2 + f3)) + bias.
 *
 * Codes of 3 and 2 bits stand in words of 32 bits, so many of them for a block of 32: byte i of a block's words has the
 * codes of columns 8 i to 8 i + 7. Of 3 bits, the lowest bits of word 0 are column 0's and then column 1's, those of
 * word 1 columns 2 and 3, those of word 2 columns 4 and 5; the two highest of words 0 and 1 are the lower two bits of
 * columns 6 and 7, whose third bits are the two highest of word 2. Of 2 bits, word 0 has columns 0 to 3, word 1 the
 * others, the first in the lowest bits. The words of LANES blocks are together: the first word of each, the second of
 * each, the third; the last blocks of a row may be fewer. So a vector of 16 bytes has what the same instruction takes
 * of four blocks, and the sums of four products each are those of blocks.
 *
 * A ternary matrix, of 2 bits, has one scale for each row, and a row of x is rounded as a whole: a = max |x|, or
 * LEAST_SIZE if that is more, f = 127 / a, q = x * f to the nearest even integer; f is not a number where a is none.
 * y = sum (code - 2) * q / f * scale + bias, the sum exact, each operation rounded once.
 */
#ifndef EDGEGEN_MATRIX_H
#define EDGEGEN_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TINY 1e-30f
#define LANES 4 /* floats that blocks are summed in */

#define LEAST_SIZE 1e-5f
enum {
  TERNARY_GROUP = 256,         /* columns whose codes of 2 bits are read together, in 64 bytes */
  TERNARY_ROWS = 8,            /* rows of x that are multiplied together */
  MOST_TERNARY_COLUMNS = 1 << 22 /* whose sums fit 32 bits */
};

typedef struct {
  size_t columns, rows;
  size_t block;            /* columns of a block: 32 or 64; of a ternary matrix those of a row */
  size_t blocks;           /* of a row; the last may have fewer columns, and its codes are padded */
  int bits;                /* 8, 4, 3 or 2; in a byte two codes of 4 bits, or four ternary ones, the first lowest */
  bool ternary;            /* of 2 bits, with a scale for each row */
  const uint8_t *codes;    /* [rows][blocks][block * bits / 8] */
  const float *scales;     /* [rows][blocks], or NULL and */
  const uint16_t *halves;  /* the same in 16 bits, */
  bool float16;            /* which are float16, or else bfloat16: the upper halves of floats */
  const uint8_t *zeros;    /* NULL: 128, 8, 4 or 2; 8 bits: [rows][blocks]; else [rows][(blocks + 1) / 2], of 4 bits */
  const float *bias;       /* [rows] or NULL */
} Matrix;

/* Rows of x, rounded. `stride` is `blocks` rounded up to a multiple of LANES; what is beyond `blocks` is zero.
 * Codes of a matrix of 4 bits stand in the order of its bytes' halves: of each block the even columns, then the odd.
 * Those of 3 and 2 bits stand as theirs: of four blocks columns 0, 8, 16 and 24 of each, then 1, 9, 17 and 25.
 * Those of a ternary one stand so too, of each group those of the bytes' lowest bits, then the next; stride is 1. */
typedef struct {
  size_t stride;
  int8_t *codes; /* [m][stride * block]; ternary: [m][input_size] */
  float *scales; /* [m][stride]; ternary: what x was multiplied with */
  int32_t *sums; /* [m][stride]: of the codes of a block */
} Inputs;

typedef struct {
  const char *name;
  /* Rounds one row of x into row `m` of `to`. */
  void (*quantize)(const Matrix *matrix, const float *x, Inputs *to, size_t m);
  /* y[m][n] for all m < count and the rows first <= n < last of the matrix; y has matrix->rows columns.
   * `scratch` has scratch_size bytes, aligned to 64. */
  void (*multiply)(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last, float *y,
                   void *scratch);
  size_t (*scratch_size)(const Matrix *matrix, size_t count);
  size_t granularity; /* rows of the matrix that are best computed together */
  /* The sums of products of one row of a ternary matrix, `bytes` of codes from 0 to 3, and each of up to TERNARY_ROWS
   * rows of x, `stride` bytes apart. */
  void (*sum_ternary)(const uint8_t *codes, size_t bytes, const int8_t *x, size_t stride, size_t count, int32_t *sums);
} Kernels;

/* The best kernels of this processor; or those of that name, NULL if there are none or it cannot run them. */
const Kernels *edgegen_kernels(const char *name);

/* What the library shows to others. */
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
EXPORT const char *edgegen_kernels_name(void);

#if defined(__x86_64__)
/* Whether the compiler knows AMX: from GCC 11 on there is the first header, of clang the second. */
#if defined(EDGEGEN_EMULATED_TILES) || __has_include(<amxint8intrin.h>) || __has_include(<amxintrin.h>)
#define WITH_TILES
#endif

/* For AMX, which has other kernels for many rows only. */
void edgegen_quantize_avx512vnni(const Matrix *matrix, const float *x, Inputs *to, size_t m);
void edgegen_multiply_avx512vnni(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last,
                                 float *y, void *scratch);
size_t edgegen_scratch_size_avx512vnni(const Matrix *matrix, size_t count);
void edgegen_sum_ternary_avx512vnni(const uint8_t *codes, size_t bytes, const int8_t *x, size_t stride, size_t count,
                                    int32_t *sums);
#endif

extern const Kernels edgegen_portable;
void edgegen_quantize_portable(const Matrix *matrix, const float *x, Inputs *to, size_t m);
void edgegen_multiply_portable(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last, float *y,
                               void *scratch);

void edgegen_quantize_ternary(const Matrix *matrix, const float *x, Inputs *to, size_t m);
void edgegen_multiply_ternary(const Kernels *kernels, const Matrix *matrix, const Inputs *x, size_t count, size_t first,
                              size_t last, float *y);
const uint8_t *edgegen_ternary_group(const uint8_t *codes, size_t bytes, uint8_t *padded);
void edgegen_sum_ternary_portable(const uint8_t *codes, size_t bytes, const int8_t *x, size_t stride, size_t count,
                                  int32_t *sums);

enum { NARROW_BLOCK = 32, NARROW_PARTS = 8, NARROW_GROUP = LANES * NARROW_BLOCK };

/* Whether blocks have codes of 3 or 2 bits. */
static inline bool is_narrow(const Matrix *matrix) { return matrix->bits < 4 && !matrix->ternary; }

static inline size_t rounded_up(size_t size, size_t step) { return (size + step - 1) / step * step; }

static inline size_t input_stride(const Matrix *matrix) {
  return matrix->ternary ? 1 : (matrix->blocks + LANES - 1) / LANES * LANES;
}

/* Bytes of a row of x, rounded. */
static inline size_t input_size(const Matrix *matrix) {
  if (matrix->ternary) return (matrix->block + TERNARY_GROUP - 1) / TERNARY_GROUP * TERNARY_GROUP;
  return input_stride(matrix) * matrix->block;
}

static inline size_t row_bytes(const Matrix *matrix) {
  return matrix->blocks * (matrix->block * (size_t)matrix->bits / 8);
}

/* Of matrices of one size that lie one after the other, from the first on, another. */
static inline Matrix matrix_at(const Matrix *first, size_t number) {
  Matrix own = *first;
  size_t rows = number * first->rows;
  own.codes += rows * row_bytes(first);
  if (own.scales) own.scales += rows * first->blocks;
  else own.halves += rows * first->blocks;
  if (own.zeros) own.zeros += rows * (first->bits == 8 ? first->blocks : (first->blocks + 1) / 2);
  if (own.bias) own.bias += rows;
  return own;
}

/* Rows of x, rounded for that matrix, from row `m` on. */
static inline Inputs inputs_at(const Inputs *inputs, const Matrix *matrix, size_t m) {
  size_t at = m * inputs->stride;
  return (Inputs){inputs->stride, inputs->codes + at * matrix->block, inputs->scales + at, inputs->sums + at};
}

/* A float16 as a float, as processors widen it: exactly; of what is not a number the highest bit of the fraction is set.
 */
static inline float widened_float16(uint16_t half) {
  uint32_t sign = half >> 15, exponent = half >> 10 & 31, fraction = half & 1023;
  if (!exponent) return (float)fraction * (sign ? -0x1p-24f : 0x1p-24f);
  union {
    uint32_t bits;
    float value;
  } wide = {sign << 31 | (exponent < 31 ? exponent + 112 : 255) << 23 | fraction << 13};
  if (exponent == 31 && fraction) wide.bits |= 1u << 22;
  return wide.value;
}

static inline float scale_at(const Matrix *matrix, size_t row, size_t b) {
  size_t at = row * matrix->blocks + b;
  if (matrix->scales) return matrix->scales[at];
  if (matrix->float16) return widened_float16(matrix->halves[at]);
  union {
    uint32_t bits;
    float value;
  } wide = {(uint32_t)matrix->halves[at] << 16};
  return wide.value;
}

static inline int32_t zero_at(const Matrix *matrix, size_t row, size_t b) {
  if (!matrix->zeros) return 1 << (matrix->bits - 1);
  if (matrix->bits == 8) return matrix->zeros[row * matrix->blocks + b];
  return matrix->zeros[row * ((matrix->blocks + 1) / 2) + b / 2] >> (b % 2 * 4) & 15;
}

/* Where column `i` of block `b` stands among the rounded codes of a row of x. */
static inline size_t place_of(const Matrix *matrix, size_t b, size_t i) {
  if (is_narrow(matrix)) return b / LANES * NARROW_GROUP + i % NARROW_PARTS * 16 + b % LANES * 4 + i / NARROW_PARTS;
  return b * matrix->block + (matrix->bits == 8 ? i : i / 2 + i % 2 * (matrix->block / 2));
}

/* The words of a block of 3 or 2 bits: the first, and how many bytes behind it the next one is. */
typedef struct {
  const uint8_t *first;
  size_t apart;
} Words;

static inline Words words_of(const Matrix *matrix, size_t row, size_t b) {
  size_t group = b / LANES * LANES, left = matrix->blocks - group;
  const uint8_t *codes = matrix->codes + row * row_bytes(matrix) + group * 4 * (size_t)matrix->bits;
  return (Words){codes + b % LANES * 4, (left < LANES ? left : LANES) * 4};
}

/* Column `i` of such a block. */
static inline uint8_t narrow_code(Words words, int bits, size_t i) {
  const uint8_t *word = words.first + i / NARROW_PARTS;
  size_t part = i % NARROW_PARTS;
  if (bits == 2) return word[part / 4 * words.apart] >> part % 4 * 2 & 3;
  if (part < 6) return word[part / 2 * words.apart] >> part % 2 * 3 & 7;
  uint8_t low = word[(part - 6) * words.apart] >> 6, high = word[2 * words.apart] >> part & 1;
  return (uint8_t)(low | high << 2);
}

#endif
