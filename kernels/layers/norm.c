/* The operator "Norm" of the domain "edgegen", for ONNX Runtime: layer norm, or root mean square, over the last axis.
 *
 * Inputs: x float [..., n]; weight float [n]; bias float [n] (optional); skip float, of the shape of x or of its last
 * axes (optional); skip_bias float [n] (optional, with skip). Weight and biases are initializers. Outputs: the norm of
 * x + skip + skip_bias, and that sum (optional, with skip). Attributes: epsilon; centered, 1 for layer norm.
 */
#include "fused_layers.h"

#include <stdlib.h>

enum { X, WEIGHT, BIAS, SKIP, SKIP_BIAS, INPUTS };
enum { FLOATS_OF_A_TASK = 8192, FEWEST_TASKS = 4 };

typedef struct {
  const OrtApi *api;
  const FloatKernels *kernels;
  Norm norm;
} Kernel;

OrtStatus *edgegen_read_norm(const OrtApi *api, const OrtKernelInfo *info, const size_t inputs[3], const char *suffix,
                             Norm *out) {
  Norm norm = {0};
  int type, real = ORT_FLOAT;
  int64_t width, centered;
  const void *weight, *bias, *skip_bias;
  OrtStatus *status = edgegen_any_initializer(api, info, inputs[0], "Norm: the weights", &type, &width, &weight);
  if (status) return status;
  if (!weight || type != ORT_FLOAT || width < 1)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "Norm: the weights must be floats, one at least");
  if ((status = edgegen_attribute(api, info, "centered", suffix, &centered)) ||
      (status = edgegen_real_attribute(api, info, "epsilon", suffix, &norm.epsilon)) ||
      (status = edgegen_initializer(api, info, inputs[1], "Norm: biases", width, &real, &bias)) ||
      (status = edgegen_initializer(api, info, inputs[2], "Norm: skipped biases", width, &real, &skip_bias)))
    return status;
  norm.width = (size_t)width, norm.weight = weight;
  norm.centered = centered != 0, norm.bias = bias, norm.skip_bias = skip_bias;
  *out = norm;
  return NULL;
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  Norm norm;
  OrtStatus *status = edgegen_read_norm(api, info, (size_t[]){WEIGHT, BIAS, SKIP_BIAS}, "", &norm);
  if (status) return status;
  Kernel *kernel = malloc(sizeof *kernel);
  if (!kernel) return edgegen_failure(api, ORT_FAIL, "Norm: no memory");
  *kernel = (Kernel){api, edgegen_float_kernels(edgegen_kernels(NULL)->name), norm};
  *out = kernel;
  return NULL;
}

typedef struct {
  const Kernel *kernel;
  const float *x, *skip;
  float *y, *sum;
  size_t rows, skip_rows, task_rows;
} Job;

static void normalize_rows(void *data, size_t task) {
  const Job *job = data;
  const Norm *norm = &job->kernel->norm;
  size_t width = norm->width, last = (task + 1) * job->task_rows < job->rows ? (task + 1) * job->task_rows : job->rows;
  for (size_t row = task * job->task_rows; row < last; row++) {
    float *y = job->y + row * width, *sum = job->sum ? job->sum + row * width : y;
    const float *skip = job->skip ? job->skip + row % job->skip_rows * width : NULL;
    job->kernel->kernels->normalize(norm, job->x + row * width, skip, skip ? sum : NULL, y);
  }
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Kernel *kernel = state;
  const OrtApi *api = kernel->api;
  FloatTensor x, skip;
  Job job = {.kernel = kernel};
  OrtStatus *status = edgegen_input(api, context, X, &x);
  if (status || (status = edgegen_input(api, context, SKIP, &skip))) return status;
  int64_t width = (int64_t)kernel->norm.width;
  if (!x.rank || x.dimensions[x.rank - 1] != width)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "Norm: the last dimension of x is not the weight's");
  if (skip.rank && !edgegen_broadcasts(&skip, &x))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "Norm: skip has neither the shape of x nor of its last axes");
  if ((status = edgegen_output(api, context, 0, x.dimensions, x.rank, &job.y)) ||
      (status = edgegen_output(api, context, 1, x.dimensions, x.rank, &job.sum)))
    return status;
  if (job.sum && !skip.rank) return edgegen_failure(api, ORT_INVALID_ARGUMENT, "Norm: there is no sum without skip");
  if (!x.count) return NULL;
  job.x = x.data, job.skip = skip.data, job.rows = (size_t)(x.count / width);
  job.skip_rows = skip.rank ? (size_t)(skip.count / width) : 1;
  job.task_rows = FLOATS_OF_A_TASK / (size_t)width + 1;
  size_t tasks = (job.rows + job.task_rows - 1) / job.task_rows;
  return edgegen_run(api, context, FEWEST_TASKS, normalize_rows, tasks, &job);
}

static const char *name(const OrtCustomOp *op) { return (void)op, "Norm"; }
static size_t input_count(const OrtCustomOp *op) { return (void)op, INPUTS; }
static size_t output_count(const OrtCustomOp *op) { return (void)op, 2; }
static int input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index > WEIGHT ? ORT_OPTIONAL : ORT_REQUIRED;
}

const OrtCustomOp edgegen_norm = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = edgegen_float_type,
    .GetInputTypeCount = input_count,
    .GetOutputTypeCount = output_count,
    .GetInputCharacteristic = input_characteristic,
    .GetOutputCharacteristic = edgegen_first_required,
    .KernelComputeV2 = compute,
};
