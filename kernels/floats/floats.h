/* Norms, activations and scans: what is computed, and the functions of each instruction set that compute it.
 *
 * The arithmetic is the same on every instruction set, so that results have the same bits:
 *   - Sums over a row are added in 16 floats, element i in that of i % 16, in ascending order; then the upper eight are
 *     added to the lower eight, of these the upper four to the lower four, and so on. Squares are added by fma.
 *   - Layer norm: mean = sum x / n; spread = sum (x - mean)^2 / n; y = fma((x - mean) * r, weight, bias) with
 *     r = 1 / sqrt(spread + epsilon), computed in double and rounded once. Root mean square: mean is 0, and
 *     y = (x * r) * weight, with the bias, if any, by fma.
 *   - What is skipped is added first: x = (x + skip) + skip_bias.
 *   - Activations are functions of float_math.h; a gate is multiplied in last.
 *   - Gated linear units: y = (up + offset) * (g * logistic(alpha * g)), g = gate, at most limit, and up within it.
 *   - Softmax: e = exp(x - max), divided by their sum, which is added in ascending order.
 *   - Delta rule, for each column of a head's state s [keys][values]: d = s * exp(decay); r = the sum of k * d by fma,
 *     in ascending order; u = beta * (v - r); s = fma(k, u, d); y = the sum of q * s by fma, in ascending order, times a
 *     scale.
 *   - Scans: h = fma(taken, written, h * exp(step * rate)) for each number of a channel, and y the sum of read * h by
 *     fma, in ascending order.
 */
#ifndef EDGEGEN_FLOATS_H
#define EDGEGEN_FLOATS_H

#include <stdbool.h>
#include <stddef.h>

#define SUMS 16

typedef struct {
  size_t width;
  bool centered; /* layer norm; else root mean square */
  float epsilon;
  const float *weight, *bias, *skip_bias; /* [width]; the biases may be NULL */
} Norm;

typedef enum {
  GELU,      /* x * P(X < x), X of a normal distribution */
  GELU_TANH, /* x * logistic(1.59576912 * (x + 0.044715 * x^3)), which is 0.5 x (1 + tanh(half of that)) */
  SILU,      /* x * logistic(x) */
  TANH,
  RELU,
  NEGATIVE_SOFTPLUS, /* -log(1 + e to the power of x) */
  LOGISTIC,
  ACTIVATIONS
} Activation;

/* Of two floats in turn, a gate and what it opens. */
typedef struct {
  float alpha, offset, limit;
} Glu;

/* A row of tokens that each channel remembers in numbers of its own. */
typedef struct {
  size_t tokens, width, state; /* channels, and numbers of one */
  const float *rate;           /* [state][width] */
  const float *step, *written; /* [tokens][width] */
  const float *taken, *read;   /* [tokens][state] */
  float *h;                    /* [state][width]: before, and then after */
  float *y;                    /* [tokens][width] */
} Scan;

enum { MOST_KEYS = 1024 };

/* A token of a head that keeps what it has read in a matrix. */
typedef struct {
  size_t keys, values; /* MOST_KEYS at most */
  const float *q, *k;  /* [keys] */
  const float *v;      /* [values] */
  const float *decay;  /* [keys], logarithms; */
  bool by_key;         /* or one for all */
  float beta, scale;
  float *state; /* [keys][values]: before, and then after */
  float *y;     /* [values] */
} Delta;

typedef struct {
  const char *name;
  /* Normalizes one row. With `skip`, the sum goes to `sum`, which may be `y`; without, both are NULL. */
  void (*normalize)(const Norm *norm, const float *x, const float *skip, float *sum, float *y);
  /* y[i] = kind(x[i]), times factor[i] unless it is NULL. */
  void (*activate)(Activation kind, const float *x, const float *factor, float *y, size_t count);
  /* y[i] of x[2 * i], the gate, and x[2 * i + 1]; y may be x. */
  void (*glu)(const Glu *glu, const float *x, float *y, size_t count);
  /* Scores become their softmax. */
  void (*weigh)(float *scores, size_t count);
  /* y[i] = fma(factor, x[i], y[i]). */
  void (*add)(float *y, const float *x, float factor, size_t count);
  /* The channels from `first` to `last`. */
  void (*scan)(const Scan *scan, size_t first, size_t last);
  /* The columns of the state from `first` to `last`. */
  void (*delta)(const Delta *delta, size_t first, size_t last);
} FloatKernels;

/* Those of the instruction set whose matrix kernels have that name. */
const FloatKernels *edgegen_float_kernels(const char *name);

#endif
