/* Attention over a KV cache: what is computed, and the functions of each instruction set that compute it.
 *
 * The arithmetic is the same on every instruction set, so that results have the same bits for every batch, chunk and
 * number of threads:
 *   - score = sum over d of q[d] * key[d], by fma in ascending order; q has been multiplied by the scale before, and by
 *     the scales of the keys' channels where they are codes.
 *   - Capped: cap * tanh(score / cap). Then the bias is added, if any.
 *   - weight = exp(score - most), most the greatest score that a query sees, its head's sink included. Weights are
 * added in SUMS floats, that of key k in that of k % SUMS, in ascending order; then the upper half is added to the
 * lower, and so on; exp(sink - most) last.
 *   - y[d] = (sum over keys of weight * value[d], by fma in ascending order) / total, times the scale of the values'
 *     channel where they are codes. What a query does not see adds 0, which changes nothing.
 */
#ifndef EDGEGEN_ATTENTION_H
#define EDGEGEN_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#define KEYS 64 /* of a tile; a multiple of SUMS */

typedef struct {
  float cap;         /* 0: none */
  const float *bias; /* of key 0, or NULL */
  const float *sink; /* of the head, or NULL */
} Softmax;

typedef struct {
  /* Rotates pairs of x by the angles of a position: cosines and sines [pairs]. */
  void (*rotate)(float *x, const float *cosines, const float *sines, size_t pairs, int interleaved);
  /* to[d] = x[d] * scales[d] * scale, or x[d] * scale where there are no scales. */
  void (*scale)(const float *x, const float *scales, float scale, float *to, size_t width);
  /* Codes of x: x[d] / scales[d], to the nearest even integer of 8 bits. */
  void (*round)(const float *x, const float *scales, int8_t *to, size_t width);
  /* [count][width] numbers, count <= KEYS, as floats [width][KEYS]; keys beyond count are 0. */
  void (*turn_floats)(const float *from, size_t count, size_t width, float *to);
  void (*turn_codes)(const int8_t *from, size_t count, size_t width, float *to);
  /* [count][width] codes as floats. */
  void (*widen)(const int8_t *from, size_t count, size_t width, float *to);
  /* scores[row][key] for KEYS turned keys. */
  void (*score)(const float *queries, size_t rows, size_t width, const float *turned, float *scores, size_t stride);
  /* The weights of keys first to last, both included, in place of their scores; 0 for others from begin to end, which
   * are multiples of SUMS. Returns their total. */
  float (*weigh)(const Softmax *softmax, float *scores, size_t begin, size_t first, size_t last, size_t end);
  /* sums[row][d] += weights[row][key] * values[key][d] */
  void (*sum)(const float *weights, size_t stride, size_t rows, const float *values, size_t count, size_t width,
              float *sums);
  /* to[d] = x[d] / total * scales[d] */
  void (*divide)(const float *x, float total, const float *scales, float *to, size_t width);
} AttentionKernels;

/* Those of the instruction set whose matrix kernels have that name. */
const AttentionKernels *edgegen_attention_kernels(const char *name);

#endif
