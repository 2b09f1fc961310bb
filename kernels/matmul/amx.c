/* The kernels for AMX: products of tiles, for FEWEST rows of x and more. Fewer are left to AVX-512 with VNNI.
 *
 * PANEL rows of the matrix are packed once into memory of the task, as signed bytes, whatever bits their codes have: of
 * each block two tiles, for 16 rows each. The panel is cut into segments of one lane, which stay in the first cache
 * while all rows of x are multiplied with them, a tile of 16 at a time: the floats of 16 by 16 elements stay in
 * registers until their lane's blocks end. Products follow each other without a gap, of whatever lane, half or tile
 * of x they are: while one is computed, the sums of the second before it are stored, and those of the third scaled.
 */
#include "tiles.h"

#ifdef WITH_TILES
#include "avx512_panels.h"

#define TILED                                                                                                          \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,bmi2,fma,amx-tile,amx-int8")))

enum {
  FEWEST = 9,           /* rows of x; from here on VNNI packs panels too */
  HALF = 16,            /* rows of a panel that a tile has */
  TOGETHER = TILE_ROWS, /* rows of x that a tile has */
  SCALES = 16,          /* blocks whose scales, or zero points, are packed together */
  RESIDENT = 20 * 1024, /* bytes of a segment: beside a tile of x they fit into 48 kB */
  /* Of four blocks of 3 or 2 bits, in a segment. */
  MOST_GROUPS = RESIDENT / (NARROW_GROUP * PANEL),
  MOST_PRODUCTS = 2 * RESIDENT / (32 * PANEL) /* of a segment and a tile of x */
};

/* Codes [blocks, lane after lane][2][block / 4][HALF][4], scales and zeros [blocks][PANEL]. Zero points are taken off
 * codes, which are signed bytes then, but of 8 bits that do not fit: codes and zero points are less 128, and of these
 * the upper 16 bits are 0. Codes of 4 bits have the order of the rounded codes of x, those of 3 and 2 bits part after
 * part. */
typedef struct {
  int8_t *codes;
  int32_t *zeros;
  float *scales;
} Panel;

static size_t panel_codes(const Matrix *matrix) { return matrix->blocks * matrix->block * PANEL; }

/* Blocks of a lane, and those of the lanes before it. */
static size_t lane_blocks(const Matrix *matrix, size_t lane) {
  return matrix->blocks / LANES + (lane < matrix->blocks % LANES);
}

static size_t lane_begin(const Matrix *matrix, size_t lane) {
  const size_t more = matrix->blocks % LANES;
  return matrix->blocks / LANES * lane + (lane < more ? lane : more);
}

/* Floats of a lane, which wait for those of others or for its next segment. */
static size_t kept_size(size_t count) { return rounded_up(count, TOGETHER) * PANEL; }

static size_t scratch_size(const Matrix *matrix, size_t count) {
  const size_t fewer = edgegen_scratch_size_avx512vnni(matrix, count < FEWEST ? count : FEWEST - 1);
  if (count < FEWEST) return fewer;
  const size_t panel = panel_codes(matrix) + 2 * rounded_up(matrix->blocks, SCALES) * PANEL * 4;
  const size_t own = panel + LANES * kept_size(count) * sizeof(float);
  return own > fewer ? own : fewer; /* experts ask for all tokens, and multiply fewer */
}

/* The tile of block `j` of the `left` in `turned`, which has groups of four bytes of 16 rows; `zero` is taken off codes
 * of less than 8 bits, of which it is not yet. */
INLINE TARGET void pack_tile(const uint8_t *turned, size_t j, size_t left, size_t block, __m512i zero, int8_t *tile,
                             const int bits) {
  if (bits == 8) {
    for (size_t at = 0; at < block * HALF; at += 64)
      _mm512_store_si512(tile + at, _mm512_load_si512(turned + j * block * HALF + at));
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

static int8_t *tile_at(const Matrix *matrix, Panel panel, size_t b, size_t half) {
  const size_t place = lane_begin(matrix, b % LANES) + b / LANES;
  return panel.codes + (place * 2 + half) * matrix->block * HALF;
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
    for (size_t i = 0; i < HALF; i++) {
      rows[i] = _mm512_maskz_loadu_epi8(there, matrix->codes + r[i] * row_bytes(matrix) + b * unit);
      if (bits == 8) rows[i] = _mm512_sub_epi8(rows[i], zero);
    }
    if (unit == 64) { /* 8 bits: the lines are a tile */
      transpose(rows, (uint8_t *)tile_at(matrix, panel, b, half), 64);
      continue;
    }
    transpose(rows, turned, 64);
    for (size_t j = 0; j < left; j++) {
      const int32_t *zeros = panel.zeros + (b + j) * PANEL + half * HALF;
      if (bits < 8 && matrix->zeros)
        zero = _mm512_mullo_epi32(_mm512_load_si512(zeros), _mm512_set1_epi32(0x01010101));
      pack_tile(turned, j, left, matrix->block, zero, tile_at(matrix, panel, b + j, half), bits);
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

/* A product of two tiles: a block of x by half the panel's rows. */
typedef struct {
  const int8_t *w;
  size_t x; /* bytes from the segment's first codes of a row of x */
  size_t b, half, lane;
  bool begins, ends; /* is the first, or last, of its lane and half in the segment */
  bool empty;        /* there is no such block: the lane has none in this segment, and its sums are not taken */
} Product;

/* Of some lanes of a panel the blocks of each from its block `first` on, before `last`. */
typedef struct {
  size_t lane, lanes, first, last;
  bool ends; /* the lanes */
  size_t count;
  Product products[MOST_PRODUCTS]; /* for each tile of x */
} Segment;

/* One product of the segment with a tile of x: its rows from m; those of the floats that wait are `tile` and the next.
 */
typedef struct {
  size_t product, tile, m;
  const int8_t *codes; /* of the segment's first block */
} Place;

typedef struct {
  const Matrix *matrix;
  const Inputs *x;
  size_t count; /* rows of x */
  size_t apart; /* bytes from row to row of their codes */
  Panel panel;
  size_t n, last; /* rows of the matrix: the panel's first, and where all end */
  float *y;
  float *kept;               /* [LANES][rows of x, in whole tiles][PANEL] */
  size_t of_lane;            /* floats */
  const uint8_t *ahead, *end; /* codes that are asked for meanwhile, and where the last end */
  int32_t sums[4][TOGETHER * HALF] __attribute__((aligned(64)));
  int8_t parts[TOGETHER * MOST_GROUPS * NARROW_GROUP] __attribute__((aligned(64))); /* what gather_parts orders */
} Work;

/* Of a matrix of 3 or 2 bits the rounded codes of four blocks lie between each other: four bytes of each. */
TARGET static void gather_parts(Work *work, size_t m, size_t group, size_t groups, size_t count) {
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
  const size_t row = work->x->stride * NARROW_BLOCK;
  int8_t *to = work->parts;
  for (size_t i = 0; i < count; i++) {
    const int8_t *from = work->x->codes + (m + i) * row + group * NARROW_GROUP;
    for (size_t g = 0; g < groups; g++, from += NARROW_GROUP, to += NARROW_GROUP) {
      const __m512i low = _mm512_loadu_si512(from), high = _mm512_loadu_si512(from + 64);
      _mm512_store_si512(to, _mm512_permutex2var_epi32(low, first, high));
      _mm512_store_si512(to + 64, _mm512_permutex2var_epi32(low, second, high));
    }
  }
}

/* Adds the sums of block b, scaled, to the floats of `count` rows. */
INLINE TARGET void add_scaled(const Work *work, const int32_t *sums, size_t m, size_t b, size_t half, __m512 *f,
                              const size_t count, const bool zeros) {
  const size_t stride = work->x->stride, at = b * PANEL + half * HALF;
  const __m512 scale = _mm512_load_ps(work->panel.scales + at);
  const __m512i zero = zeros ? _mm512_load_si512(work->panel.zeros + at) : _mm512_setzero_si512();
  const float *own = work->x->scales + m * stride + b;
  const int32_t *own_sums = work->x->sums + m * stride + b;
#pragma GCC unroll 16
  for (size_t i = 0; i < count; i++) {
    __m512i sum = _mm512_load_si512(sums + i * HALF);
    /* Both fit in 16 bits, and the upper half of a zero point is 0. */
    if (zeros) sum = _mm512_sub_epi32(sum, _mm512_madd_epi16(zero, _mm512_set1_epi32(own_sums[i * stride])));
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(own[i * stride]));
    f[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), both, f[i]);
  }
}

/* Where the floats of a lane wait. */
INLINE TARGET float *kept_at(const Work *work, const Place *place, const Product *product, size_t lane) {
  return work->kept + lane * work->of_lane + place->tile * PANEL + product->half * HALF;
}

/* Lets the floats of a lane wait; or if all its blocks are in them, adds the second's to the first's, or all lanes'. */
INLINE TARGET void end_lane(const Work *work, const Segment *segment, const Place *place, const Product *product,
                            const __m512 *f, const size_t count) {
  const Matrix *matrix = work->matrix;
  float *first = kept_at(work, place, product, 0);
  if (!segment->ends || product->lane % 2 == 0) {
    float *kept = kept_at(work, place, product, product->lane);
#pragma GCC unroll 16
    for (size_t i = 0; i < count; i++) _mm512_store_ps(kept + i * PANEL, f[i]);
  } else if (product->lane == 1) {
#pragma GCC unroll 16
    for (size_t i = 0; i < count; i++)
      _mm512_store_ps(first + i * PANEL, _mm512_add_ps(_mm512_load_ps(first + i * PANEL), f[i]));
  } else {
    const size_t n = work->n + product->half * HALF, left = n < work->last ? work->last - n : 0;
    const __mmask16 there = left >= HALF ? 0xffff : (__mmask16)((1u << left) - 1);
    const float *third = kept_at(work, place, product, 2);
    const __m512 bias = matrix->bias ? _mm512_maskz_loadu_ps(there, matrix->bias + n) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (size_t i = 0; i < count; i++) {
      const __m512 later = _mm512_add_ps(_mm512_load_ps(third + i * PANEL), f[i]);
      __m512 total = _mm512_add_ps(_mm512_load_ps(first + i * PANEL), later);
      if (matrix->bias) total = _mm512_add_ps(total, bias);
      _mm512_mask_storeu_ps(work->y + (place->m + i) * matrix->rows + n, there, total);
    }
  }
}

/* The last tile of x ends with its last row: what it shares with the tile before is computed twice, and waits in rows
 * of its own. `loads`: its codes will be read. */
TARGET static void begin_tile(Work *work, const Segment *segment, Place *place, bool loads) {
  const Matrix *matrix = work->matrix;
  const size_t rows = work->count < TOGETHER ? work->count : TOGETHER;
  place->product = 0;
  place->m = place->tile + rows <= work->count ? place->tile : work->count - rows;
  if (!loads) return;
  if (is_narrow(matrix)) {
    gather_parts(work, place->m, segment->first, segment->last - segment->first, rows);
    place->codes = work->parts;
  } else {
    const size_t block = segment->first * LANES + segment->lane;
    place->codes = work->x->codes + (place->m * work->x->stride + block) * matrix->block;
  }
  for (size_t i = 0; segment->ends && segment->lane + segment->lanes == LANES && i < rows; i++) {
    const float *y = work->y + (place->m + i) * matrix->rows + work->n; /* what will be written */
    __builtin_prefetch(y, 1);
    if (work->n + HALF < work->last) __builtin_prefetch(y + HALF, 1);
  }
}

/* Goes on to the next product, perhaps with the next tile of x. */
INLINE TARGET void go_on(Work *work, const Segment *segment, Place *place, bool loads) {
  if (++place->product < segment->count) return;
  place->tile += TOGETHER;
  if (place->tile < work->count) begin_tile(work, segment, place, loads);
}

/* Adds a product's sums, scaled, to the floats of its lane. */
INLINE TARGET void take_sums(Work *work, const Segment *segment, Place *place, const int32_t *sums, __m512 *f,
                             const size_t count, const bool zeros) {
  const Product *product = &segment->products[place->product];
  if (product->begins) {
    const float *kept = kept_at(work, place, product, product->lane);
#pragma GCC unroll 16
    for (size_t i = 0; i < count; i++)
      f[i] = segment->first ? _mm512_load_ps(kept + i * PANEL) : _mm512_setzero_ps();
  }
  if (!product->empty) add_scaled(work, sums, place->m, product->b, product->half, f, count, zeros);
  if (product->ends) end_lane(work, segment, place, product, f, count);
  go_on(work, segment, place, false);
}

/* A product begins, the sums of another are stored, and those of a third are taken; tiles are literal numbers. */
#define STEP(tile, tile_of_x, tile_of_w, stored, taken)                                                                \
  if (step >= 2 && step < all + 2) STORE_TILE(stored, work->sums[stored], HALF * 4);                                   \
  if (step < all) {                                                                                                    \
    const Product *product = &segment->products[loaded.product];                                                       \
    ZERO_TILE(tile);                                                                                                   \
    LOAD_TILE(tile_of_x, loaded.codes + product->x, work->apart);                                                      \
    LOAD_TILE(tile_of_w, product->w, HALF * 4);                                                                        \
    ADD_TILE_PRODUCTS(tile, tile_of_x, tile_of_w);                                                                     \
    go_on(work, segment, &loaded, true);                                                                               \
    if (work->ahead < work->end) __builtin_prefetch(work->ahead, 0, 2), work->ahead += 64;                             \
  }                                                                                                                    \
  if (step >= 3) take_sums(work, segment, &scaled, work->sums[taken], f, count, zeros);                                \
  if (++step == all + 3) break;

/* All tiles of x by a segment of the panel. */
INLINE TILED void multiply_tiles(Work *work, const Segment *segment, const size_t count, const bool zeros) {
  const size_t all = segment->count * ((work->count + TOGETHER - 1) / TOGETHER);
  Place loaded = {0}, scaled = {0};
  begin_tile(work, segment, &loaded, true);
  begin_tile(work, segment, &scaled, false);
  __m512 f[TOGETHER] = {0};
  for (size_t step = 0;;) {
    STEP(0, 4, 6, 2, 1)
    STEP(1, 5, 7, 3, 2)
    STEP(2, 4, 6, 0, 3)
    STEP(3, 5, 7, 1, 0)
  }
}

#define MULTIPLY_TILES(NAME, COUNT, ZEROS)                                                                             \
  TILED static void NAME(Work *work, const Segment *segment, size_t count) {                                           \
    (void)count;                                                                                                       \
    multiply_tiles(work, segment, COUNT, ZEROS);                                                                       \
  }
MULTIPLY_TILES(whole_tiles, TOGETHER, false)
MULTIPLY_TILES(whole_tiles_zeros, TOGETHER, true)
MULTIPLY_TILES(few_rows, count, false)
MULTIPLY_TILES(few_rows_zeros, count, true)

/* The products of one lane of a segment by half the panel's rows. */
static void add_products(const Work *work, Segment *segment, size_t half, size_t lane) {
  const Matrix *matrix = work->matrix;
  const size_t all = lane_blocks(matrix, lane), block = matrix->block;
  for (size_t k = segment->first; k == segment->first || (k < segment->last && k < all); k++) {
    Product product = {.x = (k - segment->first) * LANES * block + (lane - segment->lane) * block,
                       .b = k * LANES + lane,
                       .half = half,
                       .lane = lane,
                       .begins = k == segment->first,
                       .ends = k + 1 == segment->last || k + 1 >= all,
                       .empty = k >= all};
    product.w = product.empty ? work->panel.codes : tile_at(matrix, work->panel, product.b, half);
    segment->products[segment->count++] = product;
  }
}

static void by_segment(Work *work, size_t lane, size_t lanes, size_t first, size_t last) {
  const Matrix *matrix = work->matrix;
  Segment segment = {.lane = lane, .lanes = lanes, .first = first, .last = last};
  segment.ends = last == lane_blocks(matrix, 0);
  for (size_t half = 0; half < 2; half++)
    for (size_t l = lane; l < lane + lanes; l++) add_products(work, &segment, half, l);
  work->apart = is_narrow(matrix) ? (last - first) * NARROW_GROUP : work->x->stride * matrix->block;
  const bool zeros = matrix->bits == 8 && matrix->zeros;
  if (work->count >= TOGETHER) (zeros ? whole_tiles_zeros : whole_tiles)(work, &segment, TOGETHER);
  else (zeros ? few_rows_zeros : few_rows)(work, &segment, work->count);
}

/* Segments of so many lanes that they have all bytes of x's lines. */
static void by_panel(Work *work) {
  const Matrix *matrix = work->matrix;
  const size_t lanes = is_narrow(matrix) ? LANES : 64 / matrix->block, all = lane_blocks(matrix, 0);
  const size_t most = RESIDENT / (lanes * matrix->block * PANEL), segments = (all + most - 1) / most;
  const size_t size = (all + segments - 1) / segments;
  for (size_t lane = 0; lane < LANES; lane += lanes)
    for (size_t first = 0; first < all; first += size)
      by_segment(work, lane, lanes, first, first + size < all ? first + size : all);
}

/* Of `rows` rows of x, and blocks of so many columns. */
static TileShapes shapes_of(size_t rows, size_t block) {
  TileShapes shapes = {.palette = 1};
  for (size_t tile = 0; tile < TILE_COUNT; tile++) {
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
  work.matrix = matrix, work.x = x, work.count = count, work.last = last, work.y = y;
  work.panel.codes = scratch;
  work.panel.zeros = (int32_t *)(work.panel.codes + panel_codes(matrix));
  work.panel.scales = (float *)(work.panel.zeros + rounded_up(matrix->blocks, SCALES) * PANEL);
  work.kept = work.panel.scales + rounded_up(matrix->blocks, SCALES) * PANEL, work.of_lane = kept_size(count);
  work.end = matrix->codes + last * row_bytes(matrix);
  const TileShapes shapes = shapes_of(count < TOGETHER ? count : TOGETHER, matrix->block);
  SHAPE_TILES(&shapes);
  for (work.n = first; work.n < last; work.n += PANEL) {
    work.ahead = matrix->codes + (work.n + PANEL < last ? work.n + PANEL : last) * row_bytes(matrix);
    pack(matrix, work.n, last, work.panel);
    by_panel(&work);
  }
  RELEASE_TILES();
}

const Kernels edgegen_amx = {
    "amx", edgegen_quantize_avx512vnni, multiply, scratch_size, PANEL, edgegen_sum_ternary_avx512vnni};
#endif
