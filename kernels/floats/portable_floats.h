/* What float_math.h wants, in portable C. */
#include "fused.h"

#define TARGET
#define WIDTH 4
#define FMA(a, b, c) fma_of(a, b, c)

typedef float Four __attribute__((vector_size(16)));
static inline Four fma_of(Four a, Four b, Four c) {
  for (int i = 0; i < 4; i++) c[i] = fused(a[i], b[i], c[i]);
  return c;
}
