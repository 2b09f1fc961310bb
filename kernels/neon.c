/* The kernels for NEON without dot products, as on a Raspberry Pi 4. */
#ifdef __aarch64__
#include <arm_neon.h>
#define TARGET
#define NAME edgegen_neon
#define LABEL "neon"
/* Two products of signed bytes fit 16 bits: inputs are at least -127. */
#define DOT(sums, codes, q)                                                                                            \
  vpadalq_s16(sums, vmlal_s8(vmull_s8(vget_low_s8(codes), vget_low_s8(q)), vget_high_s8(codes), vget_high_s8(q)))
#include "neon.inc"
#endif
