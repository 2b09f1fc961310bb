/* Multiplies parts of random matrices by the kernels of an instruction set, and compares with portable C, bit for bit.
 *
 * Whatever the kernels read or write, scratch too, ends where a page begins that cannot be touched: sanitizers do not
 * see what vectors with masks and tiles read.
 */
#include "matmul/matrix.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_ROOMS = 24, MOST_THREADS = 4, MOST_COLUMNS = 420, MOST_ROWS = 80, MOST_COUNT = 70, MORE_ROWS = 30 };
enum { WIDE = 6000 }; /* the first cache has not all of it, and kernels multiply it part by part */
static const float UNTOUCHED = 12345.0f;

typedef struct {
  const Kernels *kernels;
  uint64_t random;
  size_t matrices;
  bool differs;
} Run;

typedef struct {
  Matrix matrix;
  size_t count, first, last, most; /* most: rows of x that scratch is asked for */
  float *x;
} Case;

static size_t chance(Run *run, size_t below) {
  run->random ^= run->random << 13, run->random ^= run->random >> 7, run->random ^= run->random << 17;
  return (size_t)(run->random >> 32) % below;
}

/* The memory of a matrix and what is multiplied with it. */
static _Thread_local struct {
  size_t count, sizes[MOST_ROOMS];
  void *pages[MOST_ROOMS];
} rooms;

static void *room(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), data = rounded_up(size, page), all = data + page;
  uint8_t *pages = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || rooms.count == MOST_ROOMS || mprotect(pages + data, page, PROT_NONE)) abort();
  rooms.pages[rooms.count] = pages, rooms.sizes[rooms.count++] = all;
  return pages + data - size;
}

static void leave_rooms(void) {
  while (rooms.count) rooms.count--, munmap(rooms.pages[rooms.count], rooms.sizes[rooms.count]);
}

/* Bytes of all values, or of the least and the greatest, whose sums are the largest. */
static uint8_t *some_bytes(Run *run, size_t size) {
  uint8_t *bytes = room(size);
  const bool extreme = !chance(run, 4);
  for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(extreme ? 255 * chance(run, 2) : chance(run, 256));
  return bytes;
}

static float *some_floats(Run *run, size_t count, float factor) {
  static const float ODD[] = {NAN, INFINITY, -INFINITY, 1e-45f, 9.9e-31f, 3e38f, -0.0f};
  float *floats = room(count * sizeof *floats);
  const size_t odd = chance(run, 3) ? 0 : 1 + chance(run, 300);
  for (size_t i = 0; i < count; i++) {
    floats[i] = ((float)chance(run, 2001) - 1000) * factor;
    if (odd && !chance(run, odd)) floats[i] = ODD[chance(run, sizeof ODD / sizeof *ODD)];
  }
  return floats;
}

static Case some_case(Run *run) {
  static const int BITS[] = {2, 3, 4, 8};
  const size_t most_columns = chance(run, 16) ? MOST_COLUMNS : WIDE;
  Case own = {.matrix = {.columns = 1 + chance(run, most_columns), .rows = 1 + chance(run, MOST_ROWS)}};
  Matrix *matrix = &own.matrix;
  matrix->bits = BITS[chance(run, 4)];
  matrix->block = matrix->bits >= 4 && chance(run, 2) ? 64 : 32;
  matrix->blocks = (matrix->columns + matrix->block - 1) / matrix->block;
  const size_t blocks = matrix->rows * matrix->blocks;
  const size_t zeros = matrix->bits == 8 ? matrix->blocks : (matrix->blocks + 1) / 2;
  matrix->codes = some_bytes(run, matrix->rows * row_bytes(matrix));
  if (chance(run, 2)) {
    matrix->scales = some_floats(run, blocks, 1e-5f);
  } else {
    float *wide = some_floats(run, blocks, 1e-5f);
    uint16_t *halves = room(blocks * sizeof *halves);
    for (size_t i = 0; i < blocks; i++) memcpy(halves + i, (char *)(wide + i) + 2, 2);
    matrix->halves = halves;
    if (chance(run, 2)) {
      matrix->float16 = true;
      for (size_t i = 0; i < blocks; i++) /* finite ones, but for a few */
        halves[i] = (uint16_t)(chance(run, 2) << 15 | chance(run, (chance(run, 200) ? 31 : 32) << 10));
    }
  }
  if (chance(run, 2)) matrix->zeros = some_bytes(run, matrix->rows * zeros);
  if (chance(run, 2)) matrix->bias = some_floats(run, matrix->rows, 1e-3f);
  own.count = 1 + chance(run, chance(run, 3) ? MOST_COUNT : 18);
  own.most = own.count + (chance(run, 2) ? chance(run, MORE_ROWS) : 0);
  own.first = chance(run, 2) ? 0 : chance(run, matrix->rows);
  own.last = chance(run, 2) ? matrix->rows : own.first + 1 + chance(run, matrix->rows - own.first);
  own.x = some_floats(run, own.count * matrix->columns, 1e-3f);
  return own;
}

/* What is not a number is alike. */
static bool same(const float *a, const float *b, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (memcmp(a + i, b + i, 4) && !(isnan(a[i]) && isnan(b[i]))) return false;
  return true;
}

static Inputs rounded(const Kernels *kernels, const Case *own) {
  const size_t stride = input_stride(&own->matrix), blocks = own->count * stride;
  Inputs inputs = {stride, room(own->count * input_size(&own->matrix)), room(blocks * 4), room(blocks * 4)};
  for (size_t m = 0; m < own->count; m++) kernels->quantize(&own->matrix, own->x + m * own->matrix.columns, &inputs, m);
  return inputs;
}

static float *product(const Kernels *kernels, const Case *own, const Inputs *inputs) {
  const size_t count = own->count * own->matrix.rows;
  float *y = room(count * sizeof *y);
  for (size_t i = 0; i < count; i++) y[i] = UNTOUCHED;
  void *scratch = room(rounded_up(kernels->scratch_size(&own->matrix, own->most), 64));
  kernels->multiply(&own->matrix, inputs, own->count, own->first, own->last, y, scratch);
  return y;
}

static bool agrees(const Kernels *kernels, const Case *own) {
  const size_t blocks = own->count * input_stride(&own->matrix);
  Inputs one = rounded(&edgegen_portable, own), other = rounded(kernels, own);
  float *expected = product(&edgegen_portable, own, &one), *y = product(kernels, own, &other);
  return !memcmp(one.codes, other.codes, own->count * input_size(&own->matrix)) &&
         !memcmp(one.sums, other.sums, blocks * 4) && same(one.scales, other.scales, blocks) &&
         same(expected, y, own->count * own->matrix.rows);
}

static void *compare(void *from) {
  Run *run = from;
  for (size_t i = 0; i < run->matrices && !run->differs; i++) {
    Case own = some_case(run);
    run->differs = !agrees(run->kernels, &own);
    if (run->differs)
      printf("K=%zu N=%zu block=%zu bits=%d rows=%zu, from %zu to %zu, scratch for %zu%s%s%s\n", own.matrix.columns,
             own.matrix.rows, own.matrix.block, own.matrix.bits, own.count, own.first, own.last, own.most,
             own.matrix.zeros ? " zeros" : "", own.matrix.bias ? " bias" : "",
             own.matrix.scales    ? ""
             : own.matrix.float16 ? " float16"
                                  : " bfloat16");
    leave_rooms();
  }
  return NULL;
}

/* Prints the name of the kernels, or matrices whose results differ: as many threads each take so many, and a seed of
 * their own. Returns what the program does. */
int compare_parts(const char *name, uint64_t seed, size_t matrices, size_t threads) {
  const Kernels *kernels = edgegen_kernels(name);
  if (!kernels || threads < 1 || threads > MOST_THREADS) return 2;
  pthread_t running[MOST_THREADS];
  Run runs[MOST_THREADS];
  bool differs = false;
  for (size_t i = 0; i < threads; i++) {
    runs[i] = (Run){kernels, (seed * MOST_THREADS + i + 1) * 0x9e3779b97f4a7c15u, matrices, false};
    if (pthread_create(&running[i], NULL, compare, &runs[i])) abort();
  }
  for (size_t i = 0; i < threads; i++) pthread_join(running[i], NULL), differs |= runs[i].differs;
  if (!differs) puts(kernels->name);
  return differs;
}
