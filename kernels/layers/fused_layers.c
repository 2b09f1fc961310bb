/* The operators "FusedLayers", "FusedLayersInt8" and "FusedLayersInt4" of the domain "edgegen", for ONNX Runtime, and
 * how they are run. They differ in what the KV caches have, as operators of attention do.
 *
 * Inputs: x float [..., n], of three dimensions where there is attention; skip float (optional), as Norm has it; then
 * codes, scales, zero points and bias of each matrix (as BlockMatMul has them), with room for MOST_MATRICES; weight,
 * bias and skip_bias of each norm, with room for MOST_NORMS, all initializers; then past key, past value, and so on of
 * each attention, as CachedAttention has them: what it takes has keys and values behind the query. One that leaves out
 * its lengths has those of the attention before, and its rotary tables and positions. Outputs: the last step's; the
 * last sum of a norm that skips (optional); present key and present value of each attention. Attributes: steps, how
 * many; and of step i, with its number behind the name, step (0 a matrix, 1 a norm, 2 an activation, 3 attention), and
 * K, N, bits and block_size, or centered, epsilon and skips, or kind and gate_axis, as Activation has them, where the
 * axis must be the last, or those of CachedAttention.
 */
#include "fused_layers.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#else
#include <sched.h>
#endif

enum {
  TASKS_OF_ONE = 32,       /* of a matrix and one row of x: enough that a late or slower thread takes fewer */
  FEW_TASKS = 8,           /* of a matrix and several rows */
  ROWS_FOR_ONE = 4,        /* of the matrix, which the kernels of one row of x read together */
  MOST_TASKS_OF_ROWS = 16, /* of x, as far as the next number allows */
  MOST_ROWS_OF_A_TASK = 8,
  HEADS_OF_A_TASK = 16, /* of attention, whose keys and values are appended: at most */
  MOST_SPINS = 4096,    /* before a thread gives its core away */
  AHEAD = 16384         /* bytes at most that a waiting worker prefetches */
};

/* Steps that are done row by row, and then a matrix, to all rows, unless attention comes, or the layers end; or an
 * attention alone. */
typedef struct {
  size_t first, last;   /* the steps of a row, and the one behind them */
  size_t columns, rows; /* floats of a row that the segment takes, and that it gives */
  const Matrix *matrix;
  AttentionRun *attention;
  const float *from;
  float *to;
  Inputs inputs;
} Segment;

/* Tasks that wait for all tasks of the phase before: to prepare the rows of a segment, or to multiply them; or to
 * append keys and values, and to attend. */
typedef enum { PREPARES, MULTIPLIES, APPENDS, ATTENDS } PhaseKind;
typedef struct {
  Segment *segment;
  PhaseKind kind;
  size_t size, tasks; /* rows of x or of the matrix, or heads, that a task has */
  atomic_flag *taken; /* of each task */
  atomic_size_t done; /* tasks */
} Phase;

typedef struct {
  const FusedLayers *layers;
  size_t count, phases, row_size, worker_size;
  const float *skip;
  size_t skip_rows;
  float *sum;
  Segment segments[MOST_STEPS];
  Phase phase[2 * MOST_STEPS];
  uint8_t *workers; /* memory of each */
  atomic_size_t next_worker;
  atomic_bool all_taken;
  AttentionRun attention[MOST_ATTENTIONS];
} Job;

static uint8_t *aligned(uint8_t *memory) { return (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63); }

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Row m as the segment's matrix takes it; in `row` if something was done to it, or where the layers end. */
static const float *prepared(const Job *job, const Segment *segment, size_t m, float *row) {
  const FusedLayers *layers = job->layers;
  const float *v = segment->from + m * segment->columns;
  for (size_t i = segment->first; i < segment->last; i++) {
    const Step *step = &layers->steps[i];
    float *to = i + 1 == segment->last && !segment->matrix ? segment->to + m * step->rows : row;
    if (step->kind == NORM_STEP) {
      float *sum = step->skips ? job->sum + m * step->rows : NULL;
      const float *skip = sum;
      if (step->skips && i == layers->first_skip) skip = job->skip + m % job->skip_rows * step->rows;
      layers->floats->normalize(&step->norm, v, skip, sum, to);
    } else {
      layers->floats->activate(step->activation, v, step->gate_axis ? v + step->rows : NULL, to, step->rows);
    }
    v = to;
  }
  return v;
}

static void run_task(Job *job, const Phase *phase, size_t task, uint8_t *memory) {
  Segment *segment = phase->segment;
  const Matrix *matrix = segment->matrix;
  const Kernels *kernels = job->layers->kernels;
  size_t first = task * phase->size, last = first + phase->size;
  switch (phase->kind) {
  case PREPARES:
    for (size_t m = first; m < smaller(last, job->count); m++) {
      const float *row = prepared(job, segment, m, (float *)memory);
      if (matrix && matrix->ternary) edgegen_quantize_ternary(matrix, row, &segment->inputs, m);
      else if (matrix) kernels->quantize(matrix, row, &segment->inputs, m);
    }
    return;
  case MULTIPLIES:
    last = smaller(last, matrix->rows);
    if (matrix->ternary)
      edgegen_multiply_ternary(kernels, matrix, &segment->inputs, job->count, first, last, segment->to);
    else kernels->multiply(matrix, &segment->inputs, job->count, first, last, segment->to, memory + job->row_size);
    return;
  case APPENDS:
    edgegen_append_heads(segment->attention, first, smaller(last, edgegen_heads_to_append(segment->attention)));
    return;
  case ATTENDS: edgegen_attend(segment->attention); /* whoever comes shares what is left */
  }
}

/* Where a worker begins, so that it goes on to what lies behind: at 0, and then at 1/2, 1/4, 3/4, 1/8 and so on. */
static size_t begin_of(size_t worker, size_t tasks) {
  size_t begin = 0, half = tasks;
  for (size_t bits = worker; bits; bits >>= 1) {
    half = (half + 1) / 2;
    if (bits & 1) begin += half;
  }
  return begin % tasks;
}

/* Bytes that a worker will read first, asked for while it waits: so memory is not idle. */
typedef struct {
  const uint8_t *next, *end;
} Prefetch;

/* Of the next matrix. */
static Prefetch ahead_of(const Job *job, const Phase *phase, size_t worker) {
  const Phase *own = phase, *end = job->phase + job->phases;
  while (own < end && own->kind != MULTIPLIES) own++;
  if (own == end) return (Prefetch){0};
  const Matrix *matrix = own->segment->matrix;
  size_t row = begin_of(worker, own->tasks) * own->size, rows = smaller(own->size, matrix->rows - row);
  const uint8_t *begin = matrix->codes + row * row_bytes(matrix);
  return (Prefetch){begin, begin + smaller(rows * row_bytes(matrix), AHEAD)};
}

static void wait_for(atomic_size_t *done, size_t tasks, Prefetch *ahead) {
  for (size_t spins = 0; atomic_load_explicit(done, memory_order_acquire) < tasks; spins++) {
    if (ahead->next < ahead->end) {
      __builtin_prefetch(ahead->next, 0, 2);
      ahead->next += 64;
    } else if (spins >= MOST_SPINS) { /* perhaps this thread is in the way of the other */
#if defined(_WIN32)
      SwitchToThread();
#else
      sched_yield();
#endif
    } else {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      __asm__ volatile("yield");
#endif
    }
  }
}

/* Takes tasks of one phase after the other, and is a barrier between two phases:
 *   1. A worker takes a task by its flag, and runs it.
 *   2. It adds 1 to the phase's `done`, by release: what it wrote is seen by whoever reads the count.
 *   3. Once all flags are taken, it goes on to the next phase, and waits there until `done` of the phase before is the
 *      number of tasks, by acquire.
 *   4. While it waits it prefetches, then spins, then gives its core away.
 * No deadlock: who waits has found every task taken by a thread that is at work on it. Calls that come after the last
 * task was taken, `all_taken`, return at once; they need not wait, for ONNX Runtime waits for all calls. */
static void take_tasks(void *data, size_t call) {
  (void)call;
  Job *job = data;
  if (atomic_load_explicit(&job->all_taken, memory_order_relaxed)) return;
  size_t worker = atomic_fetch_add_explicit(&job->next_worker, 1, memory_order_relaxed);
  uint8_t *memory = job->workers + worker * job->worker_size;
  Prefetch ahead = {0};
  for (Phase *phase = job->phase; phase < job->phase + job->phases; phase++) {
    if (phase->kind != MULTIPLIES) ahead = ahead_of(job, phase, worker);
    if (phase > job->phase) wait_for(&phase[-1].done, phase[-1].tasks, &ahead);
    size_t begin = begin_of(worker, phase->tasks);
    for (size_t i = 0; i < phase->tasks; i++) {
      size_t task = begin + i < phase->tasks ? begin + i : begin + i - phase->tasks;
      if (atomic_flag_test_and_set_explicit(&phase->taken[task], memory_order_relaxed)) continue;
      if (!job->layers->attentions || !edgegen_interrupted(job->attention)) run_task(job, phase, task, memory);
      atomic_fetch_add_explicit(&phase->done, 1, memory_order_release);
    }
  }
  atomic_store_explicit(&job->all_taken, true, memory_order_relaxed);
}

/* Cuts the layers after each matrix, and before and after each attention. */
static size_t cut(Job *job) {
  const FusedLayers *layers = job->layers;
  size_t count = 0;
  for (size_t i = 0; i < layers->count; i++) {
    const Step *step = &layers->steps[i];
    bool attends = step->kind == ATTENTION_STEP;
    if (!i || attends || step[-1].kind == MATRIX_STEP || step[-1].kind == ATTENTION_STEP)
      job->segments[count++] = (Segment){.first = i, .last = i, .columns = step->columns};
    Segment *own = &job->segments[count - 1];
    own->rows = step->rows;
    if (step->kind == MATRIX_STEP) own->matrix = &step->matrix;
    else if (attends) own->attention = &job->attention[step->attention];
    else own->last = i + 1;
  }
  return count;
}

static void add_phase(Job *job, Segment *segment, PhaseKind kind, size_t size, size_t items) {
  Phase *phase = &job->phase[job->phases++];
  phase->segment = segment, phase->kind = kind, phase->size = size, phase->tasks = (items + size - 1) / size;
  atomic_init(&phase->done, 0);
}

/* A task is a few rows, so that a thread that comes late takes fewer of them. Returns the tasks of all phases. */
static size_t plan(Job *job, size_t segments) {
  size_t all = 0, step = job->count > 1 ? job->layers->kernels->granularity : ROWS_FOR_ONE;
  for (Segment *own = job->segments; own < job->segments + segments; own++) {
    if (own->attention) {
      size_t heads = edgegen_heads_to_append(own->attention);
      add_phase(job, own, APPENDS, smaller(heads / MOST_TASKS_OF_ROWS + 1, HEADS_OF_A_TASK), heads);
      add_phase(job, own, ATTENDS, 1, edgegen_attention_tasks(own->attention));
      continue;
    }
    add_phase(job, own, PREPARES, smaller(job->count / MOST_TASKS_OF_ROWS + 1, MOST_ROWS_OF_A_TASK), job->count);
    if (own->matrix) {
      size_t panels = (own->matrix->rows + step - 1) / step;
      size_t wanted = job->count == 1 ? TASKS_OF_ONE : panels / 16 > FEW_TASKS ? panels / 16 : FEW_TASKS;
      add_phase(job, own, MULTIPLIES, (panels + wanted - 1) / wanted * step, own->matrix->rows);
    }
  }
  for (size_t i = 0; i < job->phases; i++) all += job->phase[i].tasks;
  return all;
}

/* What rows need between the steps, in bytes, and what a worker needs. */
typedef struct {
  size_t codes, blocks, between[2], sum, row, scratch;
  size_t attention; /* bytes for all rows: of one after the other */
} Sizes;

static size_t larger(size_t *most, size_t size) { return *most = size > *most ? size : *most; }

static Sizes sizes_of(const Job *job, size_t segments) {
  const FusedLayers *layers = job->layers;
  Sizes most = {.sum = job->sum ? 0 : layers->sum_width * sizeof(float)};
  for (size_t s = 0; s < segments; s++) {
    const Segment *own = &job->segments[s];
    for (size_t i = own->first; i < own->last; i++) larger(&most.row, layers->steps[i].rows * sizeof(float));
    if (s + 1 < segments) larger(&most.between[s % 2], own->rows * sizeof(float));
    if (own->attention) larger(&most.attention, edgegen_attention_memory(own->attention).passing);
    if (!own->matrix) continue;
    larger(&most.codes, input_size(own->matrix));
    larger(&most.blocks, input_stride(own->matrix) * sizeof(float));
    if (!own->matrix->ternary) larger(&most.scratch, layers->kernels->scratch_size(own->matrix, job->count));
  }
  most.row = rounded_up(most.row, 64), most.scratch = rounded_up(most.scratch, 64);
  return most;
}

/* Lays everything into `memory`, which is aligned. */
static void lay_out(Job *job, size_t segments, size_t calls, const float *x, float *y, Sizes sizes, uint8_t *memory) {
  size_t rows = job->count;
  Inputs inputs = {.codes = (int8_t *)memory};
  inputs.scales = (float *)(memory += rounded_up(rows * sizes.codes, 64));
  inputs.sums = (int32_t *)(memory += rows * sizes.blocks);
  uint8_t *between[2] = {memory + rows * sizes.blocks, memory + rows * (sizes.blocks + sizes.between[0])};
  memory = between[1] + rows * sizes.between[1];
  if (sizes.sum) job->sum = (float *)memory;
  uint8_t *passing = aligned(memory + rows * sizes.sum), *kept = passing + sizes.attention;
  for (size_t i = 0; i < job->layers->attentions; i++) {
    edgegen_lay_out_attention(&job->attention[i], kept, passing);
    kept += edgegen_attention_memory(&job->attention[i]).kept;
  }
  job->workers = kept;
  atomic_flag *taken = (atomic_flag *)(job->workers + calls * job->worker_size);
  for (size_t i = 0; i < job->phases; taken += job->phase[i++].tasks) {
    job->phase[i].taken = taken;
    for (size_t task = 0; task < job->phase[i].tasks; task++) atomic_flag_clear(&taken[task]);
  }
  for (size_t s = 0; s < segments; s++) {
    Segment *own = &job->segments[s];
    own->inputs = inputs;
    if (own->matrix) own->inputs.stride = input_stride(own->matrix);
    own->from = s ? job->segments[s - 1].to : x;
    own->to = s + 1 < segments ? (float *)between[s % 2] : y;
    if (own->attention) own->attention->in[QUERY].data = own->from, own->attention->y = own->to;
  }
}

/* Reads and checks what each attention is given. */
static OrtStatus *begin_attentions(Job *job, OrtKernelContext *context, const FloatTensor *x) {
  const FusedLayers *layers = job->layers;
  OrtStatus *status = NULL;
  for (size_t i = 0; !status && i < layers->count; i++) {
    const Step *step = &layers->steps[i];
    if (step->kind != ATTENTION_STEP) continue;
    if (x->rank != 3)
      return edgegen_failure(layers->api, ORT_INVALID_ARGUMENT, "FusedLayers: x with attention has 3 dimensions");
    AttentionRun *run = &job->attention[step->attention];
    run->in[KEY].there = run->in[VALUE].there = 0;
    run->in[QUERY] = (AttentionInput){
        .there = 1,
        .type = ORT_FLOAT,
        .rank = 3,
        .dimensions = {x->dimensions[0], x->dimensions[1], (int64_t)step->columns},
    };
    status = edgegen_begin_attention(&layers->attention[step->attention], context, PAST_KEY,
                                     ATTENTION_STEP_INPUTS + INPUTS_OF_ATTENTION * step->attention,
                                     2 + 2 * step->attention, step->attention ? run - 1 : NULL, run);
  }
  return status;
}

static OrtStatus *run_job(Job *job, OrtKernelContext *context, const float *x, float *y) {
  const OrtApi *api = job->layers->api;
  atomic_init(&job->next_worker, 0), atomic_init(&job->all_taken, false);
  size_t segments = cut(job), tasks = plan(job, segments), calls = 1, kept = 0;
  for (size_t i = 0; i < job->phases; i++) calls = job->phase[i].tasks > calls ? job->phase[i].tasks : calls;
  calls = edgegen_workers(calls);
  Sizes sizes = sizes_of(job, segments);
  size_t per_row = sizes.codes + 2 * sizes.blocks + sizes.between[0] + sizes.between[1] + sizes.sum;
  job->row_size = sizes.row, job->worker_size = sizes.row + sizes.scratch;
  for (size_t i = 0; i < job->layers->attentions; i++) kept += edgegen_attention_memory(&job->attention[i]).kept;
  if (per_row > SIZE_MAX / 4 / job->count || job->worker_size > SIZE_MAX / 4 / calls ||
      sizes.attention > SIZE_MAX / 4 || kept > SIZE_MAX / 8)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "FusedLayers: x has too many rows");
  size_t needed =
      job->count * per_row + sizes.attention + kept + calls * job->worker_size + tasks * sizeof(atomic_flag) + 192;
  uint8_t few[16384], *heap = NULL, *memory = few;
  if (needed > sizeof few) memory = heap = edgegen_take_memory(needed);
  if (!memory) return edgegen_failure(api, ORT_FAIL, "FusedLayers: no memory");
  lay_out(job, segments, calls, x, y, sizes, aligned(memory));
  OrtStatus *status = edgegen_run(api, context, 2, take_tasks, calls, job);
  edgegen_give_memory_back(heap);
  for (size_t i = 0; !status && i < job->layers->attentions; i++)
    if (job->attention[i].failed) status = edgegen_failure(api, ORT_FAIL, "FusedLayers: no memory");
  if (!status && job->layers->attentions && edgegen_interrupted(job->attention)) status = edgegen_interruption(api);
  return status;
}

OrtStatus *edgegen_run_fused(void *state, OrtKernelContext *context) {
  const FusedLayers *layers = state;
  const OrtApi *api = layers->api;
  FloatTensor x, skip = {0};
  OrtStatus *status = edgegen_input(api, context, 0, &x);
  if (!status && layers->sum_width) status = edgegen_input(api, context, 1, &skip);
  if (status) return status;
  size_t columns = layers->steps[0].columns;
  if (!x.rank || x.dimensions[x.rank - 1] != (int64_t)columns)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, layers->wrong_width);
  for (size_t i = 0; i < layers->count; i++)
    if (layers->steps[i].gate_axis && layers->steps[i].gate_axis + 1 != x.rank)
      return edgegen_failure(api, ORT_INVALID_ARGUMENT, "FusedLayers: what is halved is not the last axis");
  Job job;
  job.layers = layers, job.count = (size_t)x.count / columns, job.phases = 0, job.skip = skip.data, job.sum = NULL;
  float *y;
  if (layers->sum_width) {
    x.dimensions[x.rank - 1] = (int64_t)layers->sum_width;
    if (!skip.rank || !edgegen_broadcasts(&skip, &x))
      return edgegen_failure(api, ORT_INVALID_ARGUMENT, "FusedLayers: skip has not the shape of what it is added to");
    if ((status = edgegen_output(api, context, 1, x.dimensions, x.rank, &job.sum))) return status;
    job.skip_rows = (size_t)skip.count / layers->sum_width;
  }
  x.dimensions[x.rank - 1] = (int64_t)layers->steps[layers->count - 1].rows;
  if ((status = edgegen_output(api, context, 0, x.dimensions, x.rank, &y)) ||
      (status = begin_attentions(&job, context, &x)) || !job.count)
    return status;
  return run_job(&job, context, x.data, y);
}

static OrtStatus *too_many(const OrtApi *api) {
  return edgegen_failure(api, ORT_INVALID_ARGUMENT,
                         "FusedLayers: there are more steps of a kind than it has inputs for");
}

static OrtStatus *read_step(const OrtApi *api, const OrtKernelInfo *info, CacheKind cache, size_t i,
                            FusedLayers *layers) {
  Step *step = &layers->steps[i];
  char number[24];
  snprintf(number, sizeof number, "%zu", i);
  int64_t kind, skips = 0;
  size_t input;
  OrtStatus *status = edgegen_attribute(api, info, "step", number, &kind);
  if (status) return status;
  if (kind < 0 || kind >= STEP_KINDS)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "FusedLayers: there is no such step");
  step->kind = (StepKind)kind;
  switch (step->kind) {
  case MATRIX_STEP:
    if (layers->matrices == MOST_MATRICES) return too_many(api);
    status = edgegen_read_matrix(api, info, MATRIX_INPUTS + 4 * layers->matrices++, number, &step->matrix);
    step->columns = step->matrix.columns, step->rows = step->matrix.rows;
    break;
  case NORM_STEP:
    if (layers->norms == MOST_NORMS) return too_many(api);
    input = NORM_INPUTS + 3 * layers->norms++;
    status = edgegen_read_norm(api, info, (size_t[]){input, input + 1, input + 2}, number, &step->norm);
    if (!status) status = edgegen_attribute(api, info, "skips", number, &skips);
    step->columns = step->rows = step->norm.width, step->skips = skips != 0;
    break;
  case ATTENTION_STEP:
    if (layers->attentions == MOST_ATTENTIONS) return too_many(api);
    input = ATTENTION_STEP_INPUTS + INPUTS_OF_ATTENTION * layers->attentions;
    step->attention = layers->attentions++;
    status = edgegen_read_attention(api, info, cache, PAST_KEY, input, number, &layers->attention[step->attention]);
    break;
  default:
    status = edgegen_read_activation(api, info, number, "FusedLayers: there is no such activation, or no such axis",
                                     &step->activation, &step->gate_axis);
  }
  return status;
}

/* Queries, keys and values have the size that the steps beside attention say. */
static bool set_heads(FusedLayers *layers, size_t i) {
  Step *step = &layers->steps[i];
  const CachedAttention *attention = &layers->attention[step->attention];
  size_t heads = (size_t)attention->heads, vectors = heads + 2 * (size_t)attention->kv_heads, size = 0;
  if (i + 1 < layers->count) size = step[1].columns / heads;
  else if (i && step[-1].kind != ACTIVATION_STEP) size = step[-1].rows / vectors;
  step->rows = heads * size, step->columns = vectors * size;
  return size;
}

/* Whether each step takes what the one before it gives; an activation takes what the next one wants. */
static bool fits_together(FusedLayers *layers) {
  for (size_t i = layers->count; i-- > 0;) {
    Step *step = &layers->steps[i];
    if (step->kind == ATTENTION_STEP && !set_heads(layers, i)) return false;
    if (step->kind == ACTIVATION_STEP) {
      if (i + 1 == layers->count) return false;
      step->rows = step[1].columns, step->columns = step->gate_axis ? 2 * step->rows : step->rows;
    } else if (i + 1 < layers->count && step->rows != step[1].columns) {
      return false;
    }
  }
  for (size_t i = layers->count; i-- > 0;) {
    if (!layers->steps[i].skips) continue;
    if (layers->sum_width && layers->sum_width != layers->steps[i].rows) return false;
    layers->first_skip = i, layers->sum_width = layers->steps[i].rows;
  }
  return true;
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
  CacheKind cache = op == &edgegen_fused_layers_int8 ? CODES : op == &edgegen_fused_layers_int4 ? NIBBLES : FLOATS;
  int64_t steps;
  OrtStatus *status = edgegen_attribute(api, info, "steps", "", &steps);
  if (status) return status;
  if (steps < 1 || steps > MOST_STEPS)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "FusedLayers: there are 1 to 64 steps");
  FusedLayers *layers = calloc(1, sizeof *layers);
  if (!layers) return edgegen_failure(api, ORT_FAIL, "FusedLayers: no memory");
  layers->api = api, layers->kernels = edgegen_kernels(NULL), layers->count = (size_t)steps;
  layers->floats = edgegen_float_kernels(layers->kernels->name);
  layers->wrong_width = "FusedLayers: the last dimension of x is not what the first step takes";
  for (size_t i = 0; !status && i < layers->count; i++) status = read_step(api, info, cache, i, layers);
  if (!status && !fits_together(layers))
    status = edgegen_failure(api, ORT_INVALID_ARGUMENT, "FusedLayers: the steps do not fit each other");
  if (status) free(layers);
  else *out = layers;
  return status;
}

static const char *name_floats(const OrtCustomOp *op) { return (void)op, "FusedLayers"; }
static const char *name_codes(const OrtCustomOp *op) { return (void)op, "FusedLayersInt8"; }
static const char *name_nibbles(const OrtCustomOp *op) { return (void)op, "FusedLayersInt4"; }
static int input_type(const OrtCustomOp *op, size_t index) {
  static const int MATRIX[] = {ORT_UINT8, ORT_ANY_TYPE, ORT_UINT8, ORT_FLOAT};
  static const int POSITIONED[] = {ORT_INT32, ORT_INT32, ORT_FLOAT, ORT_FLOAT, ORT_INT64};
  if (index >= MATRIX_INPUTS && index < NORM_INPUTS) return MATRIX[(index - MATRIX_INPUTS) % 4];
  if (index < ATTENTION_STEP_INPUTS) return ORT_FLOAT;
  size_t input = PAST_KEY + (index - ATTENTION_STEP_INPUTS) % INPUTS_OF_ATTENTION;
  if (input < LENGTHS) return op->GetOutputType(op, 2);
  return input < ATTENTION_BIAS ? POSITIONED[input - LENGTHS] : ORT_FLOAT;
}
static size_t input_count(const OrtCustomOp *op) { return (void)op, FUSED_INPUTS; }
#define output_floats edgegen_float_type
static int output_codes(const OrtCustomOp *op, size_t index) { return (void)op, index < 2 ? ORT_FLOAT : ORT_INT8; }
static int output_nibbles(const OrtCustomOp *op, size_t index) { return (void)op, index < 2 ? ORT_FLOAT : ORT_UINT8; }
static size_t output_count(const OrtCustomOp *op) { return (void)op, 2 + 2 * MOST_ATTENTIONS; }

#define OPERATOR(KIND)                                                                                                 \
  {                                                                                                                    \
      EDGEGEN_OPERATOR,                                                                                                \
      .GetName = name_##KIND,                                                                                          \
      .GetInputType = input_type,                                                                                      \
      .GetInputTypeCount = input_count,                                                                                \
      .GetOutputType = output_##KIND,                                                                                  \
      .GetOutputTypeCount = output_count,                                                                              \
      .GetInputCharacteristic = edgegen_first_required,                                                                \
      .GetOutputCharacteristic = edgegen_first_required,                                                               \
      .CreateKernelV2 = create,                                                                                        \
      .KernelComputeV2 = edgegen_run_fused,                                                                            \
  }
const OrtCustomOp edgegen_fused_layers = OPERATOR(floats);
const OrtCustomOp edgegen_fused_layers_int8 = OPERATOR(codes);
const OrtCustomOp edgegen_fused_layers_int4 = OPERATOR(nibbles);
