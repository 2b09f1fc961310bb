/* Attention for AVX-512 with VNNI. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))
#define WIDTH 16
#define VECTORS 4
#define FMA(a, b, c) ((Floats)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define MOST(a, b) ((Floats)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define ADD_PRODUCTS(sums, a, b) __asm__("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b))
/* Codes 0 and 2 of each lane, and then 1 and 3. */
#define IN_ORDER(a) __builtin_shufflevector(a, a, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15)
#define SPREAD(a, to)                                                                                                  \
  ((to)[0] = (Integers)_mm512_srai_epi16(_mm512_slli_epi16((__m512i)(a), 8), 8),                                       \
   (to)[1] = (Integers)_mm512_srai_epi16((__m512i)(a), 8))
#define SIDE_BY_SIDE(a, b, to)                                                                                         \
  ((to)[0] = (Integers)_mm512_mask_blend_epi16(                                                                        \
       0xaaaaaaaa, _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(a))),                                        \
       _mm512_slli_epi32(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(b))), 16)))
#define SIDE_BY_SIDE_FAST(a, b, to)                                                                                    \
  do {                                                                                                                 \
    const __m512i one = _mm512_loadu_si512(a), other = _mm512_loadu_si512(b);                                          \
    SPREAD(_mm512_unpacklo_epi16(one, other), to);                                                                     \
    SPREAD(_mm512_unpackhi_epi16(one, other), (to) + 2);                                                               \
  } while (0)
#define NAME edgegen_attention_avx512
#include "attention.inc"
#endif
