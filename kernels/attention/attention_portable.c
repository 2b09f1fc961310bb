/* Attention in portable C. */
#include "floats/portable_floats.h"

#include <stdint.h>
#include <string.h>

typedef int32_t FourIntegers __attribute__((vector_size(16)));

/* Numbers of 16 bits in the lower and in the upper half of each lane. */
static inline FourIntegers lower_of(FourIntegers a) {
  typedef uint32_t FourNaturals __attribute__((vector_size(16)));
  return (FourIntegers)((FourNaturals)a << 16) >> 16;
}
static inline FourIntegers upper_of(FourIntegers a) { return a >> 16; }

static inline FourIntegers joined(FourIntegers lower, FourIntegers upper) {
  typedef uint32_t FourNaturals __attribute__((vector_size(16)));
  return (lower & 0xffff) | (FourIntegers)((FourNaturals)upper << 16);
}

#define VECTORS 1
#define MOST(a, b) chosen((a) > (b), a, b)
#define ADD_PRODUCTS(sums, a, b) (sums) += lower_of(a) * lower_of(b) + upper_of(a) * upper_of(b)
#define IN_ORDER(a) (a)
#define SPREAD(a, to) spread(a, to)
#define SIDE_BY_SIDE(a, b, to) side_by_side(a, b, to)

static inline void spread(FourIntegers codes, FourIntegers *to) {
  int8_t a[16];
  memcpy(a, &codes, sizeof a);
  for (int i = 0; i < 2; i++)
    to[i] = joined((FourIntegers){a[2 * i], a[2 * i + 4], a[2 * i + 8], a[2 * i + 12]},
                   (FourIntegers){a[2 * i + 1], a[2 * i + 5], a[2 * i + 9], a[2 * i + 13]});
}

static inline void side_by_side(const int8_t *a, const int8_t *b, FourIntegers *to) {
  for (int i = 0; i < 16; i += 4)
    to[i / 4] =
        joined((FourIntegers){a[i], a[i + 1], a[i + 2], a[i + 3]}, (FourIntegers){b[i], b[i + 1], b[i + 2], b[i + 3]});
}

#define NAME edgegen_attention_portable
#include "attention.inc"
