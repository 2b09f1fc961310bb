/* The operator "SelectiveScan" of the domain "edgegen", for ONNX Runtime: the recurrence of a Mamba-1 mixer.
 *
 * Inputs: past float [b, n, i], the n numbers that each of i channels remembers; step and written float [b, t, 1, i];
 * taken float [b, t, n, 1]; read float [b, t, 1, n]; rate float [n, i], an initializer. Outputs: what is remembered
 * after the last token, in the shape of past, whose memory it may be; y float [b, t, 1, i]. Besides, for tokens that may
 * be rejected, both optional: pending float [b, r, w], rows of step, written and taken, with w at least their sizes, and
 * spans int32 [b, 2]; and a third output in the shape of pending, whose memory it may be. They are what Pending of
 * operators.h says.
 *
 * Channels do not depend on one another, and a token only on those before it: so its bits are the same however a text
 * is cut, and whatever else the batch has.
 */
#include "floats/floats.h"
#include "matmul/matrix.h"
#include "ort/operators.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PAST, STEP, WRITTEN, TAKEN, READ, RATE, PENDING, SPANS, INPUTS };
enum { WORK_OF_A_TASK = 32768, CHANNELS = 16, FEWEST_TASKS = 4 };

typedef struct {
  const OrtApi *api;
  const FloatKernels *kernels;
  const float *rate;
  int64_t rates;
} Kernel;

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  int type;
  int64_t count;
  const void *rate;
  OrtStatus *status = edgegen_any_initializer(api, info, RATE, "SelectiveScan: the rates", &type, &count, &rate);
  if (status) return status;
  if (!rate || type != ORT_FLOAT || count < 1)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "SelectiveScan: the rates must be floats, one at least");
  Kernel *kernel = malloc(sizeof *kernel);
  if (!kernel) return edgegen_failure(api, ORT_FAIL, "SelectiveScan: no memory");
  *kernel = (Kernel){api, edgegen_float_kernels(edgegen_kernels(NULL)->name), rate, count};
  *out = kernel;
  return NULL;
}

/* Those of the first row of the batch; a task is some channels of a row. */
typedef struct {
  const Kernel *kernel;
  Scan scan;
  const float *past;
  size_t pieces, channels; /* of a row, and channels of a piece */
  Pending pending;
  atomic_int failed;
} Job;

/* Pending tokens: what they write is in the states then. Their results are overwritten by those of the first token. */
static void catch_up(const Job *job, size_t row, const Scan *after, size_t first, size_t last) {
  Scan own = *after;
  own.tokens = 1;
  for (size_t at = 0; at < edgegen_first_tokens(&job->pending, row); at++) {
    own.step = job->pending.pending + (row * job->pending.most + at) * job->pending.width;
    own.written = own.step + own.width;
    own.taken = own.read = own.written + own.width;
    job->kernel->kernels->scan(&own, first, last);
  }
}

static void keep(const Job *job, size_t row) {
  const Scan *scan = &job->scan;
  size_t whole = edgegen_whole_tokens(&job->pending, row);
  for (size_t t = whole; t < scan->tokens; t++) {
    float *to = job->pending.left + (row * job->pending.most + t - whole) * job->pending.width;
    size_t line = (row * scan->tokens + t) * scan->width, column = (row * scan->tokens + t) * scan->state;
    memcpy(to, scan->step + line, scan->width * sizeof *to);
    memcpy(to + scan->width, scan->written + line, scan->width * sizeof *to);
    memcpy(to + 2 * scan->width, scan->taken + column, scan->state * sizeof *to);
  }
}

static void scan_channels(void *data, size_t task) {
  Job *job = data;
  Scan own = job->scan;
  size_t row = task / job->pieces, first = task % job->pieces * job->channels;
  size_t last = own.width - first < job->channels ? own.width : first + job->channels;
  size_t lines = row * own.tokens * own.width, columns = row * own.tokens * own.state;
  const float *past = job->past + row * own.state * own.width;
  own.step += lines, own.written += lines, own.y += lines;
  own.taken += columns, own.read += columns;
  own.h += row * own.state * own.width;
  for (size_t n = 0; own.h != past && n < own.state; n++)
    memcpy(own.h + n * own.width + first, past + n * own.width + first, (last - first) * sizeof *past);
  catch_up(job, row, &own, first, last);
  size_t whole = edgegen_whole_tokens(&job->pending, row), left = own.tokens - whole;
  own.tokens = whole;
  job->kernel->kernels->scan(&own, first, last);
  if (!left) return;
  Columns channels = {own.h + first, own.state, own.width, last - first};
  float *aside = edgegen_columns_aside(&channels);
  if (!aside) {
    job->failed = 1;
    return;
  }
  own.tokens = left;
  own.step += whole * own.width, own.written += whole * own.width, own.y += whole * own.width;
  own.taken += whole * own.state, own.read += whole * own.state;
  job->kernel->kernels->scan(&own, first, last);
  edgegen_columns_back(&channels, aside);
}

static bool shaped(const FloatTensor *x, int64_t batch, int64_t tokens, int64_t rows, int64_t columns) {
  const int64_t *d = x->dimensions;
  return x->rank == 4 && d[0] == batch && d[1] == tokens && d[2] == rows && d[3] == columns;
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Kernel *kernel = state;
  const OrtApi *api = kernel->api;
  FloatTensor in[RATE];
  for (size_t i = 0; i < RATE; i++) {
    OrtStatus *status = edgegen_input(api, context, i, &in[i]);
    if (status) return status;
  }
  const int64_t *past = in[PAST].dimensions, *step = in[STEP].dimensions;
  if (in[PAST].rank != 3 || in[STEP].rank != 4)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "SelectiveScan: past has three dimensions, and steps have four");
  int64_t batch = past[0], numbers = past[1], width = past[2], tokens = step[1];
  if (!shaped(&in[STEP], batch, tokens, 1, width) || !shaped(&in[WRITTEN], batch, tokens, 1, width) ||
      !shaped(&in[TAKEN], batch, tokens, numbers, 1) || !shaped(&in[READ], batch, tokens, 1, numbers))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "SelectiveScan: the inputs do not have shapes that fit");
  if (numbers < 1 || width < 1 || kernel->rates / numbers != width || kernel->rates % numbers)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "SelectiveScan: there is not a rate for each number of past");
  Job job = {.kernel = kernel, .past = in[PAST].data};
  OrtStatus *status = edgegen_output(api, context, 0, past, 3, &job.scan.h);
  size_t size = 2 * (size_t)width + (size_t)numbers;
  if (status || (status = edgegen_output(api, context, 1, step, 4, &job.scan.y)) ||
      (status = edgegen_pending(api, context, PENDING, 2, batch, tokens, size, &job.pending)))
    return status;
  if (!batch) return NULL;
  Scan *scan = &job.scan;
  scan->tokens = (size_t)tokens, scan->width = (size_t)width, scan->state = (size_t)numbers;
  scan->rate = kernel->rate, scan->step = in[STEP].data, scan->written = in[WRITTEN].data;
  scan->taken = in[TAKEN].data, scan->read = in[READ].data;
  job.channels = (WORK_OF_A_TASK / (scan->state * (scan->tokens + 1)) / CHANNELS + 1) * CHANNELS;
  job.pieces = (scan->width + job.channels - 1) / job.channels;
  status = edgegen_run(api, context, FEWEST_TASKS, scan_channels, (size_t)batch * job.pieces, &job);
  if (!status && job.failed) status = edgegen_failure(api, ORT_FAIL, "SelectiveScan: no memory");
  for (size_t b = 0; !status && job.pending.pending && b < (size_t)batch; b++) keep(&job, b);
  return status;
}

static const char *name(const OrtCustomOp *op) { return (void)op, "SelectiveScan"; }
static size_t input_count(const OrtCustomOp *op) { return (void)op, INPUTS; }
static size_t output_count(const OrtCustomOp *op) { return (void)op, 3; }
static int input_type(const OrtCustomOp *op, size_t index) { return (void)op, index == SPANS ? ORT_INT32 : ORT_FLOAT; }
static int input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index < PENDING ? ORT_REQUIRED : ORT_OPTIONAL;
}
static int output_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index < 2 ? ORT_REQUIRED : ORT_OPTIONAL;
}

const OrtCustomOp edgegen_selective_scan = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = input_type,
    .GetInputTypeCount = input_count,
    .GetOutputTypeCount = output_count,
    .GetInputCharacteristic = input_characteristic,
    .GetOutputCharacteristic = output_characteristic,
    .KernelComputeV2 = compute,
};
