/* The codes of four blocks of a row of x, which stand in their order, as a matrix of 3 or 2 bits takes them: the two
 * halves are interleaved four times. SSE2, which every x86-64 has. */
#ifndef EDGEGEN_NARROW_X86_H
#define EDGEGEN_NARROW_X86_H

#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void spread_codes(int8_t *codes) {
  __m128i c[8], next[8];
  for (size_t i = 0; i < 8; i++) c[i] = _mm_loadu_si128((const __m128i *)codes + i);
  for (size_t round = 0; round < 4; round++) {
    for (size_t i = 0; i < 4; i++)
      next[2 * i] = _mm_unpacklo_epi8(c[i], c[i + 4]), next[2 * i + 1] = _mm_unpackhi_epi8(c[i], c[i + 4]);
    memcpy(c, next, sizeof c);
  }
  for (size_t i = 0; i < 8; i++) _mm_storeu_si128((__m128i *)codes + i, c[i]);
}

#endif
