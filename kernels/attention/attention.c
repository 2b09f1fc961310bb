/* The operators "CachedAttention", "CachedAttentionInt8" and "CachedAttentionInt4" of the domain "edgegen", for ONNX
 * Runtime: causal attention that appends to a KV cache, whose numbers are floats, codes of 8 bits with a scale for each
 * channel, or codes of 4 bits with two levels for each position and head.
 *
 * Inputs, as GroupQueryAttention has them: query float [b, t, heads * size], or with keys and values behind it;
 * key and value float [b, t, kv_heads * size] (optional); past key and past value [b, kv_heads, capacity, size];
 * seqlens_k int32 [b], positions in the cache after this run, less 1; total_sequence_length int32, of which only the
 * sign is read: whoever makes it negative while this runs interrupts it;
 * cosines and sines float [positions, pairs], position_ids int64 [b, t], bias float [1 or b, 1 or heads, t, keys],
 * head_sink float [heads] (all optional); with codes, scales of keys and values: initializers float of kv_heads * size.
 * Of codes of 4 bits the past is uint8 [b, kv_heads, capacity, NIBBLE_ROW(size)], and in the place of the keys' scales
 * may be their means, an initializer as well, which are subtracted from the rotated keys; without softcap or head_sink.
 * Last come weights of the root mean square norms of queries and keys, initializers float [size], both or none; their
 * attributes are query_epsilon and key_epsilon.
 * Outputs: y float [b, t, heads * size], present key and present value; in place where they are the past's memory.
 * Attributes: num_heads, kv_num_heads, scale, local_window_size (-1 or 0: all), softcap (0: none), do_rotary,
 * rotary_interleaved.
 */
#include "cached_attention.h"
#include "matmul/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* None of them changes a bit of the results. */
enum {
  TOKENS_OF_A_TASK = 8, /* that are rotated and appended */
  ROWS_OF_A_TASK = 64,  /* queries that share tiles of keys and values, and are joined by one thread */
  ENOUGH_TASKS = 48,    /* with fewer blocks of queries the cache is split among tasks too, by its parts */
  VECTOR_FLOATS = 16    /* of the widest vector: arrays of floats are whole ones */
};

static OrtStatus *wrong(const CachedAttention *attention, const char *message) {
  return edgegen_failure(attention->api, ORT_INVALID_ARGUMENT, message);
}

/* The norm whose weights are that input, which has none if they are left out. */
static OrtStatus *read_norm(const CachedAttention *attention, const OrtKernelInfo *info, size_t input,
                            const char *epsilon, const char *suffix, Norm *norm) {
  const void *weight;
  int64_t count;
  int type;
  OrtStatus *status = edgegen_any_initializer(attention->api, info, input, "weights", &type, &count, &weight);
  if (status || !type) return status;
  if (type != ORT_FLOAT || !count) return wrong(attention, "CachedAttention: the weights of norms must be floats");
  *norm = (Norm){.width = (size_t)count, .weight = weight};
  return edgegen_real_attribute(attention->api, info, epsilon, suffix, &norm->epsilon);
}

OrtStatus *edgegen_read_attention(const OrtApi *api, const OrtKernelInfo *info, CacheKind kind, size_t begin,
                                  size_t first, const char *suffix, CachedAttention *out) {
  *out = (CachedAttention){.api = api, .kind = kind};
  out->kernels = edgegen_attention_kernels(edgegen_kernels(NULL)->name);
  out->floats = edgegen_float_kernels(edgegen_kernels(NULL)->name);
  OrtStatus *status;
  if ((status = edgegen_attribute(api, info, "num_heads", suffix, &out->heads)) ||
      (status = edgegen_attribute(api, info, "kv_num_heads", suffix, &out->kv_heads)) ||
      (status = edgegen_attribute(api, info, "local_window_size", suffix, &out->window)) ||
      (status = edgegen_attribute(api, info, "do_rotary", suffix, &out->rotary)) ||
      (status = edgegen_attribute(api, info, "rotary_interleaved", suffix, &out->interleaved)) ||
      (status = edgegen_real_attribute(api, info, "scale", suffix, &out->scale)) ||
      (status = edgegen_real_attribute(api, info, "softcap", suffix, &out->cap)))
    return status;
  const int64_t most = 1 << 16;
  if (out->heads < 1 || out->heads > most || out->kv_heads < 1 || out->kv_heads > most || out->heads % out->kv_heads ||
      out->window < -1)
    return wrong(out, "CachedAttention: num_heads must be a multiple of kv_num_heads, local_window_size not below -1");
  int type;
  if (kind == CODES) {
    const void *scales[2] = {NULL, NULL};
    int64_t counts[2];
    for (size_t i = 0; i < 2; i++) {
      const size_t input = first + KEY_SCALES + i - begin;
      if ((status = edgegen_any_initializer(api, info, input, "scales", &type, &counts[i], &scales[i]))) return status;
      if (!scales[i] || type != ORT_FLOAT)
        return wrong(out, "CachedAttention: the scales of an int8 KV cache must be initializers of floats");
    }
    if (counts[0] != counts[1]) return wrong(out, "CachedAttention: keys and values have different counts of scales");
    out->key_scales = scales[0], out->value_scales = scales[1], out->scales = counts[0];
  }
  if (kind == NIBBLES) {
    const void *means = NULL;
    status = edgegen_any_initializer(api, info, first + KEY_MEANS - begin, "means", &type, &out->scales, &means);
    if (status) return status;
    if (means && (type != ORT_FLOAT || out->cap > 0))
      return wrong(out, "CachedAttention: the means of keys must be floats, and scores not capped");
    out->key_means = means;
  }
  if ((status = read_norm(out, info, first + QUERY_NORM - begin, "query_epsilon", suffix, &out->query_norm)) ||
      (status = read_norm(out, info, first + KEY_NORM - begin, "key_epsilon", suffix, &out->key_norm)))
    return status;
  if (out->query_norm.width != out->key_norm.width)
    return wrong(out, "CachedAttention: the norms of queries and keys have weights of one size, or none");
  return NULL;
}

static size_t bytes_of_row(CacheKind kind, size_t size) {
  return kind == FLOATS ? size * sizeof(float) : kind == CODES ? size : NIBBLE_ROW(size);
}

/* Positions in the cache before this run. */
static size_t past_of(const AttentionRun *job, size_t b) {
  return (size_t)((const int32_t *)job->in[LENGTHS].data)[b] + 1 - job->tokens;
}

static void rotated(const AttentionRun *job, float *x, size_t b, size_t t) {
  if (!job->attention->rotary) return;
  const AttentionInput *positions = &job->in[POSITIONS];
  const size_t pairs = (size_t)job->in[COSINES].dimensions[1];
  const size_t at =
      positions->there ? (size_t)((const int64_t *)positions->data)[b * job->tokens + t] : past_of(job, b) + t;
  job->attention->kernels->rotate(x, (const float *)job->in[COSINES].data + at * pairs,
                                  (const float *)job->in[SINES].data + at * pairs, pairs,
                                  job->attention->interleaved != 0);
}

/* A head of queries or keys, as it goes on. */
static void take_head(const AttentionRun *job, const Norm *norm, const float *x, float *to) {
  if (norm->weight) job->attention->floats->normalize(norm, x, NULL, NULL, to);
  else memcpy(to, x, job->size * sizeof *to);
}

/* Appends a token's keys and values of one kv head to the cache, and makes its queries ready. `own` has room for a
 * head. */
static void prepare_head(const AttentionRun *job, size_t b, size_t t, size_t g, float *own) {
  const CachedAttention *attention = job->attention;
  const AttentionKernels *run = attention->kernels;
  const size_t size = job->size, bytes = size * sizeof(float);
  const float *query = (const float *)job->in[QUERY].data + (b * job->tokens + t) * job->row;
  const int packed = !job->in[KEY].there;
  const size_t other = (b * job->tokens + t) * job->kv_heads * size;
  const float *key = packed ? query + job->heads * size : (const float *)job->in[KEY].data + other;
  const float *value = packed ? key + job->kv_heads * size : (const float *)job->in[VALUE].data + other;
  const int codes = attention->kind == CODES, nibbles = attention->kind == NIBBLES;
  const float *key_scales = codes ? attention->key_scales + g * size : NULL;
  for (size_t h = 0; h < job->group; h++) {
    take_head(job, &attention->query_norm, query + (g * job->group + h) * size, own);
    rotated(job, own, b, t);
    const size_t to = ((b * job->kv_heads + g) * job->tokens + t) * job->group + h;
    void *numbers = (char *)job->queries + to * job->query_bytes;
    if (nibbles) run->mix(own, size);
    run->scale(own, key_scales, attention->scale, codes || nibbles ? own : numbers, size);
    if (codes || nibbles) {
      float sum;
      job->steps[to] = run->round_query(own, job->most, numbers, size, &sum);
      job->sums[to] = job->steps[to] * sum;
    }
  }
  const size_t at = ((b * job->kv_heads + g) * job->capacity + past_of(job, b) + t) * job->row_bytes;
  void *keys = (char *)job->keys + at, *values = (char *)job->values + at;
  take_head(job, &attention->key_norm, key + g * size, own);
  rotated(job, own, b, t);
  if (nibbles) {
    for (size_t d = 0; attention->key_means && d < size; d++) own[d] -= attention->key_means[g * size + d];
    run->mix(own, size);
    run->pack(own, keys, size);
    memcpy(own, value + g * size, bytes);
    run->mix(own, size);
    run->pack(own, values, size);
  } else if (codes) {
    run->round(own, key_scales, keys, size);
    run->round(value + g * size, attention->value_scales + g * size, values, size);
  } else {
    memcpy(keys, own, bytes);
    memcpy(values, value + g * size, bytes);
  }
}

size_t edgegen_heads_to_append(const AttentionRun *job) { return job->batch * job->tokens * job->kv_heads; }

void edgegen_append_heads(AttentionRun *job, size_t first, size_t last) {
  float few[512], *own = few;
  if (job->size > 512 && !(own = malloc(job->size * sizeof(float)))) {
    job->failed = 1;
    return;
  }
  for (size_t i = first; i < last; i++)
    prepare_head(job, i / job->kv_heads / job->tokens, i / job->kv_heads % job->tokens, i % job->kv_heads, own);
  if (own != few) free(own);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Tokens first to last - 1 of a row, by the keys of one kv head. */
typedef struct {
  size_t b, g, first, last, past, window; /* window: SIZE_MAX where all is seen */
} Block;

static Block block_of(const AttentionRun *job, size_t index) {
  Block block = {.b = index / job->blocks / job->kv_heads, .g = index / job->blocks % job->kv_heads};
  block.first = index % job->blocks * job->block_tokens;
  block.last = least(job->tokens, block.first + job->block_tokens);
  block.past = past_of(job, block.b);
  block.window = job->attention->window < 1 ? SIZE_MAX : (size_t)job->attention->window;
  return block;
}

/* The first key that a token sees. */
static size_t first_seen(const Block *block, size_t t) {
  const size_t after = block->past + t + 1;
  return after > block->window ? after - block->window : 0;
}

/* Of the block's tokens, those that see some of `count` keys: from the first that comes after the first key, */
static size_t seeing_from(const Block *block, size_t key) {
  return key > block->past + block->first ? key - block->past - block->first : 0;
}
/* and up to the first whose window begins behind the last key. */
static size_t seeing_to(const Block *block, size_t key, size_t count) {
  const size_t all = block->last - block->first, before = block->past + block->first + 1;
  if (block->window == SIZE_MAX) return all;
  return least(all, key + count + block->window > before ? key + count + block->window - before : 0);
}

/* Rows of what is found: [rows] greatest scores, [rows] totals, [rows] sums of the values' middles (of nibbles), and
 * [rows][SUM_WIDTH(size)] sums. */
static size_t state_size(const AttentionRun *job) {
  return job->block_tokens * job->group * (3 + SUM_WIDTH(job->size));
}

/* What a worker needs: */
typedef struct {
  void *memory;
  float *scores;    /* [rows][PART] */
  int16_t *weights; /* [rows][PART], of codes */
  float *factors;   /* [rows][TILES][2] */
  float *totals;    /* [rows][TILES] */
  int8_t *codes;    /* [KEYS][size], and what follows: of nibbles */
  float *keys;      /* [2][KEYS] levels */
  float *values;    /* [TILES][2][KEYS] levels */
  float *steps;     /* [rows][TILES], of weights */
  float *middles;   /* [rows][TILES] */
  float *joining;   /* [rows][2] */
  void *turned, *paired;
  float *part, *whole; /* states */
} Scratch;

static int make_scratch(const AttentionRun *job, Scratch *scratch) {
  const size_t rows = job->block_tokens * job->group, codes = job->attention->kind != FLOATS;
  const size_t nibbles = job->attention->kind == NIBBLES;
  const size_t sizes[] = {
      codes ? TURNED_BYTES(job->size) : KEYS * job->size * sizeof(float),
      codes * PAIRED_BYTES(job->size),
      rows * PART * sizeof(float),
      codes * rows * PART * sizeof(int16_t),
      (rows * 2 * TILES + VECTOR_FLOATS) * sizeof(float),
      rows * TILES * sizeof(float),
      state_size(job) * sizeof(float),
      state_size(job) * sizeof(float),
      nibbles * KEYS * job->size,
      nibbles * 2 * KEYS * sizeof(float),
      nibbles * 2 * PART * sizeof(float),
      nibbles * rows * TILES * sizeof(float),
      nibbles * rows * TILES * sizeof(float),
      nibbles * rows * 2 * sizeof(float),
  };
  enum { COUNT = sizeof sizes / sizeof *sizes };
  size_t all = 64;
  for (size_t i = 0; i < COUNT; i++) all += ROUNDED_UP(sizes[i], 64);
  if (!(scratch->memory = malloc(all))) return 0;
  char *at = (char *)ROUNDED_UP((uintptr_t)scratch->memory, 64), *places[COUNT];
  for (size_t i = 0; i < COUNT; at += ROUNDED_UP(sizes[i], 64), i++) places[i] = at;
  scratch->turned = places[0], scratch->paired = places[1];
  scratch->scores = (float *)places[2], scratch->weights = (int16_t *)places[3];
  scratch->factors = (float *)places[4], scratch->totals = (float *)places[5];
  scratch->part = (float *)places[6], scratch->whole = (float *)places[7];
  scratch->codes = (int8_t *)places[8];
  scratch->keys = (float *)places[9], scratch->values = (float *)places[10];
  scratch->steps = (float *)places[11], scratch->middles = (float *)places[12];
  scratch->joining = (float *)places[13];
  memset(scratch->factors, 0, sizes[4]);
  return 1;
}

/* The factors by which two are joined whose greatest scores are these, as exponents; and the greater. */
static float exponents(float most, float other, float *to) {
  const float both = other > most ? other : most;
  to[0] = most == both ? 0 : most - both; /* the same infinity, too */
  to[1] = other == both ? 0 : other - both;
  return both;
}

/* The levels of `count` rows of nibbles, [2][KEYS]: scales and middles; those of other keys are 0. */
static void read_levels(const uint8_t *rows, size_t count, size_t size, float *to) {
  const uint8_t *at = rows + (size + 1) / 2;
  for (size_t k = 0; k < count; k++, at += NIBBLE_ROW(size)) {
    uint32_t both, halves[2];
    memcpy(&both, at, sizeof both);
    halves[0] = both << 16, halves[1] = both & 0xffff0000;
    memcpy(to + k, &halves[0], sizeof *to), memcpy(to + KEYS + k, &halves[1], sizeof *to);
  }
  for (size_t k = count; k < KEYS; k++) to[k] = to[KEYS + k] = 0;
}

/* Keys or values from position first to last - 1. Asks for a line of each page, so that its address is known by the
 * time that others are asked for. */
static Ahead rows_ahead(const AttentionRun *job, const Block *block, const void *cache, size_t first, size_t last) {
  const size_t at = (block->b * job->kv_heads + block->g) * job->capacity + first;
  const size_t bytes = (last - first) * job->row_bytes;
  if (!bytes || job->attention->kind == FLOATS) return (Ahead){0};
  const Ahead ahead = {(const char *)cache + at * job->row_bytes, bytes / 64};
  for (size_t i = 0; i < bytes; i += 4096) __builtin_prefetch(ahead.at + i, 0, 2);
  __builtin_prefetch(ahead.at + bytes - 1, 0, 2);
  return ahead;
}

/* Where the keys begin that a block reads of a part, and where they end. */
static size_t begin_of(const Block *block, size_t part) {
  const size_t begin = part * PART, token = block->first + seeing_from(block, begin);
  const size_t first = first_seen(block, token) / KEYS * KEYS;
  return first > begin ? first : begin;
}
static size_t end_of(const Block *block, size_t part) { return least((part + 1) * PART, block->past + block->last); }

static void score_part(const AttentionRun *job, const Block *block, size_t first, size_t last, const Scratch *scratch) {
  const AttentionKernels *run = job->attention->kernels;
  const size_t size = job->size, group = job->group, part = first / PART * PART;
  const size_t query = ((block->b * job->kv_heads + block->g) * job->tokens + block->first) * group;
  const size_t cache = (block->b * job->kv_heads + block->g) * job->capacity;
  Ahead ahead = rows_ahead(job, block, job->values, first, last);
  for (size_t tile = first; tile < last; tile += KEYS) {
    const size_t from = seeing_from(block, tile) * group, to = seeing_to(block, tile, KEYS) * group;
    if (from >= to) continue;
    const char *keys = (const char *)job->keys + (cache + tile) * job->row_bytes;
    const char *queries = (const char *)job->queries + (query + from) * job->query_bytes;
    const size_t count = least(KEYS, last - tile);
    float *scores = scratch->scores + from * PART + (tile - part);
    if (job->attention->kind != FLOATS) {
      const int8_t *codes = (const int8_t *)keys;
      if (job->attention->kind == NIBBLES) {
        run->unpack((const uint8_t *)keys, count, size, scratch->codes);
        codes = scratch->codes;
      }
      run->turn_codes(codes, count, size, scratch->turned, &ahead);
      run->score_codes(queries, job->steps + query + from, to - from, size, scratch->turned, scores, PART, &ahead);
      if (job->attention->kind == NIBBLES) {
        read_levels((const uint8_t *)keys, count, size, scratch->keys);
        run->level_scores(scratch->keys, job->sums + query + from, to - from, scores, PART);
      }
    } else {
      run->turn_floats((const float *)keys, count, size, scratch->turned);
      run->score_floats((const float *)queries, to - from, size, scratch->turned, scores, PART);
    }
  }
}

/* Weights of a row by keys first to last, both included, and the factors by which their tiles are joined. */
static float weigh_row(const AttentionRun *job, const Block *block, size_t r, size_t first, size_t last,
                       const Scratch *scratch, Ahead *ahead) {
  const CachedAttention *attention = job->attention;
  const AttentionInput *bias = &job->in[ATTENTION_BIAS];
  const size_t t = block->first + r / job->group, head = block->g * job->group + r % job->group;
  const size_t part = first / PART * PART;
  Softmax softmax = {.cap = attention->cap};
  const float *biases = NULL;
  if (bias->there) {
    const size_t bh = bias->dimensions[1] == 1 ? 0 : head, bb = bias->dimensions[0] == 1 ? 0 : block->b;
    biases = (const float *)bias->data +
             ((bb * (size_t)bias->dimensions[1] + bh) * job->tokens + t) * (size_t)bias->dimensions[3];
  }
  float most = -INFINITY;
  for (size_t tile = first / KEYS * KEYS; tile <= last; tile += KEYS) {
    const size_t at = tile - part, begin = first > tile ? first - tile : 0, end = least(KEYS - 1, last - tile);
    float *scores = scratch->scores + r * PART + at, *total = scratch->totals + r * TILES + at / KEYS;
    if (biases) softmax.bias = biases + tile;
    int16_t *weights = scratch->weights + r * PART + at;
    ask_for(ahead, 4);
    const float own = attention->kind == CODES
                          ? attention->kernels->weigh_codes(&softmax, scores, begin, end, weights, total)
                          : attention->kernels->weigh_floats(&softmax, scores, begin, end, total);
    if (attention->kind == NIBBLES)
      scratch->steps[r * TILES + at / KEYS] = attention->kernels->level_weights(
          scratch->values + at * 2, scores, weights, scratch->middles + r * TILES + at / KEYS);
    most = exponents(most, own, scratch->factors + (r * TILES + at / KEYS) * 2);
  }
  return most;
}

/* e to the power of each, in whole vectors: behind them are other factors, or VECTOR_FLOATS that are none. */
static void raise_factors(const AttentionKernels *run, float *factors, size_t count) {
  run->raise(factors, ROUNDED_UP(count, VECTOR_FLOATS));
}

/* What the block finds in one part of the cache, as a state. Keys that are read after it are ahead. */
static void attend_part(const AttentionRun *job, const Block *block, size_t part, Ahead ahead, const Scratch *scratch,
                        float *state) {
  const AttentionKernels *run = job->attention->kernels;
  const size_t size = job->size, group = job->group, wide = SUM_WIDTH(size), begin = part * PART;
  const size_t rows = job->block_tokens * group, start = begin_of(block, part), end = end_of(block, part);
  const size_t from = seeing_from(block, begin) * group, to = seeing_to(block, begin, PART) * group;
  float *most = state, *totals = state + rows, *middles = state + 2 * rows, *sums = state + 3 * rows;
  float *factors = scratch->factors;
  const size_t cache = (block->b * job->kv_heads + block->g) * job->capacity;
  score_part(job, block, start, end, scratch);
  for (size_t tile = start; job->attention->kind == NIBBLES && tile < end; tile += KEYS) /* they have been asked for */
    read_levels((const uint8_t *)job->values + (cache + tile) * job->row_bytes, least(KEYS, end - tile), size,
                scratch->values + (tile - begin) * 2);
  memset(factors, 0, rows * 2 * TILES * sizeof *factors);
  for (size_t r = from; r < to; r++) {
    const size_t t = block->first + r / group, seen = first_seen(block, t);
    most[r] = weigh_row(job, block, r, seen > begin ? seen : begin, least(block->past + t, begin + PART - 1), scratch,
                        &ahead);
  }
  raise_factors(run, factors + from * 2 * TILES, (to - from) * 2 * TILES);
  memset(totals, 0, 2 * rows * sizeof *totals); /* and the middles */
  memset(sums, 0, rows * wide * sizeof *sums);
  for (size_t tile = start; tile < end; tile += KEYS) {
    const size_t low = seeing_from(block, tile) * group, high = seeing_to(block, tile, KEYS) * group;
    if (low >= high) continue;
    const char *values = (const char *)job->values + (cache + tile) * job->row_bytes;
    const size_t at = tile - begin, count = least(KEYS, end - tile);
    const float *own = factors + (low * TILES + at / KEYS) * 2;
    if (job->attention->kind == NIBBLES) {
      for (size_t r = low; r < high; r++) {
        const float *pair = factors + (r * TILES + at / KEYS) * 2;
        scratch->joining[2 * r] = pair[0];
        scratch->joining[2 * r + 1] = pair[1] * scratch->steps[r * TILES + at / KEYS];
        middles[r] = middles[r] * pair[0] + scratch->middles[r * TILES + at / KEYS] * pair[1];
      }
      run->unpack((const uint8_t *)values, count, size, scratch->codes);
      run->pair_codes(scratch->codes, count, size, scratch->paired, &ahead);
      run->sum_codes(scratch->weights + low * PART + at, PART, high - low, scratch->paired, count, size,
                     scratch->joining + 2 * low, 2, sums + low * wide, &ahead);
    } else if (job->attention->kind == CODES) {
      run->pair_codes((const int8_t *)values, count, size, scratch->paired, &ahead);
      run->sum_codes(scratch->weights + low * PART + at, PART, high - low, scratch->paired, count, size, own, 2 * TILES,
                     sums + low * wide, &ahead);
    } else
      run->sum_floats(scratch->scores + low * PART + at, PART, high - low, (const float *)values, count, size, own,
                      2 * TILES, sums + low * wide);
    for (size_t r = low; r < high; r++) {
      const float *pair = factors + (r * TILES + at / KEYS) * 2;
      totals[r] = totals[r] * pair[0] + scratch->totals[r * TILES + at / KEYS] * pair[1];
    }
  }
}

static void begin_whole(const AttentionRun *job, const Block *block, float *whole) {
  const size_t rows = job->block_tokens * job->group;
  const AttentionInput *sink = &job->in[SINK];
  for (size_t r = 0; r < rows; r++) {
    whole[r] = sink->there ? ((const float *)sink->data)[block->g * job->group + r % job->group] : -INFINITY;
    whole[rows + r] = !sink->there ? 0 : job->attention->kind == CODES ? ONE : 1;
  }
  memset(whole + 2 * rows, 0, rows * (1 + SUM_WIDTH(job->size)) * sizeof *whole);
}

static void join_part(const AttentionRun *job, const Block *block, size_t part, const float *state,
                      const Scratch *scratch) {
  const AttentionKernels *run = job->attention->kernels;
  const size_t rows = job->block_tokens * job->group, wide = SUM_WIDTH(job->size);
  const size_t from = seeing_from(block, part * PART) * job->group;
  const size_t to = seeing_to(block, part * PART, PART) * job->group;
  float *whole = scratch->whole, *factors = scratch->factors;
  for (size_t r = from; r < to; r++) whole[r] = exponents(whole[r], state[r], factors + 2 * r);
  raise_factors(run, factors + 2 * from, 2 * (to - from));
  for (size_t r = from; r < to; r++) {
    for (size_t at = rows + r; at <= 2 * rows + r; at += rows) /* the total and the middle */
      whole[at] = whole[at] * factors[2 * r] + state[at] * factors[2 * r + 1];
    run->join(factors + 2 * r, state + 3 * rows + r * wide, whole + 3 * rows + r * wide, wide);
  }
}

static void finish(const AttentionRun *job, const Block *block, const float *whole) {
  const CachedAttention *attention = job->attention;
  const size_t rows = job->block_tokens * job->group, size = job->size, group = job->group;
  for (size_t r = 0; r < (block->last - block->first) * group; r++) {
    const size_t t = block->first + r / group, head = block->g * group + r % group;
    float *y = job->y + ((block->b * job->tokens + t) * job->heads + head) * size;
    const float *scales = attention->kind == CODES ? attention->value_scales + block->g * size : NULL,
                total = whole[rows + r];
    attention->kernels->divide(whole + 3 * rows + r * SUM_WIDTH(size), total, attention->kind != FLOATS, scales, y,
                               size);
    if (attention->kind == NIBBLES) {
      const float middle = whole[2 * rows + r] / total;
      for (size_t d = 0; d < size; d++) y[d] += middle;
      attention->kernels->mix(y, size);
    }
  }
}

/* What a worker does at a time: parts `begin` to `end` - 1 of a block, which sees those from `first` to `last` - 1. */
typedef struct {
  size_t index; /* of the block; that of none after the last */
  Block block;
  size_t first, last, begin, end;
} Slice;

static size_t count_blocks(const AttentionRun *job) { return job->batch * job->kv_heads * job->blocks; }

/* The next one that nobody has taken. Those of the last tokens, which see most, come first. */
static Slice take_slice(AttentionRun *job) {
  const size_t pairs = job->batch * job->kv_heads, task = atomic_fetch_add(&job->next, 1);
  if (task >= count_blocks(job) * job->slices) return (Slice){.index = count_blocks(job)};
  const size_t number = task % job->slices, pair = task / job->slices % pairs;
  Slice slice = {.index = (pair + 1) * job->blocks - 1 - task / job->slices / pairs};
  slice.block = block_of(job, slice.index);
  slice.first = first_seen(&slice.block, slice.block.first) / PART;
  slice.last = (slice.block.past + slice.block.last + PART - 1) / PART;
  const size_t count = slice.last - slice.first;
  slice.begin = slice.first + count * number / job->slices;
  slice.end = slice.first + count * (number + 1) / job->slices;
  return slice;
}

static Ahead keys_ahead(const AttentionRun *job, const Slice *slice, size_t part) {
  if (part >= slice->end) return (Ahead){0};
  return rows_ahead(job, &slice->block, job->keys, begin_of(&slice->block, part), end_of(&slice->block, part));
}

/* Attends to a slice and takes the next one. The block's last slice to be done joins all parts. */
static Slice attend_slice(AttentionRun *job, const Slice *slice, const Scratch *scratch) {
  const Block *block = &slice->block;
  if (job->slices == 1) begin_whole(job, block, scratch->whole);
  float *states = job->slices > 1 ? job->states + slice->index * job->parts * state_size(job) : NULL;
  Slice next;
  if (slice->begin == slice->end) next = take_slice(job);
  for (size_t part = slice->begin; part < slice->end; part++) {
    Ahead ahead = keys_ahead(job, slice, part + 1);
    if (part + 1 == slice->end) { /* taken only now, so that few wait for a worker that has another to do */
      next = take_slice(job);
      ahead = keys_ahead(job, &next, next.begin);
    }
    float *state = states ? states + (part - slice->first) * state_size(job) : scratch->part;
    attend_part(job, block, part, ahead, scratch, state);
    if (!states) join_part(job, block, part, state, scratch);
  }
  if (states) {
    if (atomic_fetch_add(&job->done[slice->index], 1) + 1 < job->slices) return next;
    begin_whole(job, block, scratch->whole);
    for (size_t part = slice->first; part < slice->last; part++)
      join_part(job, block, part, states + (part - slice->first) * state_size(job), scratch);
  }
  finish(job, block, scratch->whole);
  return next;
}

void edgegen_attend(AttentionRun *job) {
  Slice slice = take_slice(job);
  if (slice.index == count_blocks(job)) return;
  Ahead ahead = keys_ahead(job, &slice, slice.begin);
  ask_for(&ahead, ahead.lines);
  Scratch scratch;
  if (!make_scratch(job, &scratch)) {
    job->failed = 1;
    return;
  }
  while (slice.index < count_blocks(job) && !edgegen_interrupted(job)) slice = attend_slice(job, &slice, &scratch);
  free(scratch.memory);
}

static OrtStatus *read_inputs(const CachedAttention *attention, const OrtKernelContext *context, size_t begin,
                              size_t first, AttentionInput *in) {
  const OrtApi *api = attention->api;
  size_t count = 0;
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT_COUNT, OrtKernelContextGetInputCount)(context, &count);
  for (size_t i = begin; !status && i < KEY_SCALES; i++) { /* what follows has been read as initializers */
    const OrtValue *value = NULL;
    in[i].there = 0;
    if (first + i - begin >= count) continue;
    status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT, OrtKernelContextGetInput)(context, first + i - begin, &value);
    if (status || !value) continue;
    status = edgegen_shape(api, value, &in[i].type, in[i].dimensions, &in[i].rank);
    if (status) continue;
    void *data;
    status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)((OrtValue *)value, &data);
    in[i].data = data, in[i].there = 1;
  }
  return status;
}

static const int CACHE_TYPES[] = {[FLOATS] = ORT_FLOAT, [CODES] = ORT_INT8, [NIBBLES] = ORT_UINT8};

/* Whether every shape is what the attributes and the other shapes say; what is given may be a lie. */
static OrtStatus *check(const CachedAttention *attention, AttentionRun *job) {
  const AttentionInput *in = job->in;
  const int64_t *q = in[QUERY].dimensions, *k = in[PAST_KEY].dimensions, *v = in[PAST_VALUE].dimensions;
  const int cache = CACHE_TYPES[attention->kind], packed = !in[KEY].there;
  const int64_t most = (int64_t)1 << 40;
  if (!in[QUERY].there || !in[PAST_KEY].there || !in[PAST_VALUE].there || !in[LENGTHS].there)
    return wrong(attention, "CachedAttention: query, past keys, past values and lengths are needed");
  if (in[QUERY].rank != 3 || in[PAST_KEY].rank != 4 || in[PAST_VALUE].rank != 4 || in[QUERY].type != ORT_FLOAT ||
      in[PAST_KEY].type != cache || in[PAST_VALUE].type != cache || memcmp(k, v, 4 * sizeof *k))
    return wrong(attention, "CachedAttention: the query has 3 dimensions, past keys and values the same 4");
  const int64_t batch = q[0], tokens = q[1], capacity = k[2];
  const int64_t vectors = attention->heads + (packed ? 2 * attention->kv_heads : 0);
  const int64_t size = attention->kind == NIBBLES ? q[2] / vectors : k[3];
  if (batch < 0 || tokens < 0 || size < 1 || size > 1 << 16 || capacity < 0 || k[0] != batch ||
      k[1] != attention->kv_heads || (attention->kind == NIBBLES && k[3] != NIBBLE_ROW(size)))
    return wrong(attention, attention->kind == NIBBLES
                                ? "CachedAttention: past keys and values are [batch, kv_num_heads, capacity, row]"
                                : "CachedAttention: past keys and values are [batch, kv_num_heads, capacity, size]");
  if (batch > most || tokens > most || capacity > most || (tokens && batch * attention->heads > most / tokens / size))
    return wrong(attention, "CachedAttention: too many numbers");
  if (packed != !in[VALUE].there || q[2] != vectors * size)
    return wrong(attention, "CachedAttention: the query's last dimension is not what the heads say");
  for (size_t i = KEY; i <= VALUE; i++)
    if (in[i].there && (in[i].type != ORT_FLOAT || in[i].rank != 3 || in[i].dimensions[0] != batch ||
                        in[i].dimensions[1] != tokens || in[i].dimensions[2] != attention->kv_heads * size))
      return wrong(attention, "CachedAttention: keys and values are [batch, tokens, kv_num_heads * size]");
  if (attention->kind == CODES && attention->scales != attention->kv_heads * size)
    return wrong(attention, "CachedAttention: an int8 KV cache has kv_num_heads * size scales");
  if (attention->key_means && (attention->scales != attention->kv_heads * size || in[SINK].there))
    return wrong(attention, "CachedAttention: there are kv_num_heads * size means of keys, and no sinks beside them");
  if (attention->query_norm.weight && attention->query_norm.width != (size_t)size)
    return wrong(attention, "CachedAttention: norms have a weight for each number of a head");
  const int64_t *l = in[LENGTHS].dimensions;
  const size_t lengths_rank = in[LENGTHS].rank;
  const bool of_rows = (lengths_rank == 1 && l[0] == batch) ||
                       (lengths_rank == 2 && ((l[0] == batch && l[1] == 1) || (l[0] == 1 && l[1] == batch))) ||
                       (lengths_rank == 0 && batch == 1);
  if (in[LENGTHS].type != ORT_INT32 || !of_rows)
    return wrong(attention, "CachedAttention: there is one length for each row");
  for (int64_t b = 0; b < batch; b++) {
    const int64_t length = (int64_t)((const int32_t *)in[LENGTHS].data)[b] + 1;
    if (length < tokens || length > capacity)
      return wrong(attention, "CachedAttention: a length is not between the tokens and the capacity");
  }
  if (attention->rotary) {
    const int64_t *c = in[COSINES].dimensions;
    if (!in[COSINES].there || !in[SINES].there || in[COSINES].rank != 2 || in[SINES].rank != 2 ||
        in[COSINES].type != ORT_FLOAT || in[SINES].type != ORT_FLOAT ||
        memcmp(c, in[SINES].dimensions, 2 * sizeof *c) || c[1] < 0 || 2 * c[1] > size)
      return wrong(attention, "CachedAttention: cosines and sines are [positions, pairs] with at most size / 2 pairs");
    if (in[POSITIONS].there) {
      if (in[POSITIONS].type != ORT_INT64 || in[POSITIONS].rank != 2 || in[POSITIONS].dimensions[0] != batch ||
          in[POSITIONS].dimensions[1] != tokens)
        return wrong(attention, "CachedAttention: positions are [batch, tokens]");
      for (int64_t i = 0; i < batch * tokens; i++) {
        const int64_t position = ((const int64_t *)in[POSITIONS].data)[i];
        if (position < 0 || position >= c[0]) return wrong(attention, "CachedAttention: a position has no cosines");
      }
    } else if (capacity > c[0]) return wrong(attention, "CachedAttention: there are fewer cosines than positions");
  }
  if (in[ATTENTION_BIAS].there) {
    const int64_t *d = in[ATTENTION_BIAS].dimensions;
    if (in[ATTENTION_BIAS].type != ORT_FLOAT || in[ATTENTION_BIAS].rank != 4 || (d[0] != 1 && d[0] != batch) ||
        (d[1] != 1 && d[1] != attention->heads) || d[2] != tokens)
      return wrong(attention, "CachedAttention: the bias is [1 or batch, 1 or heads, tokens, keys]");
    for (int64_t b = 0; b < batch; b++)
      if ((int64_t)((const int32_t *)in[LENGTHS].data)[b] >= d[3])
        return wrong(attention, "CachedAttention: the bias has too few keys");
  }
  if (in[SINK].there &&
      (in[SINK].type != ORT_FLOAT || in[SINK].rank != 1 || in[SINK].dimensions[0] != attention->heads))
    return wrong(attention, "CachedAttention: there is one sink for each head");
  job->batch = (size_t)batch, job->tokens = (size_t)tokens, job->size = (size_t)size, job->capacity = (size_t)capacity;
  job->heads = (size_t)attention->heads, job->kv_heads = (size_t)attention->kv_heads,
  job->group = job->heads / job->kv_heads;
  job->row = (size_t)q[2], job->row_bytes = bytes_of_row(attention->kind, job->size);
  return NULL;
}

/* Output `index`, with what it is to have kept of the past: nothing is copied where it is the past's memory. */
static OrtStatus *present(AttentionRun *job, OrtKernelContext *context, size_t index, const AttentionInput *past,
                          void **out) {
  const OrtApi *api = job->attention->api;
  OrtValue *value;
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT,
                               OrtKernelContextGetOutput)(context, index, past->dimensions, 4, &value);
  if (!status) status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)(value, out);
  if (!status && *out != past->data && past->data)
    memcpy(*out, past->data, job->batch * job->kv_heads * job->capacity * job->row_bytes);
  return status;
}

bool edgegen_interrupted(const AttentionRun *job) {
  return job->total && __atomic_load_n(job->total, __ATOMIC_RELAXED) < 0;
}

OrtStatus *edgegen_interruption(const OrtApi *api) {
  return edgegen_failure(api, ORT_FAIL, "the run was interrupted");
}

OrtStatus *edgegen_begin_attention(const CachedAttention *attention, OrtKernelContext *context, size_t begin,
                                   size_t first, size_t out, const AttentionRun *before, AttentionRun *job) {
  job->attention = attention;
  OrtStatus *status = read_inputs(attention, context, begin, first, job->in);
  if (status) return status;
  if (before && !job->in[LENGTHS].there)
    for (size_t i = LENGTHS; i <= POSITIONS; i++) job->in[i] = before->in[i];
  if ((status = check(attention, job)) || (status = present(job, context, out, &job->in[PAST_KEY], &job->keys)) ||
      (status = present(job, context, out + 1, &job->in[PAST_VALUE], &job->values)))
    return status;
  const AttentionInput *total = &job->in[TOTAL];
  const bool has_one = total->there && total->type == ORT_INT32 && (!total->rank || total->dimensions[0] == 1);
  job->total = has_one && total->rank < 2 ? total->data : NULL;
  size_t longest = 0;
  for (size_t b = 0; b < job->batch; b++) {
    const size_t length = past_of(job, b) + job->tokens;
    longest = length > longest ? length : longest;
  }
  job->parts = (longest + PART - 1) / PART;
  job->block_tokens = job->group > ROWS_OF_A_TASK ? 1 : least(job->tokens, ROWS_OF_A_TASK / job->group);
  job->blocks = job->tokens ? (job->tokens + job->block_tokens - 1) / job->block_tokens : 0;
  const size_t blocks = count_blocks(job);
  job->slices = blocks >= ENOUGH_TASKS || !blocks ? 1 : least(job->parts, (ENOUGH_TASKS + blocks - 1) / blocks);
  job->query_bytes = attention->kind != FLOATS ? QUERY_WIDTH(job->size) * sizeof(int16_t) : job->size * sizeof(float);
  const int64_t bound = INT32_MAX / (128 * (int64_t)job->size);
  job->most = bound < INT16_MAX ? (int)bound : INT16_MAX;
  atomic_init(&job->next, 0), atomic_init(&job->failed, 0);
  return NULL;
}

typedef struct {
  size_t queries, steps, states; /* bytes, of whole 64 */
} Passing;

static Passing passing_of(const AttentionRun *job) {
  const size_t queries = job->batch * job->tokens * job->heads;
  const size_t states = job->slices > 1 ? count_blocks(job) * job->parts * state_size(job) : 0;
  return (Passing){ROUNDED_UP(queries * job->query_bytes, 64), ROUNDED_UP(queries * sizeof(float), 64),
                   ROUNDED_UP(states * sizeof(float), 64)};
}

AttentionMemory edgegen_attention_memory(const AttentionRun *job) {
  const Passing bytes = passing_of(job);
  return (AttentionMemory){ROUNDED_UP(count_blocks(job) * sizeof *job->done, 64),
                           bytes.queries + 2 * bytes.steps + bytes.states};
}

void edgegen_lay_out_attention(AttentionRun *job, uint8_t *kept, uint8_t *passing) {
  const Passing bytes = passing_of(job);
  job->done = (atomic_size_t *)kept;
  for (size_t i = 0; i < count_blocks(job); i++) atomic_init(&job->done[i], 0);
  job->queries = passing, job->steps = (float *)(passing + bytes.queries);
  job->sums = job->steps + bytes.steps / sizeof(float), job->states = job->sums + bytes.steps / sizeof(float);
}

size_t edgegen_attention_tasks(const AttentionRun *job) { return edgegen_workers(count_blocks(job) * job->slices); }

static void append(void *data, size_t task) {
  AttentionRun *job = data;
  const size_t heads = TOKENS_OF_A_TASK * job->kv_heads, first = task * heads;
  edgegen_append_heads(job, first, least(first + heads, edgegen_heads_to_append(job)));
}

static void attend(void *data, size_t worker) {
  (void)worker;
  edgegen_attend(data);
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const CachedAttention *attention = state;
  const OrtApi *api = attention->api;
  AttentionRun job = {0};
  OrtStatus *status = edgegen_begin_attention(attention, context, QUERY, 0, 1, NULL, &job);
  if (status) return status;
  const int64_t dimensions[3] = {job.in[QUERY].dimensions[0], job.in[QUERY].dimensions[1],
                                 attention->heads * (int64_t)job.size};
  OrtValue *value;
  void *y;
  if ((status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT, OrtKernelContextGetOutput)(context, 0, dimensions, 3,
                                                                                        &value)) ||
      (status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)(value, &y)))
    return status;
  if (!job.batch || !job.tokens) return NULL;
  job.y = y;
  const AttentionMemory bytes = edgegen_attention_memory(&job);
  uint8_t *memory = malloc(bytes.kept + bytes.passing);
  if (!memory) return edgegen_failure(api, ORT_FAIL, "CachedAttention: no memory");
  edgegen_lay_out_attention(&job, memory, memory + bytes.kept);
  status =
      edgegen_run(api, context, 2, append, (job.batch * job.tokens + TOKENS_OF_A_TASK - 1) / TOKENS_OF_A_TASK, &job);
  if (!status && !job.failed) status = edgegen_run(api, context, 2, attend, edgegen_attention_tasks(&job), &job);
  free(memory);
  if (!status && job.failed) status = edgegen_failure(api, ORT_FAIL, "CachedAttention: no memory");
  if (!status && edgegen_interrupted(&job)) status = edgegen_interruption(api);
  return status;
}

static OrtStatus *create(const OrtApi *api, const OrtKernelInfo *info, CacheKind kind, void **out) {
  CachedAttention *attention = malloc(sizeof *attention);
  if (!attention) return edgegen_failure(api, ORT_FAIL, "CachedAttention: no memory");
  OrtStatus *status = edgegen_read_attention(api, info, kind, QUERY, 0, "", attention);
  if (status) free(attention);
  else *out = attention;
  return status;
}

static OrtStatus *create_floats(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  return (void)op, create(api, info, FLOATS, out);
}
static OrtStatus *create_codes(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  return (void)op, create(api, info, CODES, out);
}
static OrtStatus *create_nibbles(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  return (void)op, create(api, info, NIBBLES, out);
}
static const char *name_floats(const OrtCustomOp *op) { return (void)op, "CachedAttention"; }
static const char *name_codes(const OrtCustomOp *op) { return (void)op, "CachedAttentionInt8"; }
static const char *name_nibbles(const OrtCustomOp *op) { return (void)op, "CachedAttentionInt4"; }
static const int TYPES[ATTENTION_INPUTS] = {ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_INT32,
                                            ORT_INT32, ORT_FLOAT, ORT_FLOAT, ORT_INT64, ORT_FLOAT, ORT_FLOAT,
                                            ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_FLOAT};
static int type_floats(const OrtCustomOp *op, size_t index) { return (void)op, TYPES[index]; }
static int type_codes(const OrtCustomOp *op, size_t index) {
  return (void)op, index == PAST_KEY || index == PAST_VALUE ? ORT_INT8 : TYPES[index];
}
static int type_nibbles(const OrtCustomOp *op, size_t index) {
  return (void)op, index == PAST_KEY || index == PAST_VALUE ? ORT_UINT8 : TYPES[index];
}
static size_t input_count(const OrtCustomOp *op) { return (void)op, ATTENTION_INPUTS; }
#define output_floats edgegen_float_type
static int output_codes(const OrtCustomOp *op, size_t index) { return (void)op, index ? ORT_INT8 : ORT_FLOAT; }
static int output_nibbles(const OrtCustomOp *op, size_t index) { return (void)op, index ? ORT_UINT8 : ORT_FLOAT; }
static size_t output_count(const OrtCustomOp *op) { return (void)op, 3; }
static int input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index == QUERY || (index >= PAST_KEY && index <= TOTAL) ? ORT_REQUIRED : ORT_OPTIONAL;
}

#define OPERATOR(KIND)                                                                                                 \
  {                                                                                                                    \
      EDGEGEN_OPERATOR,                                                                                                \
      .GetName = name_##KIND,                                                                                          \
      .GetInputType = type_##KIND,                                                                                     \
      .GetInputTypeCount = input_count,                                                                                \
      .GetOutputType = output_##KIND,                                                                                  \
      .GetOutputTypeCount = output_count,                                                                              \
      .GetInputCharacteristic = input_characteristic,                                                                  \
      .GetOutputCharacteristic = edgegen_required,                                                                     \
      .CreateKernelV2 = create_##KIND,                                                                                 \
      .KernelComputeV2 = compute,                                                                                      \
  }
const OrtCustomOp edgegen_cached_attention = OPERATOR(floats);
const OrtCustomOp edgegen_cached_attention_int8 = OPERATOR(codes);
const OrtCustomOp edgegen_cached_attention_int4 = OPERATOR(nibbles);
