/* Attention for VNNI in 256-bit vectors. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma,avxvnni")))
#define NAME edgegen_attention_avxvnni
/* As inline assembly: GCC 12 would keep copies of the accumulators in memory. */
#define ADD_PRODUCTS(sums, a, b) __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sums) : "x"(a), "x"(b))
#include "attention_avx2.inc"
#endif
