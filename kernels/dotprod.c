/* The kernels for NEON with dot products, as on a Raspberry Pi 5. */
#ifdef __aarch64__
#include <arm_neon.h>
#include <stddef.h>
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#define NAME edgegen_dotprod
#define LABEL "dotprod"

TARGET static inline __attribute__((always_inline)) int32x4_t sums_of(const int8x16_t *w, const int8_t *q,
                                                                      size_t vectors) {
  int32x4_t sums = vdupq_n_s32(0);
#pragma GCC unroll 4
  for (size_t v = 0; v < vectors; v++) sums = vdotq_s32(sums, w[v], vld1q_s8(q + v * 16));
  return sums;
}
#define SUMS(w, q, vectors, bits) sums_of(w, q, vectors)
/* As inline assembly, which stays in this order: GCC 12 would keep accumulators in memory. */
#define LOAD_FOUR(w0, w1, w2, w3, from)                                                                                \
  __asm__ volatile("ldp %q0, %q1, [%4]\n\tldp %q2, %q3, [%4, #32]"                                                     \
                   : "=w"(w0), "=w"(w1), "=w"(w2), "=w"(w3)                                                            \
                   : "r"(from), "m"(*(const int8x16_t(*)[4])(from)))
#define DOT_LANE(sums, codes, q, g)                                                                                    \
  __asm__ volatile("sdot %0.4s, %1.16b, %2.4b[" #g "]" : "+w"(sums) : "w"(codes), "w"(q))
#include "neon.inc"
#endif
