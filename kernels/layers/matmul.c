/* The operator "BlockMatMul" of the domain "edgegen", for ONNX Runtime: x @ matrix.T + bias.
 *
 * Inputs: x float [..., K]; codes uint8 [N, blocks, block_size * bits / 8]; scales float, bfloat16 or
 * float16 [N, blocks]; zero points uint8 (optional); bias float [N] (optional). All but x are initializers, read where
 * they lie. Attributes: K, N, bits (8 or 4, or 3 or 2 in blocks of 32), block_size (32 or 64). Each length is checked
 * when a session is made. A ternary matrix has bits 2, a block_size of 4, the columns of a byte, scales [N], and no
 * zero points.
 */
#include "fused_layers.h"

#include <stdlib.h>

static const int64_t MOST_SIZE = (int64_t)1 << 31;

OrtStatus *edgegen_read_matrices(const OrtApi *api, const OrtKernelInfo *info, size_t first, const char *suffix,
                                 int64_t count, Matrix *out) {
  int64_t columns, rows, bits, block;
  OrtStatus *status;
  if ((status = edgegen_attribute(api, info, "K", suffix, &columns)) ||
      (status = edgegen_attribute(api, info, "N", suffix, &rows)) ||
      (status = edgegen_attribute(api, info, "bits", suffix, &bits)) ||
      (status = edgegen_attribute(api, info, "block_size", suffix, &block)))
    return status;
  bool ternary = bits == 2 && block != NARROW_BLOCK, wide = bits == 8 || bits == 4;
  if (columns < 1 || columns > MOST_SIZE || rows < 1 || rows > MOST_SIZE || (!wide && bits != 3 && bits != 2) ||
      (!ternary && block != 32 && (block != 64 || !wide)))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "BlockMatMul: K and N must be positive, bits 8 or 4 and block_size 32 or 64, or bits 3 or 2 "
                           "and block_size 32");
  if (ternary && (block != 4 || columns % 4 || columns > MOST_TERNARY_COLUMNS))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "BlockMatMul: with bits 2, block_size must be 32, or 4 and divide K, which is 4194304 at "
                           "most");
  int64_t blocks = (columns + block - 1) / block, bytes = blocks * (block * bits / 8);
  int64_t zeros = bits == 8 ? blocks : (blocks + 1) / 2;
  if (count > INT64_MAX / rows / (bytes + 4))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "there are too many matrices of that size");
  rows *= count; /* of all matrices */
  int uint8 = ORT_UINT8, scale = ORT_ANY_TYPE, real = ORT_FLOAT;
  const void *codes, *scales, *zero_points, *bias;
  if ((status = edgegen_initializer(api, info, first, "codes", rows * bytes, &uint8, &codes)) ||
      (status = edgegen_initializer(api, info, first + 1, "scales", ternary ? rows : rows * blocks, &scale, &scales)) ||
      (status = edgegen_initializer(api, info, first + 2, "zero points", rows * zeros, &uint8, &zero_points)) ||
      (status = edgegen_initializer(api, info, first + 3, "biases", rows, &real, &bias)))
    return status;
  if (!codes || !scales)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "BlockMatMul: codes and scales must be initializers");
  if (ternary && zero_points)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "BlockMatMul: with bits 2 and a block_size of 4, there are no zero points");
  *out = (Matrix){.columns = (size_t)columns,
                  .rows = (size_t)(rows / count),
                  .block = (size_t)(ternary ? columns : block),
                  .blocks = (size_t)(ternary ? 1 : blocks),
                  .bits = (int)bits,
                  .ternary = ternary,
                  .codes = codes,
                  .zeros = zero_points,
                  .bias = bias};
  if (scale == ORT_FLOAT) out->scales = scales;
  else out->halves = scales, out->float16 = scale == ORT_FLOAT16;
  return NULL;
}

OrtStatus *edgegen_read_matrix(const OrtApi *api, const OrtKernelInfo *info, size_t first, const char *suffix,
                               Matrix *out) {
  return edgegen_read_matrices(api, info, first, suffix, 1, out);
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  Matrix matrix;
  OrtStatus *status = edgegen_read_matrix(api, info, 1, "", &matrix);
  if (status) return status;
  FusedLayers *layers = calloc(1, sizeof *layers);
  if (!layers) return edgegen_failure(api, ORT_FAIL, "BlockMatMul: no memory");
  layers->api = api, layers->kernels = edgegen_kernels(NULL), layers->count = 1;
  layers->wrong_width = "BlockMatMul: the last dimension of x is not K";
  layers->steps[0] = (Step){.kind = MATRIX_STEP, .columns = matrix.columns, .rows = matrix.rows, .matrix = matrix};
  *out = layers;
  return NULL;
}

static const char *name(const OrtCustomOp *op) { return (void)op, "BlockMatMul"; }
int edgegen_matrix_input_type(const OrtCustomOp *op, size_t index) {
  static const int TYPES[] = {ORT_FLOAT, ORT_UINT8, ORT_ANY_TYPE, ORT_UINT8, ORT_FLOAT};
  return (void)op, TYPES[index];
}
size_t edgegen_matrix_input_count(const OrtCustomOp *op) { return (void)op, 5; }
int edgegen_matrix_input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index > 2 ? ORT_OPTIONAL : ORT_REQUIRED;
}

const OrtCustomOp edgegen_block_matmul = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = edgegen_matrix_input_type,
    .GetInputTypeCount = edgegen_matrix_input_count,
    .GetOutputTypeCount = edgegen_one_value,
    .GetInputCharacteristic = edgegen_matrix_input_characteristic,
    .GetOutputCharacteristic = edgegen_required,
    .KernelComputeV2 = edgegen_run_fused,
};
