/* Norms and activations for NEON. */
#ifdef __aarch64__
#include <arm_neon.h>
#define TARGET
#define WIDTH 4
#define FMA(a, b, c) ((Floats)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define NAME edgegen_floats_neon
#define LABEL "neon"
#include "floats.inc"
#endif
