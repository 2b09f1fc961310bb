/* The operator "BlockMatMulPerHead" of the domain "edgegen", for ONNX Runtime: each head's x times a matrix of its own.
 *
 * Inputs: x float [tokens, heads, K]; codes, scales, zero points and biases of all heads' matrices, one after the
 * other, as BlockMatMul has them, all initializers. Attributes: heads; K, N, bits and block_size of a matrix. Output:
 * float [tokens, heads, N]. A token's bits depend on no other token.
 */
#include "fused_layers.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADS = 1 << 16, FEWEST_HEADS = 2 };

typedef struct {
  const OrtApi *api;
  const Kernels *kernels;
  size_t heads;
  Matrix first; /* of head 0; those of the others lie behind it */
} PerHead;

typedef struct {
  const PerHead *of;
  const float *x;
  float *y;
  size_t tokens;
  Inputs inputs;  /* [heads][tokens]: x, rounded */
  float *between; /* [heads][tokens][N]; NULL where a single token's results are written where they belong */
  atomic_size_t next_head;
  uint8_t *workers; /* memory of each */
  size_t worker_size;
} Job;

/* Rounds a head's x, multiplies, and puts each token's result in its place. */
static void multiply_heads(void *data, size_t call) {
  Job *job = data;
  const PerHead *of = job->of;
  const Matrix *first = &of->first;
  size_t tokens = job->tokens, heads = of->heads, head;
  while ((head = atomic_fetch_add_explicit(&job->next_head, 1, memory_order_relaxed)) < heads) {
    Matrix matrix = matrix_at(first, head);
    Inputs inputs = inputs_at(&job->inputs, first, head * tokens);
    for (size_t t = 0; t < tokens; t++)
      of->kernels->quantize(&matrix, job->x + (t * heads + head) * matrix.columns, &inputs, t);
    float *y = job->between ? job->between + head * tokens * matrix.rows : job->y + head * matrix.rows;
    of->kernels->multiply(&matrix, &inputs, tokens, 0, matrix.rows, y, job->workers + call * job->worker_size);
    for (size_t t = 0; job->between && t < tokens; t++)
      memcpy(job->y + (t * heads + head) * matrix.rows, y + t * matrix.rows, matrix.rows * sizeof *y);
  }
}

/* Lays everything out behind each other; returns the bytes, so that the first call needs no memory. */
static size_t lay_out(Job *job, size_t calls, uint8_t *memory) {
  const Matrix *first = &job->of->first;
  size_t at = 0, rows = job->of->heads * job->tokens, stride = input_stride(first);
#define PLACE(member, type, elements)                                                                                  \
  {                                                                                                                    \
    if (memory) member = (type *)(memory + at);                                                                        \
    at += rounded_up((elements) * sizeof(type), 64);                                                                   \
  }
  job->inputs.stride = stride;
  PLACE(job->inputs.codes, int8_t, rows *input_size(first))
  PLACE(job->inputs.scales, float, rows *stride)
  PLACE(job->inputs.sums, int32_t, rows *stride)
  if (job->tokens > 1) PLACE(job->between, float, rows *first->rows)
  PLACE(job->workers, uint8_t, calls * job->worker_size)
#undef PLACE
  return at;
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const PerHead *of = state;
  const OrtApi *api = of->api;
  const Matrix *first = &of->first;
  FloatTensor x;
  OrtStatus *status = edgegen_input(api, context, 0, &x);
  if (status) return status;
  if (x.rank != 3 || x.dimensions[1] != (int64_t)of->heads || x.dimensions[2] != (int64_t)first->columns)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMulPerHead: x has not the shape [tokens, heads, K]");
  Job job = {.of = of, .x = x.data, .tokens = (size_t)x.dimensions[0]};
  x.dimensions[2] = (int64_t)first->rows;
  if ((status = edgegen_output(api, context, 0, x.dimensions, 3, &job.y)) || !job.tokens) return status;

  size_t calls = edgegen_workers(of->heads);
  job.worker_size = rounded_up(of->kernels->scratch_size(first, job.tokens), 64);
  size_t of_row = input_size(first) + 8 * input_stride(first) + 4 * first->rows;
  if (of_row > SIZE_MAX / 8 / of->heads / job.tokens || job.worker_size > SIZE_MAX / 8 / calls)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMulPerHead: x has too many rows");
  uint8_t *memory = edgegen_take_memory(lay_out(&job, calls, NULL) + 64);
  if (!memory) return edgegen_failure(api, ORT_FAIL, "BlockMatMulPerHead: no memory");
  lay_out(&job, calls, (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63));
  atomic_init(&job.next_head, 0);
  status = edgegen_run(api, context, FEWEST_HEADS, multiply_heads, calls, &job);
  edgegen_give_memory_back(memory);
  return status;
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  int64_t heads;
  PerHead read = {.api = api, .kernels = edgegen_kernels(NULL)};
  OrtStatus *status = edgegen_attribute(api, info, "heads", "", &heads);
  if (status) return status;
  if (heads < 1 || heads > MOST_HEADS)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMulPerHead: heads must be 1 to 65536");
  if ((status = edgegen_read_matrices(api, info, 1, "", heads, &read.first))) return status;
  if (read.first.ternary)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMulPerHead: matrices must not be ternary");
  read.heads = (size_t)heads;
  PerHead *of = malloc(sizeof *of);
  if (!of) return edgegen_failure(api, ORT_FAIL, "BlockMatMulPerHead: no memory");
  *of = read, *out = of;
  return NULL;
}

static const char *name(const OrtCustomOp *op) { return (void)op, "BlockMatMulPerHead"; }

const OrtCustomOp edgegen_block_matmul_per_head = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = edgegen_matrix_input_type,
    .GetInputTypeCount = edgegen_matrix_input_count,
    .GetOutputTypeCount = edgegen_one_value,
    .GetInputCharacteristic = edgegen_matrix_input_characteristic,
    .GetOutputCharacteristic = edgegen_required,
    .KernelComputeV2 = compute,
};
