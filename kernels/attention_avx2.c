/* Attention for AVX2. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma")))
#define WIDTH 8
#define VECTORS 2
#define FMA(a, b, c) ((Floats)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define WIDE(from) ((Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(from)))))
#define NAME edgegen_attention_avx2
#include "attention.inc"
#endif
