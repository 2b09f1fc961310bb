/* Attention for AVX2. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma")))
#define NAME edgegen_attention_avx2
#define ADD_PRODUCTS(sums, a, b) (sums) += (Integers)_mm256_madd_epi16((__m256i)(a), (__m256i)(b))
/* Codes 0 and 2 of each lane, and then 1 and 3. */
#define IN_ORDER(a) __builtin_shufflevector(a, a, 0, 2, 1, 3, 4, 6, 5, 7)
#define SPREAD(a, to)                                                                                                  \
  ((to)[0] = (Integers)_mm256_srai_epi16(_mm256_slli_epi16((__m256i)(a), 8), 8),                                       \
   (to)[1] = (Integers)_mm256_srai_epi16((__m256i)(a), 8))
#define SIDE_BY_SIDE(a, b, to)                                                                                         \
  do {                                                                                                                 \
    const __m128i ones = _mm_loadu_si128((const __m128i *)(a)), others = _mm_loadu_si128((const __m128i *)(b));        \
    (to)[0] = (Integers)_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(ones, others));                                         \
    (to)[1] = (Integers)_mm256_cvtepi8_epi16(_mm_unpackhi_epi8(ones, others));                                         \
  } while (0)
#define SIDE_BY_SIDE_FAST(a, b, to)                                                                                    \
  do {                                                                                                                 \
    const __m256i one = _mm256_loadu_si256((const __m256i *)(a)), other = _mm256_loadu_si256((const __m256i *)(b));    \
    SPREAD(_mm256_unpacklo_epi16(one, other), to);                                                                     \
    SPREAD(_mm256_unpackhi_epi16(one, other), (to) + 2);                                                               \
  } while (0)
#include "attention_avx2.inc"
#endif
