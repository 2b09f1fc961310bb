/* The kernels for NEON with products of 8-bit matrices, as on Apple's M2, Snapdragon X and Graviton 3: an instruction
 * multiplies two rows of x with two of the matrix, 8 columns of each. Up to three rows of x take dot products. */
#ifdef __aarch64__
#include <arm_neon.h>
#include <stddef.h>
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))
#define NAME edgegen_i8mm
#define LABEL "i8mm"
#include "sdot.inc"
#define MULTIPLY_PAIRS(sums, q, codes) __asm__ volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(q), "w"(codes))
#include "neon.inc"
#endif
