/* The kernels for NEON with dot products, as on a Raspberry Pi 5. */
#ifdef __aarch64__
#include <arm_neon.h>
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#define NAME edgegen_dotprod
#define LABEL "dotprod"
#define DOT(sums, codes, q) vdotq_s32(sums, codes, q)
#include "neon.inc"
#endif
