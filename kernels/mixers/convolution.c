/* The operator "CausalConv" of the domain "edgegen", for ONNX Runtime: the short convolution of a mixer.
 *
 * Inputs: x float [b, t, d]; past float [b, w - 1, d], the inputs of the tokens before; kernel float [d, 1, w]; bias
 * float [d] (optional), both initializers. Attributes: channels d; width w; activation, 0 or one more than that of
 * floats.h. Outputs: y float [b, t, d]; the inputs of the last w - 1 tokens, in the shape of past, whose memory it may
 * be. Besides, for tokens that may be rejected, both optional: pending float [b, r, d], rows of x, and spans int32 [b,
 * 2]; and a third output in the shape of pending, whose memory it may be. They are what Pending of operators.h says.
 *
 * y = activation(((x0 * k0 + x1 * k1) + ...) + bias), from the earliest token to the latest, each operation rounded
 * once: the bits of a token are the same however a text is cut.
 */
#include "floats/floats.h"
#include "matmul/matrix.h"
#include "ort/operators.h"

#include <stdlib.h>
#include <string.h>

enum { X, PAST, KERNEL, BIAS, PENDING, SPANS, INPUTS };
enum { MOST_WIDTH = 64, WORK_OF_A_TASK = 32768, CHANNELS = 16, FEWEST_TASKS = 4 };
static const int64_t MOST_CHANNELS = (int64_t)1 << 24;

typedef struct {
  const OrtApi *api;
  const FloatKernels *kernels;
  size_t channels, width;
  bool activates;
  Activation activation;
  const float *bias;
  float taps[]; /* [width][channels] */
} Kernel;

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  int64_t channels, width, activation;
  OrtStatus *status;
  if ((status = edgegen_attribute(api, info, "channels", "", &channels)) ||
      (status = edgegen_attribute(api, info, "width", "", &width)) ||
      (status = edgegen_attribute(api, info, "activation", "", &activation)))
    return status;
  if (channels < 1 || channels > MOST_CHANNELS || width < 2 || width > MOST_WIDTH || activation < 0 ||
      activation > ACTIVATIONS)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                           "CausalConv: channels must be 1 to 16777216, width 2 to 64, and activation of a known kind");
  int real = ORT_FLOAT;
  const void *kernel, *bias;
  if ((status = edgegen_initializer(api, info, KERNEL, "weights", channels * width, &real, &kernel)) ||
      (status = edgegen_initializer(api, info, BIAS, "biases", channels, &real, &bias)))
    return status;
  if (!kernel) return edgegen_failure(api, ORT_INVALID_ARGUMENT, "CausalConv: the kernel must be an initializer");
  size_t d = (size_t)channels, w = (size_t)width;
  Kernel *own = malloc(sizeof *own + d * w * sizeof *own->taps);
  if (!own) return edgegen_failure(api, ORT_FAIL, "CausalConv: no memory");
  *own = (Kernel){.api = api,
                  .kernels = edgegen_float_kernels(edgegen_kernels(NULL)->name),
                  .channels = d,
                  .width = w,
                  .activates = activation > 0,
                  .activation = activation > 0 ? (Activation)(activation - 1) : SILU,
                  .bias = bias};
  for (size_t c = 0; c < d; c++)
    for (size_t k = 0; k < w; k++) own->taps[k * d + c] = ((const float *)kernel)[c * w + k];
  *out = own;
  return NULL;
}

/* A task is some channels of a row of the batch. */
typedef struct {
  const Kernel *kernel;
  const float *x, *past;
  float *y, *present;
  size_t tokens;
  size_t pieces, channels; /* of a row, and channels of a piece */
  Pending pending;
} Job;

/* Some channels of the tokens before; `to`, which may be their memory, is what they are after `count` rows of x, each
 * `width` floats: row j becomes one after it, or one of x, and so is read before it is overwritten. */
static void move_on(const Kernel *kernel, const float *past, float *to, const float *x, size_t width, size_t count,
                    size_t channels) {
  size_t before = kernel->width - 1, d = kernel->channels;
  for (size_t j = 0; j < before; j++) {
    const float *from = count + j < before ? past + (count + j) * d : x + (count + j - before) * width;
    if (from != to + j * d) memcpy(to + j * d, from, channels * sizeof *from);
  }
}

static void multiply(float *restrict y, const float *restrict x, const float *restrict tap, size_t count) {
  for (size_t i = 0; i < count; i++) y[i] = x[i] * tap[i];
}

static void add_product(float *restrict y, const float *restrict x, const float *restrict tap, size_t count) {
  for (size_t i = 0; i < count; i++) y[i] = y[i] + x[i] * tap[i];
}

static void convolve_channels(void *data, size_t task) {
  const Job *job = data;
  const Kernel *kernel = job->kernel;
  size_t d = kernel->channels, before = kernel->width - 1, tokens = job->tokens;
  size_t row = task / job->pieces, first = task % job->pieces * job->channels;
  size_t count = d - first < job->channels ? d - first : job->channels;
  const float *x = job->x + row * tokens * d + first, *past = job->past + row * before * d + first;
  float *y = job->y + row * tokens * d + first, *present = job->present + row * before * d + first;
  const Pending *pending = &job->pending;
  size_t whole = edgegen_whole_tokens(pending, row), at = row * pending->most * pending->width + first;
  if (pending->pending) {
    move_on(kernel, past, present, pending->pending + at, pending->width, edgegen_first_tokens(pending, row), count);
    past = present;
  }
  for (size_t t = 0; t < tokens; t++, y += d) {
    for (size_t k = 0; k <= before; k++) {
      const float *from = t + k < before ? past + (t + k) * d : x + (t + k - before) * d;
      const float *tap = kernel->taps + k * d + first;
      if (k) add_product(y, from, tap, count);
      else multiply(y, from, tap, count);
    }
    for (size_t i = 0; kernel->bias && i < count; i++) y[i] = y[i] + kernel->bias[first + i];
    if (kernel->activates) kernel->kernels->activate(kernel->activation, y, NULL, y, count);
  }
  move_on(kernel, past, present, x, d, whole, count);
  for (size_t t = whole; t < tokens; t++)
    memcpy(pending->left + at + (t - whole) * pending->width, x + t * d, count * sizeof *x);
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Kernel *kernel = state;
  const OrtApi *api = kernel->api;
  FloatTensor x, past;
  OrtStatus *status;
  if ((status = edgegen_input(api, context, X, &x)) || (status = edgegen_input(api, context, PAST, &past)))
    return status;
  int64_t channels = (int64_t)kernel->channels, before = (int64_t)kernel->width - 1;
  if (x.rank != 3 || past.rank != 3 || x.dimensions[2] != channels || past.dimensions[0] != x.dimensions[0] ||
      past.dimensions[1] != before || past.dimensions[2] != channels)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "CausalConv: x and past do not have shapes that fit");
  Job job = {.kernel = kernel, .x = x.data, .past = past.data, .tokens = (size_t)x.dimensions[1]};
  if ((status = edgegen_output(api, context, 0, x.dimensions, 3, &job.y)) ||
      (status = edgegen_output(api, context, 1, past.dimensions, 3, &job.present)) ||
      (status = edgegen_pending(api, context, PENDING, 2, x.dimensions[0], x.dimensions[1], kernel->channels,
                                &job.pending)))
    return status;
  job.channels = (WORK_OF_A_TASK / (kernel->width * (job.tokens + 1)) / CHANNELS + 1) * CHANNELS;
  job.pieces = (kernel->channels + job.channels - 1) / job.channels;
  return edgegen_run(api, context, FEWEST_TASKS, convolve_channels, (size_t)x.dimensions[0] * job.pieces, &job);
}

static const char *name(const OrtCustomOp *op) { return (void)op, "CausalConv"; }
static size_t input_count(const OrtCustomOp *op) { return (void)op, INPUTS; }
static size_t output_count(const OrtCustomOp *op) { return (void)op, 3; }
static int input_type(const OrtCustomOp *op, size_t index) { return (void)op, index == SPANS ? ORT_INT32 : ORT_FLOAT; }
static int input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index < BIAS ? ORT_REQUIRED : ORT_OPTIONAL;
}
static int output_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index < 2 ? ORT_REQUIRED : ORT_OPTIONAL;
}

const OrtCustomOp edgegen_causal_conv = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = input_type,
    .GetInputTypeCount = input_count,
    .GetOutputTypeCount = output_count,
    .GetInputCharacteristic = input_characteristic,
    .GetOutputCharacteristic = output_characteristic,
    .KernelComputeV2 = compute,
};
