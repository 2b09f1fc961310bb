/* The kernels for AVX-512 with VNNI.
 *
 * Up to FEW rows of x, the matrix is read as it lies, four rows and four blocks at a time. Up to SOME, 64 bytes of 16
 * rows are interleaved in groups of four columns, and used at once. More share a panel: PANEL rows of the matrix,
 * interleaved so, packed once into memory of the task.
 */
#include "matrix.h"

#ifdef __x86_64__
#include "avx512_panels.h"
#include "narrow_x86.h"

#include <string.h>

typedef int32_t Four __attribute__((may_alias, aligned(1))); /* codes that are multiplied together */
#define FEW 4
#define SOME 8
#define AHEAD 16384 /* bytes; measured: 4096 is too near */

/* Sums of pairs: of the four lanes of 128 bits, each of four numbers. */
#define ADD32(a, b) _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
#define ADD64(a, b) _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
#define ADD128(a, b) _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd))

#define MAX32(a, b) _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
#define MAX64(a, b) _mm512_max_epu32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))

/* Four blocks at a time: their greatest numbers, and their sums, are found side by side. */
INLINE TARGET void quantize_row(const Matrix *matrix, const float *x, Inputs *to, size_t m, const size_t block) {
  const size_t vectors = block / 16;
  int8_t *codes = to->codes + m * to->stride * block;
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  /* of 16 codes: the even ones, then the odd ones */
  const __m512i apart = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  for (size_t b = 0; b < to->stride; b += 4) {
    __m512 v[4][4];
    __m512i most[4];
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
      most[j] = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (size_t i = 0; i < vectors; i++) {
        const size_t begin = (b + j) * block + i * 16;
        const size_t left = matrix->columns > begin ? matrix->columns - begin : 0;
        const __mmask16 there = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
        v[j][i] = _mm512_maskz_loadu_ps(there, left ? x + begin : x);
        most[j] = _mm512_max_epu32(most[j], _mm512_and_epi32(_mm512_castps_si512(v[j][i]), magnitude));
      }
    }
    const __m512i pairs = MAX64(MAX32(most[0], most[1]), MAX32(most[2], most[3]));
    const __m256i halves = _mm256_max_epu32(_mm512_castsi512_si256(pairs), _mm512_extracti64x4_epi64(pairs, 1));
    const __m128i bits = _mm_max_epu32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    const __m128 sizes = _mm_castsi128_ps(bits);
    const __mmask8 finite = _mm_cmplt_epu32_mask(bits, _mm_set1_epi32(0x7f800000));
    const __mmask8 usual = finite & _mm_cmp_ps_mask(sizes, _mm_set1_ps(TINY), _CMP_GE_OQ);
    const __m128 factors = _mm_maskz_div_ps(usual, _mm_set1_ps(127.0f), sizes);
    __m128 scales = _mm_maskz_div_ps(usual, sizes, _mm_set1_ps(127.0f));
    scales = _mm_mask_blend_ps(finite, _mm_castsi128_ps(_mm_set1_epi32(0x7fc00000)), scales);
    float factor[4];
    _mm_storeu_ps(factor, factors);
    __m512i sums[4];
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
      int8_t *out = codes + (b + j) * block;
      sums[j] = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (size_t i = 0; i < vectors; i++) {
        /* A factor of 0 stands for codes of 0, whatever x is. */
        const __m512i rounded = _mm512_maskz_cvtps_epi32((__mmask16) - (int)(usual >> j & 1),
                                                         _mm512_mul_ps(v[j][i], _mm512_set1_ps(factor[j])));
        sums[j] = _mm512_add_epi32(sums[j], rounded);
        if (matrix->bits != 4) {
          _mm_storeu_si128((__m128i *)(out + i * 16), _mm512_cvtepi32_epi8(rounded));
        } else {
          const __m128i both = _mm512_cvtepi32_epi8(_mm512_permutexvar_epi32(apart, rounded));
          _mm_storel_epi64((__m128i *)(out + i * 8), both);
          _mm_storel_epi64((__m128i *)(out + block / 2 + i * 8), _mm_unpackhi_epi64(both, both));
        }
      }
    }
    const __m512i wide = ADD64(ADD32(sums[0], sums[1]), ADD32(sums[2], sums[3]));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(wide), _mm512_extracti64x4_epi64(wide, 1));
    _mm_storeu_ps(to->scales + m * to->stride + b, scales);
    _mm_storeu_si128((__m128i *)(to->sums + m * to->stride + b),
                     _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
    if (is_narrow(matrix)) spread_codes(codes + b * block);
  }
}

TARGET void edgegen_quantize_avx512vnni(const Matrix *matrix, const float *x, Inputs *to, size_t m) {
  if (matrix->block == 64) quantize_row(matrix, x, to, m, 64);
  else quantize_row(matrix, x, to, m, 32);
}

/* Asks for what will be read a while later: the processor's own guesses miss where rows are read side by side. Into the
 * second cache: asked for in the first, a token of GPT-2 small took 1.4 times as long (measured on Zen 4). */
INLINE TARGET void fetch(const uint8_t *now) { _mm_prefetch((const char *)((uintptr_t)now + AHEAD), _MM_HINT_T1); }

/* Four numbers of each of four rows as [number][row]. */
INLINE TARGET __m512i across(__m512i rows) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, rows);
}

/* Four numbers, each four times. */
INLINE TARGET __m512i spread(__m128i four) {
  const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_epi32(order, _mm512_castsi128_si512(four));
}

/* The scales of four blocks of the matrix's rows r[0..3], as [row][block]; zero beyond `left` blocks. */
INLINE TARGET __m512 scales_of_rows(const Matrix *matrix, const size_t *r, size_t b, size_t left) {
  __mmask8 there = left >= 4 ? 15 : (__mmask8)((1u << left) - 1);
  if (matrix->scales) {
    const float *s = matrix->scales + b;
    __m512 rows = _mm512_castps128_ps512(_mm_maskz_loadu_ps(there, s + r[0] * matrix->blocks));
    rows = _mm512_insertf32x4(rows, _mm_maskz_loadu_ps(there, s + r[1] * matrix->blocks), 1);
    rows = _mm512_insertf32x4(rows, _mm_maskz_loadu_ps(there, s + r[2] * matrix->blocks), 2);
    rows = _mm512_insertf32x4(rows, _mm_maskz_loadu_ps(there, s + r[3] * matrix->blocks), 3);
    return rows;
  }
  const uint16_t *s = matrix->halves + b;
  __m128i low = _mm_unpacklo_epi64(_mm_maskz_loadu_epi16(there, s + r[0] * matrix->blocks),
                                   _mm_maskz_loadu_epi16(there, s + r[1] * matrix->blocks));
  __m128i high = _mm_unpacklo_epi64(_mm_maskz_loadu_epi16(there, s + r[2] * matrix->blocks),
                                    _mm_maskz_loadu_epi16(there, s + r[3] * matrix->blocks));
  return widened(matrix, _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
}

/* As [block][row]. */
INLINE TARGET __m512 scales_of(const Matrix *matrix, const size_t *r, size_t b, size_t left) {
  return _mm512_castsi512_ps(across(_mm512_castps_si512(scales_of_rows(matrix, r, b, left))));
}

/* The zero points of four blocks, as scales_of_rows; what is beyond `left` blocks is not used. */
INLINE TARGET __m512i zeros_of_rows(const Matrix *matrix, const size_t *r, size_t b, size_t left) {
  uint8_t bytes[16] = {0};
  if (matrix->bits == 8) {
    for (size_t i = 0; i < 4; i++)
      memcpy(bytes + i * 4, matrix->zeros + r[i] * matrix->blocks + b, left < 4 ? left : 4);
  } else {
    const size_t size = (matrix->blocks + 1) / 2;
    const uint8_t *from = matrix->zeros + b / 2;
    uint16_t four[4] = {0};
    if (left > 2)
      for (size_t i = 0; i < 4; i++) memcpy(four + i, from + r[i] * size, 2);
    else
      for (size_t i = 0; i < 4; i++) four[i] = from[r[i] * size];
    for (size_t i = 0; i < 4; i += 2) {
      uint64_t spread = _pdep_u64((uint64_t)four[i] | (uint64_t)four[i + 1] << 16, 0x0f0f0f0f0f0f0f0f);
      memcpy(bytes + i * 4, &spread, 8);
    }
  }
  return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
}

INLINE TARGET __m512i zeros_of(const Matrix *matrix, const size_t *r, size_t b, size_t left) {
  return across(zeros_of_rows(matrix, r, b, left));
}

/* Up to FEW rows of x by the matrix's rows n to n + 3. `unit`: bytes of a block's codes. */
INLINE TARGET void few(const Matrix *matrix, const Inputs *x, size_t count, size_t n, size_t last, float *y,
                       size_t unit, int bits) {
  size_t r[4];
  const uint8_t *w[4];
  for (size_t i = 0; i < 4; i++) {
    r[i] = n + i < last ? n + i : last - 1;
    w[i] = matrix->codes + r[i] * row_bytes(matrix);
  }
  const size_t vectors = unit / 16;
  const __m512i low = _mm512_set1_epi8(15);
  __m512 f[FEW];
  for (size_t m = 0; m < count; m++) f[m] = _mm512_setzero_ps();
  size_t block = matrix->block;
  for (size_t b = 0; b < matrix->blocks; b += 4) {
    size_t left = matrix->blocks - b;
    __m512i t[FEW][4];
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++) {
      size_t at = b * unit + v * 64;
      size_t there = left * unit > v * 64 ? left * unit - v * 64 : 0;
      __mmask64 mask = there >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << there) - 1;
      __m512i c[4];
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; i++) {
        c[i] = _mm512_maskz_loadu_epi8(mask, w[i] + at);
        fetch(w[i] + at);
      }
#pragma GCC unroll 8
      for (size_t m = 0; m < count; m++) {
        const int8_t *codes = x->codes + m * x->stride * block + b * block;
        __m512i d[4];
        if (bits == 8) {
          __m512i q = _mm512_loadu_si512(codes + v * 64);
#pragma GCC unroll 4
          for (size_t i = 0; i < 4; i++) d[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), c[i], q);
        } else {
          /* 64 bytes are the halves of 128 codes: of four blocks of 32, or two of 64. */
          __m512i even, odd;
          if (unit == 16) {
            const __m512i evens = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13),
                          odds = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
            __m512i q0 = _mm512_loadu_si512(codes), q1 = _mm512_loadu_si512(codes + 64);
            even = _mm512_permutex2var_epi64(q0, evens, q1);
            odd = _mm512_permutex2var_epi64(q0, odds, q1);
          } else {
            __m512i q0 = _mm512_loadu_si512(codes + v * 128), q1 = _mm512_loadu_si512(codes + v * 128 + 64);
            even = _mm512_shuffle_i64x2(q0, q1, 0x44);
            odd = _mm512_shuffle_i64x2(q0, q1, 0xee);
          }
#pragma GCC unroll 4
          for (size_t i = 0; i < 4; i++) {
            d[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(c[i], low), even);
            d[i] = _mm512_dpbusd_epi32(d[i], _mm512_and_si512(_mm512_srli_epi16(c[i], 4), low), odd);
          }
        }
        t[m][v] = ADD64(ADD32(d[0], d[1]), ADD32(d[2], d[3]));
      }
    }
    __m512 scales = scales_of(matrix, r, b, left);
    __m512i zeros = matrix->zeros ? zeros_of(matrix, r, b, left) : _mm512_set1_epi32(bits == 8 ? 128 : 8);
    __mmask16 there = left >= 4 ? 0xffff : (__mmask16)((1u << left * 4) - 1);
#pragma GCC unroll 8
    for (size_t m = 0; m < count; m++) {
      const float *s = x->scales + m * x->stride + b;
      __m512i sums = spread(_mm_loadu_si128((const __m128i *)(x->sums + m * x->stride + b)));
      __m512 own = _mm512_castsi512_ps(spread(_mm_castps_si128(_mm_loadu_ps(s))));
      __m512i all = vectors == 1   ? t[m][0]
                    : vectors == 2 ? ADD128(t[m][0], t[m][1])
                                   : ADD128(ADD128(t[m][0], t[m][1]), ADD128(t[m][2], t[m][3]));
      /* Both fit in 16 bits, and the upper half of a zero point is 0. */
      all = _mm512_sub_epi32(all, _mm512_madd_epi16(zeros, sums));
      f[m] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(all), _mm512_mul_ps(scales, own), f[m], there);
    }
  }
  for (size_t m = 0; m < count; m++) {
    __m128 total = _mm_add_ps(_mm_add_ps(_mm512_castps512_ps128(f[m]), _mm512_extractf32x4_ps(f[m], 1)),
                              _mm_add_ps(_mm512_extractf32x4_ps(f[m], 2), _mm512_extractf32x4_ps(f[m], 3)));
    __mmask8 there = last - n >= 4 ? 15 : (__mmask8)((1u << (last - n)) - 1);
    if (matrix->bias) total = _mm_add_ps(total, _mm_maskz_loadu_ps(there, matrix->bias + n));
    _mm_mask_storeu_ps(y + m * matrix->rows + n, there, total);
  }
}

#define FEW_ROWS(NAME, COUNT, UNIT, BITS)                                                                              \
  TARGET static void NAME(const Matrix *matrix, const Inputs *x, size_t first, size_t last, float *y) {                \
    for (size_t n = first; n < last; n += 4) few(matrix, x, COUNT, n, last, y, UNIT, BITS);                            \
  }
FEW_ROWS(one_8_64, 1, 64, 8)
FEW_ROWS(two_8_64, 2, 64, 8)
FEW_ROWS(three_8_64, 3, 64, 8)
FEW_ROWS(four_8_64, 4, 64, 8)
FEW_ROWS(one_8_32, 1, 32, 8)
FEW_ROWS(two_8_32, 2, 32, 8)
FEW_ROWS(three_8_32, 3, 32, 8)
FEW_ROWS(four_8_32, 4, 32, 8)
FEW_ROWS(one_4_64, 1, 32, 4)
FEW_ROWS(two_4_64, 2, 32, 4)
FEW_ROWS(three_4_64, 3, 32, 4)
FEW_ROWS(four_4_64, 4, 32, 4)
FEW_ROWS(one_4_32, 1, 16, 4)
FEW_ROWS(two_4_32, 2, 16, 4)
FEW_ROWS(three_4_32, 3, 16, 4)
FEW_ROWS(four_4_32, 4, 16, 4)

typedef void (*FewRows)(const Matrix *, const Inputs *, size_t, size_t, float *);
static const FewRows FEW_OF[2][2][FEW] = {
    {{one_8_64, two_8_64, three_8_64, four_8_64}, {one_8_32, two_8_32, three_8_32, four_8_32}},
    {{one_4_64, two_4_64, three_4_64, four_4_64}, {one_4_32, two_4_32, three_4_32, four_4_32}},
};

/* Up to FEW rows of x by rows n to n + 3 of a matrix of 3 or 2 bits: a vector has 16 bytes of each of these, which are
 * words of four blocks, so that what VNNI sums are the blocks' sums, as [row][block]. */
INLINE TARGET void few_narrow(const Matrix *matrix, const Inputs *x, size_t first, const size_t count, size_t n,
                              size_t last, float *y, const int bits) {
  size_t r[4];
  const uint8_t *w[4];
  for (size_t i = 0; i < 4; i++) {
    r[i] = n + i < last ? n + i : last - 1;
    w[i] = matrix->codes + r[i] * row_bytes(matrix);
  }
  __m512 f[FEW];
  for (size_t m = 0; m < count; m++) f[m] = _mm512_setzero_ps();
  for (size_t b = 0; b < matrix->blocks; b += 4) {
    const size_t left = matrix->blocks - b, apart = (left < 4 ? left : 4) * 4;
    const __mmask8 words = left >= 4 ? 15 : (__mmask8)((1u << left) - 1);
    __m512i word[3], c[NARROW_PARTS];
#pragma GCC unroll 3
    for (size_t k = 0; k < (size_t)bits; k++) {
      const size_t at = b * 4 * (size_t)bits + k * apart;
      word[k] = _mm512_castsi128_si512(_mm_maskz_loadu_epi32(words, w[0] + at));
      word[k] = _mm512_inserti32x4(word[k], _mm_maskz_loadu_epi32(words, w[1] + at), 1);
      word[k] = _mm512_inserti32x4(word[k], _mm_maskz_loadu_epi32(words, w[2] + at), 2);
      word[k] = _mm512_inserti32x4(word[k], _mm_maskz_loadu_epi32(words, w[3] + at), 3);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) fetch(w[i] + b * 4 * (size_t)bits);
    narrow_codes_of(word, bits, c);
    const __m512 scales = scales_of_rows(matrix, r, b, left);
    const __m512i zeros = matrix->zeros ? zeros_of_rows(matrix, r, b, left) : _mm512_set1_epi32(1 << (bits - 1));
    const __mmask16 there = (__mmask16)(words * 0x1111u);
#pragma GCC unroll 4
    for (size_t m = 0; m < count; m++) {
      const size_t at = (first + m) * x->stride + b;
      const __m128i *q = (const __m128i *)(x->codes + at * NARROW_BLOCK);
      __m512i s = _mm512_setzero_si512(), t = s;
#pragma GCC unroll 4
      for (size_t k = 0; k < NARROW_PARTS; k += 2) {
        s = _mm512_dpbusd_epi32(s, c[k], _mm512_broadcast_i32x4(_mm_loadu_si128(q + k)));
        t = _mm512_dpbusd_epi32(t, c[k + 1], _mm512_broadcast_i32x4(_mm_loadu_si128(q + k + 1)));
      }
      const __m512i sums = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(x->sums + at)));
      const __m512 own = _mm512_broadcast_f32x4(_mm_loadu_ps(x->scales + at));
      /* Both fit in 16 bits, and the upper half of a zero point is 0. */
      const __m512i all = _mm512_sub_epi32(_mm512_add_epi32(s, t), _mm512_madd_epi16(zeros, sums));
      f[m] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(all), _mm512_mul_ps(scales, own), f[m], there);
    }
  }
  for (size_t m = 0; m < count; m++) {
    const __m512 by_block = _mm512_castsi512_ps(across(_mm512_castps_si512(f[m])));
    __m128 total = _mm_add_ps(_mm_add_ps(_mm512_castps512_ps128(by_block), _mm512_extractf32x4_ps(by_block, 1)),
                              _mm_add_ps(_mm512_extractf32x4_ps(by_block, 2), _mm512_extractf32x4_ps(by_block, 3)));
    __mmask8 there = last - n >= 4 ? 15 : (__mmask8)((1u << (last - n)) - 1);
    if (matrix->bias) total = _mm_add_ps(total, _mm_maskz_loadu_ps(there, matrix->bias + n));
    _mm_mask_storeu_ps(y + (first + m) * matrix->rows + n, there, total);
  }
}

/* Up to SOME rows of x; those behind the first FEW find the matrix's rows near. */
INLINE TARGET void narrow(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last, float *y,
                          const int bits) {
  for (size_t n = first; n < last; n += 4)
    for (size_t m = 0; m < count; m += FEW) switch (count - m) {
      case 1: few_narrow(matrix, x, m, 1, n, last, y, bits); break;
      case 2: few_narrow(matrix, x, m, 2, n, last, y, bits); break;
      case 3: few_narrow(matrix, x, m, 3, n, last, y, bits); break;
      default: few_narrow(matrix, x, m, 4, n, last, y, bits); break;
      }
}

TARGET static void narrow_3(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last, float *y) {
  narrow(matrix, x, count, first, last, y, 3);
}

TARGET static void narrow_2(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last, float *y) {
  narrow(matrix, x, count, first, last, y, 2);
}

/* A panel: codes [blocks][bytes of a block / 4][PANEL][4], scales [blocks][PANEL], zeros [blocks][PANEL]. Codes of 3
 * and 2 bits have 4 there: of each four bytes of a row parts 0 and 1 of the rounded codes, then parts 2 and 3. */
typedef struct {
  uint8_t *codes;
  float *scales;
  int32_t *zeros;
} Panel;

static size_t panel_row_bytes(const Matrix *matrix) {
  return is_narrow(matrix) ? matrix->blocks * (NARROW_BLOCK / 2) : row_bytes(matrix);
}

size_t edgegen_scratch_size_avx512vnni(const Matrix *matrix, size_t count) {
  if (count <= SOME) return 0;
  size_t padded = (matrix->blocks + 15) / 16 * 16;
  return panel_row_bytes(matrix) * PANEL + 2 * padded * PANEL * 4;
}

/* As inline assembly: GCC 12 would keep copies of the accumulators in memory. */
#define ADD_PRODUCTS(sum, w, four) __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(four))

/* Up to SOME rows of x by the matrix's rows n to n + 15: 64 bytes of each are transposed, multiplied by all rows of x,
 * and not kept. `unit`: bytes of a block's codes. */
INLINE TARGET void some(const Matrix *matrix, const Inputs *x, size_t count, size_t n, size_t last, float *y,
                        const size_t unit, const int bits) {
  const size_t size = row_bytes(matrix), block = unit * 8 / (size_t)bits, row = x->stride * block;
  size_t r[16], place[SOME];
  const uint8_t *w[16];
  for (size_t i = 0; i < 16; i++) {
    r[i] = n + i < last ? n + i : last - 1;
    w[i] = matrix->codes + r[i] * size;
  }
  for (size_t m = 0; m < SOME; m++) place[m] = m < count ? m : count - 1; /* what is too many is not written */
  const __m512i low = _mm512_set1_epi8(15);
  __m512 f[LANES][SOME];
  for (size_t lane = 0; lane < LANES; lane++)
    for (size_t m = 0; m < SOME; m++) f[lane][m] = _mm512_setzero_ps();
  float scales[16 * 16] __attribute__((aligned(64)));
  int32_t zeros[16 * 16] __attribute__((aligned(64)));
  uint8_t turned[16 * 64] __attribute__((aligned(64)));
  for (size_t at = 0; at < size; at += 64) {
    const size_t begin = at / unit;
    if (begin % 16 == 0) {
      scales_of_16(matrix, r, begin, matrix->blocks - begin, scales, 64);
      if (matrix->zeros) zeros_of_16(matrix, r, begin, matrix->blocks - begin, zeros, 64);
    }
    const __mmask64 there = size - at >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (size - at)) - 1;
    __m512i rows[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++) {
      rows[i] = _mm512_maskz_loadu_epi8(there, w[i] + at);
      _mm_prefetch((const char *)((uintptr_t)(w[i] + at) + 16 * size), _MM_HINT_T1);
    }
    transpose(rows, turned, 64);
    for (size_t b = begin; b < begin + 64 / unit && b < matrix->blocks; b++) {
      const uint8_t *from = turned + (b - begin) * unit * 16;
      __m512i s[SOME];
      const __m512i zero =
          matrix->zeros ? _mm512_load_si512(zeros + b % 16 * 16) : _mm512_set1_epi32(bits == 8 ? 128 : 8);
#pragma GCC unroll 8
      for (size_t m = 0; m < SOME; m++)
        s[m] = _mm512_sub_epi32(_mm512_setzero_si512(),
                                _mm512_madd_epi16(zero, _mm512_set1_epi32(x->sums[place[m] * x->stride + b])));
      for (size_t g = 0; g < unit; g += 4) {
        const __m512i codes = _mm512_load_si512(from + g * 16);
        const int8_t *q = x->codes + b * block + g;
        if (bits == 8) {
#pragma GCC unroll 8
          for (size_t m = 0; m < SOME; m++) ADD_PRODUCTS(s[m], codes, *(const Four *)(q + place[m] * row));
        } else {
          const __m512i even = _mm512_and_si512(codes, low), odd = _mm512_and_si512(_mm512_srli_epi16(codes, 4), low);
#pragma GCC unroll 8
          for (size_t m = 0; m < SOME; m++) {
            ADD_PRODUCTS(s[m], even, *(const Four *)(q + place[m] * row));
            ADD_PRODUCTS(s[m], odd, *(const Four *)(q + unit + place[m] * row));
          }
        }
      }
      const __m512 scale = _mm512_load_ps(scales + b % 16 * 16);
#pragma GCC unroll 8
      for (size_t m = 0; m < SOME; m++) {
        const __m512 own = _mm512_mul_ps(scale, _mm512_set1_ps(x->scales[place[m] * x->stride + b]));
        f[b % LANES][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[m]), own, f[b % LANES][m]);
      }
    }
  }
  const __mmask16 there = last - n >= 16 ? 0xffff : (__mmask16)((1u << (last - n)) - 1);
  for (size_t m = 0; m < count; m++) {
    __m512 total = _mm512_add_ps(_mm512_add_ps(f[0][m], f[1][m]), _mm512_add_ps(f[2][m], f[3][m]));
    if (matrix->bias) total = _mm512_add_ps(total, _mm512_maskz_loadu_ps(there, matrix->bias + n));
    _mm512_mask_storeu_ps(y + m * matrix->rows + n, there, total);
  }
}

#define SOME_ROWS(NAME, UNIT, BITS)                                                                                    \
  TARGET static void NAME(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last, float *y) {  \
    for (size_t n = first; n < last; n += 16) some(matrix, x, count, n, last, y, UNIT, BITS);                          \
  }
SOME_ROWS(some_8_64, 64, 8)
SOME_ROWS(some_8_32, 32, 8)
SOME_ROWS(some_4_64, 32, 4)
SOME_ROWS(some_4_32, 16, 4)

typedef void (*SomeRows)(const Matrix *, const Inputs *, size_t, size_t, size_t, float *);
static const SomeRows SOME_OF[2][2] = {{some_8_64, some_8_32}, {some_4_64, some_4_32}};

/* The codes of 16 rows, of 3 or 2 bits: `out` is where block 0 of the first has its panel. */
INLINE TARGET void pack_narrow(const Matrix *matrix, const uint8_t *const *row, uint8_t *out, const int bits) {
  const __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8((char)0xf0);
  uint8_t turned[16 * 64] __attribute__((aligned(64)));
  for (size_t b = 0; b < matrix->blocks; b += 4) {
    const size_t left = matrix->blocks - b < 4 ? matrix->blocks - b : 4, unit = 4 * (size_t)bits;
    const __mmask64 there = ((__mmask64)1 << left * unit) - 1;
    __m512i rows[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++) rows[i] = _mm512_maskz_loadu_epi8(there, row[i] + b * unit);
    transpose(rows, turned, 64);
    for (size_t j = 0; j < left; j++) {
      __m512i word[3], c[NARROW_PARTS];
#pragma GCC unroll 3
      for (size_t k = 0; k < (size_t)bits; k++) word[k] = _mm512_load_si512(turned + (k * left + j) * 64);
      narrow_codes_of(word, bits, c);
#pragma GCC unroll 4
      for (size_t k = 0; k < 4; k++) {
        const __m512i both = _mm512_or_si512(_mm512_and_si512(c[2 * k], low),
                                             _mm512_and_si512(_mm512_slli_epi16(c[2 * k + 1], 4), high));
        _mm512_store_si512(out + ((b + j) * 16 + k * 4) * PANEL, both);
      }
    }
  }
}

TARGET static void pack_codes(const Matrix *matrix, const uint8_t *const *row, uint8_t *out) {
  if (matrix->bits == 3) pack_narrow(matrix, row, out, 3);
  else pack_narrow(matrix, row, out, 2);
}

TARGET static void pack(const Matrix *matrix, size_t n, size_t last, Panel panel) {
  const size_t size = row_bytes(matrix);
  const uint8_t *row[PANEL];
  size_t r[PANEL];
  for (size_t i = 0; i < PANEL; i++) {
    r[i] = n + i < last ? n + i : last - 1;
    row[i] = matrix->codes + r[i] * size;
  }
  size_t at = is_narrow(matrix) ? size : 0;
  if (is_narrow(matrix))
    for (size_t half = 0; half < PANEL; half += 16) pack_codes(matrix, row + half, panel.codes + half * 4);
  for (; at + 64 <= size; at += 64) {
    for (size_t half = 0; half < PANEL; half += 16) {
      __m512i rows[16];
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; i++) rows[i] = _mm512_loadu_si512(row[half + i] + at);
      transpose(rows, panel.codes + at * PANEL + half * 4, PANEL * 4);
    }
  }
  if (at < size) { /* a block of 16 or 32 bytes, or three of 16 */
    const __mmask64 there = ((__mmask64)1 << (size - at)) - 1;
    uint8_t both[64 * PANEL] __attribute__((aligned(64)));
    for (size_t half = 0; half < PANEL; half += 16) {
      __m512i rows[16];
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; i++) rows[i] = _mm512_maskz_loadu_epi8(there, row[half + i] + at);
      transpose(rows, both + half * 4, PANEL * 4);
    }
    memcpy(panel.codes + at * PANEL, both, (size - at) * PANEL);
  }
  for (size_t b = 0; b < matrix->blocks; b += 16)
    for (size_t half = 0; half < PANEL; half += 16) {
      scales_of_16(matrix, r + half, b, matrix->blocks - b, panel.scales + b * PANEL + half, PANEL * 4);
      if (matrix->zeros)
        zeros_of_16(matrix, r + half, b, matrix->blocks - b, panel.zeros + b * PANEL + half, PANEL * 4);
    }
}

#define EACH2(F) F(0) F(1)
#define EACH3(F) EACH2(F) F(2)
#define EACH4(F) EACH3(F) F(3)
#define EACH6(F) EACH4(F) F(4) F(5)
#define EACH8(F) EACH6(F) F(6) F(7)
#define EACH12(F) EACH8(F) F(8) F(9) F(10) F(11)
#define EACH1(F) F(0)

/* Row r of x: one of four pointers, and one of three offsets, which an address can hold. */
#define ROW_AT(r) (r / 3 == 0 ? q0 : r / 3 == 1 ? q1 : r / 3 == 2 ? q2 : q3) + r % 3 * row
#define BEGIN(r)                                                                                                       \
  __m512i a##r = _mm512_set1_epi32(sums[r * stride + b]), c##r;                                                        \
  if (matrix->zeros) {                                                                                                 \
    c##r = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_madd_epi16(z1, a##r));                                      \
    a##r = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_madd_epi16(z0, a##r));                                      \
  } else {                                                                                                             \
    a##r = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(a##r, middle));                                  \
    c##r = a##r;                                                                                                       \
  }
#define STEP(r)                                                                                                        \
  {                                                                                                                    \
    int32_t four;                                                                                                      \
    memcpy(&four, ROW_AT(r) + at, 4);                                                                                  \
    __m512i v = _mm512_set1_epi32(four);                                                                               \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(a##r) : "v"(w0), "v"(v));                                                     \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(c##r) : "v"(w1), "v"(v));                                                     \
  }
#define SCALED(r)                                                                                                      \
  {                                                                                                                    \
    __m512 own = _mm512_set1_ps(scales[r * stride + b]);                                                               \
    float *to = f + (b % LANES * ROWS + r) * PANEL;                                                                    \
    _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(a##r), _mm512_mul_ps(s0, own), _mm512_load_ps(to)));        \
    _mm512_store_ps(to + 16,                                                                                           \
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(c##r), _mm512_mul_ps(s1, own), _mm512_load_ps(to + 16)));       \
  }
#define TILE(COUNT)                                                                                                    \
  INLINE TARGET void tile##COUNT(const Matrix *matrix, Panel panel, size_t stride, const int8_t *codes,                \
                                 const float *scales, const int32_t *sums, size_t n, size_t last, float *y,            \
                                 uintptr_t next, int bits) {                                                           \
    enum { ROWS = COUNT };                                                                                             \
    size_t block = matrix->block;                                                                                      \
    float f[LANES * COUNT * PANEL] __attribute__((aligned(64)));                                                       \
    memset(f, 0, sizeof f);                                                                                            \
    const __m512i low = _mm512_set1_epi8(15);                                                                          \
    const unsigned middle = (unsigned)matrix->bits - 1;                                                                \
    const bool narrow = bits < 4;                                                                                      \
    const size_t row = stride * block, unit = narrow ? NARROW_BLOCK / 2 : block * (size_t)bits / 8;                    \
    const size_t apart = narrow ? 28 : 0; /* more bytes to the next four codes: two parts of 16 bytes */               \
    __m512i z0 = _mm512_setzero_si512(), z1 = z0;                                                                      \
    for (size_t b = 0; b < matrix->blocks; b++) {                                                                      \
      if (matrix->zeros) {                                                                                             \
        z0 = _mm512_load_si512(panel.zeros + b * PANEL);                                                               \
        z1 = _mm512_load_si512(panel.zeros + b * PANEL + 16);                                                          \
      }                                                                                                                \
      const uint8_t *w = panel.codes + b * unit * PANEL;                                                               \
      const int8_t *q0 = codes + (narrow ? b / 4 * NARROW_GROUP + b % 4 * 4 : b * block);                              \
      const int8_t *q1 = q0 + 3 * row, *q2 = q0 + 6 * row, *q3 = q0 + 9 * row;                                         \
      (void)q1, (void)q2, (void)q3;                                                                                    \
      EACH##COUNT(BEGIN) for (size_t at = 0; at < unit; at += 4, next += 4 * PANEL) {                                  \
        __m512i w0 = _mm512_load_si512(w + at * PANEL), w1 = _mm512_load_si512(w + at * PANEL + 64);                   \
        _mm_prefetch((const char *)next, _MM_HINT_T1);                                                                 \
        _mm_prefetch((const char *)(next + 64), _MM_HINT_T1);                                                          \
        if (bits <= 4) {                                                                                               \
          const __m512i high0 = _mm512_and_si512(_mm512_srli_epi16(w0, 4), low);                                       \
          const __m512i high1 = _mm512_and_si512(_mm512_srli_epi16(w1, 4), low);                                       \
          w0 = _mm512_and_si512(w0, low), w1 = _mm512_and_si512(w1, low);                                              \
          EACH##COUNT(STEP) w0 = high0, w1 = high1;                                                                    \
          q0 += unit, q1 += unit, q2 += unit, q3 += unit;                                                              \
          EACH##COUNT(STEP) q0 -= unit - apart, q1 -= unit - apart, q2 -= unit - apart, q3 -= unit - apart;            \
        } else {                                                                                                       \
          EACH##COUNT(STEP)                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
      __m512 s0 = _mm512_load_ps(panel.scales + b * PANEL), s1 = _mm512_load_ps(panel.scales + b * PANEL + 16);        \
      EACH##COUNT(SCALED)                                                                                              \
    }                                                                                                                  \
    finish(matrix, f, COUNT * PANEL, COUNT, n, last, y);                                                               \
  }

TILE(12)
TILE(8)
TILE(6) TILE(4) TILE(3) TILE(2) TILE(1)

    /* All rows of x by the matrix's rows from n, which are packed; asks for the next ones meanwhile. */
    INLINE TARGET void by_panel(const Matrix *matrix, const Inputs *x, size_t count, Panel panel, size_t n, size_t last,
                                float *y, int bits) {
  const size_t stride = x->stride;
  uintptr_t next = (uintptr_t)(matrix->codes + n * row_bytes(matrix)) + PANEL * row_bytes(matrix);
  for (size_t m = 0; m < count;) {
    const int8_t *codes = x->codes + m * stride * matrix->block;
    const float *scales = x->scales + m * stride;
    const int32_t *sums = x->sums + m * stride;
    float *to = y + m * matrix->rows;
#define RUN(COUNT) (tile##COUNT(matrix, panel, stride, codes, scales, sums, n, last, to, next, bits), m += COUNT)
    size_t left = count - m;
    if (left >= 12) RUN(12);
    else if (left >= 8) RUN(8);
    else if (left >= 6) RUN(6);
    else if (left >= 4) RUN(4);
    else if (left == 3) RUN(3);
    else if (left == 2) RUN(2);
    else RUN(1);
    next = (uintptr_t)panel.codes + 2048; /* then only what is read soon: not all of a panel stays near */
  }
}

TARGET static void by_panel_8(const Matrix *matrix, const Inputs *x, size_t count, Panel panel, size_t n, size_t last,
                              float *y) {
  by_panel(matrix, x, count, panel, n, last, y, 8);
}

TARGET static void by_panel_4(const Matrix *matrix, const Inputs *x, size_t count, Panel panel, size_t n, size_t last,
                              float *y) {
  by_panel(matrix, x, count, panel, n, last, y, 4);
}

TARGET static void by_narrow_panel(const Matrix *matrix, const Inputs *x, size_t count, Panel panel, size_t n,
                                   size_t last, float *y) {
  by_panel(matrix, x, count, panel, n, last, y, 3);
}

TARGET void edgegen_multiply_avx512vnni(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last,
                                        float *y, void *scratch) {
  if (count <= SOME && is_narrow(matrix)) {
    if (matrix->bits == 3) narrow_3(matrix, x, count, first, last, y);
    else narrow_2(matrix, x, count, first, last, y);
    return;
  }
  if (count <= FEW) {
    FEW_OF[matrix->bits == 4][matrix->block == 32][count - 1](matrix, x, first, last, y);
    return;
  }
  if (count <= SOME) {
    SOME_OF[matrix->bits == 4][matrix->block == 32](matrix, x, count, first, last, y);
    return;
  }
  const size_t padded = (matrix->blocks + 15) / 16 * 16; /* 16 blocks' numbers are written together */
  Panel panel = {.codes = scratch};
  panel.zeros = (int32_t *)(panel.codes + panel_row_bytes(matrix) * PANEL);
  panel.scales = (float *)(panel.zeros + padded * PANEL);
  for (size_t n = first; n < last; n += PANEL) {
    pack(matrix, n, last, panel);
    if (matrix->bits == 8) by_panel_8(matrix, x, count, panel, n, last, y);
    else if (is_narrow(matrix)) by_narrow_panel(matrix, x, count, panel, n, last, y);
    else by_panel_4(matrix, x, count, panel, n, last, y);
  }
}

/* What 64 bytes of codes of 2 bits from `from` stand for, those of each two bits in a vector; 0 beyond `left` bytes. */
#define TERNARY_CODES(from, left)                                                                                      \
  const __mmask64 there = (left) >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (left)) - 1;                                 \
  const __m512i some = _mm512_maskz_loadu_epi8(there, from), low = _mm512_set1_epi8(3);                                \
  const __m512i w0 = _mm512_and_si512(some, low), w1 = _mm512_and_si512(_mm512_srli_epi16(some, 2), low),              \
                w2 = _mm512_and_si512(_mm512_srli_epi16(some, 4), low),                                                \
                w3 = _mm512_and_si512(_mm512_srli_epi16(some, 6), low)
#define TERNARY_PRODUCTS(total, q)                                                                                     \
  total = _mm512_dpbusd_epi32(total, w0, _mm512_loadu_si512(q)),                                                       \
  total = _mm512_dpbusd_epi32(total, w1, _mm512_loadu_si512((q) + 64)),                                                \
  total = _mm512_dpbusd_epi32(total, w2, _mm512_loadu_si512((q) + 128)),                                               \
  total = _mm512_dpbusd_epi32(total, w3, _mm512_loadu_si512((q) + 192))

TARGET void edgegen_sum_ternary_avx512vnni(const uint8_t *codes, size_t bytes, const int8_t *x, size_t stride,
                                           size_t count, int32_t *sums) {
  for (; count >= 8; count -= 8, x += 8 * stride, sums += 8) {
    __m512i s = _mm512_setzero_si512(), t = s, u = s, v = s, a = s, b = s, c = s, d = s;
    for (size_t at = 0; at < bytes; at += 64) {
      TERNARY_CODES(codes + at, bytes - at);
      const int8_t *q = x + at * 4;
      TERNARY_PRODUCTS(s, q);
      TERNARY_PRODUCTS(t, q + stride);
      TERNARY_PRODUCTS(u, q + 2 * stride);
      TERNARY_PRODUCTS(v, q + 3 * stride);
      TERNARY_PRODUCTS(a, q + 4 * stride);
      TERNARY_PRODUCTS(b, q + 5 * stride);
      TERNARY_PRODUCTS(c, q + 6 * stride);
      TERNARY_PRODUCTS(d, q + 7 * stride);
    }
    s = ADD64(ADD32(s, t), ADD32(u, v)), a = ADD64(ADD32(a, b), ADD32(c, d));
    s = ADD128(s, a);
    s = ADD128(s, s);
    _mm256_storeu_si256((__m256i *)sums, _mm512_castsi512_si256(s));
  }
  for (; count >= 4; count -= 4, x += 4 * stride, sums += 4) {
    __m512i s = _mm512_setzero_si512(), t = s, u = s, v = s;
    for (size_t at = 0; at < bytes; at += 64) {
      TERNARY_CODES(codes + at, bytes - at);
      const int8_t *q = x + at * 4;
      TERNARY_PRODUCTS(s, q);
      TERNARY_PRODUCTS(t, q + stride);
      TERNARY_PRODUCTS(u, q + 2 * stride);
      TERNARY_PRODUCTS(v, q + 3 * stride);
    }
    s = ADD64(ADD32(s, t), ADD32(u, v));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64(s, 1));
    _mm_storeu_si128((__m128i *)sums, _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
  }
  for (; count; count--, x += stride, sums++) {
    __m512i s = _mm512_setzero_si512();
    for (size_t at = 0; at < bytes; at += 64) {
      fetch(codes + at);
      TERNARY_CODES(codes + at, bytes - at);
      TERNARY_PRODUCTS(s, x + at * 4);
    }
    *sums = _mm512_reduce_add_epi32(s);
  }
}

const Kernels edgegen_avx512vnni = {"avx512vnni",
                                    edgegen_quantize_avx512vnni,
                                    edgegen_multiply_avx512vnni,
                                    edgegen_scratch_size_avx512vnni,
                                    PANEL,
                                    edgegen_sum_ternary_avx512vnni};
#endif
