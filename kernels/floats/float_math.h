/* Functions of floats that give the same bits on every instruction set: vectors whose lanes are all computed alike.
 *
 * Every operation is one that IEEE 754 rounds in one way only: sums, products, quotients, square roots and fma, in a
 * fixed order. Include it once in a file, after defining
 *   TARGET       the attributes of its functions, for instance __attribute__((target("avx2,fma")));
 *   WIDTH        floats of a vector: 16, 8 or 4;
 *   FMA(a, b, c) a * b + c in each lane, rounded once.
 * Polynomials of exp and tanh: Cephes (S. Moshier), expf.c and tanhf.c. How far off each function is, tests/kernels
 * say.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FLOAT_INLINE TARGET static inline __attribute__((always_inline, unused))

typedef float Floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t Integers __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t Naturals __attribute__((vector_size(4 * WIDTH)));

FLOAT_INLINE Floats floats(float value) { return value - (Floats){0}; }

FLOAT_INLINE Floats loaded(const float *from) {
  Floats value;
  memcpy(&value, from, sizeof value);
  return value;
}

FLOAT_INLINE void stored(float *to, Floats value) { memcpy(to, &value, sizeof value); }

/* The first `count` floats, zeros after them. A copy whose size is not known costs more than what is done with it. */
FLOAT_INLINE Floats loaded_some(const float *from, size_t count) {
  if (count >= WIDTH) return loaded(from);
  float padded[WIDTH] = {0};
  memcpy(padded, from, count * sizeof *from);
  return loaded(padded);
}

FLOAT_INLINE void stored_some(float *to, Floats value, size_t count) {
  if (count >= WIDTH) {
    stored(to, value);
    return;
  }
  float padded[WIDTH];
  stored(padded, value);
  memcpy(to, padded, count * sizeof *to);
}

/* `yes` in lanes of `where` that are -1, `no` where they are 0. */
FLOAT_INLINE Floats chosen(Integers where, Floats yes, Floats no) {
  return (Floats)((where & (Integers)yes) | (~where & (Integers)no));
}

/* What is no number stays what it is. */
FLOAT_INLINE Floats clamped(Floats x, float least, float most) {
  x = chosen(x < floats(least), floats(least), x);
  return chosen(x > floats(most), floats(most), x);
}

FLOAT_INLINE Floats magnitude(Floats x) { return (Floats)((Integers)x & 0x7fffffff); }

FLOAT_INLINE Floats with_sign_of(Floats x, Floats sign) {
  return (Floats)((Integers)x | ((Integers)sign & (Integers)floats(-0.0f)));
}

/* 2 to the power of n, which a float holds without denormals. */
FLOAT_INLINE Floats power_of_two(Integers n) { return (Floats)(((Naturals)n + 127) << 23); }

/* e to the power of x: 0 and infinity beyond what a float holds, denormals between. */
FLOAT_INLINE Floats exp_of(Floats x) {
  const Floats rounder = floats(0x1.8p23f); /* a float that large has no fraction */
  x = clamped(x, -128.0f, 128.0f);
  Floats shifted = FMA(x, floats(1.44269504088896341f), rounder), n = shifted - rounder;
  Floats r = FMA(n, floats(-0.693359375f), x);
  r = FMA(n, floats(2.12194440e-4f), r);
  Floats p = FMA(floats(1.9875691500e-4f), r, floats(1.3981999507e-3f));
  p = FMA(p, r, floats(8.3334519073e-3f));
  p = FMA(p, r, floats(4.1665795894e-2f));
  p = FMA(p, r, floats(1.6666665459e-1f));
  p = FMA(p, r, floats(5.0000001201e-1f));
  p = FMA(p, r * r, r) + 1.0f;
  /* Two factors, since 2 to the power of n is itself beyond what a float holds at either end. */
  Integers power = (Integers)shifted - (Integers)rounder, half = power >> 1;
  return p * power_of_two(half) * power_of_two(power - half);
}

/* 1 / (1 + e to the power of -x). */
FLOAT_INLINE Floats logistic_of(Floats x) { return 1.0f / (1.0f + exp_of(-x)); }

FLOAT_INLINE Floats tanh_of(Floats x) {
  Floats a = magnitude(x), s = x * x;
  Floats p = FMA(floats(-5.70498872745e-3f), s, floats(2.06390887954e-2f));
  p = FMA(p, s, floats(-5.37397155531e-2f));
  p = FMA(p, s, floats(1.33314422036e-1f));
  p = FMA(p, s, floats(-3.33332819422e-1f));
  Floats small = FMA(p * s, x, x);
  Floats large = 1.0f - 2.0f / (exp_of(a + a) + 1.0f);
  return chosen(a < floats(0.625f), small, with_sign_of(large, x));
}

/* -log(1 + e to the power of x). log(1 + e) is 2 atanh(s), s = e / (2 + e), which is at most a third: its series. */
FLOAT_INLINE Floats negative_softplus_of(Floats x) {
  Floats e = exp_of(-magnitude(x)), s = e / (2.0f + e), q = s * s;
  Floats p = floats(1.0f / 15);
  for (int n = 13; n > 1; n -= 2) p = FMA(p, q, floats(1.0f / (float)n));
  Floats log = FMA((s + s) * q, p, s + s);
  return -(chosen(x < floats(0), floats(0), x) + log);
}

/* The part of a normal distribution that lies beyond |x|: exp(-x * x / 2) * t * p(t), t = 1 / (1 + 5/16 |x|), p fitted
 * to within 1.2e-8 of erfcx(|x| / sqrt(2)) / 2 up to 14.5, where floats end. */
FLOAT_INLINE Floats normal_tail_of(Floats x) {
  static const float FACTORS[] = {
      -0.01935226283967495f, 0.09315720200538635f, -0.15500138700008392f, 0.07929723709821701f, -0.00650800671428442f,
      0.05755516141653061f,  0.08943632245063782f, 0.1120138168334961f,   0.12473586946725845f, 0.12466604262590408f};
  Floats a = clamped(magnitude(x), 0.0f, 16.0f), t = 1.0f / FMA(a, floats(0.3125f), floats(1.0f));
  Floats p = floats(FACTORS[0]);
  for (size_t i = 1; i < sizeof FACTORS / sizeof *FACTORS; i++) p = FMA(p, t, floats(FACTORS[i]));
  Floats square = a * a, rest = FMA(a, a, -square); /* together exact */
  Floats bell = exp_of(square * -0.5f);
  return FMA(bell, rest * -0.5f, bell) * (t * p);
}
