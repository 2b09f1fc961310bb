/* Attention for AVX2. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma")))
#define NAME edgegen_attention_avx2
#define ADD_PRODUCTS(sums, a, b) (sums) += (Integers)_mm256_madd_epi16((__m256i)(a), (__m256i)(b))
#include "attention_avx2.inc"
#endif
