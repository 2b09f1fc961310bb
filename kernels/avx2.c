/* The kernels for AVX2 without VNNI. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma")))
#define NAME edgegen_avx2
#define LABEL "avx2"

/* Sums of two products must fit 16 bits: of 8-bit codes, the sign moves from the weight to the input, and
 * 2 * 128 * 127 does. The zero point of the codes then is 0 in place of 128, which `DOT` makes up for: the products of
 * 128 and q are added again. */
__attribute__((target("avx2,fma"), always_inline)) static inline __m256i dot(__m256i sums, __m256i codes, __m256i q, int bits) {
  const __m256i ones = _mm256_set1_epi16(1);
  if (bits == 4) return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, q), ones));
  const __m256i middle = _mm256_set1_epi8(-128);
  __m256i weights = _mm256_xor_si256(codes, middle);
  __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(q, weights));
  sums = _mm256_add_epi32(sums, _mm256_madd_epi16(products, ones));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(128)));
}
#define DOT(sums, codes, q, bits) dot(sums, codes, q, bits)
#include "avx2.inc"
#endif
