/* The kernels for VNNI in 256-bit vectors, which processors for laptops have without AVX-512. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma,avxvnni")))
#define NAME edgegen_avxvnni
#define LABEL "avxvnni"
#define CENTER 0
#define DOT(sums, codes, q, bits) ((void)(bits), _mm256_dpbusd_avx_epi32(sums, codes, q))
__attribute__((target("avx2"), always_inline)) static inline __m128i total(const __m256i *d) {
  __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(d[0], d[1]), _mm256_hadd_epi32(d[2], d[3]));
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}
#define TOTAL(d, bits) ((void)(bits), total(d))
/* As inline assembly: GCC 12 would keep copies of the accumulators in memory. */
#define STEP(sums, codes, q, bits) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(q));
#define WIDE(bits) ((void)(bits), false)
#define SHORT(bits) ((void)(bits), false)
#include "avx2.inc"
#endif
