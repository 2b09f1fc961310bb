/* Norms and activations for AVX-512. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define WIDTH 16
#define FMA(a, b, c) ((Floats)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define NAME edgegen_floats_avx512
#define LABEL "avx512"
#include "floats.inc"
#endif
