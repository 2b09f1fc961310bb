/* The operator "Activation" of the domain "edgegen", for ONNX Runtime: a function of every float.
 *
 * Input: x float [...]. Output: kind(x). Attributes: kind, of floats.h; gate_axis, 0 or an axis of x that is halved:
 * the output is kind(first half) * second half.
 */
#include "fused_layers.h"

#include <stdlib.h>

enum { FLOATS_OF_A_TASK = 8192, FEWEST_TASKS = 4 };

typedef struct {
  const OrtApi *api;
  const FloatKernels *kernels;
  Activation kind;
  size_t gate_axis;
} Kernel;

OrtStatus *edgegen_read_activation(const OrtApi *api, const OrtKernelInfo *info, const char *suffix, const char *wrong,
                                   Activation *out, size_t *gate_axis) {
  int64_t kind, axis;
  OrtStatus *status = edgegen_attribute(api, info, "kind", suffix, &kind);
  if (status || (status = edgegen_attribute(api, info, "gate_axis", suffix, &axis))) return status;
  if (kind < 0 || kind >= ACTIVATIONS || axis < 0 || axis >= MOST_DIMENSIONS)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, wrong);
  *out = (Activation)kind, *gate_axis = (size_t)axis;
  return NULL;
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  Activation kind = GELU;
  size_t axis = 0;
  OrtStatus *status =
      edgegen_read_activation(api, info, "", "Activation: there is no such kind, or no such axis", &kind, &axis);
  if (status) return status;
  Kernel *kernel = malloc(sizeof *kernel);
  if (!kernel) return edgegen_failure(api, ORT_FAIL, "Activation: no memory");
  *kernel = (Kernel){api, edgegen_float_kernels(edgegen_kernels(NULL)->name), kind, axis};
  *out = kernel;
  return NULL;
}

/* `rows` rows of `width` floats of y; a row is cut into `pieces`, of `step` floats but for the last. */
typedef struct {
  const Kernel *kernel;
  const float *x;
  float *y;
  size_t rows, width, pieces, step, task_items;
} Job;

static void activate_items(void *data, size_t task) {
  const Job *job = data;
  const Kernel *kernel = job->kernel;
  size_t items = job->rows * job->pieces, first = task * job->task_items;
  size_t last = first + job->task_items < items ? first + job->task_items : items;
  for (size_t item = first; item < last; item++) {
    size_t row = item / job->pieces, at = item % job->pieces * job->step;
    size_t count = job->width - at < job->step ? job->width - at : job->step;
    const float *x = job->x + row * job->width * (kernel->gate_axis ? 2 : 1) + at;
    const float *factor = kernel->gate_axis ? x + job->width : NULL;
    kernel->kernels->activate(kernel->kind, x, factor, job->y + row * job->width + at, count);
  }
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Kernel *kernel = state;
  const OrtApi *api = kernel->api;
  FloatTensor x;
  Job job = {.kernel = kernel};
  OrtStatus *status = edgegen_input(api, context, 0, &x);
  if (status) return status;
  size_t axis = kernel->gate_axis;
  if (!x.rank || axis >= x.rank || (axis && x.dimensions[axis] % 2))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "Activation: x has no such axis that can be halved");
  if (axis) x.dimensions[axis] /= 2;
  if ((status = edgegen_output(api, context, 0, x.dimensions, x.rank, &job.y)) || !x.count) return status;
  job.x = x.data, job.rows = 1;
  for (size_t i = 0; i < axis; i++) job.rows *= (size_t)x.dimensions[i];
  job.width = (size_t)x.count / (axis ? 2 : 1) / job.rows;
  job.step = job.width < FLOATS_OF_A_TASK ? job.width : FLOATS_OF_A_TASK;
  job.pieces = (job.width + job.step - 1) / job.step;
  job.task_items = FLOATS_OF_A_TASK / job.step;
  size_t tasks = (job.rows * job.pieces + job.task_items - 1) / job.task_items;
  return edgegen_run(api, context, FEWEST_TASKS, activate_items, tasks, &job);
}

static const char *name(const OrtCustomOp *op) { return (void)op, "Activation"; }

const OrtCustomOp edgegen_activation = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = edgegen_float_type,
    .GetInputTypeCount = edgegen_one_value,
    .GetOutputTypeCount = edgegen_one_value,
    .GetInputCharacteristic = edgegen_first_required,
    .GetOutputCharacteristic = edgegen_first_required,
    .KernelComputeV2 = compute,
};
