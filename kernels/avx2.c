/* The kernels for AVX2 without VNNI. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma")))
#define NAME edgegen_avx2
#define LABEL "avx2"

#define CENTER 128

/* Sums of two products must fit 16 bits. Of 8-bit codes, with 128 taken off, the sign moves from the weight to the
 * input: 2 * 128 * 127 fits. */
__attribute__((target("avx2,fma"), always_inline)) static inline __m256i dot(__m256i sums, __m256i codes, __m256i q,
                                                                             int bits) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i products;
  if (bits == 4) {
    products = _mm256_maddubs_epi16(codes, q);
  } else {
    __m256i weights = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    products = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(q, weights));
  }
  return _mm256_add_epi32(sums, _mm256_madd_epi16(products, ones));
}
#define DOT(sums, codes, q, bits) dot(sums, codes, q, bits)
#include "avx2.inc"
#endif
