/* Runs the matrix operator without ONNX Runtime: a table of functions of our own stands in for its API, each tensor lies
 * in memory of exactly its size, and the tasks of a parallel loop run in a mixed order, or on threads.
 *
 * Prints a line for each case: what it is, and a hash of what the operator gave, or the words of its error. The hashes
 * do not depend on the processor. Compiled with sanitizers, any access beyond a tensor ends the program.
 */
#include "operators.h"

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
enum { INPUTS = 5, MOST_THREADS = 3 };
struct OrtKernelInfo {
  int64_t K, N, bits, block_size;
  OrtValue *initializers[INPUTS];
};
struct OrtKernelContext {
  OrtValue *inputs[INPUTS], output;
};

/* Two rows of random numbers, because how many a loop's order takes depends on the instruction set. */
static uint64_t of_cases = 88172645463325252u, of_order = 88172645463325252u;
static uint32_t next_of(uint64_t *state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return (uint32_t)(*state >> 32);
}
static uint32_t chance(void) { return next_of(&of_cases); }

static size_t size_of(int type) { return type == ORT_FLOAT ? 4 : type == ORT_BFLOAT16 ? 2 : 1; }

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
static OrtStatus *element_type(const OrtTensorTypeAndShapeInfo *info, int *out) { return *out = info->value->type, NULL; }
static OrtStatus *rank_of(const OrtTensorTypeAndShapeInfo *info, size_t *out) { return *out = info->value->rank, NULL; }
static OrtStatus *dimensions_of(const OrtTensorTypeAndShapeInfo *info, int64_t *values, size_t count) {
  for (size_t i = 0; i < count && i < info->value->rank; i++) values[i] = info->value->dimensions[i];
  return NULL;
}
static OrtStatus *attribute(const OrtKernelInfo *info, const char *name, int64_t *out) {
  const char *names[] = {"K", "N", "bits", "block_size"};
  const int64_t values[] = {info->K, info->N, info->bits, info->block_size};
  for (size_t i = 0; i < 4; i++)
    if (!strcmp(name, names[i])) return *out = values[i], NULL;
  return create_status(ORT_FAIL, "no such attribute");
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
static OrtStatus *context_output(OrtKernelContext *context, size_t index, const int64_t *dimensions, size_t rank,
                                 OrtValue **out) {
  if (index) abort();
  context->output = (OrtValue){.type = ORT_FLOAT, .rank = rank};
  memcpy(context->output.dimensions, dimensions, rank * sizeof *dimensions);
  fill(&context->output);
  return *out = &context->output, NULL;
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

static OrtStatus *parallel(const OrtKernelContext *context, void (*function)(void *, size_t), size_t total, size_t batches,
                           void *data) {
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
  int zeros, bias, bfloat, lying; /* lying: 0, or the input that is one element short, or 5: x is */
} Case;

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
  for (size_t i = 0; i < count_of(value); i++) {
    uint32_t bits;
    memcpy(&bits, (const char *)value->data + 4 * i, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) bits = 0x7fc00000;
    for (size_t j = 0; j < 4; j++) hash = (hash ^ (bits >> j * 8 & 255)) * 1099511628211u;
  }
  return hash;
}

static void run_case(const Case *c) {
  int64_t blocks = (c->columns + c->block - 1) / c->block;
  int64_t zeros = c->bits == 8 ? blocks : (blocks + 1) / 2;
  OrtKernelInfo info = {.K = c->columns, .N = c->rows, .bits = c->bits, .block_size = c->block};
  info.initializers[1] = tensor(ORT_UINT8, c->rows * blocks * c->block * c->bits / 8 - (c->lying == 1));
  info.initializers[2] = tensor(c->bfloat ? ORT_BFLOAT16 : ORT_FLOAT, c->rows * blocks - (c->lying == 2));
  if (c->zeros) info.initializers[3] = tensor(ORT_UINT8, c->rows * zeros - (c->lying == 3));
  if (c->bias) info.initializers[4] = tensor(ORT_FLOAT, c->rows - (c->lying == 4));
  OrtValue *x = tensor(ORT_FLOAT, c->count * (c->columns - (c->lying == 5)));
  x->rank = 2, x->dimensions[0] = c->count, x->dimensions[1] = c->columns - (c->lying == 5);
  const uint32_t odd[] = {0x7fc00000, 0x7f800000, 0xff800000, 1, 0x7f7fffff, 0x0da24260, 0x80000000};
  for (size_t i = chance() % 400; i < count_of(x); i += 1 + chance() % 400) memcpy((char *)x->data + 4 * i, &odd[chance() % 7], 4);
  OrtKernelContext context = {.inputs = {x}};
  const OrtApi *api = (const OrtApi *)&table;
  const OrtCustomOp *op = &edgegen_block_matmul;
  void *kernel = NULL;
  OrtStatus *status = op->CreateKernelV2(op, api, &info, &kernel);
  if (!status) status = op->KernelComputeV2(kernel, &context);
  printf("K=%lld N=%lld block=%lld bits=%lld rows=%lld%s%s%s: ", (long long)c->columns, (long long)c->rows,
         (long long)c->block, (long long)c->bits, (long long)c->count, c->zeros ? " zeros" : "", c->bias ? " bias" : "",
         c->bfloat ? " bfloat16" : "");
  if (status) printf("%s\n", status->message);
  else printf("%016" PRIx64 "\n", hash_of(&context.output));
  free(status);
  free(context.output.data);
  if (kernel) op->KernelDestroy(kernel);
  for (size_t i = 0; i < INPUTS; i++) drop(info.initializers[i]);
  drop(x);
}

int main(int count, char **words) {
  if (count > 1) threads = (size_t)atoi(words[1]);
  if (threads < 1 || threads > MOST_THREADS) return 2;
  set_table();
  static const int64_t SHAPES[][2] = {{1, 1},  {31, 3},   {32, 5},   {33, 33},  {64, 8},  {96, 65},
                                      {100, 31}, {160, 97}, {257, 40}, {520, 34}, {63, 2}, {129, 300}};
  static const int64_t COUNTS[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 23, 41};
  size_t next = 0;
  for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++)
    for (int kind = 0; kind < 16; kind++)
      for (int again = 0; again < 3; again++, next++) {
        Case c = {.columns = SHAPES[s][0], .rows = SHAPES[s][1], .bits = kind & 1 ? 4 : 8, .block = kind & 2 ? 64 : 32};
        c.bfloat = kind & 4, c.zeros = kind & 8, c.bias = (int)next & 1;
        c.count = COUNTS[(next * 5 + s) % (sizeof COUNTS / sizeof *COUNTS)];
        run_case(&c);
      }
  for (int lying = 1; lying <= 5; lying++) {
    Case c = {.columns = 100, .rows = 20, .block = 32, .bits = 8, .count = 3, .zeros = 1, .bias = 1, .lying = lying};
    run_case(&c);
    c.bits = 4, c.block = 64, c.bfloat = 1;
    run_case(&c);
  }
  return 0;
}
