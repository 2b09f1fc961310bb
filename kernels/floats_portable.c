/* Norms and activations in portable C, and which of all that there are run. */
#define TARGET
#define WIDTH 4
#define FMA(a, b, c) fma_of(a, b, c)
#include <math.h>

typedef float Four __attribute__((vector_size(16)));
static inline Four fma_of(Four a, Four b, Four c) {
  for (int i = 0; i < 4; i++) c[i] = fmaf(a[i], b[i], c[i]);
  return c;
}

#define NAME edgegen_floats_portable
#define LABEL "portable"
#include "floats.inc"

extern const FloatKernels edgegen_floats_avx512, edgegen_floats_avx2, edgegen_floats_neon;

const FloatKernels *edgegen_float_kernels(const char *name) {
#if defined(__x86_64__)
  if (!strncmp(name, "avx512", 6)) return &edgegen_floats_avx512;
  if (!strncmp(name, "avx", 3)) return &edgegen_floats_avx2;
#elif defined(__aarch64__)
  if (!strcmp(name, "neon") || !strcmp(name, "dotprod")) return &edgegen_floats_neon;
#endif
  (void)name;
  return &edgegen_floats_portable;
}
