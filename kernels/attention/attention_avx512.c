/* Attention for AVX-512 with VNNI, and for AMX. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))
#define WIDTH 16
#define VECTORS 4
#define FMA(a, b, c) ((Floats)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define MOST(a, b) ((Floats)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define LOADED_HALVES(a, b)                                                                                            \
  ((Floats)_mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd((const double *)(const void *)(a))),              \
                              _mm256_loadu_pd((const double *)(const void *)(b)), 1))
#define ADD_QUADS(sums, a, b) __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b))
#define QUAD_ROWS 3
#define QUAD_VECTORS 4
#define FOUR_SIDE_BY_SIDE(a, b, c, d, to)                                                                              \
  do {                                                                                                                 \
    const __m512i first = _mm512_loadu_si512(a), next = _mm512_loadu_si512(b);                                         \
    const __m512i third = _mm512_loadu_si512(c), last = _mm512_loadu_si512(d);                                         \
    const __m512i low = _mm512_unpacklo_epi8(first, next), high = _mm512_unpackhi_epi8(first, next);                   \
    const __m512i others = _mm512_unpacklo_epi8(third, last), upper = _mm512_unpackhi_epi8(third, last);               \
    (to)[0] = (Integers)_mm512_unpacklo_epi16(low, others), (to)[1] = (Integers)_mm512_unpackhi_epi16(low, others);    \
    (to)[2] = (Integers)_mm512_unpacklo_epi16(high, upper), (to)[3] = (Integers)_mm512_unpackhi_epi16(high, upper);    \
  } while (0)
#define NAME edgegen_attention_avx512
#include "attention.inc"

#include "attention_amx.inc"
#endif
