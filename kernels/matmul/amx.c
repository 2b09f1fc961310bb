/* The kernels for AMX: products of tiles, for FEWEST rows of x and more. Fewer are left to AVX-512 with VNNI.
 *
 * PANEL rows of the matrix are packed once into memory of the task, as signed bytes, whatever bits their codes have: of
 * each block two tiles, for 16 rows each. Two tiles of x, 16 rows each, are multiplied with both at a time, block after
 * block. While the tiles of a block are multiplied, the sums of the block before are scaled.
 */
#include "tiles.h"

#ifdef WITH_TILES
#include "avx512_panels.h"

#include <string.h>

#define TILED                                                                                                          \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,bmi2,fma,amx-tile,amx-int8")))

enum {
  /* From here on VNNI packs panels too. A prototype's tiles of 16 rows, one after the other, took 0.44 of the time of
   * its VNNI loop: less for 9 rows too, where the work of the other 7 is lost. These kernels were not timed. */
  FEWEST = 9,
  HALF = 16,            /* rows of a panel that a tile has */
  TOGETHER = TILE_ROWS, /* rows of x that a tile has */
  SCALES = 16,          /* blocks whose scales, or zero points, are packed together */
  LANE = 2 * TOGETHER * PANEL
};

/* Codes [blocks][2][block / 4][HALF][4], scales and zeros [blocks][PANEL]. Zero points are taken off codes, which are
 * signed bytes then, but of 8 bits that do not fit: codes and zero points are less 128, and of these the upper 16 bits
 * are 0. Codes of 4 bits have the order of the rounded codes of x, those of 3 and 2 bits part after part. */
typedef struct {
  int8_t *codes;
  int32_t *zeros;
  float *scales;
} Panel;

static size_t panel_codes(const Matrix *matrix) { return matrix->blocks * matrix->block * PANEL; }

static size_t scratch_size(const Matrix *matrix, size_t count) {
  const size_t fewer = edgegen_scratch_size_avx512vnni(matrix, count < FEWEST ? count : FEWEST - 1);
  if (count < FEWEST) return fewer;
  const size_t own = panel_codes(matrix) + 2 * rounded_up(matrix->blocks, SCALES) * PANEL * 4;
  return own > fewer ? own : fewer; /* experts ask for all tokens, and multiply fewer */
}

/* The tile of block `j` of the `left` in `turned`, which has groups of four bytes of 16 rows; `zero` is taken off. */
INLINE TARGET void pack_tile(const uint8_t *turned, size_t j, size_t left, size_t block, __m512i zero, int8_t *tile,
                             const int bits) {
  if (bits == 8) {
    for (size_t at = 0; at < block * HALF; at += 64)
      _mm512_store_si512(tile + at, _mm512_sub_epi8(_mm512_load_si512(turned + j * block * HALF + at), zero));
  } else if (bits == 4) {
    const __m512i low = _mm512_set1_epi8(15);
    const size_t size = block / 2 * HALF; /* of the even columns, and of the odd ones */
    for (size_t at = 0; at < size; at += 64) {
      const __m512i both = _mm512_load_si512(turned + j * size + at);
      const __m512i even = _mm512_and_si512(both, low), odd = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
      _mm512_store_si512(tile + at, _mm512_sub_epi8(even, zero));
      _mm512_store_si512(tile + size + at, _mm512_sub_epi8(odd, zero));
    }
  } else {
    __m512i word[3], parts[NARROW_PARTS];
    for (size_t k = 0; k < (size_t)bits; k++) word[k] = _mm512_load_si512(turned + (k * left + j) * 64);
    narrow_codes_of(word, bits, parts);
    for (size_t k = 0; k < NARROW_PARTS; k++) _mm512_store_si512(tile + k * 64, _mm512_sub_epi8(parts[k], zero));
  }
}

/* Of 16 rows r, the first half of the panel or the other: scales and zero points, and then codes. */
TARGET static void pack_scales(const Matrix *matrix, const size_t *r, size_t half, Panel panel) {
  for (size_t b = 0; b < matrix->blocks; b += SCALES) {
    const size_t left = matrix->blocks - b, at = b * PANEL + half * HALF;
    scales_of_16(matrix, r, b, left, panel.scales + at, PANEL * 4);
    if (!matrix->zeros) continue;
    zeros_of_16(matrix, r, b, left, panel.zeros + at, PANEL * 4);
    for (size_t i = 0; matrix->bits == 8 && i < SCALES; i++) {
      int32_t *zeros = panel.zeros + at + i * PANEL;
      const __m512i less = _mm512_sub_epi32(_mm512_load_si512(zeros), _mm512_set1_epi32(128));
      _mm512_store_si512(zeros, _mm512_and_si512(less, _mm512_set1_epi32(0xffff)));
    }
  }
}

INLINE TARGET void pack_codes(const Matrix *matrix, const size_t *r, size_t half, Panel panel, const int bits) {
  const size_t unit = matrix->block * (size_t)bits / 8, most = bits < 4 ? LANES : 64 / unit;
  uint8_t turned[HALF * 64] __attribute__((aligned(64)));
  __m512i zero = _mm512_set1_epi8((char)(1 << (bits - 1)));
  for (size_t b = 0; b < matrix->blocks; b += most) {
    const size_t left = matrix->blocks - b < most ? matrix->blocks - b : most;
    const __mmask64 there = left * unit == 64 ? ~(__mmask64)0 : ((__mmask64)1 << left * unit) - 1;
    __m512i rows[HALF];
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF; i++)
      rows[i] = _mm512_maskz_loadu_epi8(there, matrix->codes + r[i] * row_bytes(matrix) + b * unit);
    transpose(rows, turned, 64);
    for (size_t j = 0; j < left; j++) {
      const int32_t *zeros = panel.zeros + (b + j) * PANEL + half * HALF;
      if (bits < 8 && matrix->zeros)
        zero = _mm512_mullo_epi32(_mm512_load_si512(zeros), _mm512_set1_epi32(0x01010101));
      int8_t *tile = panel.codes + ((b + j) * 2 + half) * matrix->block * HALF;
      pack_tile(turned, j, left, matrix->block, zero, tile, bits);
    }
  }
}

#define PACK(BITS)                                                                                                     \
  TARGET static void pack_##BITS(const Matrix *matrix, const size_t *r, size_t half, Panel panel) {                    \
    pack_codes(matrix, r, half, panel, BITS);                                                                          \
  }
PACK(8)
PACK(4)
PACK(3)
PACK(2)

static void pack(const Matrix *matrix, size_t n, size_t last, Panel panel) {
  for (size_t half = 0; half < 2; half++) {
    size_t r[HALF];
    for (size_t i = 0; i < HALF; i++) r[i] = n + half * HALF + i < last ? n + half * HALF + i : last - 1;
    pack_scales(matrix, r, half, panel);
    switch (matrix->bits) {
    case 8: pack_8(matrix, r, half, panel); break;
    case 4: pack_4(matrix, r, half, panel); break;
    case 3: pack_3(matrix, r, half, panel); break;
    default: pack_2(matrix, r, half, panel); break;
    }
  }
}

/* Up to two tiles of x by a panel. Tiles of sums are x's first by both halves, then its second. */
typedef struct {
  const Matrix *matrix;
  const Inputs *x;
  Panel panel;
  size_t m[2];    /* the first rows of x's tiles, which may share some */
  uintptr_t next; /* what is asked for meanwhile: of each block `ahead` bytes */
  size_t ahead;
  float f[LANES * LANE] __attribute__((aligned(64)));                    /* [LANES][rows of x][PANEL] */
  int32_t sums[4][TOGETHER * HALF] __attribute__((aligned(64)));         /* of each tile [rows of x][HALF] */
  int8_t parts[2][TOGETHER * NARROW_GROUP] __attribute__((aligned(64))); /* codes of x that gather_parts orders */
} Work;

/* Rows of x as a tile takes them, and how many bytes apart. */
typedef struct {
  const int8_t *first;
  size_t apart;
} Rows;

/* Of a matrix of 3 or 2 bits the rounded codes of four blocks lie between each other: four bytes of each. */
TARGET static __attribute__((noinline)) void gather_parts(Work *work, size_t tile, size_t b, size_t count) {
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
  const size_t row = work->x->stride * NARROW_BLOCK;
  const int8_t *from = work->x->codes + work->m[tile] * row + b * NARROW_BLOCK;
  int8_t *to = work->parts[tile];
  for (size_t i = 0; i < count; i++) {
    const __m512i low = _mm512_loadu_si512(from + i * row), high = _mm512_loadu_si512(from + i * row + 64);
    _mm512_store_si512(to + i * NARROW_GROUP, _mm512_permutex2var_epi32(low, first, high));
    _mm512_store_si512(to + i * NARROW_GROUP + 64, _mm512_permutex2var_epi32(low, second, high));
  }
}

INLINE TARGET Rows rows_of(Work *work, size_t tile, size_t b, const size_t count) {
  const size_t block = work->matrix->block, row = work->x->stride * block;
  if (!is_narrow(work->matrix)) return (Rows){work->x->codes + work->m[tile] * row + b * block, row};
  if (b % LANES == 0) gather_parts(work, tile, b, count);
  return (Rows){work->parts[tile] + b % LANES * NARROW_BLOCK, NARROW_GROUP};
}

/* Adds the sums of block b in tile t to the floats of its lane; `count` rows of x. */
INLINE TARGET void add_scaled(Work *work, size_t t, size_t b, const size_t count, const bool zeros) {
  const size_t half = t % 2 * HALF, stride = work->x->stride, at = work->m[t / 2] * stride + b;
  const __m512 scale = _mm512_load_ps(work->panel.scales + b * PANEL + half);
  const __m512i zero = zeros ? _mm512_load_si512(work->panel.zeros + b * PANEL + half) : _mm512_setzero_si512();
  const float *own = work->x->scales + at;
  const int32_t *sums = work->x->sums + at;
  float *f = work->f + b % LANES * LANE + t / 2 * TOGETHER * PANEL + half;
#pragma GCC unroll 16
  for (size_t i = 0; i < count; i++) {
    __m512i sum = _mm512_load_si512(work->sums[t] + i * HALF);
    /* Both fit in 16 bits, and the upper half of a zero point is 0. */
    if (zeros) sum = _mm512_sub_epi32(sum, _mm512_madd_epi16(zero, _mm512_set1_epi32(sums[i * stride])));
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(own[i * stride]));
    _mm512_store_ps(f + i * PANEL, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), both, _mm512_load_ps(f + i * PANEL)));
  }
}

/* Tiles 0 to 3 are sums, 4 and 5 x's, 6 and 7 those of the matrix's block b. */
INLINE TILED void multiply_block(Work *work, size_t b, const size_t tiles_of_x, const size_t count) {
  const size_t block = work->matrix->block;
  const int8_t *w = work->panel.codes + b * block * PANEL;
  const Rows x = rows_of(work, 0, b, count);
  ZERO_TILE(0);
  ZERO_TILE(1);
  LOAD_TILE(6, w, HALF * 4);
  LOAD_TILE(4, x.first, x.apart);
  ADD_TILE_PRODUCTS(0, 4, 6);
  LOAD_TILE(7, w + block * HALF, HALF * 4);
  ADD_TILE_PRODUCTS(1, 4, 7);
  if (tiles_of_x == 1) return;
  const Rows other = rows_of(work, 1, b, count);
  ZERO_TILE(2);
  ZERO_TILE(3);
  LOAD_TILE(5, other.first, other.apart);
  ADD_TILE_PRODUCTS(2, 5, 6);
  ADD_TILE_PRODUCTS(3, 5, 7);
}

/* The sums of the block before b are scaled, and those of block b take their place. */
#define TAKE_SUMS(tile)                                                                                                \
  {                                                                                                                    \
    if (b) add_scaled(work, tile, b - 1, count, zeros);                                                                \
    if (b < blocks) STORE_TILE(tile, work->sums[tile], HALF * 4);                                                      \
  }

INLINE TILED void multiply_tiles(Work *work, const size_t tiles_of_x, const size_t count, const bool zeros) {
  const size_t blocks = work->matrix->blocks;
  memset(work->f, 0, sizeof work->f);
  for (size_t b = 0; b <= blocks; b++) {
    for (size_t i = 0; i < work->ahead; i += 64, work->next += 64) _mm_prefetch((const char *)work->next, _MM_HINT_T1);
    if (b < blocks) multiply_block(work, b, tiles_of_x, count);
    TAKE_SUMS(0)
    TAKE_SUMS(1)
    if (tiles_of_x == 1) continue;
    TAKE_SUMS(2)
    TAKE_SUMS(3)
  }
}

TILED static void one_tile(Work *work, size_t count) { multiply_tiles(work, 1, count, false); }
TILED static void one_tile_zeros(Work *work, size_t count) { multiply_tiles(work, 1, count, true); }
TILED static void two_tiles(Work *work) { multiply_tiles(work, 2, TOGETHER, false); }
TILED static void two_tiles_zeros(Work *work) { multiply_tiles(work, 2, TOGETHER, true); }

/* All rows of x by the matrix's rows from n, which are packed. The last tile of x ends with its last row: what it
 * shares with the tile before is computed twice. */
TARGET static void by_panel(Work *work, size_t count, size_t n, size_t last, float *y) {
  const Matrix *matrix = work->matrix;
  const size_t rows = count < TOGETHER ? count : TOGETHER, unit = matrix->block * (size_t)matrix->bits / 8;
  const bool zeros = matrix->bits == 8 && matrix->zeros;
  work->next = (uintptr_t)(matrix->codes + n * row_bytes(matrix)) + PANEL * row_bytes(matrix);
  work->ahead = PANEL * unit;
  for (size_t m = 0; m < count; m += 2 * TOGETHER, work->ahead = 0) {
    const size_t tiles_of_x = count - m > TOGETHER ? 2 : 1;
    for (size_t i = 0; i < tiles_of_x; i++)
      work->m[i] = m + (i + 1) * TOGETHER <= count ? m + i * TOGETHER : count - rows;
    if (tiles_of_x == 2 && zeros) two_tiles_zeros(work);
    else if (tiles_of_x == 2) two_tiles(work);
    else if (zeros) one_tile_zeros(work, rows);
    else one_tile(work, rows);
    for (size_t i = 0; i < tiles_of_x; i++)
      finish(matrix, work->f + i * TOGETHER * PANEL, LANE, rows, n, last, y + work->m[i] * matrix->rows);
  }
}

/* Of `rows` rows of x, and blocks of so many columns. */
static TileShapes shapes_of(size_t rows, size_t block) {
  TileShapes shapes = {.palette = 1};
  for (size_t tile = 0; tile < TILES; tile++) {
    const bool of_x = tile == 4 || tile == 5, of_matrix = tile > 5;
    shapes.rows[tile] = (uint8_t)(of_matrix ? block / 4 : rows);
    shapes.row_bytes[tile] = (uint16_t)(of_x ? block : HALF * 4);
  }
  return shapes;
}

TILED static void multiply(const Matrix *matrix, const Inputs *x, size_t count, size_t first, size_t last, float *y,
                           void *scratch) {
  if (count < FEWEST) {
    edgegen_multiply_avx512vnni(matrix, x, count, first, last, y, scratch);
    return;
  }
  Work work;
  work.matrix = matrix, work.x = x;
  work.panel.codes = scratch;
  work.panel.zeros = (int32_t *)(work.panel.codes + panel_codes(matrix));
  work.panel.scales = (float *)(work.panel.zeros + rounded_up(matrix->blocks, SCALES) * PANEL);
  const TileShapes shapes = shapes_of(count < TOGETHER ? count : TOGETHER, matrix->block);
  SHAPE_TILES(&shapes);
  for (size_t n = first; n < last; n += PANEL) {
    pack(matrix, n, last, work.panel);
    by_panel(&work, count, n, last, y);
  }
  RELEASE_TILES();
}

const Kernels edgegen_amx = {
    "amx", edgegen_quantize_avx512vnni, multiply, scratch_size, PANEL, edgegen_sum_ternary_avx512vnni};
#endif
