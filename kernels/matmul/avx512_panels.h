/* Panels of the matrix, for the kernels of AVX-512 and of AMX: how PANEL rows are packed, 16 at a time, and what their
 * lanes give. */
#ifndef EDGEGEN_AVX512_PANELS_H
#define EDGEGEN_AVX512_PANELS_H

#include "matrix.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,bmi2,fma")))
#ifndef INLINE /* tests under sanitizers define it: a copy of a function for each call takes minutes there */
#define INLINE static inline __attribute__((always_inline))
#endif
enum { PANEL = 32 };

/* What words of 3 or 2 bits are: eight vectors, in the order of the rounded codes. */
INLINE TARGET void narrow_codes_of(const __m512i *word, const int bits, __m512i *out) {
  if (bits == 2) {
    const __m512i low = _mm512_set1_epi8(3);
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
      out[4 * i] = _mm512_and_si512(word[i], low);
      out[4 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(word[i], 2), low);
      out[4 * i + 2] = _mm512_and_si512(_mm512_srli_epi16(word[i], 4), low);
      out[4 * i + 3] = _mm512_and_si512(_mm512_srli_epi16(word[i], 6), low);
    }
    return;
  }
  const __m512i low = _mm512_set1_epi8(7), two = _mm512_set1_epi8(3);
#pragma GCC unroll 3
  for (size_t i = 0; i < 3; i++) {
    out[2 * i] = _mm512_and_si512(word[i], low);
    out[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(word[i], 3), low);
  }
  /* Two bits of one, the third of the other; 0xca: where the mask has ones the second, elsewhere the third. */
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    const __m512i lowest = _mm512_srli_epi16(word[i], 6), third = _mm512_srli_epi16(word[2], i ? 5 : 4);
    out[6 + i] = _mm512_and_si512(_mm512_ternarylogic_epi64(two, lowest, third, 0xca), low);
  }
}

/* 16 rows of 64 bytes as 16 groups of four columns: out[group][row], groups `stride` bytes apart. */
INLINE TARGET void transpose(const __m512i *rows, uint8_t *out, const size_t stride) {
  __m512i a[16], t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    a[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    a[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    a[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    a[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int d = 0; d < 4; d++) {
    __m512i p = _mm512_shuffle_i32x4(a[d], a[4 + d], 0x88), q = _mm512_shuffle_i32x4(a[d], a[4 + d], 0xdd);
    __m512i u = _mm512_shuffle_i32x4(a[8 + d], a[12 + d], 0x88), v = _mm512_shuffle_i32x4(a[8 + d], a[12 + d], 0xdd);
    _mm512_store_si512(out + (size_t)d * stride, _mm512_shuffle_i32x4(p, u, 0x88));
    _mm512_store_si512(out + (size_t)(8 + d) * stride, _mm512_shuffle_i32x4(p, u, 0xdd));
    _mm512_store_si512(out + (size_t)(4 + d) * stride, _mm512_shuffle_i32x4(q, v, 0x88));
    _mm512_store_si512(out + (size_t)(12 + d) * stride, _mm512_shuffle_i32x4(q, v, 0xdd));
  }
}

/* Scales of 16 bits as floats. */
INLINE TARGET __m512 widened(const Matrix *matrix, __m256i halves) {
  if (matrix->float16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* 16 scales, or zero points, of each of 16 rows of the matrix, from block b, as [block][row]; 0 beyond `left` blocks.
 */
INLINE TARGET void scales_of_16(const Matrix *matrix, const size_t *r, size_t b, size_t left, float *out,
                                const size_t stride) {
  const __mmask16 there = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
  __m512i rows[16];
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; i++) {
    const size_t at = r[i] * matrix->blocks + b;
    rows[i] = matrix->scales
                  ? _mm512_maskz_loadu_epi32(there, matrix->scales + at)
                  : _mm512_castps_si512(widened(matrix, _mm256_maskz_loadu_epi16(there, matrix->halves + at)));
  }
  transpose(rows, (uint8_t *)out, stride);
}

INLINE TARGET void zeros_of_16(const Matrix *matrix, const size_t *r, size_t b, size_t left, int32_t *out,
                               const size_t stride) {
  const size_t size = matrix->bits == 8 ? matrix->blocks : (matrix->blocks + 1) / 2;
  const size_t wanted = matrix->bits == 8 ? 16 : 8, have = matrix->bits == 8 ? left : (left + 1) / 2;
  const __mmask16 there = (__mmask16)((1u << (have < wanted ? have : wanted)) - 1);
  const __m128i low = _mm_set1_epi8(15);
  __m512i rows[16];
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; i++) {
    __m128i bytes = _mm_maskz_loadu_epi8(there, matrix->zeros + r[i] * size + (matrix->bits == 8 ? b : b / 2));
    if (matrix->bits != 8)
      bytes = _mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
    rows[i] = _mm512_cvtepu8_epi32(bytes);
  }
  transpose(rows, (uint8_t *)out, stride);
}

/* Writes what `count` rows of x give with the panel's rows from n: of each of LANES, `lane` floats apart, there are
 * PANEL floats in `f` for each row of x. */
INLINE TARGET void finish(const Matrix *matrix, const float *f, size_t lane, size_t count, size_t n, size_t last,
                          float *y) {
  for (size_t half = 0; half < 2; half++) {
    size_t at = n + half * 16;
    if (at >= last) return;
    __mmask16 there = last - at >= 16 ? 0xffff : (__mmask16)((1u << (last - at)) - 1);
    for (size_t m = 0; m < count; m++) {
      const float *from = f + m * PANEL + half * 16;
      __m512 total = _mm512_add_ps(_mm512_add_ps(_mm512_load_ps(from), _mm512_load_ps(from + lane)),
                                   _mm512_add_ps(_mm512_load_ps(from + 2 * lane), _mm512_load_ps(from + 3 * lane)));
      if (matrix->bias) total = _mm512_add_ps(total, _mm512_maskz_loadu_ps(there, matrix->bias + at));
      _mm512_mask_storeu_ps(y + m * matrix->rows + at, there, total);
    }
  }
}

#endif
