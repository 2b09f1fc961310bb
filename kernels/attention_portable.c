/* Attention in portable C, and which of all that there are run. */
#define TARGET
#define WIDTH 4
#define VECTORS 1
#define FMA(a, b, c) fma_of(a, b, c)
#include <math.h>

typedef float Four __attribute__((vector_size(16)));
static inline Four fma_of(Four a, Four b, Four c) {
  for (int i = 0; i < 4; i++) c[i] = fmaf(a[i], b[i], c[i]);
  return c;
}

#define WIDE(from) ((Floats){(from)[0], (from)[1], (from)[2], (from)[3]})
#define NAME edgegen_attention_portable
#include "attention.inc"

extern const AttentionKernels edgegen_attention_avx512, edgegen_attention_avx2, edgegen_attention_neon;

const AttentionKernels *edgegen_attention_kernels(const char *name) {
#if defined(__x86_64__)
  if (!strncmp(name, "avx512", 6)) return &edgegen_attention_avx512;
  if (!strncmp(name, "avx", 3)) return &edgegen_attention_avx2;
#elif defined(__aarch64__)
  if (!strcmp(name, "neon") || !strcmp(name, "dotprod")) return &edgegen_attention_neon;
#endif
  (void)name;
  return &edgegen_attention_portable;
}
