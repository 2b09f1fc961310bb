/* Runs the operators without ONNX Runtime: a table of functions of our own stands in for its API, each tensor lies
 * in memory of exactly its size, and the tasks of a parallel loop run in a mixed order, or on threads.
 *
 * Prints a line for each case: what it is, and a hash of what the operator gave, or the words of its error. The hashes
 * do not depend on the processor. Compiled with sanitizers, any access beyond a tensor ends the program.
 *
 * Arguments: the number of threads, and a seed for random matrices in place of the cases below; or "name", which prints
 * the name of the kernels that run; or "parts" and the arguments of compare_parts.
 */
#include "layers/fused_layers.h"
#include "gptq/gptq.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct OrtStatus {
  char message[200];
};
struct OrtValue {
  int type;
  size_t rank;
  int64_t dimensions[16];
  void *data;
};
struct OrtTensorTypeAndShapeInfo {
  const OrtValue *value;
};
enum { INPUTS = FUSED_INPUTS, OUTPUTS = 6, ATTRIBUTES = 64, MOST_THREADS = 3 };
struct OrtKernelInfo {
  const char *names[ATTRIBUTES];
  double values[ATTRIBUTES];
  OrtValue *initializers[INPUTS];
};
struct OrtKernelContext {
  OrtValue *inputs[INPUTS], outputs[OUTPUTS];
  int types[OUTPUTS];
};

/* Two rows of random numbers, because how many a loop's order takes depends on the instruction set. */
static uint64_t of_cases = 88172645463325252u, of_order = 88172645463325252u;
static uint32_t next_of(uint64_t *state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return (uint32_t)(*state >> 32);
}
static uint32_t chance(void) { return next_of(&of_cases); }

static size_t size_of(int type) {
  if (type == ORT_BFLOAT16 || type == ORT_FLOAT16) return 2;
  return type == ORT_INT64 ? 8 : type == ORT_FLOAT || type == ORT_INT32 ? 4 : 1;
}

static size_t count_of(const OrtValue *value) {
  size_t count = 1;
  for (size_t i = 0; i < value->rank; i++) count *= (size_t)value->dimensions[i];
  return count;
}

static void fill(OrtValue *value) {
  value->data = malloc(count_of(value) * size_of(value->type));
  if (!value->data && count_of(value)) abort();
}

/* ONNX Runtime's side. */
static OrtStatus *create_status(int code, const char *message) {
  OrtStatus *status = calloc(1, sizeof *status);
  snprintf(status->message, sizeof status->message, "%d: %s", code, message);
  return status;
}
static void release_status(OrtStatus *status) { free(status); }
static OrtStatus *mutable_data(OrtValue *value, void **out) { return *out = value->data, NULL; }
static OrtStatus *shape_of(const OrtValue *value, OrtTensorTypeAndShapeInfo **out) {
  *out = malloc(sizeof **out);
  (*out)->value = value;
  return NULL;
}
static void release_shape(OrtTensorTypeAndShapeInfo *info) { free(info); }
static OrtStatus *element_type(const OrtTensorTypeAndShapeInfo *info, int *out) {
  return *out = info->value->type, NULL;
}
static OrtStatus *rank_of(const OrtTensorTypeAndShapeInfo *info, size_t *out) { return *out = info->value->rank, NULL; }
static OrtStatus *dimensions_of(const OrtTensorTypeAndShapeInfo *info, int64_t *values, size_t count) {
  for (size_t i = 0; i < count && i < info->value->rank; i++) values[i] = info->value->dimensions[i];
  return NULL;
}
static const double *attribute_of(const OrtKernelInfo *info, const char *name) {
  for (size_t i = 0; i < ATTRIBUTES && info->names[i]; i++)
    if (!strcmp(name, info->names[i])) return &info->values[i];
  return NULL;
}
static OrtStatus *attribute(const OrtKernelInfo *info, const char *name, int64_t *out) {
  const double *value = attribute_of(info, name);
  return value ? (*out = (int64_t)*value, NULL) : create_status(ORT_FAIL, "no such attribute");
}
static OrtStatus *real_attribute(const OrtKernelInfo *info, const char *name, float *out) {
  const double *value = attribute_of(info, name);
  return value ? (*out = (float)*value, NULL) : create_status(ORT_FAIL, "no such attribute");
}
static OrtStatus *input_count(const OrtKernelInfo *info, size_t *out) { return (void)info, *out = INPUTS, NULL; }
static OrtStatus *input_name(const OrtKernelInfo *info, size_t index, char *out, size_t *size) {
  return (void)out, *size = info->initializers[index] ? 2 : 1, NULL;
}
static OrtStatus *constant_input(const OrtKernelInfo *info, size_t index, int *constant, const OrtValue **out) {
  *constant = info->initializers[index] != NULL;
  *out = info->initializers[index];
  return NULL;
}
static OrtStatus *context_input(const OrtKernelContext *context, size_t index, const OrtValue **out) {
  return *out = context->inputs[index], NULL;
}
static OrtStatus *context_input_count(const OrtKernelContext *context, size_t *out) {
  return (void)context, *out = INPUTS, NULL;
}
static OrtStatus *context_output_count(const OrtKernelContext *context, size_t *out) {
  return (void)context, *out = OUTPUTS, NULL;
}
static OrtStatus *context_output(OrtKernelContext *context, size_t index, const int64_t *dimensions, size_t rank,
                                 OrtValue **out) {
  OrtValue *output = &context->outputs[index];
  *output = (OrtValue){.type = context->types[index] ? context->types[index] : ORT_FLOAT, .rank = rank};
  memcpy(output->dimensions, dimensions, rank * sizeof *dimensions);
  fill(output);
  return *out = output, NULL;
}

typedef struct {
  void (*function)(void *, size_t);
  void *data;
  const size_t *order;
  size_t first, total, step;
} Share;

static void *run_share(void *from) {
  const Share *share = from;
  for (size_t i = share->first; i < share->total; i += share->step) share->function(share->data, share->order[i]);
  return NULL;
}

static size_t threads = 1;

static OrtStatus *parallel(const OrtKernelContext *context, void (*function)(void *, size_t), size_t total,
                           size_t batches, void *data) {
  (void)context, (void)batches;
  size_t *order = malloc((total + 1) * sizeof *order);
  for (size_t i = 0; i < total; i++) order[i] = i;
  for (size_t i = total; i > 1; i--) {
    size_t other = next_of(&of_order) % i, kept = order[i - 1];
    order[i - 1] = order[other], order[other] = kept;
  }
  pthread_t running[MOST_THREADS];
  Share shares[MOST_THREADS];
  for (size_t i = 0; i < threads; i++) {
    shares[i] = (Share){function, data, order, i, total, threads};
    if (threads > 1 && pthread_create(&running[i], NULL, run_share, &shares[i])) abort();
  }
  if (threads == 1) run_share(&shares[0]);
  for (size_t i = 0; threads > 1 && i < threads; i++) pthread_join(running[i], NULL);
  free(order);
  return NULL;
}

enum { PLACES = 300 };
static struct {
  OrtFunction at[PLACES];
} table;

static void set_table(void) {
  table.at[ORT_CREATE_STATUS] = (OrtFunction)create_status;
  table.at[ORT_RELEASE_STATUS] = (OrtFunction)release_status;
  table.at[ORT_GET_TENSOR_MUTABLE_DATA] = (OrtFunction)mutable_data;
  table.at[ORT_GET_TENSOR_ELEMENT_TYPE] = (OrtFunction)element_type;
  table.at[ORT_GET_DIMENSIONS_COUNT] = (OrtFunction)rank_of;
  table.at[ORT_GET_DIMENSIONS] = (OrtFunction)dimensions_of;
  table.at[ORT_GET_TENSOR_TYPE_AND_SHAPE] = (OrtFunction)shape_of;
  table.at[ORT_RELEASE_TENSOR_TYPE_AND_SHAPE_INFO] = (OrtFunction)release_shape;
  table.at[ORT_KERNEL_INFO_GET_ATTRIBUTE_INT64] = (OrtFunction)attribute;
  table.at[ORT_KERNEL_INFO_GET_ATTRIBUTE_FLOAT] = (OrtFunction)real_attribute;
  table.at[ORT_KERNEL_CONTEXT_GET_INPUT_COUNT] = (OrtFunction)context_input_count;
  table.at[ORT_KERNEL_CONTEXT_GET_OUTPUT_COUNT] = (OrtFunction)context_output_count;
  table.at[ORT_KERNEL_INFO_GET_INPUT_COUNT] = (OrtFunction)input_count;
  table.at[ORT_KERNEL_INFO_GET_INPUT_NAME] = (OrtFunction)input_name;
  table.at[ORT_KERNEL_INFO_GET_CONSTANT_INPUT_TENSOR] = (OrtFunction)constant_input;
  table.at[ORT_KERNEL_CONTEXT_GET_INPUT] = (OrtFunction)context_input;
  table.at[ORT_KERNEL_CONTEXT_GET_OUTPUT] = (OrtFunction)context_output;
  table.at[ORT_KERNEL_CONTEXT_PARALLEL_FOR] = (OrtFunction)parallel;
}

/* A case: a matrix, rows of x, and how far a part is from the length it should have. */
typedef struct {
  int64_t columns, rows, block, bits, count;
  int zeros, bias, scales, lying; /* lying: 0, or the input that is one element short, or 5: x is */
} Case;

static const int SCALES[] = {ORT_FLOAT, ORT_BFLOAT16, ORT_FLOAT16};

static OrtValue *tensor(int type, int64_t length) {
  OrtValue *value = calloc(1, sizeof *value);
  *value = (OrtValue){.type = type, .rank = 1, .dimensions = {length}};
  fill(value);
  uint8_t *bytes = value->data;
  for (size_t i = 0; i < (size_t)length; i++) {
    float number = (float)((int32_t)(chance() % 2001) - 1000) * 0x1p-14f;
    uint32_t bits;
    memcpy(&bits, &number, 4);
    uint16_t half = (uint16_t)(bits >> 16);
    if (type == ORT_FLOAT) memcpy(bytes + 4 * i, &number, 4);
    else if (type == ORT_BFLOAT16) memcpy(bytes + 2 * i, &half, 2);
    else if (type == ORT_FLOAT16) memcpy(bytes + 2 * i, (uint16_t[]){(bits >> 16 & 0x83ff) | 0x1400}, 2);
    else bytes[i] = (uint8_t)chance();
  }
  return value;
}

static void drop(OrtValue *value) {
  if (value) free(value->data);
  free(value);
}

/* FNV-1a; all that is not a number is alike. */
static uint64_t hash_of(const OrtValue *value) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; value->type == ORT_INT8 && i < count_of(value); i++)
    hash = (hash ^ ((const uint8_t *)value->data)[i]) * 1099511628211u;
  for (size_t i = 0; value->type == ORT_FLOAT && i < count_of(value); i++) {
    uint32_t bits;
    memcpy(&bits, (const char *)value->data + 4 * i, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) bits = 0x7fc00000;
    for (size_t j = 0; j < 4; j++) hash = (hash ^ (bits >> j * 8 & 255)) * 1099511628211u;
  }
  return hash;
}

/* Runs an operator, prints the hash of its outputs or its error, and frees all tensors. */
static void run(const OrtCustomOp *op, OrtKernelInfo *info, OrtKernelContext *context, size_t outputs) {
  const OrtApi *api = (const OrtApi *)&table;
  void *kernel = NULL;
  OrtStatus *status = op->CreateKernelV2(op, api, info, &kernel);
  if (!status) status = op->KernelComputeV2(kernel, context);
  if (status) printf("%s\n", status->message);
  else {
    uint64_t hash = 0;
    for (size_t i = 0; i < outputs; i++) hash = hash * 31 + hash_of(&context->outputs[i]);
    printf("%016" PRIx64 "\n", hash);
  }
  free(status);
  for (size_t i = 0; i < OUTPUTS; i++) free(context->outputs[i].data);
  if (kernel) op->KernelDestroy(kernel);
  for (size_t i = 0; i < INPUTS; i++) {
    if (context->inputs[i] != info->initializers[i]) drop(context->inputs[i]);
    drop(info->initializers[i]);
  }
}

static void run_case(const Case *c) {
  int64_t blocks = (c->columns + c->block - 1) / c->block;
  int64_t zeros = c->bits == 8 ? blocks : (blocks + 1) / 2,
          scales = c->rows * (c->bits == 2 && c->block != 32 ? 1 : blocks);
  OrtKernelInfo info = {.names = {"K", "N", "bits", "block_size"},
                        .values = {(double)c->columns, (double)c->rows, (double)c->bits, (double)c->block}};
  info.initializers[1] = tensor(ORT_UINT8, c->rows * blocks * c->block * c->bits / 8 - (c->lying == 1));
  info.initializers[2] = tensor(c->scales, scales - (c->lying == 2));
  if (c->zeros) info.initializers[3] = tensor(ORT_UINT8, c->rows * zeros - (c->lying == 3));
  if (c->bias) info.initializers[4] = tensor(ORT_FLOAT, c->rows - (c->lying == 4));
  OrtValue *x = tensor(ORT_FLOAT, c->count * (c->columns - (c->lying == 5)));
  x->rank = 2, x->dimensions[0] = c->count, x->dimensions[1] = c->columns - (c->lying == 5);
  const uint32_t odd[] = {0x7fc00000, 0x7f800000, 0xff800000, 1, 0x7f7fffff, 0x0da24260, 0x80000000};
  for (size_t i = chance() % 400; i < count_of(x); i += 1 + chance() % 400)
    memcpy((char *)x->data + 4 * i, &odd[chance() % 7], 4);
  OrtKernelContext context = {.inputs = {x}};
  printf("K=%lld N=%lld block=%lld bits=%lld rows=%lld%s%s%s: ", (long long)c->columns, (long long)c->rows,
         (long long)c->block, (long long)c->bits, (long long)c->count, c->zeros ? " zeros" : "", c->bias ? " bias" : "",
         c->scales == ORT_BFLOAT16  ? " bfloat16"
         : c->scales == ORT_FLOAT16 ? " float16"
                                    : "");
  run(&edgegen_block_matmul, &info, &context, 1);
}

static OrtValue *shaped(OrtValue *value, size_t rank, const int64_t *dimensions) {
  value->rank = rank;
  memcpy(value->dimensions, dimensions, rank * sizeof *dimensions);
  return value;
}

/* Floats of up to 4, for scores and scales that matter. */
static OrtValue *numbers(int64_t length, float factor, float least) {
  OrtValue *value = tensor(ORT_FLOAT, length);
  for (int64_t i = 0; i < length; i++) ((float *)value->data)[i] = ((float *)value->data)[i] * factor + least;
  return value;
}

typedef struct {
  int64_t heads, kv_heads, size, batch, tokens, past, window;
  int cache; /* 0: floats, 1: codes of 8 bits, 2: of 4 */
  int packed, rotary, bias, sink;
  float cap;
  int lying; /* 0; 1: a length too long, 2: scales, 3: sinks, 4: the bias, 5: a position, 6: values, or a norm, 7: no
                lengths */
  int normed;
} Attention;

static int64_t capacity_of(const Attention *a) { return a->past + a->tokens + 3; }
static const int CACHES[] = {ORT_FLOAT, ORT_INT8, ORT_UINT8};

/* Past keys and values, and what follows them, in `in` from there on. */
static void give_cache(const Attention *a, OrtValue **in, OrtValue **initializers) {
  const int64_t capacity = capacity_of(a), rows = a->batch * a->tokens;
  for (size_t i = PAST_KEY; i <= PAST_VALUE; i++) {
    const int64_t row = a->cache == 2 ? (a->size + 1) / 2 + 4 : a->size;
    const int64_t length = a->batch * a->kv_heads * capacity * row;
    OrtValue *past = a->cache ? tensor(ORT_UINT8, length) : numbers(length, 40, 0);
    past->type = CACHES[a->cache];
    uint8_t *levels = past->data; /* of any bits they would not be numbers */
    for (int64_t end = row; a->cache == 2 && end <= length; end += row) levels[end - 3] = 60, levels[end - 1] = 189;
    in[i] = shaped(past, 4, (int64_t[]){a->batch, a->kv_heads, capacity, row});
  }
  in[LENGTHS] = a->lying == 7 ? shaped(tensor(ORT_INT32, 0), 2, (int64_t[]){0, 0}) : tensor(ORT_INT32, a->batch);
  for (int64_t b = 0; b < a->batch && a->lying != 7; b++)
    ((int32_t *)in[LENGTHS]->data)[b] =
        (int32_t)(a->tokens + (a->past > b ? a->past - b : 0) - 1 + (a->lying == 1 ? 9 : 0));
  in[TOTAL] = tensor(ORT_INT32, 1);
  *(int32_t *)in[TOTAL]->data = 1;
  if (a->rotary) {
    const int64_t pairs = a->size / 2 - a->rotary % 2;
    for (size_t i = COSINES; i <= SINES; i++)
      in[i] = shaped(numbers(capacity * pairs, 10, 0), 2, (int64_t[]){capacity, pairs});
    in[POSITIONS] = shaped(tensor(ORT_INT64, rows), 2, (int64_t[]){a->batch, a->tokens});
    for (int64_t i = 0; i < rows; i++) ((int64_t *)in[POSITIONS]->data)[i] = a->lying == 5 ? capacity : i % capacity;
  }
  if (a->bias) {
    const int64_t keys = capacity - (a->lying == 4 ? 4 : 0);
    in[ATTENTION_BIAS] =
        shaped(numbers(a->heads * a->tokens * keys, 20, 0), 4, (int64_t[]){1, a->heads, a->tokens, keys});
  }
  if (a->sink) in[SINK] = numbers(a->heads - (a->lying == 3), 20, 0);
  for (size_t i = KEY_SCALES; i <= VALUE_SCALES && a->cache == 1; i++)
    in[i] = initializers[i] = numbers(a->kv_heads * a->size - (a->lying == 2), 0.01f, 0.02f);
}

static void run_attention(const Attention *a) {
  const int64_t widths = a->heads * a->size, others = a->kv_heads * a->size;
  OrtKernelInfo info = {.names = {"num_heads", "kv_num_heads", "local_window_size", "do_rotary", "rotary_interleaved",
                                  "scale", "softcap"},
                        .values = {(double)a->heads, (double)a->kv_heads, (double)a->window, a->rotary != 0,
                                   a->rotary == 2, 0.25, a->cap}};
  const OrtCustomOp *operators[] = {&edgegen_cached_attention, &edgegen_cached_attention_int8,
                                    &edgegen_cached_attention_int4};
  OrtKernelContext context = {.types = {ORT_FLOAT, CACHES[a->cache], CACHES[a->cache]}};
  OrtValue **in = context.inputs;
  const int64_t rows = a->batch * a->tokens, query = widths + (a->packed ? 2 * others : 0);
  in[0] = shaped(numbers(rows * query, 40, 0), 3, (int64_t[]){a->batch, a->tokens, query});
  for (size_t i = 1; i < 3 && !a->packed; i++) {
    const int64_t width = others - (a->lying == 6 && i == 2);
    in[i] = shaped(numbers(rows * width, 40, 0), 3, (int64_t[]){a->batch, a->tokens, width});
  }
  give_cache(a, in, info.initializers);
  printf("attention heads=%lld/%lld size=%lld rows=%lld tokens=%lld past=%lld window=%lld %d%d%d%d%d %g: ",
         (long long)a->heads, (long long)a->kv_heads, (long long)a->size, (long long)a->batch, (long long)a->tokens,
         (long long)a->past, (long long)a->window, a->cache, a->packed, a->rotary, a->bias, a->sink, (double)a->cap);
  run(operators[a->cache], &info, &context, 3);
}

static void run_gather(int64_t columns, int64_t rows, int64_t block, int bits, int lying) {
  const int64_t blocks = (columns + block - 1) / block, zeros = bits == 8 ? blocks : (blocks + 1) / 2;
  OrtKernelInfo info = {.names = {"bits", "block_size"}, .values = {bits, (double)block}};
  OrtKernelContext context = {0};
  info.initializers[0] =
      shaped(tensor(ORT_UINT8, rows * (columns * bits / 8)), 2, (int64_t[]){rows, columns * bits / 8});
  info.initializers[2] = tensor(bits == 8 ? ORT_BFLOAT16 : ORT_FLOAT, rows * blocks - (lying == 2));
  if (block == 32) info.initializers[3] = tensor(ORT_UINT8, rows * zeros - (lying == 3));
  context.inputs[1] = tensor(ORT_INT64, 37);
  for (size_t i = 0; i < 37; i++)
    ((int64_t *)context.inputs[1]->data)[i] =
        lying == 1 && i == 36 ? rows : (int64_t)(chance() % (uint32_t)(2 * rows)) - rows;
  printf("gather columns=%lld rows=%lld block=%lld bits=%d: ", (long long)columns, (long long)rows, (long long)block,
         bits);
  run(&edgegen_block_gather, &info, &context, 1);
}

static void run_norm(int64_t width, int64_t rows, int centered, int lying) {
  OrtKernelInfo info = {.names = {"centered", "epsilon"}, .values = {centered, 1e-5}};
  OrtKernelContext context = {0};
  context.inputs[0] = shaped(numbers(rows * width, 40, 1), 2, (int64_t[]){rows, width});
  info.initializers[1] = numbers(width, 20, 1);
  if (centered) info.initializers[2] = numbers(width - (lying == 1), 20, 1);
  context.inputs[3] =
      shaped(numbers(rows * width - (lying == 2 ? rows : 0), 40, 1), 2, (int64_t[]){rows, width - (lying == 2)});
  printf("norm width=%lld rows=%lld %d: ", (long long)width, (long long)rows, centered);
  run(&edgegen_norm, &info, &context, 2);
}

/* lying: 1 rates, 2 channels, 3 numbers. */
static void run_scan(int64_t rows, int64_t tokens, int64_t count, int64_t width, int lying) {
  OrtKernelInfo info = {0};
  OrtKernelContext context = {0};
  const int64_t line[] = {rows, tokens, 1, width};
  const int64_t column[] = {rows, tokens, count, 1}, row[] = {rows, tokens, 1, count};
  const int64_t past[] = {rows, count - (lying == 3), width};
  context.inputs[0] = shaped(numbers(rows * past[1] * width, 16, 0), 3, past);
  context.inputs[1] = shaped(numbers(rows * tokens * width, 8, 0.5f), 4, line);
  context.inputs[2] = shaped(numbers(rows * tokens * (width - (lying == 2)), 16, 0), 4,
                             (int64_t[]){rows, tokens, 1, width - (lying == 2)});
  context.inputs[3] = shaped(numbers(rows * tokens * count, 16, 0), 4, column);
  context.inputs[4] = shaped(numbers(rows * tokens * count, 16, 0), 4, row);
  info.initializers[5] = numbers(count * width - (lying == 1), 16, -1);
  printf("scan rows=%lld tokens=%lld numbers=%lld width=%lld: ", (long long)rows, (long long)tokens, (long long)count,
         (long long)width);
  run(&edgegen_selective_scan, &info, &context, 2);
}

static void run_activation(int64_t width, int64_t rows, int kind, int gate) {
  OrtKernelInfo info = {.names = {"kind", "gate_axis"}, .values = {kind, gate}};
  OrtKernelContext context = {0};
  context.inputs[0] = shaped(numbers(rows * width, 100, 0), 2, (int64_t[]){rows, width});
  printf("activation width=%lld rows=%lld %d %d: ", (long long)width, (long long)rows, kind, gate);
  run(&edgegen_activation, &info, &context, 1);
}

/* An attribute of step i of fused layers. */
static void set(OrtKernelInfo *info, const char *name, int i, double value) {
  static char names[ATTRIBUTES][24];
  size_t at = 0;
  while (info->names[at]) at++;
  snprintf(names[at], sizeof names[at], i < 0 ? "%s" : "%s%d", name, i);
  info->names[at] = names[at], info->values[at] = value;
}

/* Matrices of one size, one after the other. */
static void add_matrices(OrtKernelInfo *info, int i, size_t input, int64_t count, int64_t columns, int64_t rows,
                         int bits, int lying) {
  const int64_t block = bits == 8 ? 64 : 32, blocks = (columns + block - 1) / block, all = count * rows;
  set(info, "K", i, (double)columns), set(info, "N", i, (double)rows);
  set(info, "bits", i, bits), set(info, "block_size", i, (double)block);
  info->initializers[input] = tensor(ORT_UINT8, all * blocks * block * bits / 8 - (lying == 1));
  info->initializers[input + 1] = numbers(all * blocks, 1, 0);
  if (bits == 4) info->initializers[input + 2] = tensor(ORT_UINT8, all * ((blocks + 1) / 2));
  info->initializers[input + 3] = numbers(all, 1, 0);
}

static void add_matrix(OrtKernelInfo *info, int i, size_t number, int64_t columns, int64_t rows, int bits, int lying) {
  set(info, "step", i, MATRIX_STEP);
  add_matrices(info, i, MATRIX_INPUTS + 4 * number, 1, columns, rows, bits, lying);
}

/* lying: 1 codes, 2 scores, 3 a width between, 4 x. */
static void run_experts(int64_t width, int64_t inner, int64_t rows, int64_t experts, int64_t chosen, int bits,
                        int lying) {
  OrtKernelInfo info = {0};
  OrtKernelContext context = {0};
  const int64_t x_width = width - (lying == 4), scores = experts - (lying == 2);
  set(&info, "experts", -1, (double)experts), set(&info, "k", -1, (double)chosen);
  set(&info, "alpha", -1, bits == 4 ? 1.702 : 1), set(&info, "offset", -1, bits == 4), set(&info, "limit", -1, 2);
  add_matrices(&info, 0, 2, experts, width, 2 * inner, bits, lying);
  add_matrices(&info, 1, 6, experts, inner + (lying == 3), width, bits, 0);
  context.inputs[0] = shaped(numbers(rows * x_width, 40, 1), 2, (int64_t[]){rows, x_width});
  context.inputs[1] = shaped(numbers(rows * scores, 40, 0), 2, (int64_t[]){rows, scores});
  printf("experts width=%lld inner=%lld rows=%lld experts=%lld/%lld bits=%d: ", (long long)width, (long long)inner,
         (long long)rows, (long long)chosen, (long long)experts, bits);
  run(&edgegen_block_experts, &info, &context, 1);
}

/* lying: 1 keys, 2 past, 3 decays, 4 the gate, 5 a weight. */
static void run_delta(int64_t batch, int64_t tokens, int64_t q_heads, int64_t heads, int64_t keys, int64_t values,
                      int by_key, int around, int lying) {
  OrtKernelInfo info = {0};
  OrtKernelContext context = {0};
  const int64_t decays = (by_key ? heads * keys : heads) + (lying == 3), width = heads * values;
  set(&info, "q_heads", -1, (double)q_heads), set(&info, "heads", -1, (double)heads);
  set(&info, "keys", -1, (double)keys), set(&info, "values", -1, (double)values);
  set(&info, "activation", -1, around & 1 ? SILU : LOGISTIC), set(&info, "scale", -1, 0.25);
  set(&info, "q_epsilon", -1, 1e-6), set(&info, "epsilon", -1, 1e-5);
  const int64_t widths[] = {q_heads * keys, q_heads * keys + (lying == 1), width, 0, decays, heads};
  for (size_t i = 0; i < 6; i++)
    if (i != 3)
      context.inputs[i] =
          shaped(numbers(batch * tokens * widths[i], 4, i == 4 ? -2 : 0), 3, (int64_t[]){batch, tokens, widths[i]});
  const int64_t of_state = batch * heads * (keys + (lying == 2)) * values;
  context.inputs[3] = shaped(numbers(of_state, 4, 0), 4, (int64_t[]){batch, heads, keys + (lying == 2), values});
  if (around) {
    const int64_t gates = width + (lying == 4);
    info.initializers[6] = numbers(keys, 2, 1), info.initializers[7] = numbers(width - (lying == 5), 2, 1);
    context.inputs[8] = shaped(numbers(batch * tokens * gates, 4, 0), 3, (int64_t[]){batch, tokens, gates});
  }
  printf("delta rule batch=%lld tokens=%lld heads=%lld/%lld keys=%lld values=%lld %d %d: ", (long long)batch,
         (long long)tokens, (long long)q_heads, (long long)heads, (long long)keys, (long long)values, by_key, around);
  run(&edgegen_gated_delta_rule, &info, &context, 2);
}

/* lying: 1 x, 2 past, 3 the kernel. */
static void run_convolution(int64_t batch, int64_t tokens, int64_t channels, int64_t width, int kind, int lying) {
  OrtKernelInfo info = {0};
  OrtKernelContext context = {0};
  const int64_t of_x = channels - (lying == 1), before = width - 1 - (lying == 2);
  set(&info, "channels", -1, (double)channels), set(&info, "width", -1, (double)width);
  set(&info, "activation", -1, kind);
  context.inputs[0] = shaped(numbers(batch * tokens * of_x, 40, 0), 3, (int64_t[]){batch, tokens, of_x});
  context.inputs[1] = shaped(numbers(batch * before * channels, 40, 0), 3, (int64_t[]){batch, before, channels});
  info.initializers[2] = numbers(channels * width - (lying == 3), 10, 0);
  if (kind & 1) info.initializers[3] = numbers(channels, 10, 0);
  printf("convolution batch=%lld tokens=%lld channels=%lld width=%lld %d: ", (long long)batch, (long long)tokens,
         (long long)channels, (long long)width, kind);
  run(&edgegen_causal_conv, &info, &context, 2);
}

/* lying: 1 codes, 2 heads of x, 3 its width. */
static void run_per_head(int64_t columns, int64_t out, int64_t tokens, int64_t heads, int bits, int lying) {
  OrtKernelInfo info = {0};
  OrtKernelContext context = {0};
  const int64_t of_x = heads - (lying == 2), width = columns - (lying == 3);
  set(&info, "heads", -1, (double)heads);
  add_matrices(&info, -1, 1, heads, columns, out, bits, lying);
  context.inputs[0] = shaped(numbers(tokens * of_x * width, 40, 1), 3, (int64_t[]){tokens, of_x, width});
  printf("per head columns=%lld rows=%lld tokens=%lld heads=%lld bits=%d: ", (long long)columns, (long long)out,
         (long long)tokens, (long long)heads, bits);
  run(&edgegen_block_matmul_per_head, &info, &context, 1);
}

static void add_norm(OrtKernelInfo *info, int i, size_t number, int64_t width, int centered, int skips) {
  OrtValue **in = info->initializers + NORM_INPUTS + 3 * number;
  set(info, "step", i, NORM_STEP), set(info, "centered", i, centered), set(info, "epsilon", i, 1e-5);
  set(info, "skips", i, skips);
  in[0] = numbers(width, 20, 1);
  if (centered) in[1] = numbers(width, 20, 1);
  if (skips && centered) in[2] = numbers(width, 20, 1);
}

/* A layer's matrices: the norm of a sum, an MLP, and the norm of another sum. lying: 1 codes, 2 a width, 3 what is
 * skipped, 4 x, 5 an activation at the end. */
static void run_fused(int64_t width, int64_t inner, int64_t rows, int bits, int centered, int gated, int lying) {
  OrtKernelInfo info = {0};
  OrtKernelContext context = {0};
  const int64_t skip_width = width + (lying == 3), x_width = width - (lying == 4);
  const int skips = lying || rows != 2;
  set(&info, "steps", -1, lying == 5 ? 3 : 6);
  add_norm(&info, 0, 0, width, centered, skips);
  add_matrix(&info, 1, 0, width, gated ? 2 * inner : inner, bits, lying);
  set(&info, "step", 2, ACTIVATION_STEP), set(&info, "kind", 2, gated ? 2 : 0), set(&info, "gate_axis", 2, gated);
  if (lying != 5) {
    add_matrix(&info, 3, 1, inner + (lying == 2), width, bits, 0);
    add_norm(&info, 4, 1, width, centered, skips);
    add_matrix(&info, 5, 2, width, inner, bits, 0);
  }
  context.inputs[0] = shaped(numbers(rows * x_width, 40, 1), 2, (int64_t[]){rows, x_width});
  if (skips) context.inputs[1] = shaped(numbers(rows * skip_width, 40, 1), 2, (int64_t[]){rows, skip_width});
  printf("fused width=%lld inner=%lld rows=%lld bits=%d %d%d: ", (long long)width, (long long)inner, (long long)rows,
         bits, centered, gated);
  run(&edgegen_fused_layers, &info, &context, 1 + (size_t)skips);
}

static void add_attention(OrtKernelInfo *info, OrtKernelContext *context, int i, size_t number, const Attention *a) {
  set(info, "step", i, ATTENTION_STEP);
  set(info, "num_heads", i, (double)a->heads), set(info, "kv_num_heads", i, (double)a->kv_heads);
  set(info, "local_window_size", i, (double)a->window), set(info, "scale", i, 0.25), set(info, "softcap", i, a->cap);
  set(info, "do_rotary", i, a->rotary != 0), set(info, "rotary_interleaved", i, a->rotary == 2);
  const size_t begin = ATTENTION_STEP_INPUTS + INPUTS_OF_ATTENTION * number - PAST_KEY;
  give_cache(a, context->inputs + begin, info->initializers + begin);
  if (a->normed) {
    info->initializers[begin + QUERY_NORM] = numbers(a->size + (a->lying == 6), 20, 1);
    info->initializers[begin + KEY_NORM] = numbers(a->size, 20, 1);
    set(info, "query_epsilon", i, 1e-6), set(info, "key_epsilon", i, 1e-5);
  }
  for (size_t part = PAST_KEY; part <= PAST_VALUE; part++)
    context->types[2 + 2 * number + part - PAST_KEY] = CACHES[a->cache];
}

/* Two attentions, of which the second has the lengths and positions of the first, and what is between them. */
static void run_fused_attention(const Attention *a, int64_t width) {
  OrtKernelInfo info = {0};
  OrtKernelContext context = {0};
  const OrtCustomOp *operators[] = {&edgegen_fused_layers, &edgegen_fused_layers_int8, &edgegen_fused_layers_int4};
  const int64_t heads = a->heads * a->size, all = heads + 2 * a->kv_heads * a->size, rows = a->batch * a->tokens;
  set(&info, "steps", -1, 7);
  add_matrix(&info, 0, 0, width, all, 8, 0);
  add_attention(&info, &context, 1, 0, a);
  add_matrix(&info, 2, 1, heads, width, 8, 0);
  add_norm(&info, 3, 0, width, 0, 1);
  add_matrix(&info, 4, 2, width, all, 4, 0);
  add_attention(&info, &context, 5, 1, a);
  add_matrix(&info, 6, 3, heads, width, 8, 0);
  for (size_t i = LENGTHS; i <= POSITIONS && a->lying != 7; i++) {
    OrtValue **second = &context.inputs[ATTENTION_STEP_INPUTS + INPUTS_OF_ATTENTION + i - PAST_KEY];
    drop(*second), *second = NULL;
  }
  const int64_t dimensions[] = {a->batch, a->tokens, width};
  for (size_t i = 0; i < 2; i++) context.inputs[i] = shaped(numbers(rows * width, 40, 1), 3, dimensions);
  printf("fused attention heads=%lld/%lld size=%lld rows=%lld tokens=%lld past=%lld window=%lld width=%lld %d%d%d%d: ",
         (long long)a->heads, (long long)a->kv_heads, (long long)a->size, (long long)a->batch, (long long)a->tokens,
         (long long)a->past, (long long)a->window, (long long)width, a->cache, a->rotary, a->bias, a->sink);
  run(operators[a->cache], &info, &context, OUTPUTS);
}

static void run_gptq(int64_t columns, int64_t rows, int bits, int symmetric) {
  const int64_t stride = columns + 3,
                lengths[] = {columns * rows, (columns - 1) * stride + columns, rows, rows, rows, rows};
  OrtValue *in[8];
  for (size_t i = 0; i < 6; i++) in[i] = numbers(lengths[i], 40, 0);
  in[6] = tensor(ORT_UINT8, columns * rows), in[6]->type = ORT_INT8, in[7] = numbers(columns * rows, 0, 0);
  float *data[8], *factor = in[1]->data;
  for (size_t i = 0; i < 8; i++) data[i] = in[i]->data;
  for (int64_t i = 0; i < columns; i++) factor[i * stride + i] = 1.0f + (float)(i % 7);
  OrtValue *importance = numbers(columns, 1, 5);
  printf("gptq columns=%lld rows=%lld bits=%d %d: ", (long long)columns, (long long)rows, bits, symmetric);
  size_t k = (size_t)columns, n = (size_t)rows;
  int refused = edgegen_search_scales(k, n, bits, symmetric, data[0], importance->data, data[4], data[5]);
  refused |= edgegen_gptq_block(k, n, bits, symmetric, data[0], factor, (size_t)stride, data[2], data[3], in[6]->data,
                                data[7]);
  uint64_t hash = (uint64_t)refused;
  for (size_t i = 2; i < 8; i++) hash = hash * 31 + hash_of(in[i]);
  printf("%016" PRIx64 "\n", hash);
  for (size_t i = 0; i < 8; i++) drop(in[i]);
  drop(importance);
}

static void run_nearest(int64_t blocks, int64_t size, int bits) {
  OrtValue *x = numbers(blocks * size, 40, 0), *scales = numbers(blocks, 40, 0);
  OrtValue *codes = tensor(ORT_UINT8, blocks * size);
  codes->type = ORT_INT8;
  printf("nearest blocks=%lld size=%lld bits=%d: ", (long long)blocks, (long long)size, bits);
  uint64_t hash =
      (uint64_t)edgegen_round_nearest((size_t)blocks, (size_t)size, bits, x->data, scales->data, codes->data);
  printf("%016" PRIx64 "\n", (hash * 31 + hash_of(scales)) * 31 + hash_of(codes));
  drop(x), drop(scales), drop(codes);
}

static void run_others(void) {
  for (int kind = 0; kind < 96; kind++) {
    static const int64_t HEADS[][3] = {{1, 1, 8}, {4, 2, 16}, {6, 1, 40}, {3, 3, 64}, {2, 1, 72}, {4, 4, 24}};
    static const int64_t LENGTHS[][3] = {{1, 1, 0},  {1, 5, 0},  {3, 1, 70}, {1, 9, 130},
                                         {2, 7, 64}, {1, 70, 1}, {1, 1, 63}, {2, 2, 520}};
    const int64_t *h = HEADS[kind % 6], *l = LENGTHS[kind % 8];
    Attention a = {h[0],
                   h[1],
                   h[2],
                   l[0],
                   l[1],
                   l[2],
                   kind % 5 == 1   ? 16
                   : kind % 5 == 3 ? 1
                                   : -1,
                   kind < 48 ? kind & 1 : 2,
                   kind >> 1 & 1,
                   kind % 3,
                   kind % 4 == 2,
                   kind % 4 == 3,
                   kind % 7 == 2 ? 5.0f : 0,
                   0,
                   kind % 2};
    run_attention(&a);
    if (kind % 3 == 1) run_fused_attention(&a, 20 + 19 * (kind % 7));
  }
  for (int lying = 1; lying <= 14; lying++) {
    Attention a = {4, 2, 16, lying % 7 ? 2 : 1, 3, 5, -1, 1, 0, 1, 1, 1, 0, (lying - 1) % 7 + 1, lying == 13};
    if (lying <= 7) run_attention(&a);
    else run_fused_attention(&a, 40);
  }
  for (int kind = 0; kind < 8; kind++) run_gather(64 + 32 * kind, 9 + kind, kind & 1 ? 32 : 64, kind & 2 ? 4 : 8, 0);
  for (int bits = 2; bits <= 3; bits++) run_gather(160, 11, 32, bits, 0);
  for (int lying = 1; lying <= 3; lying++) run_gather(96, 10, 32, 8, lying);
  for (int kind = 0; kind < 8; kind++) run_norm(1 + 13 * kind, 1 + 5 * kind, kind & 1, 0);
  for (int lying = 1; lying <= 2; lying++) run_norm(20, 3, 1, lying);
  for (int kind = 0; kind < 14; kind++) run_activation(2 + 26 * kind, 1 + kind, kind % 7, kind > 6);
  for (int kind = 0; kind < 10; kind++) run_scan(1 + kind % 3, kind * kind, 1 + 7 * (kind % 6), 1 + 37 * kind, 0);
  for (int lying = 1; lying <= 3; lying++) run_scan(2, 3, 16, 20, lying);
  for (int kind = 0; kind < 10; kind++)
    run_convolution(1 + kind % 3, kind * kind, 1 + 37 * kind, 2 + kind % 5, kind % (ACTIVATIONS + 1), 0);
  for (int lying = 1; lying <= 3; lying++) run_convolution(2, 3, 20, 4, 0, lying);
  for (int kind = 0; kind < 10; kind++)
    run_delta(1 + kind % 2, kind, 1 + kind % 3, (1 + kind % 3) * (1 + kind % 2), 1 + 13 * kind, 1 + 16 * (kind % 6),
              kind % 2, kind % 3, 0);
  for (int lying = 1; lying <= 5; lying++) run_delta(1, 3, 2, 4, 8, 8, 0, 1, lying);
  for (int kind = 0; kind < 16; kind++) {
    static const int64_t ROWS[] = {1, 2, 1, 7, 13, 1, 40, 70};
    run_fused(20 + 37 * (kind / 2), 9 + 21 * (kind % 5), ROWS[kind % 8], kind & 1 ? 4 : 8, kind >> 1 & 1, kind >> 2 & 1,
              0);
  }
  for (int lying = 1; lying <= 5; lying++) run_fused(40, 30, 3, 8, 1, 1, lying);
  for (int kind = 0; kind < 12; kind++) {
    static const int64_t ROWS[] = {1, 2, 5, 1, 33, 0, 70};
    run_experts(30 + 29 * kind, 7 + 15 * (kind % 5), ROWS[kind % 7], 1 + kind % 9, 1 + kind % 9 / 2, kind & 1 ? 4 : 8,
                0);
  }
  for (int lying = 1; lying <= 4; lying++) run_experts(40, 30, 3, 4, 2, 8, lying);
  for (int kind = 0; kind < 10; kind++) {
    static const int64_t TOKENS[] = {1, 2, 1, 9, 0, 33};
    run_per_head(20 + 31 * kind, 5 + 17 * (kind % 4), TOKENS[kind % 6], 1 + 3 * (kind % 5), kind & 1 ? 4 : 8, 0);
  }
  for (int lying = 1; lying <= 3; lying++) run_per_head(40, 30, 3, 4, 8, lying);
  for (int kind = 0; kind < 12; kind++)
    run_gptq(kind < 3 ? kind + 1 : 8 * kind - 8, 1 + 13 * kind, kind % 3 ? 4 : 8, kind & 1);
  for (int kind = 0; kind < 8; kind++) run_nearest(7 * kind, 16 + 16 * (kind % 5) * (kind % 4), 2 + kind % 7);
}

/* Matrices and rows of x of random sizes, most of them odd. */
static void run_random(uint64_t seed) {
  of_cases ^= seed * 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < 200; i++) {
    Case c = {.columns = 1 + chance() % 330, .rows = 1 + chance() % 70, .count = 1 + chance() % (i % 2 ? 7 : 40)};
    static const int64_t BITS[] = {2, 3, 4, 8};
    c.bits = BITS[chance() % 4], c.block = c.bits > 3 && chance() & 1 ? 64 : 32;
    c.scales = SCALES[chance() % 3], c.zeros = chance() & 1, c.bias = chance() & 1;
    run_case(&c);
  }
}

int compare_parts(const char *name, uint64_t seed, size_t matrices, size_t threads);

int main(int count, char **words) {
  if (count > 1 && !strcmp(words[1], "name")) return puts(edgegen_kernels_name()) < 0;
  if (count == 6 && !strcmp(words[1], "parts"))
    return compare_parts(words[2], strtoull(words[3], NULL, 10), (size_t)atoi(words[4]), (size_t)atoi(words[5]));
  if (count > 1) threads = (size_t)atoi(words[1]);
  if (threads < 1 || threads > MOST_THREADS) return 2;
  set_table();
  if (count > 2) return run_random(strtoull(words[2], NULL, 10)), 0;
  static const int64_t SHAPES[][2] = {{1, 1},    {31, 3},   {32, 5},   {33, 33},  {64, 8}, {96, 65},
                                      {100, 31}, {160, 97}, {257, 40}, {520, 34}, {63, 2}, {129, 300}};
  static const int64_t COUNTS[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 23, 41};
  size_t next = 0;
  for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++)
    for (int kind = 0; kind < 16; kind++)
      for (int again = 0; again < 3; again++, next++) {
        Case c = {.columns = SHAPES[s][0], .rows = SHAPES[s][1], .bits = kind & 1 ? 4 : 8, .block = kind & 2 ? 64 : 32};
        c.scales = SCALES[next % 3], c.zeros = kind & 8, c.bias = (int)next & 1;
        c.count = COUNTS[(next * 5 + s) % (sizeof COUNTS / sizeof *COUNTS)];
        run_case(&c);
        if (kind % 4 > 1) continue;
        c.bits = kind & 1 ? 2 : 3;
        run_case(&c);
      }
  for (int lying = 1; lying <= 5; lying++) {
    Case c = {.columns = 100, .rows = 20, .block = 32, .bits = 8, .count = 3, .zeros = 1, .bias = 1, .lying = lying};
    c.scales = ORT_FLOAT;
    run_case(&c);
    c.bits = 4, c.block = 64, c.scales = ORT_BFLOAT16;
    run_case(&c);
  }
  run_others();
  for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++)
    for (int kind = 0; kind < 10; kind++, next++) {
      Case c = {.columns = (SHAPES[s][0] + 3) / 4 * 4 * (kind > 4 ? 5 : 1), .rows = SHAPES[s][1], .bits = 2};
      c.block = 4;
      c.scales = SCALES[next % 3], c.bias = (int)next & 1;
      c.count = COUNTS[(next * 5 + s) % (sizeof COUNTS / sizeof *COUNTS)];
      run_case(&c);
    }
  for (int lying = 1; lying <= 6; lying++) {
    Case c = {.columns = 300, .rows = 20, .block = 4, .bits = 2, .count = 3, .bias = 1, .lying = lying};
    c.scales = ORT_FLOAT;
    c.zeros = lying == 6, c.lying = lying == 3 ? 0 : lying, c.block = lying == 3 ? 16 : 4;
    run_case(&c);
  }
  return 0;
}
