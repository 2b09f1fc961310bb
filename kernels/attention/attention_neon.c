/* Attention for NEON. */
#ifdef __aarch64__
#include <arm_neon.h>
#define TARGET
#define WIDTH 4
#define VECTORS 4
#define FMA(a, b, c) ((Floats)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define MOST(a, b) chosen((a) > (b), a, b)
/* The first numbers of four pairs, and then the second: a product with one number of a vector adds to four lanes. */
#define ADD_PRODUCTS(sums, a, b)                                                                                       \
  (sums) = (Integers)vmlal_high_lane_s16(                                                                              \
      vmlal_lane_s16((int32x4_t)(sums), vget_low_s16((int16x8_t)(a)), vget_low_s16((int16x8_t)(b)), 0),                \
      (int16x8_t)(a), vget_low_s16((int16x8_t)(b)), 1)
#define IN_ORDER(a) (a)
#define SPREAD(a, to)                                                                                                  \
  do {                                                                                                                 \
    const int16x8_t even = vshrq_n_s16(vshlq_n_s16((int16x8_t)(a), 8), 8), odd = vshrq_n_s16((int16x8_t)(a), 8);       \
    (to)[0] = (Integers)vuzp1q_s16(even, odd), (to)[1] = (Integers)vuzp2q_s16(even, odd);                              \
  } while (0)
#define SIDE_BY_SIDE(a, b, to)                                                                                         \
  do {                                                                                                                 \
    const int8x16_t ones = vld1q_s8(a), others = vld1q_s8(b);                                                          \
    const int64x2_t codes[] = {(int64x2_t)vmovl_s8(vget_low_s8(ones)), (int64x2_t)vmovl_s8(vget_low_s8(others)),       \
                               (int64x2_t)vmovl_high_s8(ones), (int64x2_t)vmovl_high_s8(others)};                      \
    (to)[0] = (Integers)vzip1q_s64(codes[0], codes[1]), (to)[1] = (Integers)vzip2q_s64(codes[0], codes[1]);            \
    (to)[2] = (Integers)vzip1q_s64(codes[2], codes[3]), (to)[3] = (Integers)vzip2q_s64(codes[2], codes[3]);            \
  } while (0)
#define NAME edgegen_attention_neon
#include "attention.inc"
#endif
