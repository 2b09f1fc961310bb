/* The kernels for NEON with dot products, as on a Raspberry Pi 5. */
#ifdef __aarch64__
#include <arm_neon.h>
#include <stddef.h>
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#define NAME edgegen_dotprod
#define LABEL "dotprod"
#include "sdot.inc"
#define DOT_LANE(sums, codes, q, g)                                                                                    \
  __asm__ volatile("sdot %0.4s, %1.16b, %2.4b[" #g "]" : "+w"(sums) : "w"(codes), "w"(q))
#include "neon.inc"
#endif
