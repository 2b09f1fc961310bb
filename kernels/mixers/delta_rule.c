/* The operator "GatedDeltaRule" of the domain "edgegen", for ONNX Runtime: the recurrence of a gated delta net, with the
 * norms around it.
 *
 * Inputs: q and k float [b, t, g * n], of g heads; v float [b, t, h * m], of h heads, a multiple of g; past float [b, h,
 * n, m]; decay float [b, t, h] or [b, t, h * n], logarithms; beta float [b, t, h]; q_norm float [n] (optional): q and k
 * of each head are normalized, root mean square with that weight; norm float [h * m] (optional): so is what a head
 * reads, and multiplied with it; gate float [b, t, h * m] (optional), its activation is multiplied in. Weights are
 * initializers. Attributes: q_heads g; heads h; keys n; values m; scale; q_epsilon and epsilon, of the norms; activation,
 * of floats.h. Outputs: y float [b, t, h * m]; what is kept after the last token, in the shape of past, whose memory it
 * may be. Besides, for tokens that may be rejected, both optional: pending float [b, r, w], rows of k, v, decay and
 * beta, with w at least their sizes, and spans int32 [b, 2]; and a third output in the shape of pending, whose memory it
 * may be. They are what Pending of operators.h says.
 *
 * Columns of a state do not depend on one another, and a token only on those before it: so its bits are the same
 * however a text is cut, and whatever else the batch has.
 */
#include "floats/floats.h"
#include "matmul/matrix.h"
#include "ort/operators.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, PAST, DECAY, BETA, Q_NORM, NORM, GATE, PENDING, SPANS, INPUTS };
enum { COLUMNS = 64, FEWEST_TASKS = 2, WORK_OF_A_TASK = 8192, MOST_HEADS = 1 << 16 };

typedef struct {
  const OrtApi *api;
  const FloatKernels *kernels;
  size_t q_heads, heads, keys, values;
  float scale, epsilon;
  Activation activation;
  const float *weight; /* [heads * values] or NULL */
  Norm q_norm;         /* its weight may be NULL */
} Kernel;

static OrtStatus *read_weight(const OrtApi *api, const OrtKernelInfo *info, size_t index, const char *what,
                              int64_t *count, const float **weight) {
  int type;
  const void *data;
  OrtStatus *status = edgegen_any_initializer(api, info, index, what, &type, count, &data);
  if (!status && data && type != ORT_FLOAT)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "GatedDeltaRule: weights must be floats");
  *weight = data;
  return status;
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  (void)op;
  int64_t q_heads, heads, keys, values, activation, q_norms, norms;
  float scale, q_epsilon, epsilon;
  const float *q_weight, *weight;
  OrtStatus *status;
  if ((status = edgegen_attribute(api, info, "q_heads", "", &q_heads)) ||
      (status = edgegen_attribute(api, info, "heads", "", &heads)) ||
      (status = edgegen_attribute(api, info, "keys", "", &keys)) ||
      (status = edgegen_attribute(api, info, "values", "", &values)) ||
      (status = edgegen_attribute(api, info, "activation", "", &activation)) ||
      (status = edgegen_real_attribute(api, info, "scale", "", &scale)) ||
      (status = edgegen_real_attribute(api, info, "q_epsilon", "", &q_epsilon)) ||
      (status = edgegen_real_attribute(api, info, "epsilon", "", &epsilon)) ||
      (status = read_weight(api, info, Q_NORM, "GatedDeltaRule: the norm of keys", &q_norms, &q_weight)) ||
      (status = read_weight(api, info, NORM, "GatedDeltaRule: the norm of results", &norms, &weight)))
    return status;
  if (q_heads < 1 || heads < 1 || heads > MOST_HEADS || heads % q_heads || keys < 1 || keys > MOST_KEYS || values < 1 ||
      values > MOST_HEADS || activation < 0 || activation >= ACTIVATIONS)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "GatedDeltaRule: there are no such heads, sizes or activation");
  if ((q_weight && q_norms != keys) || (weight && norms != heads * values))
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "GatedDeltaRule: a norm has not a weight for each channel");
  Kernel *own = malloc(sizeof *own);
  if (!own) return edgegen_failure(api, ORT_FAIL, "GatedDeltaRule: no memory");
  *own = (Kernel){.api = api,
                  .kernels = edgegen_float_kernels(edgegen_kernels(NULL)->name),
                  .q_heads = (size_t)q_heads,
                  .heads = (size_t)heads,
                  .keys = (size_t)keys,
                  .values = (size_t)values,
                  .scale = scale,
                  .epsilon = epsilon,
                  .activation = (Activation)activation,
                  .weight = weight,
                  .q_norm = {.width = (size_t)keys, .epsilon = q_epsilon, .weight = q_weight}};
  *out = own;
  return NULL;
}

/* A task is some columns of a head's state, of a row of the batch; or in the end, some tokens. */
typedef struct {
  const Kernel *kernel;
  const float *in[INPUTS];
  float *y, *present;
  size_t tokens, rows; /* of a row of the batch, and of all */
  size_t decays;       /* of a token */
  size_t pieces, columns;
  size_t task_rows;
  Pending pending;
  atomic_int failed;
} Job;

/* What a token writes to the states: as the inputs have it, or a pending row. */
typedef struct {
  const float *k, *v, *decay, *beta;
} Written;

static Written written(const Job *job, size_t row) {
  const Kernel *kernel = job->kernel;
  return (Written){job->in[K] + row * kernel->q_heads * kernel->keys, job->in[V] + row * kernel->heads * kernel->values,
                   job->in[DECAY] + row * job->decays, job->in[BETA] + row * kernel->heads};
}

static Written pending(const Job *job, size_t batch, size_t at) {
  const Kernel *kernel = job->kernel;
  const float *k = job->pending.pending + (batch * job->pending.most + at) * job->pending.width;
  const float *v = k + kernel->q_heads * kernel->keys, *decay = v + kernel->heads * kernel->values;
  return (Written){k, v, decay, decay + job->decays};
}

static void keep(const Job *job, size_t batch) {
  const Kernel *kernel = job->kernel;
  size_t whole = edgegen_whole_tokens(&job->pending, batch);
  for (size_t t = whole; t < job->tokens; t++) {
    Written of = written(job, batch * job->tokens + t);
    float *to = job->pending.left + (batch * job->pending.most + t - whole) * job->pending.width;
    size_t k = kernel->q_heads * kernel->keys, v = kernel->heads * kernel->values;
    memcpy(to, of.k, k * sizeof *to);
    memcpy(to + k, of.v, v * sizeof *to);
    memcpy(to + k + v, of.decay, job->decays * sizeof *to);
    memcpy(to + k + v + job->decays, of.beta, kernel->heads * sizeof *to);
  }
}

static const float *of_length_one(const Kernel *kernel, const float *x, float *y) {
  if (!kernel->q_norm.weight) return x;
  kernel->kernels->normalize(&kernel->q_norm, x, NULL, NULL, y);
  return y;
}

static void read_columns(void *data, size_t task) {
  Job *job = data;
  const Kernel *kernel = job->kernel;
  size_t head = task / job->pieces % kernel->heads, batch = task / job->pieces / kernel->heads;
  size_t keys = kernel->keys, values = kernel->values, of_state = keys * values;
  size_t first = task % job->pieces * job->columns;
  size_t last = values - first < job->columns ? values : first + job->columns;
  size_t from = head / (kernel->heads / kernel->q_heads);
  const float *past = job->in[PAST] + (batch * kernel->heads + head) * of_state;
  float *state = job->present + (batch * kernel->heads + head) * of_state;
  size_t before = edgegen_first_tokens(&job->pending, batch), whole = edgegen_whole_tokens(&job->pending, batch);
  Columns own_columns = {state + first, keys, values, last - first};
  bool by_key = job->decays != kernel->heads;
  float q[MOST_KEYS], k[MOST_KEYS], *aside = NULL;
  for (size_t i = 0; state != past && i < keys; i++)
    memcpy(state + i * values + first, past + i * values + first, (last - first) * sizeof *state);
  for (size_t at = 0; at < before + job->tokens; at++) {
    size_t t = at < before ? 0 : at - before; /* what a pending token reads is overwritten by the first */
    size_t row = batch * job->tokens + t;
    if (at == before + whole && !(aside = edgegen_columns_aside(&own_columns))) {
      job->failed = 1;
      return;
    }
    Written of = at < before ? pending(job, batch, at) : written(job, row);
    Delta own = {.keys = keys,
                 .values = values,
                 .q = of_length_one(kernel, job->in[Q] + (row * kernel->q_heads + from) * keys, q),
                 .k = of_length_one(kernel, of.k + from * keys, k),
                 .v = of.v + head * values,
                 .decay = of.decay + (by_key ? head * keys : head),
                 .by_key = by_key,
                 .beta = of.beta[head],
                 .scale = kernel->scale,
                 .state = state,
                 .y = job->y + (row * kernel->heads + head) * values};
    kernel->kernels->delta(&own, first, last);
  }
  if (aside) edgegen_columns_back(&own_columns, aside);
}

/* Normalizes what tokens have read, and opens their gates. */
static void open_rows(void *data, size_t task) {
  const Job *job = data;
  const Kernel *kernel = job->kernel;
  size_t values = kernel->values, width = kernel->heads * values, end = (task + 1) * job->task_rows;
  Norm norm = {.width = values, .epsilon = kernel->epsilon};
  for (size_t row = task * job->task_rows; row < end && row < job->rows; row++) {
    float *y = job->y + row * width;
    for (size_t head = 0; kernel->weight && head < kernel->heads; head++) {
      norm.weight = kernel->weight + head * values;
      kernel->kernels->normalize(&norm, y + head * values, NULL, NULL, y + head * values);
    }
    if (job->in[GATE]) kernel->kernels->activate(kernel->activation, job->in[GATE] + row * width, y, y, width);
  }
}

static bool shaped(const FloatTensor *x, int64_t batch, int64_t tokens, size_t width) {
  const int64_t *d = x->dimensions;
  return x->rank == 3 && d[0] == batch && d[1] == tokens && d[2] == (int64_t)width;
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  const Kernel *kernel = state;
  const OrtApi *api = kernel->api;
  FloatTensor in[INPUTS] = {{0}};
  Job job = {.kernel = kernel};
  OrtStatus *status;
  for (size_t i = 0; i < INPUTS; i++) {
    if (i == Q_NORM || i == NORM || i >= PENDING) continue;
    if ((status = edgegen_input(api, context, i, &in[i]))) return status;
    job.in[i] = in[i].data;
  }
  size_t keys = kernel->keys, values = kernel->values, heads = kernel->heads;
  int64_t batch = in[V].dimensions[0], tokens = in[V].dimensions[1];
  const int64_t *past = in[PAST].dimensions;
  bool by_head = shaped(&in[DECAY], batch, tokens, heads);
  bool fits = shaped(&in[Q], batch, tokens, kernel->q_heads * keys) && shaped(&in[V], batch, tokens, heads * values) &&
              shaped(&in[K], batch, tokens, kernel->q_heads * keys) && shaped(&in[BETA], batch, tokens, heads) &&
              (by_head || shaped(&in[DECAY], batch, tokens, heads * keys)) && in[PAST].rank == 4 && past[0] == batch &&
              past[1] == (int64_t)heads && past[2] == (int64_t)keys && past[3] == (int64_t)values &&
              (!job.in[GATE] || shaped(&in[GATE], batch, tokens, heads * values));
  if (!fits)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "GatedDeltaRule: the inputs do not have shapes that fit");
  job.tokens = (size_t)tokens, job.rows = (size_t)batch * job.tokens, job.decays = by_head ? heads : heads * keys;
  size_t width = (kernel->q_heads * keys) + heads * values + job.decays + heads;
  if ((status = edgegen_output(api, context, 0, in[V].dimensions, 3, &job.y)) ||
      (status = edgegen_output(api, context, 1, past, 4, &job.present)) ||
      (status = edgegen_pending(api, context, PENDING, 2, batch, tokens, width, &job.pending)))
    return status;
  size_t most = 0; /* of a row of the batch */
  for (size_t b = 0; b < (size_t)batch; b++) {
    size_t count = edgegen_first_tokens(&job.pending, b) + job.tokens;
    most = count > most ? count : most;
  }
  job.columns = most > 1 ? COLUMNS : values; /* those of several tokens stay in the cache */
  job.pieces = (values + job.columns - 1) / job.columns;
  status = edgegen_run(api, context, FEWEST_TASKS, read_columns, (size_t)batch * heads * job.pieces, &job);
  if (!status && job.failed) status = edgegen_failure(api, ORT_FAIL, "GatedDeltaRule: no memory");
  for (size_t b = 0; !status && job.pending.pending && b < (size_t)batch; b++) keep(&job, b);
  if (status || (!kernel->weight && !job.in[GATE])) return status;
  job.task_rows = WORK_OF_A_TASK / (heads * values) + 1;
  return edgegen_run(api, context, FEWEST_TASKS, open_rows, (job.rows + job.task_rows - 1) / job.task_rows, &job);
}

static const char *name(const OrtCustomOp *op) { return (void)op, "GatedDeltaRule"; }
static size_t input_count(const OrtCustomOp *op) { return (void)op, INPUTS; }
static size_t output_count(const OrtCustomOp *op) { return (void)op, 3; }
static int input_type(const OrtCustomOp *op, size_t index) { return (void)op, index == SPANS ? ORT_INT32 : ORT_FLOAT; }
static int output_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index < 2 ? ORT_REQUIRED : ORT_OPTIONAL;
}
static int input_characteristic(const OrtCustomOp *op, size_t index) {
  return (void)op, index < Q_NORM ? ORT_REQUIRED : ORT_OPTIONAL;
}

const OrtCustomOp edgegen_gated_delta_rule = {
    EDGEGEN_FLOAT_OPERATOR,
    .GetInputType = input_type,
    .GetInputTypeCount = input_count,
    .GetOutputTypeCount = output_count,
    .GetInputCharacteristic = input_characteristic,
    .GetOutputCharacteristic = output_characteristic,
    .KernelComputeV2 = compute,
};
