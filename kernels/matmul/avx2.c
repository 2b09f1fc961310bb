/* The kernels for AVX2 without VNNI. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define NAME edgegen_avx2
#define LABEL "avx2"
#define CENTER 128

/* Few rows. Sums of products must fit 16 bits. Of 8-bit codes, with 128 taken off, the sign moves from weight to
 * input: two products fit, 2 * 128 * 127. Of 4-bit codes those of two vectors and of four lanes do, 16 * 15 * 127. */
__attribute__((target("avx2,fma"), always_inline)) static inline __m256i dot(__m256i sums, __m256i codes, __m256i q,
                                                                             int bits) {
  if (bits == 4) return _mm256_add_epi16(sums, _mm256_maddubs_epi16(codes, q));
  __m256i weights = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
  __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(q, weights));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
}

#define DOT(sums, codes, q, bits) dot(sums, codes, q, bits)

/* Many rows. Codes of 8 bits are widened once to 16, so that nothing has to be moved or corrected at each product.
 * As inline assembly: GCC 12 would keep copies of the accumulators in memory. */
#define STEP(sums, codes, q, bits)                                                                                     \
  {                                                                                                                    \
    __m256i products;                                                                                                  \
    if (bits == 4)                                                                                                     \
      __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(codes), "x"(q));        \
    else __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(codes), "x"(q));       \
  }
#define WIDE(bits) ((bits) == 8)
#define SHORT(bits) ((bits) == 4)
#include "avx2.inc"
#endif
