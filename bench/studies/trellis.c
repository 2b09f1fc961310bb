/* Viterbi's algorithm for bench/studies/trellis_codes.py. */
#include <stdint.h>
#include <string.h>
typedef float F8 __attribute__((vector_size(32), aligned(4)));
typedef int32_t I8 __attribute__((vector_size(32), aligned(4)));
typedef uint8_t B8 __attribute__((vector_size(8), aligned(1)));

/* One weight: the least cost of each state, whose lowest k bits are new, and which of 2^k states it comes from. */
static inline __attribute__((always_inline)) void step(int L, const int k, const float *code, float x, float *cost,
                                                       float *best, uint8_t *back) {
  const int heads = 1 << (L - k), ways = 1 << k;
  for (int h = 0; h < heads; h += 8) {
    F8 least = *(const F8 *)(cost + h);
    I8 from = {0};
    for (int j = 1; j < ways; j++) {
      F8 v = *(const F8 *)(cost + j * heads + h);
      I8 less = v < least;
      least = (F8)(((I8)v & less) | ((I8)least & ~less));
      from = (from & ~less) | (less & j);
    }
    *(F8 *)(best + h) = least;
    *(B8 *)(back + h) = __builtin_convertvector(from, B8);
  }
  if (k >= 3) {
    for (int h = 0; h < heads; h++)
      for (int b = 0; b < ways; b += 8) {
        F8 e = *(const F8 *)(code + h * ways + b) - x;
        *(F8 *)(cost + h * ways + b) = e * e + best[h];
      }
  } else {
    for (int s = 0; s < heads << k; s++) cost[s] = best[s >> k] + (code[s] - x) * (code[s] - x);
  }
}

/* The states of the cheapest path; `overlap`: the L - k bits before the first and after the last, or -1. */
static void path(int L, int k, const float *code, const float *x, int n, int overlap, float *cost, float *best,
                 uint8_t *back, int *states) {
  const int size = 1 << L, heads = size >> k;
  for (int s = 0; s < size; s++)
    cost[s] = overlap >= 0 && s >> k != overlap ? 1e30f : (code[s] - x[0]) * (code[s] - x[0]);
  for (int t = 1; t < n; t++) {
    uint8_t *b = back + (size_t)t * heads;
    switch (k) {
#define CASE(K) case K: step(L, K, code, x[t], cost, best, b); break;
      CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
    }
  }
  int s = overlap < 0 ? 0 : overlap;
  for (int c = s; c < size; c += overlap < 0 ? 1 : heads) s = cost[c] < cost[s] ? c : s;
  for (int t = n - 1; t >= 0; t--) {
    states[t] = s;
    if (t) s = (int)back[(size_t)t * heads + (s >> k)] << (L - k) | s >> k;
  }
}

void round_column(int L, int k, const float *code, const float *x, int rows, int length, float *cost, float *best,
                  uint8_t *back, int *states, float *out) {
  float ends[64];
  for (int first = 0; first < rows; first += length) {
    int n = rows - first < length ? rows - first : length, half = n / 2 < 32 ? n / 2 : 32;
    memcpy(ends, x + first + n - half, half * sizeof *x), memcpy(ends + half, x + first, half * sizeof *x);
    path(L, k, code, ends, 2 * half, -1, cost, best, back, states);
    path(L, k, code, x + first, n, states[half] >> k, cost, best, back, states);
    for (int t = 0; t < n; t++) out[first + t] = code[states[t]];
  }
}
