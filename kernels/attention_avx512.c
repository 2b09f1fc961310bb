/* Attention for AVX-512. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define WIDTH 16
#define VECTORS 4
#define FMA(a, b, c) ((Floats)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define WIDE(from) ((Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from)))))
#define NAME edgegen_attention_avx512
#include "attention.inc"
#endif
