/* The operator "BlockGather" of the domain "edgegen", for ONNX Runtime: rows of a block-quantized table, as floats.
 *
 * Inputs: codes uint8 [V, columns * bits / 8], or as BlockMatMul has them, [V, blocks, block_size * bits / 8], of
 * which every block is whole; ids int64 or int32 [...], of which negative ones count from the end; scales float,
 * bfloat16 or float16 [V, blocks]; zero points uint8 (optional, else 128, 8, 4 or 2). All but ids are initializers,
 * read where they lie. Attributes: bits (8 or 4, or 3 or 2 in blocks of 32), block_size (32 or 64). Output: float [...,
 * columns], which is (code - zero) * scale, as of the stock operator GatherBlockQuantized. Each length is checked
 * when a session is made, and each id before anything is read.
 */
#include "matmul/matrix.h"
#include "ort/operators.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS_OF_A_TASK = 32 };

typedef struct {
  const OrtApi *api;
  Matrix table;
} Kernel;

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  int64_t bits, block, dimensions[MOST_DIMENSIONS];
  size_t rank = 0;
  int type = ORT_ANY_TYPE, constant = 0;
  const OrtValue *codes = NULL;
  OrtStatus *status;
  if ((status = edgegen_attribute(api, info, "bits", "", &bits)) ||
      (status = edgegen_attribute(api, info, "block_size", "", &block)) ||
      (status = ORT_CALL(api, ORT_KERNEL_INFO_GET_CONSTANT_INPUT_TENSOR,
                         OrtKernelInfoGetConstantInputTensor)(info, 0, &constant, &codes)))
    return status;
  if (constant && codes && (status = edgegen_shape(api, codes, &type, dimensions, &rank))) return status;
  bool wide = bits == 8 || bits == 4;
  if ((!wide && bits != 3 && bits != 2) || (block != 32 && (block != 64 || !wide)))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "BlockGather: bits must be 8 or 4 and block_size 32 or 64, or bits 3 or 2 and block_size "
                           "32");
  if (type != ORT_UINT8 || (rank != 2 && rank != 3) || dimensions[0] < 1 || dimensions[1] < 1 ||
      dimensions[1] > INT32_MAX || dimensions[0] > INT32_MAX || (rank == 3 && dimensions[2] != block * bits / 8))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "BlockGather: codes must be an initializer of uint8 with two dimensions, or three, the last "
                           "of which is a block");
  int64_t bytes = rank == 3 ? dimensions[1] * dimensions[2] : dimensions[1];
  int64_t rows = dimensions[0], columns = bytes * 8 / bits, blocks = (columns + block - 1) / block;
  if (!wide && columns % block)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockGather: with bits 3 or 2, rows must have whole blocks");
  int uint8 = ORT_UINT8, scale = ORT_ANY_TYPE;
  const void *data, *scales, *zeros;
  if ((status = edgegen_initializer(api, info, 0, "codes", rows * bytes, &uint8, &data)) ||
      (status = edgegen_initializer(api, info, 2, "scales", rows * blocks, &scale, &scales)) ||
      (status = edgegen_initializer(api, info, 3, "zero points", rows * (bits == 8 ? blocks : (blocks + 1) / 2), &uint8,
                                    &zeros)))
    return status;
  if (!data || !scales)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockGather: codes and scales must be initializers");
  Kernel *kernel = calloc(1, sizeof *kernel);
  if (!kernel) return edgegen_failure(api, ORT_FAIL, "BlockGather: no memory");
  kernel->api = api;
  Matrix *table = &kernel->table;
  table->rows = (size_t)rows, table->columns = (size_t)columns, table->bits = (int)bits;
  table->block = (size_t)block, table->blocks = (size_t)blocks;
  table->codes = data, table->zeros = zeros;
  if (scale == ORT_FLOAT) table->scales = scales;
  else table->halves = scales, table->float16 = scale == ORT_FLOAT16;
  *out = kernel;
  return NULL;
}

typedef struct {
  const Matrix *table;
  const void *ids;
  bool wide; /* ids of 64 bits */
  size_t count;
  float *y;
} Job;

static int64_t id_at(const Job *job, size_t i) {
  return job->wide ? ((const int64_t *)job->ids)[i] : ((const int32_t *)job->ids)[i];
}

static void read_row(const Matrix *table, size_t row, float *y) {
  const uint8_t *codes = table->codes + row * (table->columns * (size_t)table->bits / 8);
  for (size_t b = 0; b < table->blocks; b++) {
    size_t begin = b * table->block, left = table->columns - begin, count = left < table->block ? left : table->block;
    int32_t zero = zero_at(table, row, b);
    float scale = scale_at(table, row, b);
    if (is_narrow(table)) {
      Words words = words_of(table, row, b);
      for (size_t i = 0; i < count; i++) y[begin + i] = (float)(narrow_code(words, table->bits, i) - zero) * scale;
    } else if (table->bits == 8) {
      for (size_t i = 0; i < count; i++) y[begin + i] = (float)(codes[begin + i] - zero) * scale;
    } else {
      for (size_t i = 0; i < count / 2; i++) {
        uint8_t both = codes[begin / 2 + i];
        y[begin + 2 * i] = (float)((both & 15) - zero) * scale;
        y[begin + 2 * i + 1] = (float)((both >> 4) - zero) * scale;
      }
    }
  }
}

static void read_rows(void *data, size_t task) {
  const Job *job = data;
  const Matrix *table = job->table;
  size_t first = task * ROWS_OF_A_TASK;
  for (size_t i = first; i < job->count && i < first + ROWS_OF_A_TASK; i++) {
    int64_t id = id_at(job, i);
    read_row(table, (size_t)(id < 0 ? id + (int64_t)table->rows : id), job->y + i * table->columns);
  }
}

static OrtStatus *check(const OrtApi *api, const Job *job) {
  int64_t rows = (int64_t)job->table->rows;
  for (size_t i = 0; i < job->count; i++) {
    int64_t id = id_at(job, i);
    if (id >= -rows && id < rows) continue;
    char message[96];
    snprintf(message, sizeof message, "BlockGather: there is no row %lld in a table of %lld", (long long)id,
             (long long)rows);
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, message);
  }
  return NULL;
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Kernel *kernel = state;
  const OrtApi *api = kernel->api;
  const OrtValue *ids;
  OrtValue *y;
  int64_t dimensions[MOST_DIMENSIONS + 1], count;
  size_t rank;
  int type;
  Job job = {.table = &kernel->table};
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT, OrtKernelContextGetInput)(context, 1, &ids);
  if (status || (status = edgegen_shape(api, ids, &type, dimensions, &rank)) ||
      (status = edgegen_tensor(api, ids, &type, &count, &job.ids)))
    return status;
  if (type != ORT_INT64 && type != ORT_INT32)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockGather: ids must be int64 or int32");
  job.wide = type == ORT_INT64, job.count = (size_t)count;
  if ((status = check(api, &job))) return status;
  dimensions[rank] = (int64_t)job.table->columns;
  void *to;
  status =
      ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT, OrtKernelContextGetOutput)(context, 0, dimensions, rank + 1, &y);
  if (status || !count) return status;
  if ((status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)(y, &to))) return status;
  job.y = to;
  size_t tasks = (job.count + ROWS_OF_A_TASK - 1) / ROWS_OF_A_TASK;
  return edgegen_run(api, context, 2, read_rows, tasks, &job);
}

static const char *name(const OrtCustomOp *op) { return (void)op, "BlockGather"; }
static int input_type(const OrtCustomOp *op, size_t index) {
  static const int TYPES[] = {ORT_UINT8, ORT_ANY_TYPE, ORT_ANY_TYPE, ORT_UINT8};
  return (void)op, TYPES[index];
}
static size_t input_count(const OrtCustomOp *op) { return (void)op, 4; }
static int input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index > 2 ? ORT_OPTIONAL : ORT_REQUIRED;
}

const OrtCustomOp edgegen_block_gather = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = input_type,
    .GetInputTypeCount = input_count,
    .GetOutputTypeCount = edgegen_one_value,
    .GetInputCharacteristic = input_characteristic,
    .GetOutputCharacteristic = edgegen_required,
    .KernelComputeV2 = compute,
};
