/* The operator "BlockMatMul" of the domain "edgegen", for ONNX Runtime: x @ matrix.T + bias.
 *
 * Inputs: x float [..., K]; codes uint8 [N, blocks, block_size * bits / 8]; scales float or bfloat16 [N, blocks]; zero
 * points uint8 (optional); bias float [N] (optional). All but x are initializers, read where they lie. Attributes: K,
 * N, bits (8 or 4), block_size (32 or 64). Each length is checked when a session is made.
 */
#include "matrix.h"
#include "operators.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_OF_A_TASK = 8, FEW_TASKS = 8 };
static const int64_t MOST_SIZE = (int64_t)1 << 31;

typedef struct {
  const OrtApi *api;
  const Kernels *kernels;
  Matrix matrix;
} Kernel;

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  int64_t columns, rows, bits, block;
  OrtStatus *status;
  if ((status = edgegen_attribute(api, info, "K", &columns)) || (status = edgegen_attribute(api, info, "N", &rows)) ||
      (status = edgegen_attribute(api, info, "bits", &bits)) ||
      (status = edgegen_attribute(api, info, "block_size", &block)))
    return status;
  if (columns < 1 || columns > MOST_SIZE || rows < 1 || rows > MOST_SIZE || (bits != 8 && bits != 4) ||
      (block != 32 && block != 64))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "BlockMatMul: K and N must be positive, bits 8 or 4, block_size 32 or 64");
  int64_t blocks = (columns + block - 1) / block, bytes = blocks * (block * bits / 8);
  int64_t zeros = bits == 8 ? blocks : (blocks + 1) / 2;
  Kernel *kernel = calloc(1, sizeof *kernel);
  if (!kernel) return edgegen_failure(api, ORT_FAIL, "BlockMatMul: no memory");
  kernel->api = api;
  kernel->kernels = edgegen_kernels(NULL);
  Matrix *matrix = &kernel->matrix;
  matrix->columns = (size_t)columns, matrix->rows = (size_t)rows, matrix->bits = (int)bits;
  matrix->block = (size_t)block, matrix->blocks = (size_t)blocks;
  int uint8 = ORT_UINT8, scale = ORT_ANY_TYPE, real = ORT_FLOAT;
  const void *codes, *scales, *zero_points, *bias;
  if ((status = edgegen_initializer(api, info, 1, "codes", rows * bytes, &uint8, &codes)) ||
      (status = edgegen_initializer(api, info, 2, "scales", rows * blocks, &scale, &scales)) ||
      (status = edgegen_initializer(api, info, 3, "zero points", rows * zeros, &uint8, &zero_points)) ||
      (status = edgegen_initializer(api, info, 4, "biases", rows, &real, &bias))) {
    free(kernel);
    return status;
  }
  if (!codes || !scales) {
    free(kernel);
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMul: codes and scales must be initializers");
  }
  matrix->codes = codes, matrix->zeros = zero_points, matrix->bias = bias;
  if (scale == ORT_FLOAT) matrix->scales = scales;
  else matrix->bfloats = scales;
  *out = kernel;
  return NULL;
}

typedef struct {
  const Kernel *kernel;
  const float *x;
  float *y;
  size_t count, tasks, task_rows, scratch_size;
  Inputs inputs;
  uint8_t *scratch;
  atomic_flag *taken; /* of each task's scratch memory, whoever uses it */
} Job;

static void quantize_rows(void *data, size_t task) {
  Job *job = data;
  const Matrix *matrix = &job->kernel->matrix;
  size_t first = task * ROWS_OF_A_TASK,
         last = first + ROWS_OF_A_TASK < job->count ? first + ROWS_OF_A_TASK : job->count;
  for (size_t m = first; m < last; m++)
    job->kernel->kernels->quantize(matrix, job->x + m * matrix->columns, &job->inputs, m);
}

static void multiply_rows(void *data, size_t task) {
  Job *job = data;
  const Matrix *matrix = &job->kernel->matrix;
  size_t first = task * job->task_rows,
         last = first + job->task_rows < matrix->rows ? first + job->task_rows : matrix->rows;
  /* The first that is free: so a thread writes again and again into memory that its cache holds. */
  size_t own = 0;
  while (atomic_flag_test_and_set(&job->taken[own])) own++;
  job->kernel->kernels->multiply(matrix, &job->inputs, job->count, first, last, job->y,
                                 job->scratch + own * job->scratch_size);
  atomic_flag_clear(&job->taken[own]);
}

static uint8_t *aligned(uint8_t *memory) { return (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63); }

static size_t rounded_up(size_t size, size_t step) { return (size + step - 1) / step * step; }

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Kernel *kernel = state;
  const Matrix *matrix = &kernel->matrix;
  const OrtApi *api = kernel->api;
  const OrtValue *x;
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT, OrtKernelContextGetInput)(context, 0, &x);
  if (status) return status;
  OrtTensorTypeAndShapeInfo *info;
  if ((status = ORT_CALL(api, ORT_GET_TENSOR_TYPE_AND_SHAPE, OrtGetTensorTypeAndShape)(x, &info))) return status;
  int64_t dimensions[MOST_DIMENSIONS] = {0};
  size_t rank = 0;
  status = ORT_CALL(api, ORT_GET_DIMENSIONS_COUNT, OrtGetDimensionsCount)(info, &rank);
  if (!status && (rank < 1 || rank > MOST_DIMENSIONS))
    status = edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMul: x has 1 to 8 dimensions");
  if (!status) status = ORT_CALL(api, ORT_GET_DIMENSIONS, OrtGetDimensions)(info, dimensions, rank);
  ORT_CALL(api, ORT_RELEASE_TENSOR_TYPE_AND_SHAPE_INFO, OrtReleaseTensorTypeAndShapeInfo)(info);
  if (status) return status;
  if (dimensions[rank - 1] != (int64_t)matrix->columns)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMul: the last dimension of x is not K");
  int64_t count = 1;
  for (size_t i = 0; i + 1 < rank; i++) {
    if (dimensions[i] < 0 || (dimensions[i] && count > MOST_SIZE / dimensions[i]))
      return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMul: x has too many rows");
    count *= dimensions[i];
  }
  dimensions[rank - 1] = (int64_t)matrix->rows;
  OrtValue *y;
  status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT, OrtKernelContextGetOutput)(context, 0, dimensions, rank, &y);
  if (status || !count) return status;
  Job job = {.kernel = kernel, .count = (size_t)count};
  void *from, *to;
  if ((status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)((OrtValue *)x, &from)) ||
      (status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)(y, &to)))
    return status;
  job.x = from, job.y = to;

  /* A task is a few rows of the matrix, so that a thread that comes late takes fewer of them. */
  size_t step = kernel->kernels->granularity, panels = (matrix->rows + step - 1) / step;
  size_t wanted = job.count > 1 && panels / 16 > FEW_TASKS ? panels / 16 : FEW_TASKS;
  job.task_rows = (panels + wanted - 1) / wanted * step;
  job.tasks = (matrix->rows + job.task_rows - 1) / job.task_rows;
  job.scratch_size = rounded_up(kernel->kernels->scratch_size(matrix, job.count), 64);

  size_t stride = rounded_up(matrix->blocks, LANES), codes = rounded_up(stride * matrix->block, 64);
  size_t per_row = codes + 2 * stride * sizeof(float);
  if (job.count > (SIZE_MAX / 4) / per_row || (job.scratch_size && job.tasks > (SIZE_MAX / 4) / job.scratch_size))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMul: x has too many rows");
  size_t needed = job.count * per_row + job.tasks * (job.scratch_size + sizeof(atomic_flag)) + 192;
  uint8_t few[16384], *heap = NULL, *memory = few;
  if (needed > sizeof few) memory = heap = malloc(needed);
  if (!memory) return edgegen_failure(api, ORT_FAIL, "BlockMatMul: no memory");
  job.inputs.stride = stride;
  job.inputs.codes = (int8_t *)aligned(memory);
  job.inputs.scales = (float *)((uint8_t *)job.inputs.codes + job.count * stride * matrix->block);
  job.inputs.sums = (int32_t *)(job.inputs.scales + job.count * stride);
  job.scratch = aligned((uint8_t *)(job.inputs.sums + job.count * stride));
  job.taken = (atomic_flag *)(job.scratch + job.tasks * job.scratch_size);
  for (size_t i = 0; i < job.tasks; i++) atomic_flag_clear(&job.taken[i]);

  OrtKernelContextParallelFor parallel = ORT_CALL(api, ORT_KERNEL_CONTEXT_PARALLEL_FOR, OrtKernelContextParallelFor);
  size_t groups = (job.count + ROWS_OF_A_TASK - 1) / ROWS_OF_A_TASK;
  status = edgegen_run(api, context, 2, quantize_rows, groups, &job);
  if (!status) status = parallel(context, multiply_rows, job.tasks, 0, &job);
  free(heap);
  return status;
}

static const char *name(const OrtCustomOp *op) { return (void)op, "BlockMatMul"; }
static int input_type(const OrtCustomOp *op, size_t index) {
  static const int TYPES[] = {ORT_FLOAT, ORT_UINT8, ORT_ANY_TYPE, ORT_UINT8, ORT_FLOAT};
  return (void)op, TYPES[index];
}
static size_t input_count(const OrtCustomOp *op) { return (void)op, 5; }
static int input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index > 2 ? ORT_OPTIONAL : ORT_REQUIRED;
}

const OrtCustomOp edgegen_block_matmul = {
    EDGEGEN_OPERATOR,
    .GetName = name,
    .GetInputType = input_type,
    .GetInputTypeCount = input_count,
    .GetOutputType = edgegen_float_type,
    .GetOutputTypeCount = edgegen_one_value,
    .GetInputCharacteristic = input_characteristic,
    .GetOutputCharacteristic = edgegen_required,
    .CreateKernelV2 = create,
    .KernelComputeV2 = compute,
};
