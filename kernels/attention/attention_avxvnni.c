/* Attention for VNNI in 256-bit vectors. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma,avxvnni")))
#define NAME edgegen_attention_avxvnni
/* As inline assembly: GCC 12 would keep copies of the accumulators in memory. */
#define ADD_QUADS(sums, a, b) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(a), "x"(b))
#define QUAD_ROWS 3
#define QUAD_VECTORS 2
#define FOUR_SIDE_BY_SIDE(a, b, c, d, to)                                                                              \
  do {                                                                                                                 \
    const __m256i first = _mm256_loadu_si256((const __m256i *)(a)), next = _mm256_loadu_si256((const __m256i *)(b));   \
    const __m256i third = _mm256_loadu_si256((const __m256i *)(c)), last = _mm256_loadu_si256((const __m256i *)(d));   \
    const __m256i low = _mm256_unpacklo_epi8(first, next), high = _mm256_unpackhi_epi8(first, next);                   \
    const __m256i others = _mm256_unpacklo_epi8(third, last), upper = _mm256_unpackhi_epi8(third, last);               \
    (to)[0] = (Integers)_mm256_unpacklo_epi16(low, others), (to)[1] = (Integers)_mm256_unpackhi_epi16(low, others);    \
    (to)[2] = (Integers)_mm256_unpacklo_epi16(high, upper), (to)[3] = (Integers)_mm256_unpackhi_epi16(high, upper);    \
  } while (0)
#include "attention_avx2.inc"
#endif
