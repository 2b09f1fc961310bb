/* The kernels for VNNI in 256-bit vectors, which processors for laptops have without AVX-512. */
#ifdef __x86_64__
#include <immintrin.h>
#define TARGET __attribute__((target("avx2,fma,f16c,avxvnni")))
#define NAME edgegen_avxvnni
#define LABEL "avxvnni"
#define CENTER 0
#define DOT(sums, codes, q, bits) ((void)(bits), _mm256_dpbusd_avx_epi32(sums, codes, q))
/* As inline assembly: GCC 12 would keep copies of the accumulators in memory. */
#define STEP(sums, codes, q, bits) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(q));
#define WIDE(bits) ((void)(bits), false)
#define SHORT(bits) ((void)(bits), false)
#include "avx2.inc"
#endif
