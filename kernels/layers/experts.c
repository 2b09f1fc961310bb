/* The operator "BlockExperts" of the domain "edgegen", for ONNX Runtime: a mixture of experts.
 *
 * Inputs: x float [..., n]; scores float [tokens, experts]; codes, scales, zero points and biases of all experts' first
 * matrices, one behind the other, and of their second ones, as BlockMatMul has them, all initializers. Attributes:
 * experts; k, how many of them a token takes; K, N, bits and block_size of a matrix, with 0 and 1 behind the name;
 * alpha, offset and limit, as Glu has them.
 *
 * A token's experts are those of its k greatest scores, of equal ones the first, weighed by the softmax over these. An
 * expert gives second(glu(first(x))); the rows of its first matrix are a gate and what it opens, in turn. A token's
 * results are added from the greatest score to the least. So its bits depend on no other token.
 */
#include "fused_layers.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 1 << 16, MOST_SLICES = 16, ROWS_FOR_ONE = 4, FEWEST_TOKENS = 4 };
static const size_t WORK_OF_A_SLICE = (size_t)1 << 18; /* products */

typedef struct {
  const OrtApi *api;
  const Kernels *kernels;
  const FloatKernels *floats;
  size_t count, chosen; /* experts, and those of a token */
  Matrix first, second; /* of expert 0; those of the others lie behind them */
  Glu glu;
} Experts;

/* Rows of one expert's matrix, for all of its tokens. */
typedef struct {
  size_t expert, first, last;
} Slice;

/* Pairs of token and expert are sorted by expert; `pairs` of them. */
typedef struct {
  const Experts *experts;
  const float *x, *scores;
  float *y;
  size_t tokens, pairs;
  uint32_t *numbers; /* [tokens][chosen]: experts */
  float *weights;    /* [tokens][chosen] */
  size_t *places;    /* [tokens][chosen]: where that pair is */
  size_t *begins;    /* [experts + 1]: the first pair of each, and the end */
  Inputs inputs;     /* [pairs]: what the next matrix takes */
  float *between;    /* [pairs][...]: what a matrix gave */
  const Matrix *matrix;
  Slice *slices;
  size_t slice_count;
  atomic_size_t next_slice;
  uint8_t *workers; /* memory of each */
  size_t worker_size;
} Job;

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* The experts of a token and their weights. What is no number is greater than all others, so that it is seen. */
static void choose(void *data, size_t token) {
  const Job *job = data;
  const Experts *experts = job->experts;
  const float *scores = job->scores + token * experts->count;
  uint32_t *numbers = job->numbers + token * experts->chosen;
  float *weights = job->weights + token * experts->chosen;
  size_t found = 0;
  for (size_t e = 0; e < experts->count; e++) {
    float score = scores[e];
    size_t at = found;
    while (at && (score > weights[at - 1] || (score != score && weights[at - 1] == weights[at - 1]))) at--;
    if (at == experts->chosen) continue;
    if (found < experts->chosen) found++;
    for (size_t i = found - 1; i > at; i--) numbers[i] = numbers[i - 1], weights[i] = weights[i - 1];
    numbers[at] = (uint32_t)e, weights[at] = score;
  }
  experts->floats->weigh(weights, experts->chosen);
}

/* Sorts the pairs by expert, and those of an expert by token. */
static void sort_pairs(Job *job) {
  size_t count = job->experts->count;
  memset(job->begins, 0, (count + 1) * sizeof *job->begins);
  for (size_t i = 0; i < job->pairs; i++) job->begins[job->numbers[i] + 1]++;
  for (size_t e = 0; e < count; e++) job->begins[e + 1] += job->begins[e];
  for (size_t i = 0; i < job->pairs; i++) job->places[i] = job->begins[job->numbers[i]]++;
  for (size_t e = count; e > 0; e--) job->begins[e] = job->begins[e - 1];
  job->begins[0] = 0;
}

/* Rounds a token's x for each of its experts. */
static void round_token(void *data, size_t token) {
  Job *job = data;
  const Experts *experts = job->experts;
  const Matrix *matrix = &experts->first;
  const size_t *places = job->places + token * experts->chosen;
  experts->kernels->quantize(matrix, job->x + token * matrix->columns, &job->inputs, places[0]);
  Inputs from = inputs_at(&job->inputs, matrix, places[0]);
  for (size_t i = 1; i < experts->chosen; i++) {
    Inputs to = inputs_at(&job->inputs, matrix, places[i]);
    memcpy(to.codes, from.codes, from.stride * matrix->block);
    memcpy(to.scales, from.scales, from.stride * sizeof *from.scales);
    memcpy(to.sums, from.sums, from.stride * sizeof *from.sums);
  }
}

/* Opens a pair's gates, and rounds what comes through. */
static void open_pair(void *data, size_t pair) {
  Job *job = data;
  const Experts *experts = job->experts;
  float *row = job->between + pair * experts->first.rows;
  experts->floats->glu(&experts->glu, row, row, experts->second.columns);
  experts->kernels->quantize(&experts->second, row, &job->inputs, pair);
}

/* Cuts the matrices that tokens have chosen, so that threads find enough to do and none too little. */
static void cut(Job *job, const Matrix *matrix) {
  job->matrix = matrix, job->slice_count = 0;
  job->inputs.stride = rounded_up(matrix->blocks, LANES);
  atomic_store_explicit(&job->next_slice, 0, memory_order_relaxed);
  for (size_t e = 0; e < job->experts->count; e++) {
    size_t tokens = job->begins[e + 1] - job->begins[e];
    if (!tokens) continue;
    size_t step = tokens > 1 ? job->experts->kernels->granularity : ROWS_FOR_ONE;
    size_t wanted = larger(WORK_OF_A_SLICE / tokens / matrix->columns, (matrix->rows + MOST_SLICES - 1) / MOST_SLICES);
    size_t size = rounded_up(larger(wanted, 1), step);
    for (size_t at = 0; at < matrix->rows; at += size)
      job->slices[job->slice_count++] = (Slice){e, at, smaller(at + size, matrix->rows)};
  }
}

static void multiply_slices(void *data, size_t call) {
  Job *job = data;
  uint8_t *scratch = job->workers + call * job->worker_size;
  size_t i;
  while ((i = atomic_fetch_add_explicit(&job->next_slice, 1, memory_order_relaxed)) < job->slice_count) {
    Slice slice = job->slices[i];
    size_t begin = job->begins[slice.expert], tokens = job->begins[slice.expert + 1] - begin;
    Matrix matrix = matrix_at(job->matrix, slice.expert);
    Inputs inputs = inputs_at(&job->inputs, &matrix, begin);
    job->experts->kernels->multiply(&matrix, &inputs, tokens, slice.first, slice.last,
                                    job->between + begin * matrix.rows, scratch);
  }
}

/* Adds up what a token's experts gave. */
static void add_token(void *data, size_t token) {
  const Job *job = data;
  const Experts *experts = job->experts;
  size_t width = experts->second.rows, first = token * experts->chosen;
  float *y = job->y + token * width;
  memset(y, 0, width * sizeof *y);
  for (size_t i = first; i < first + experts->chosen; i++)
    experts->floats->add(y, job->between + job->places[i] * width, job->weights[i], width);
}

/* Lays everything out behind each other; returns the bytes, so that the first call needs no memory. */
static size_t lay_out(Job *job, size_t code_size, size_t block_count, size_t width, size_t most_slices, size_t calls,
                      uint8_t *memory) {
  size_t at = 0, pairs = job->pairs;
#define PLACE(member, type, elements)                                                                                  \
  {                                                                                                                    \
    if (memory) member = (type *)(memory + at);                                                                        \
    at += rounded_up((elements) * sizeof(type), 64);                                                                   \
  }
  PLACE(job->inputs.codes, int8_t, pairs *code_size)
  PLACE(job->inputs.scales, float, pairs *block_count)
  PLACE(job->inputs.sums, int32_t, pairs *block_count)
  PLACE(job->between, float, pairs *width)
  PLACE(job->weights, float, pairs)
  PLACE(job->numbers, uint32_t, pairs)
  PLACE(job->places, size_t, pairs)
  PLACE(job->begins, size_t, job->experts->count + 1)
  PLACE(job->slices, Slice, most_slices)
  PLACE(job->workers, uint8_t, calls * job->worker_size)
#undef PLACE
  return at;
}

static OrtStatus *run(const OrtKernelContext *context, Job *job) {
  const Experts *experts = job->experts;
  const OrtApi *api = experts->api;
  OrtStatus *status = edgegen_run(api, context, FEWEST_TOKENS, choose, job->tokens, job);
  if (status) return status;
  sort_pairs(job);
  cut(job, &experts->first);
  if ((status = edgegen_run(api, context, FEWEST_TOKENS, round_token, job->tokens, job)) ||
      (status = edgegen_run(api, context, 2, multiply_slices, edgegen_workers(job->slice_count), job)))
    return status;
  cut(job, &experts->second);
  if ((status = edgegen_run(api, context, 2, open_pair, job->pairs, job)) ||
      (status = edgegen_run(api, context, 2, multiply_slices, edgegen_workers(job->slice_count), job)))
    return status;
  return edgegen_run(api, context, FEWEST_TOKENS, add_token, job->tokens, job);
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Experts *experts = state;
  const OrtApi *api = experts->api;
  FloatTensor x, scores;
  OrtStatus *status = edgegen_input(api, context, 0, &x);
  if (status || (status = edgegen_input(api, context, 1, &scores))) return status;
  const Matrix *first = &experts->first, *second = &experts->second;
  if (!x.rank || x.dimensions[x.rank - 1] != (int64_t)first->columns)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockExperts: the last dimension of x is not K of the first");
  Job job = {.experts = experts, .x = x.data, .scores = scores.data};
  job.tokens = (size_t)x.count / first->columns, job.pairs = job.tokens * experts->chosen;
  if (!scores.rank || scores.dimensions[scores.rank - 1] != (int64_t)experts->count ||
      (size_t)scores.count != job.tokens * experts->count)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockExperts: scores have not an element per token and expert");
  x.dimensions[x.rank - 1] = (int64_t)second->rows;
  if ((status = edgegen_output(api, context, 0, x.dimensions, x.rank, &job.y)) || !job.tokens) return status;

  size_t strides[] = {rounded_up(first->blocks, LANES), rounded_up(second->blocks, LANES)};
  size_t code_size = larger(strides[0] * first->block, strides[1] * second->block);
  size_t block_count = larger(strides[0], strides[1]), width = larger(first->rows, second->rows);
  const Kernels *kernels = experts->kernels;
  job.worker_size =
      rounded_up(larger(kernels->scratch_size(first, job.tokens), kernels->scratch_size(second, job.tokens)), 64);
  size_t most_slices = smaller(job.pairs, experts->count) * MOST_SLICES, calls = edgegen_workers(most_slices);
  if (code_size + (2 * block_count + width + 8) * 8 > SIZE_MAX / 4 / job.pairs ||
      job.worker_size > SIZE_MAX / 4 / calls)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockExperts: x has too many rows");
  size_t needed = lay_out(&job, code_size, block_count, width, most_slices, calls, NULL);
  uint8_t *memory = edgegen_take_memory(needed + 64);
  if (!memory) return edgegen_failure(api, ORT_FAIL, "BlockExperts: no memory");
  lay_out(&job, code_size, block_count, width, most_slices, calls,
          (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63));
  atomic_init(&job.next_slice, 0);
  status = run(context, &job);
  edgegen_give_memory_back(memory);
  return status;
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  int64_t count, chosen;
  Experts read = {.api = api, .kernels = edgegen_kernels(NULL)};
  OrtStatus *status;
  if ((status = edgegen_attribute(api, info, "experts", "", &count)) ||
      (status = edgegen_attribute(api, info, "k", "", &chosen)) ||
      (status = edgegen_real_attribute(api, info, "alpha", "", &read.glu.alpha)) ||
      (status = edgegen_real_attribute(api, info, "offset", "", &read.glu.offset)) ||
      (status = edgegen_real_attribute(api, info, "limit", "", &read.glu.limit)))
    return status;
  if (count < 1 || count > MOST_EXPERTS || chosen < 1 || chosen > count)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "BlockExperts: experts must be 1 to 65536, and k at most as many");
  if ((status = edgegen_read_matrices(api, info, 2, "0", count, &read.first)) ||
      (status = edgegen_read_matrices(api, info, 6, "1", count, &read.second)))
    return status;
  if (read.first.bits < 4 || read.second.bits < 4)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockExperts: bits must be 8 or 4");
  if (read.first.rows != 2 * read.second.columns)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "BlockExperts: the first matrix must give twice what the second takes");
  read.floats = edgegen_float_kernels(read.kernels->name);
  read.count = (size_t)count, read.chosen = (size_t)chosen;
  Experts *experts = malloc(sizeof *experts);
  if (!experts) return edgegen_failure(api, ORT_FAIL, "BlockExperts: no memory");
  *experts = read, *out = experts;
  return NULL;
}

static const char *name(const OrtCustomOp *op) { return (void)op, "BlockExperts"; }
static int input_type(const OrtCustomOp *op, size_t index) {
  static const int OF_MATRIX[] = {ORT_UINT8, ORT_ANY_TYPE, ORT_UINT8, ORT_FLOAT};
  return (void)op, index < 2 ? ORT_FLOAT : OF_MATRIX[(index - 2) % 4];
}
static size_t input_count(const OrtCustomOp *op) { return (void)op, 10; }
static int input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index > 3 && index != 6 && index != 7 ? ORT_OPTIONAL : ORT_REQUIRED;
}

const OrtCustomOp edgegen_block_experts = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = input_type,
    .GetInputTypeCount = input_count,
    .GetOutputTypeCount = edgegen_one_value,
    .GetInputCharacteristic = input_characteristic,
    .GetOutputCharacteristic = edgegen_required,
    .KernelComputeV2 = compute,
};
