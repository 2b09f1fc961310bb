/* The kernels for NEON without dot products, as on a Raspberry Pi 4. */
#ifdef __aarch64__
#include <arm_neon.h>
#include <stddef.h>
#define TARGET
#define NAME edgegen_neon
#define LABEL "neon"

/* Two products of signed bytes fit 16 bits: inputs are at least -127. Of codes of 4 bits all of a block do. */
static inline __attribute__((always_inline)) int32x4_t sums_of(const int8x16_t *w, const int8_t *q, size_t vectors,
                                                               int bits) {
  int32x4_t sums = vdupq_n_s32(0);
  int16x8_t products = vdupq_n_s16(0);
#pragma GCC unroll 4
  for (size_t v = 0; v < vectors; v++) {
    int8x16_t some = vld1q_s8(q + v * 16);
    if (v == 0 || bits == 8) products = vmull_s8(vget_low_s8(w[v]), vget_low_s8(some));
    else products = vmlal_s8(products, vget_low_s8(w[v]), vget_low_s8(some));
    products = vmlal_high_s8(products, w[v], some);
    if (bits == 8) sums = v == 0 ? vpaddlq_s16(products) : vpadalq_s16(sums, products);
  }
  return bits == 8 ? sums : vpaddlq_s16(products);
}
#define SUMS(w, q, vectors, bits) sums_of(w, q, vectors, bits)

/* Of codes of 3 bits at most, eight products fit 16 bits. */
static inline __attribute__((always_inline)) int32x4_t block_sums(const int8x16_t *w, const int8_t *q) {
  int16x8_t low = vdupq_n_s16(0), high = low;
#pragma GCC unroll 8
  for (size_t v = 0; v < 8; v++) {
    int8x16_t some = vld1q_s8(q + v * 16);
    low = vmlal_s8(low, vget_low_s8(w[v]), vget_low_s8(some));
    high = vmlal_high_s8(high, w[v], some);
  }
  return vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
}
#define BLOCK_SUMS(w, q) block_sums(w, q)
#include "neon.inc"
#endif
