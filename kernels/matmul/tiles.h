/* Tiles of AMX: registers of up to TILE_ROWS rows of TILE_BYTES, and the operations that amx.c takes.
 *
 * Tests define EDGEGEN_EMULATED_TILES. Tiles are then memory of plain C, on processors that have none too, and what a
 * processor would refuse ends the program. Each byte is read by itself, so that a sanitizer sees it.
 */
#ifndef EDGEGEN_TILES_H
#define EDGEGEN_TILES_H

#include "matrix.h"

#ifdef WITH_TILES
#include <immintrin.h>

enum { TILE_COUNT = 8, TILE_ROWS = 16, TILE_BYTES = 64 };

/* Bytes of a row, and rows, of each tile, as the processor reads them; there is room for more tiles. */
typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} TileShapes;

_Static_assert(sizeof(TileShapes) == 64, "the processor reads 64 bytes");

#if defined(EDGEGEN_EMULATED_TILES)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
  bool shaped;
  TileShapes shapes;
  uint8_t bytes[TILE_COUNT][TILE_ROWS][TILE_BYTES];
} tiles;

#define MUST(condition) ((condition) ? (void)0 : (fputs("emulated tiles: not " #condition "\n", stderr), abort()))

static inline void emulate_shapes(const TileShapes *shapes) {
  static const TileShapes NONE;
  MUST(!tiles.shaped); /* or those of the call before were not released */
  MUST(shapes->palette == 1 && !shapes->start_row);
  MUST(!memcmp(shapes->reserved, NONE.reserved, sizeof NONE.reserved));
  for (size_t t = 0; t < TILE_COUNT; t++) MUST(shapes->rows[t] <= TILE_ROWS && shapes->row_bytes[t] <= TILE_BYTES);
  for (size_t t = TILE_COUNT; t < 16; t++) MUST(!shapes->rows[t] && !shapes->row_bytes[t]);
  memset(&tiles, 0, sizeof tiles);
  tiles.shaped = true, tiles.shapes = *shapes;
}

static inline void emulate_release(void) { memset(&tiles, 0, sizeof tiles); }

static inline void emulate_zero(size_t tile) {
  MUST(tiles.shaped && tile < TILE_COUNT && tiles.shapes.rows[tile]);
  memset(tiles.bytes[tile], 0, sizeof tiles.bytes[tile]);
}

static inline void emulate_load(size_t tile, const void *from, size_t apart) {
  emulate_zero(tile);
  for (size_t i = 0; i < tiles.shapes.rows[tile]; i++)
    for (size_t j = 0; j < tiles.shapes.row_bytes[tile]; j++)
      tiles.bytes[tile][i][j] = ((const uint8_t *)from)[i * apart + j];
}

static inline void emulate_store(size_t tile, void *to, size_t apart) {
  MUST(tiles.shaped && tile < TILE_COUNT && tiles.shapes.rows[tile]);
  for (size_t i = 0; i < tiles.shapes.rows[tile]; i++)
    for (size_t j = 0; j < tiles.shapes.row_bytes[tile]; j++)
      ((uint8_t *)to)[i * apart + j] = tiles.bytes[tile][i][j];
}

static inline void emulate_products(size_t sums, size_t x, size_t w, bool is_signed) {
  const TileShapes *of = &tiles.shapes;
  MUST(tiles.shaped && sums < TILE_COUNT && x < TILE_COUNT && w < TILE_COUNT && sums != x && sums != w && x != w);
  MUST(of->rows[sums] == of->rows[x] && of->row_bytes[sums] == of->row_bytes[w]);
  MUST(of->row_bytes[x] == 4 * of->rows[w] && of->row_bytes[w] % 4 == 0 && of->rows[sums] && of->rows[w]);
  for (size_t m = 0; m < of->rows[sums]; m++)
    for (size_t n = 0; n < of->row_bytes[sums]; n += 4) {
      uint32_t sum; /* beyond 32 bits it begins anew, as a processor's does */
      memcpy(&sum, &tiles.bytes[sums][m][n], 4);
      for (size_t k = 0; k < of->row_bytes[x]; k++) {
        const int byte = is_signed ? (int8_t)tiles.bytes[x][m][k] : tiles.bytes[x][m][k];
        sum += (uint32_t)(byte * (int8_t)tiles.bytes[w][k / 4][n + k % 4]);
      }
      memcpy(&tiles.bytes[sums][m][n], &sum, 4);
    }
}

#define SHAPE_TILES(shapes) emulate_shapes(shapes)
#define RELEASE_TILES() emulate_release()
#define ZERO_TILE(tile) emulate_zero(tile)
#define LOAD_TILE(tile, from, apart) emulate_load(tile, from, apart)
#define STORE_TILE(tile, to, apart) emulate_store(tile, to, apart)
#define ADD_TILE_PRODUCTS(sums, x, w) emulate_products(sums, x, w, true)
#define ADD_TILE_PRODUCTS_UNSIGNED(sums, x, w) emulate_products(sums, x, w, false)
#else

/* The intrinsics of GCC 12 do not say that they read memory: it leaves out stores that only tiles would read. This says
 * that all memory may be read and written here, what `pointer` points to too, and costs no instruction. */
#define USE_MEMORY(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

/* A thread's tiles are zero until they have shapes, and again once they are released: then the system saves none. */
#define SHAPE_TILES(shapes)                                                                                            \
  do {                                                                                                                 \
    USE_MEMORY(shapes);                                                                                                \
    _tile_loadconfig(shapes);                                                                                          \
  } while (0)
#define RELEASE_TILES() _tile_release()

/* `tile` is a literal number; rows in memory are `apart` bytes apart. */
#define ZERO_TILE(tile) _tile_zero(tile)
#define LOAD_TILE(tile, from, apart)                                                                                   \
  do {                                                                                                                 \
    USE_MEMORY(from);                                                                                                  \
    _tile_loadd(tile, from, apart);                                                                                    \
    USE_MEMORY(from); /* what is written next is not read */                                                           \
  } while (0)
#define STORE_TILE(tile, to, apart)                                                                                    \
  do {                                                                                                                 \
    _tile_stored(tile, to, apart);                                                                                     \
    USE_MEMORY(to);                                                                                                    \
  } while (0)

/* sums[m][n] += sum over k of x[m][k] * w[k / 4][4 n + k % 4], of signed bytes in 32 bits. */
#define ADD_TILE_PRODUCTS(sums, x, w) _tile_dpbssd(sums, x, w)
/* The bytes of x are 0 to 255. */
#define ADD_TILE_PRODUCTS_UNSIGNED(sums, x, w) _tile_dpbusd(sums, x, w)
#endif
#endif
#endif
