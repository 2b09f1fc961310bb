/* Norms and activations for AVX2. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma")))
#define WIDTH 8
#define FMA(a, b, c) ((Floats)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define NAME edgegen_floats_avx2
#define LABEL "avx2"
#include "floats.inc"
#endif
