/* Attention over a KV cache: what is computed, and the functions of each instruction set that compute it.
 *
 * The arithmetic is the same on every instruction set, and follows the positions in the cache alone, so that results
 * have the same bits for every batch, chunk and number of threads:
 *   - Scores of floats: the sum over d of q[d] * key[d], by fma in ascending order; q has been multiplied by the scale.
 *   - Scores of codes: q is multiplied by the scales of the keys' channels too, and rounded to whole numbers of 16
 *     bits, `most` of them on each side of 0, which no sum overflows. Sums of products are exact, times q's step.
 *   - Capped: cap * tanh(score / cap). Then the bias is added, if any.
 *   - Keys are taken in tiles of KEYS. Weight = exp(score - most), most the greatest score of the tile that is seen.
 *   - Floats: weights are added in SUMS floats, that of key k in that of k % SUMS, in ascending order; then the upper
 *     half is added to the lower, and so on. The tile's part of y[d] is the sum of weight * value[d], by fma in
 *     ascending order. Codes: weights are rounded to whole numbers of ONE, so that a tile's sums are exact.
 *   - Tiles are joined in ascending order to parts of PART keys, and parts to the whole, which begins with the head's
 *     sink, if any: a score whose value is 0. Each is multiplied by exp(its most - the most of both), and added: the
 *     totals with two roundings, the sums by fma. Tiles and parts of which a query sees nothing are left out.
 *   - Nibbles: of a key its head's mean is subtracted, if there is one: that takes the same from all scores of a query,
 *     which the weights do not show. Then keys, queries and values are multiplied by a Hadamard matrix, which makes
 *     channels alike and is undone in y. A position's vector of a head has codes c of 4 bits, -8 to 7, and two levels:
 *     a number is c * scale + middle, and 0 is between the least and the greatest that there can be. Scores are those
 *     of codes, times the key's scale, plus its middle times the sum of q, by fma. Weights are those of floats; times
 *     the values' scales they are rounded to whole numbers, ONE for the greatest of the tile; times the middles they
 *     are added as the weights are, and what that gives is added to all y.
 *   - y[d] = sum / total, times the scale of the values' channel where they are codes.
 */
#ifndef EDGEGEN_ATTENTION_H
#define EDGEGEN_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#define KEYS 64 /* of a tile; a multiple of SUMS */
#define PART 256
#define TILES (PART / KEYS)
#define ONE 32767
#define ROUNDED_UP(count, to) (((count) + (to) - 1) / (to) * (to))
/* Numbers of 16 bits that a row of codes has room for: queries, and the values' side, which are zeros at the end. */
#define QUERY_WIDTH(width) ROUNDED_UP(width, 4)
#define SUM_WIDTH(width) ROUNDED_UP(width, 16)
#define TURNED_BYTES(width) (KEYS * QUERY_WIDTH(width) * sizeof(int16_t))
#define PAIRED_BYTES(width) (KEYS * SUM_WIDTH(width) * sizeof(int16_t))
/* Bytes of a vector of nibbles: code d in the lower half of byte d, or in the upper half of byte d - (width + 1) / 2;
 * then scale and middle, each the upper half of a float, lower byte first. */
#define NIBBLE_ROW(width) (((width) + 1) / 2 + 4)

/* What will be read of the cache: so many lines of 64 bytes. Kernels ask for them while they compute, a few at a time,
 * since a processor has few requests under way and waits where more are made at once. */
typedef struct {
  const char *at;
  size_t lines;
} Ahead;

static inline void ask_for(Ahead *ahead, size_t lines) {
  if (!ahead->lines) return; /* as mostly in a prompt */
  for (lines = lines < ahead->lines ? lines : ahead->lines; lines; lines--, ahead->lines--, ahead->at += 64)
    __builtin_prefetch(ahead->at, 0, 2); /* to the second cache */
}

typedef struct {
  float cap;         /* 0: none */
  const float *bias; /* of the tile's first key, or NULL */
} Softmax;

typedef struct {
  /* Rotates pairs of x by the angles of a position: cosines and sines [pairs]. */
  void (*rotate)(float *x, const float *cosines, const float *sines, size_t pairs, int interleaved);
  /* to[d] = x[d] * scales[d] * scale, or x[d] * scale where there are no scales. */
  void (*scale)(const float *x, const float *scales, float scale, float *to, size_t width);
  /* Codes of x: x[d] / scales[d], to the nearest even integer of 8 bits. */
  void (*round)(const float *x, const float *scales, int8_t *to, size_t width);
  /* x times a Hadamard matrix, in blocks of the largest power of two that divides width; again it is undone. */
  void (*mix)(float *x, size_t width);
  /* NIBBLE_ROW(width) bytes of x; and of so many rows the codes [count][width]. */
  void (*pack)(const float *x, uint8_t *to, size_t width);
  void (*unpack)(const uint8_t *from, size_t count, size_t width, int8_t *to);
  /* Whole numbers of a step, QUERY_WIDTH(width) of 16 bits as score_codes takes them; returns the step. */
  float (*round_query)(const float *x, int most, void *to, size_t width, float *sum);
  /* [count][width] numbers, count <= KEYS, as floats [width][KEYS]; keys beyond count are 0. */
  void (*turn_floats)(const float *from, size_t count, size_t width, float *to);
  /* Codes as score_codes takes them, TURNED_BYTES(width); keys beyond count are 0. */
  void (*turn_codes)(const int8_t *from, size_t count, size_t width, void *to, Ahead *ahead);
  /* [count][width] codes as sum_codes takes them, those of several keys side by side, PAIRED_BYTES(width). */
  void (*pair_codes)(const int8_t *from, size_t count, size_t width, void *to, Ahead *ahead);
  /* scores[row][key] for KEYS turned keys. */
  void (*score_floats)(const float *queries, size_t rows, size_t width, const float *turned, float *scores,
                       size_t stride);
  void (*score_codes)(const void *queries, const float *steps, size_t rows, size_t width, const void *turned,
                      float *scores, size_t stride, Ahead *ahead);
  /* Scores of nibbles from those of their codes; levels [2][KEYS] of the keys, and each row's sum of the query. */
  void (*level_scores)(const float *levels, const float *sums, size_t rows, float *scores, size_t stride);
  /* Weights of a tile's keys first to last, both included, and 0 for others, in place of their scores or as whole
   * numbers of ONE, KEYS of 16 bits as sum_codes takes them. Returns the greatest score. */
  float (*weigh_floats)(const Softmax *softmax, float *scores, size_t first, size_t last, float *total);
  float (*weigh_codes)(const Softmax *softmax, float *scores, size_t first, size_t last, int16_t *weights,
                       float *total);
  /* A tile's weights times the values' scales as whole numbers; returns their step. Their sum times the middles. */
  float (*level_weights)(const float *levels, const float *weights, int16_t *to, float *middle);
  /* Joins what a tile's values give to sums[row][d], rows of SUM_WIDTH(width). Each row has two factors: its own, and
   * the tile's; those of the next are `apart` floats on. */
  void (*sum_floats)(const float *weights, size_t stride, size_t rows, const float *values, size_t count, size_t width,
                     const float *factors, size_t apart, float *sums);
  void (*sum_codes)(const int16_t *weights, size_t stride, size_t rows, const void *paired, size_t count, size_t width,
                    const float *factors, size_t apart, float *sums, Ahead *ahead);
  /* sums[d] = fma(factors[1], other[d], sums[d] * factors[0]), SUM_WIDTH(width) of them. */
  void (*join)(const float *factors, const float *other, float *sums, size_t width);
  /* e to the power of each. */
  void (*raise)(float *x, size_t count);
  /* to[d] = x[d] / total * scales[d], which may be NULL; sums of codes have an order of their own. */
  void (*divide)(const float *x, float total, int codes, const float *scales, float *to, size_t width);
} AttentionKernels;

/* Those of the instruction set whose matrix kernels have that name. */
const AttentionKernels *edgegen_attention_kernels(const char *name);

#endif
