/* The operators "CachedAttention" and "CachedAttentionInt8" of the domain "edgegen", for ONNX Runtime: causal attention
 * that appends to a KV cache, whose numbers are floats, or codes of 8 bits with a scale for each channel.
 *
 * Inputs, as GroupQueryAttention has them: query float [b, t, heads * size], or with keys and values behind it;
 * key and value float [b, t, kv_heads * size] (optional); past key and past value [b, kv_heads, capacity, size];
 * seqlens_k int32 [b], positions in the cache after this run, less 1; total_sequence_length int32 (not used);
 * cosines and sines float [positions, pairs], position_ids int64 [b, t], bias float [1 or b, 1 or heads, t, keys],
 * head_sink float [heads] (all optional); with codes, scales of keys and values: initializers float of kv_heads * size.
 * Outputs: y float [b, t, heads * size], present key and present value; in place where they are the past's memory.
 * Attributes: num_heads, kv_num_heads, scale, local_window_size (-1 or 0: all), softcap (0: none), do_rotary,
 * rotary_interleaved.
 */
#include "attention.h"
#include "matrix.h"
#include "operators.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
  QUERY,
  KEY,
  VALUE,
  PAST_KEY,
  PAST_VALUE,
  LENGTHS,
  TOTAL,
  COSINES,
  SINES,
  POSITIONS,
  BIAS,
  SINK,
  KEY_SCALES,
  VALUE_SCALES,
  INPUTS
};
enum { TOKENS_OF_A_TASK = 8, SCORES_OF_A_TASK = 1 << 17 };

typedef struct {
  const OrtApi *api;
  const AttentionKernels *kernels;
  int64_t heads, kv_heads, window, rotary, interleaved;
  float scale, cap;
  const float *key_scales, *value_scales; /* [kv_heads][size], or NULL for a cache of floats */
  int64_t scales;                         /* how many */
  int codes;
} Kernel;

typedef struct {
  int there, type;
  size_t rank;
  int64_t dimensions[MOST_DIMENSIONS];
  const void *data;
} Given;

static OrtStatus *create(const OrtApi *api, const OrtKernelInfo *info, int codes, void **out) {
  Kernel *kernel = calloc(1, sizeof *kernel);
  if (!kernel) return edgegen_failure(api, ORT_FAIL, "CachedAttention: no memory");
  kernel->api = api, kernel->codes = codes;
  kernel->kernels = edgegen_attention_kernels(edgegen_kernels(NULL)->name);
  OrtStatus *status;
  if ((status = edgegen_attribute(api, info, "num_heads", "", &kernel->heads)) ||
      (status = edgegen_attribute(api, info, "kv_num_heads", "", &kernel->kv_heads)) ||
      (status = edgegen_attribute(api, info, "local_window_size", "", &kernel->window)) ||
      (status = edgegen_attribute(api, info, "do_rotary", "", &kernel->rotary)) ||
      (status = edgegen_attribute(api, info, "rotary_interleaved", "", &kernel->interleaved)) ||
      (status = edgegen_real_attribute(api, info, "scale", "", &kernel->scale)) ||
      (status = edgegen_real_attribute(api, info, "softcap", "", &kernel->cap))) {
    free(kernel);
    return status;
  }
  const int64_t most = 1 << 16;
  if (kernel->heads < 1 || kernel->heads > most || kernel->kv_heads < 1 || kernel->kv_heads > most ||
      kernel->heads % kernel->kv_heads || kernel->window < -1) {
    free(kernel);
    return edgegen_failure(
        api, ORT_INVALID_ARGUMENT,
        "CachedAttention: num_heads must be a multiple of kv_num_heads, local_window_size not below -1");
  }
  if (codes) {
    const void *scales[2] = {NULL, NULL};
    int64_t counts[2];
    for (size_t i = 0; i < 2; i++) {
      int type;
      status = edgegen_any_initializer(api, info, KEY_SCALES + i, "scales", &type, &counts[i], &scales[i]);
      if (!status && (!scales[i] || type != ORT_FLOAT))
        status = edgegen_failure(api, ORT_INVALID_ARGUMENT,
                                 "CachedAttention: the scales of an int8 KV cache must be initializers of floats");
      if (status) {
        free(kernel);
        return status;
      }
    }
    kernel->key_scales = scales[0], kernel->value_scales = scales[1], kernel->scales = counts[0];
    if (counts[0] != counts[1]) {
      free(kernel);
      return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                             "CachedAttention: keys and values have different counts of scales");
    }
  }
  *out = kernel;
  return NULL;
}

typedef struct {
  const Kernel *kernel;
  Given in[INPUTS];
  size_t batch, tokens, heads, kv_heads, group, size, capacity, row; /* row: floats of a token of the query input */
  float *y, *queries;                                                /* queries [b][kv_heads][t][group][size] */
  void *keys, *values;
  size_t blocks, block_tokens;
  atomic_int failed;
} Job;

static size_t item(const Job *job) { return job->kernel->codes ? 1 : sizeof(float); }

/* Positions in the cache before this run. */
static size_t past_of(const Job *job, size_t b) {
  return (size_t)((const int32_t *)job->in[LENGTHS].data)[b] + 1 - job->tokens;
}

static void rotated(const Job *job, float *x, size_t b, size_t t) {
  if (!job->kernel->rotary) return;
  const Given *positions = &job->in[POSITIONS];
  const size_t pairs = (size_t)job->in[COSINES].dimensions[1];
  const size_t at =
      positions->there ? (size_t)((const int64_t *)positions->data)[b * job->tokens + t] : past_of(job, b) + t;
  job->kernel->kernels->rotate(x, (const float *)job->in[COSINES].data + at * pairs,
                               (const float *)job->in[SINES].data + at * pairs, pairs, job->kernel->interleaved != 0);
}

/* Appends a token's keys and values of one kv head to the cache, and makes its queries ready. `own` has room for a
 * head. */
static void prepare_head(const Job *job, size_t b, size_t t, size_t g, float *own) {
  const Kernel *kernel = job->kernel;
  const AttentionKernels *run = kernel->kernels;
  const size_t size = job->size, bytes = size * sizeof(float);
  const float *query = (const float *)job->in[QUERY].data + (b * job->tokens + t) * job->row;
  const int packed = !job->in[KEY].there;
  const size_t other = (b * job->tokens + t) * job->kv_heads * size;
  const float *key = packed ? query + job->heads * size : (const float *)job->in[KEY].data + other;
  const float *value = packed ? key + job->kv_heads * size : (const float *)job->in[VALUE].data + other;
  const float *key_scales = kernel->codes ? kernel->key_scales + g * size : NULL;
  for (size_t h = 0; h < job->group; h++) {
    memcpy(own, query + (g * job->group + h) * size, bytes);
    rotated(job, own, b, t);
    float *to = job->queries + (((b * job->kv_heads + g) * job->tokens + t) * job->group + h) * size;
    run->scale(own, key_scales, kernel->scale, to, size);
  }
  const size_t at = ((b * job->kv_heads + g) * job->capacity + past_of(job, b) + t) * size;
  memcpy(own, key + g * size, bytes);
  rotated(job, own, b, t);
  if (kernel->codes) {
    run->round(own, key_scales, (int8_t *)job->keys + at, size);
    run->round(value + g * size, kernel->value_scales + g * size, (int8_t *)job->values + at, size);
  } else {
    memcpy((float *)job->keys + at, own, bytes);
    memcpy((float *)job->values + at, value + g * size, bytes);
  }
}

/* Tokens and kv heads first to last - 1 of all rows, a kv head at a time. */
static void prepare_heads(Job *job, size_t first, size_t last) {
  float few[512], *own = few;
  if (job->size > 512 && !(own = malloc(job->size * sizeof(float)))) {
    job->failed = 1;
    return;
  }
  for (size_t i = first; i < last; i++)
    prepare_head(job, i / job->kv_heads / job->tokens, i / job->kv_heads % job->tokens, i % job->kv_heads, own);
  if (own != few) free(own);
}

static void prepare(void *data, size_t task) {
  Job *job = data;
  const size_t all = job->batch * job->tokens, first = task * TOKENS_OF_A_TASK;
  const size_t last = first + TOKENS_OF_A_TASK < all ? first + TOKENS_OF_A_TASK : all;
  prepare_heads(job, first * job->kv_heads, last * job->kv_heads);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Tokens first to last - 1 of a row by the keys of one kv head. */
static void attend_block(Job *job, size_t b, size_t g, size_t first, size_t last) {
  const Kernel *kernel = job->kernel;
  const AttentionKernels *run = kernel->kernels;
  const size_t size = job->size, group = job->group, past = past_of(job, b), end = past + last;
  const size_t window = kernel->window < 1 ? SIZE_MAX : (size_t)kernel->window;
#define FIRST_SEEN(t) (past + (t) + 1 > window ? past + (t) + 1 - window : 0)
  const size_t base = FIRST_SEEN(first) / KEYS * KEYS, stride = (end - base + KEYS - 1) / KEYS * KEYS;
  const size_t rows = (last - first) * group;
  float *memory = malloc((rows * (stride + size + 1) + 2 * KEYS * size) * sizeof(float) + 64);
  if (!memory) {
    job->failed = 1;
    return;
  }
  float *turned = (float *)(((uintptr_t)memory + 63) & ~(uintptr_t)63), *wide = turned + KEYS * size;
  float *scores = wide + KEYS * size, *sums = scores + rows * stride, *totals = sums + rows * size;
  memset(sums, 0, rows * size * sizeof(float));
  const float *queries = job->queries + ((b * job->kv_heads + g) * job->tokens + first) * group * size;
  const size_t cache = (b * job->kv_heads + g) * job->capacity * size;
  const char *keys = (const char *)job->keys + cache * item(job),
             *values = (const char *)job->values + cache * item(job);

  /* Of the block's tokens, those that see some of a tile: from the first that comes after its first key, */
#define SEEING_FROM(tile) ((tile) > past + first ? (tile) - past - first : 0)
  /* and up to the first whose window begins behind its last key. */
#define SEEING_TO(tile)                                                                                                \
  (window == SIZE_MAX                                                                                                  \
       ? last - first                                                                                                  \
       : least(last - first,                                                                                           \
               (tile) + KEYS + window > past + first + 1 ? (tile) + KEYS + window - past - first - 1 : 0))
  for (size_t tile = base; tile < end; tile += KEYS) {
    const size_t from = SEEING_FROM(tile) * group, to = SEEING_TO(tile) * group, count = least(KEYS, end - tile);
    if (from >= to) continue;
    const char *at = keys + tile * size * item(job);
    if (kernel->codes) run->turn_codes((const int8_t *)at, count, size, turned);
    else run->turn_floats((const float *)at, count, size, turned);
    run->score(queries + from * size, to - from, size, turned, scores + from * stride + (tile - base), stride);
  }
  for (size_t r = 0; r < rows; r++) {
    const size_t t = first + r / group, head = g * group + r % group, seen = FIRST_SEEN(t), own = past + t;
    Softmax softmax = {.cap = kernel->cap};
    const Given *bias = &job->in[BIAS], *sink = &job->in[SINK];
    if (bias->there) {
      const size_t bh = bias->dimensions[1] == 1 ? 0 : head, bb = bias->dimensions[0] == 1 ? 0 : b;
      softmax.bias = (const float *)bias->data +
                     ((bb * (size_t)bias->dimensions[1] + bh) * job->tokens + t) * (size_t)bias->dimensions[3] + base;
    }
    if (sink->there) softmax.sink = (const float *)sink->data + head;
    const size_t begin = seen / KEYS * KEYS - base, finish = (own + KEYS) / KEYS * KEYS - base;
    totals[r] = run->weigh(&softmax, scores + r * stride, begin, seen - base, own - base, finish);
  }
  for (size_t tile = base; tile < end; tile += KEYS) {
    const size_t from = SEEING_FROM(tile) * group, to = SEEING_TO(tile) * group, count = least(KEYS, end - tile);
    if (from >= to) continue;
    const char *at = values + tile * size * item(job);
    const float *numbers = kernel->codes ? wide : (const float *)at;
    if (kernel->codes) run->widen((const int8_t *)at, count, size, wide);
    run->sum(scores + from * stride + (tile - base), stride, to - from, numbers, count, size, sums + from * size);
  }
  for (size_t r = 0; r < rows; r++) {
    const size_t t = first + r / group, head = g * group + r % group;
    run->divide(sums + r * size, totals[r], kernel->codes ? kernel->value_scales + g * size : NULL,
                job->y + ((b * job->tokens + t) * job->heads + head) * size, size);
  }
  free(memory);
}

static void attend(void *data, size_t task) {
  Job *job = data;
  const size_t block = task % job->blocks, g = task / job->blocks % job->kv_heads,
               b = task / job->blocks / job->kv_heads;
  const size_t first = block * job->block_tokens, last = least(job->tokens, first + job->block_tokens);
  if (job->tokens == 1) prepare_heads(job, b * job->kv_heads + g, b * job->kv_heads + g + 1);
  if (!job->failed && first < last) attend_block(job, b, g, first, last);
}

static OrtStatus *wrong(const Kernel *kernel, const char *message) {
  return edgegen_failure(kernel->api, ORT_INVALID_ARGUMENT, message);
}

static OrtStatus *read_inputs(const Kernel *kernel, const OrtKernelContext *context, Given *in) {
  const OrtApi *api = kernel->api;
  size_t count = 0;
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT_COUNT, OrtKernelContextGetInputCount)(context, &count);
  for (size_t i = 0; !status && i < INPUTS; i++) {
    const OrtValue *value = NULL;
    in[i].there = 0;
    if (i >= count) continue;
    status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT, OrtKernelContextGetInput)(context, i, &value);
    if (status || !value) continue;
    status = edgegen_shape(api, value, &in[i].type, in[i].dimensions, &in[i].rank);
    if (status) continue;
    void *data;
    status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)((OrtValue *)value, &data);
    in[i].data = data, in[i].there = 1;
  }
  return status;
}

/* Whether every shape is what the attributes and the other shapes say; what is given may be a lie. */
static OrtStatus *check(const Kernel *kernel, Job *job) {
  const Given *in = job->in;
  const int64_t *q = in[QUERY].dimensions, *k = in[PAST_KEY].dimensions, *v = in[PAST_VALUE].dimensions;
  const int cache = kernel->codes ? ORT_INT8 : ORT_FLOAT;
  const int64_t most = (int64_t)1 << 40;
  if (!in[QUERY].there || !in[PAST_KEY].there || !in[PAST_VALUE].there || !in[LENGTHS].there)
    return wrong(kernel, "CachedAttention: query, past keys, past values and lengths are needed");
  if (in[QUERY].rank != 3 || in[PAST_KEY].rank != 4 || in[PAST_VALUE].rank != 4 || in[QUERY].type != ORT_FLOAT ||
      in[PAST_KEY].type != cache || in[PAST_VALUE].type != cache || memcmp(k, v, 4 * sizeof *k))
    return wrong(kernel, "CachedAttention: the query has 3 dimensions, past keys and values the same 4");
  const int64_t batch = q[0], tokens = q[1], size = k[3], capacity = k[2];
  if (batch < 0 || tokens < 0 || size < 1 || size > 1 << 16 || capacity < 0 || k[0] != batch ||
      k[1] != kernel->kv_heads)
    return wrong(kernel, "CachedAttention: past keys and values are [batch, kv_num_heads, capacity, size]");
  if (batch > most || tokens > most || capacity > most || (tokens && batch * kernel->heads > most / tokens / size))
    return wrong(kernel, "CachedAttention: too many numbers");
  const int packed = !in[KEY].there;
  if (packed != !in[VALUE].there || q[2] != (kernel->heads + (packed ? 2 * kernel->kv_heads : 0)) * size)
    return wrong(kernel, "CachedAttention: the query's last dimension is not what the heads say");
  for (size_t i = KEY; i <= VALUE; i++)
    if (in[i].there && (in[i].type != ORT_FLOAT || in[i].rank != 3 || in[i].dimensions[0] != batch ||
                        in[i].dimensions[1] != tokens || in[i].dimensions[2] != kernel->kv_heads * size))
      return wrong(kernel, "CachedAttention: keys and values are [batch, tokens, kv_num_heads * size]");
  if (kernel->codes && kernel->scales != kernel->kv_heads * size)
    return wrong(kernel, "CachedAttention: an int8 KV cache has kv_num_heads * size scales");
  int64_t count = 1;
  for (size_t i = 0; i < in[LENGTHS].rank; i++)
    count *= in[LENGTHS].dimensions[i] == batch ? batch : in[LENGTHS].dimensions[i] == 1 ? 1 : -1;
  if (in[LENGTHS].type != ORT_INT32 || count != batch || in[LENGTHS].rank > 2)
    return wrong(kernel, "CachedAttention: there is one length for each row");
  for (int64_t b = 0; b < batch; b++) {
    const int64_t length = (int64_t)((const int32_t *)in[LENGTHS].data)[b] + 1;
    if (length < tokens || length > capacity)
      return wrong(kernel, "CachedAttention: a length is not between the tokens and the capacity");
  }
  if (kernel->rotary) {
    const int64_t *c = in[COSINES].dimensions;
    if (!in[COSINES].there || !in[SINES].there || in[COSINES].rank != 2 || in[SINES].rank != 2 ||
        in[COSINES].type != ORT_FLOAT || in[SINES].type != ORT_FLOAT ||
        memcmp(c, in[SINES].dimensions, 2 * sizeof *c) || c[1] < 0 || 2 * c[1] > size)
      return wrong(kernel, "CachedAttention: cosines and sines are [positions, pairs] with at most size / 2 pairs");
    if (in[POSITIONS].there) {
      if (in[POSITIONS].type != ORT_INT64 || in[POSITIONS].rank != 2 || in[POSITIONS].dimensions[0] != batch ||
          in[POSITIONS].dimensions[1] != tokens)
        return wrong(kernel, "CachedAttention: positions are [batch, tokens]");
      for (int64_t i = 0; i < batch * tokens; i++) {
        const int64_t position = ((const int64_t *)in[POSITIONS].data)[i];
        if (position < 0 || position >= c[0]) return wrong(kernel, "CachedAttention: a position has no cosines");
      }
    } else if (capacity > c[0]) return wrong(kernel, "CachedAttention: there are fewer cosines than positions");
  }
  if (in[BIAS].there) {
    const int64_t *d = in[BIAS].dimensions;
    if (in[BIAS].type != ORT_FLOAT || in[BIAS].rank != 4 || (d[0] != 1 && d[0] != batch) ||
        (d[1] != 1 && d[1] != kernel->heads) || d[2] != tokens)
      return wrong(kernel, "CachedAttention: the bias is [1 or batch, 1 or heads, tokens, keys]");
    for (int64_t b = 0; b < batch; b++)
      if ((int64_t)((const int32_t *)in[LENGTHS].data)[b] >= d[3])
        return wrong(kernel, "CachedAttention: the bias has too few keys");
  }
  if (in[SINK].there && (in[SINK].type != ORT_FLOAT || in[SINK].rank != 1 || in[SINK].dimensions[0] != kernel->heads))
    return wrong(kernel, "CachedAttention: there is one sink for each head");
  job->batch = (size_t)batch, job->tokens = (size_t)tokens, job->size = (size_t)size, job->capacity = (size_t)capacity;
  job->heads = (size_t)kernel->heads, job->kv_heads = (size_t)kernel->kv_heads, job->group = job->heads / job->kv_heads;
  job->row = (size_t)q[2];
  return NULL;
}

/* Output `index`, with what it is to have kept of the past: nothing is copied where it is the past's memory. */
static OrtStatus *present(Job *job, OrtKernelContext *context, size_t index, const Given *past, void **out) {
  const OrtApi *api = job->kernel->api;
  OrtValue *value;
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT,
                               OrtKernelContextGetOutput)(context, index, past->dimensions, 4, &value);
  if (!status) status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)(value, out);
  if (!status && *out != past->data && past->data)
    memcpy(*out, past->data, job->batch * job->kv_heads * job->capacity * job->size * item(job));
  return status;
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Kernel *kernel = state;
  const OrtApi *api = kernel->api;
  Job job = {.kernel = kernel};
  OrtStatus *status;
  if ((status = read_inputs(kernel, context, job.in)) || (status = check(kernel, &job)) ||
      (status = present(&job, context, 1, &job.in[PAST_KEY], &job.keys)) ||
      (status = present(&job, context, 2, &job.in[PAST_VALUE], &job.values)))
    return status;
  const int64_t dimensions[3] = {job.in[QUERY].dimensions[0], job.in[QUERY].dimensions[1],
                                 kernel->heads * (int64_t)job.size};
  OrtValue *value;
  void *y;
  if ((status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT, OrtKernelContextGetOutput)(context, 0, dimensions, 3,
                                                                                        &value)) ||
      (status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)(value, &y)))
    return status;
  if (!job.batch || !job.tokens) return NULL;
  job.y = y;
  job.queries = malloc(job.batch * job.tokens * job.heads * job.size * sizeof(float));
  if (!job.queries) return edgegen_failure(api, ORT_FAIL, "CachedAttention: no memory");

  size_t longest = 0;
  for (size_t b = 0; b < job.batch; b++) {
    const size_t length = past_of(&job, b) + job.tokens;
    longest = length > longest ? length : longest;
  }
  const size_t scores = job.group * (longest + KEYS);
  job.block_tokens = scores > SCORES_OF_A_TASK ? 1 : least(job.tokens, SCORES_OF_A_TASK / scores);
  job.blocks = (job.tokens + job.block_tokens - 1) / job.block_tokens;
  OrtKernelContextParallelFor parallel = ORT_CALL(api, ORT_KERNEL_CONTEXT_PARALLEL_FOR, OrtKernelContextParallelFor);
  /* What attends to a single token's heads makes them ready itself. */
  const size_t groups = job.tokens == 1 ? 0 : (job.batch * job.tokens + TOKENS_OF_A_TASK - 1) / TOKENS_OF_A_TASK;
  status = edgegen_run(api, context, 2, prepare, groups, &job);
  if (!status && !job.failed) status = parallel(context, attend, job.batch * job.kv_heads * job.blocks, 0, &job);
  free(job.queries);
  if (!status && job.failed) status = edgegen_failure(api, ORT_FAIL, "CachedAttention: no memory");
  return status;
}

static OrtStatus *create_floats(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  return (void)op, create(api, info, 0, out);
}
static OrtStatus *create_codes(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  return (void)op, create(api, info, 1, out);
}
static const char *name_floats(const OrtCustomOp *op) { return (void)op, "CachedAttention"; }
static const char *name_codes(const OrtCustomOp *op) { return (void)op, "CachedAttentionInt8"; }
static const int TYPES[INPUTS] = {ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_INT32, ORT_INT32,
                                  ORT_FLOAT, ORT_FLOAT, ORT_INT64, ORT_FLOAT, ORT_FLOAT, ORT_FLOAT, ORT_FLOAT};
static int type_floats(const OrtCustomOp *op, size_t index) { return (void)op, TYPES[index]; }
static int type_codes(const OrtCustomOp *op, size_t index) {
  return (void)op, index == PAST_KEY || index == PAST_VALUE ? ORT_INT8 : TYPES[index];
}
static size_t input_count(const OrtCustomOp *op) { return (void)op, INPUTS; }
#define output_floats edgegen_float_type
static int output_codes(const OrtCustomOp *op, size_t index) { return (void)op, index ? ORT_INT8 : ORT_FLOAT; }
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
