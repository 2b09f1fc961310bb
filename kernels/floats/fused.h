/* fused(a, b, c): a * b + c, rounded once. C libraries differ there: MinGW-w64's fmaf rounds twice. */
#ifndef EDGEGEN_FUSED_H
#define EDGEGEN_FUSED_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float fused(float a, float b, float c) {
#ifdef __FP_FAST_FMAF /* an instruction */
  return fmaf(a, b, c);
#else
  /* In double the product is exact. The sum is rounded to odd there, which the second rounding cannot tell from the exact
   * sum (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008). */
  double product = (double)a * b, sum = product + c;
  double part = sum - product, lost = (product - (sum - part)) + (c - part);
  uint64_t bits;
  memcpy(&bits, &sum, 8);
  if (sum - sum == 0 && lost != 0 && !(bits & 1)) {
    bits += (lost > 0) == (sum > 0) ? 1 : UINT64_MAX;
    memcpy(&sum, &bits, 8);
  }
  return (float)sum;
#endif
}

#endif
