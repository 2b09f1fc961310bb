/* Attention for NEON. */
#ifdef __aarch64__
#include <arm_neon.h>
#define TARGET
#define WIDTH 4
#define VECTORS 4
#define FMA(a, b, c) ((Floats)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define WIDE(from) wide_of(from)

static inline float __attribute__((vector_size(16))) wide_of(const signed char *from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof four);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
}

#define NAME edgegen_attention_neon
#include "attention.inc"
#endif
