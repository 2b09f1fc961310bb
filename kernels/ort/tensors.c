/* What the operators share: reading tensors, initializers and attributes, each length checked. */
#include "operators.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#else
#include <unistd.h>
#endif

enum { FEWEST_WORKERS = 8, MOST_WORKERS = 64, LEAST_KEPT = 1 << 20, MOST_KEPT = 64 << 20 };

OrtStatus *edgegen_failure(const OrtApi *api, int code, const char *message) {
  return ORT_CALL(api, ORT_CREATE_STATUS, OrtCreateStatus)(code, message);
}

/* A tensor's type and dimensions. */
OrtStatus *edgegen_shape(const OrtApi *api, const OrtValue *value, int *type, int64_t *dimensions, size_t *rank) {
  OrtTensorTypeAndShapeInfo *info;
  OrtStatus *status = ORT_CALL(api, ORT_GET_TENSOR_TYPE_AND_SHAPE, OrtGetTensorTypeAndShape)(value, &info);
  if (status) return status;
  *rank = 0;
  status = ORT_CALL(api, ORT_GET_TENSOR_ELEMENT_TYPE, OrtGetTensorElementType)(info, type);
  if (!status) status = ORT_CALL(api, ORT_GET_DIMENSIONS_COUNT, OrtGetDimensionsCount)(info, rank);
  if (!status && *rank > MOST_DIMENSIONS)
    status = edgegen_failure(api, ORT_INVALID_ARGUMENT, "a tensor has more than 8 dimensions");
  if (!status) status = ORT_CALL(api, ORT_GET_DIMENSIONS, OrtGetDimensions)(info, dimensions, *rank);
  ORT_CALL(api, ORT_RELEASE_TENSOR_TYPE_AND_SHAPE_INFO, OrtReleaseTensorTypeAndShapeInfo)(info);
  return status;
}

/* A tensor's type, count of elements and data. */
OrtStatus *edgegen_tensor(const OrtApi *api, const OrtValue *value, int *type, int64_t *count, const void **data) {
  size_t rank;
  int64_t dimensions[MOST_DIMENSIONS];
  OrtStatus *status = edgegen_shape(api, value, type, dimensions, &rank);
  if (status) return status;
  *count = 1;
  for (size_t i = 0; i < rank; i++) {
    if (dimensions[i] < 0 || (dimensions[i] && *count > INT64_MAX / dimensions[i]))
      return edgegen_failure(api, ORT_INVALID_ARGUMENT, "a tensor has an impossible shape");
    *count *= dimensions[i];
  }
  void *found;
  status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)((OrtValue *)value, &found);
  *data = found;
  return status;
}

/* Whether a node gives input `index`, or the graph does, rather than nobody. */
static bool is_given(const OrtApi *api, const OrtKernelInfo *info, size_t index) {
  size_t count = 0, size = 0; /* of the name, with its end */
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_INFO_GET_INPUT_COUNT, OrtKernelInfoGetInputCount)(info, &count);
  if (!status && index < count)
    status = ORT_CALL(api, ORT_KERNEL_INFO_GET_INPUT_NAME, OrtKernelInfoGetInputName)(info, index, NULL, &size);
  if (status) ORT_CALL(api, ORT_RELEASE_STATUS, OrtReleaseStatus)(status);
  return size > 1;
}

/* Initializer `index`, whatever it has; type 0 if there is none. */
OrtStatus *edgegen_any_initializer(const OrtApi *api, const OrtKernelInfo *info, size_t index, const char *name,
                                   int *type, int64_t *count, const void **data) {
  int constant = 0;
  const OrtValue *value = NULL;
  *data = NULL, *type = 0, *count = 0;
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_INFO_GET_CONSTANT_INPUT_TENSOR,
                               OrtKernelInfoGetConstantInputTensor)(info, index, &constant, &value);
  /* Some versions fail for an input that is left out, or that comes from another node. */
  if (status) ORT_CALL(api, ORT_RELEASE_STATUS, OrtReleaseStatus)(status);
  if (status || !constant || !value) {
    if (!is_given(api, info, index)) return NULL;
    char message[160];
    snprintf(message, sizeof message, "%s must be an initializer: another node or the graph's caller gives them", name);
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, message);
  }
  return edgegen_tensor(api, value, type, count, data);
}

/* Initializer `index`, which has so many elements of that type, any of scales for ORT_ANY_TYPE; NULL if there is none. */
OrtStatus *edgegen_initializer(const OrtApi *api, const OrtKernelInfo *info, size_t index, const char *name,
                               int64_t expected, int *type, const void **data) {
  int64_t count;
  int found;
  OrtStatus *status = edgegen_any_initializer(api, info, index, name, &found, &count, data);
  if (status || !found) return status; /* an empty one has no data, and is not left out */
  bool fits = found == *type;
  if (*type == ORT_ANY_TYPE) fits = found == ORT_FLOAT || found == ORT_BFLOAT16 || found == ORT_FLOAT16;
  if (!fits || count != expected) {
    char message[160];
    snprintf(message, sizeof message, "%s have %lld elements of type %d, which is not what the attributes say", name,
             (long long)count, found);
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, message);
  }
  *type = found;
  return NULL;
}

/* The name of an attribute with what is behind it. */
typedef struct {
  char text[40];
} Name;
static Name whole_name(const char *name, const char *suffix) {
  Name whole;
  snprintf(whole.text, sizeof whole.text, "%s%s", name, suffix);
  return whole;
}

OrtStatus *edgegen_real_attribute(const OrtApi *api, const OrtKernelInfo *info, const char *name, const char *suffix,
                                  float *out) {
  Name whole = whole_name(name, suffix);
  return ORT_CALL(api, ORT_KERNEL_INFO_GET_ATTRIBUTE_FLOAT, OrtKernelInfoGetAttributeFloat)(info, whole.text, out);
}

OrtStatus *edgegen_attribute(const OrtApi *api, const OrtKernelInfo *info, const char *name, const char *suffix,
                             int64_t *out) {
  Name whole = whole_name(name, suffix);
  return ORT_CALL(api, ORT_KERNEL_INFO_GET_ATTRIBUTE_INT64, OrtKernelInfoGetAttributeInt64)(info, whole.text, out);
}

OrtStatus *edgegen_input(const OrtApi *api, const OrtKernelContext *context, size_t index, FloatTensor *out) {
  *out = (FloatTensor){0};
  size_t inputs;
  const OrtValue *value = NULL;
  OrtStatus *status =
      ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT_COUNT, OrtKernelContextGetInputCount)(context, &inputs);
  if (status || index >= inputs) return status;
  status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT, OrtKernelContextGetInput)(context, index, &value);
  if (status || !value) return status;
  int type;
  if ((status = edgegen_shape(api, value, &type, out->dimensions, &out->rank))) return status;
  if (out->rank < 1) return edgegen_failure(api, ORT_INVALID_ARGUMENT, "an input must have 1 to 8 dimensions");
  out->count = 1; /* it cannot overflow: ONNX Runtime has the memory */
  for (size_t i = 0; i < out->rank; i++) out->count *= out->dimensions[i];
  void *data;
  status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)((OrtValue *)value, &data);
  out->data = data;
  return status;
}

OrtStatus *edgegen_output(const OrtApi *api, OrtKernelContext *context, size_t index, const int64_t *dimensions,
                          size_t rank, float **data) {
  *data = NULL;
  size_t outputs;
  OrtValue *value = NULL;
  OrtStatus *status =
      ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT_COUNT, OrtKernelContextGetOutputCount)(context, &outputs);
  if (status || index >= outputs) return status;
  status =
      ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT, OrtKernelContextGetOutput)(context, index, dimensions, rank, &value);
  if (status || !value) return status;
  void *found = NULL;
  status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)(value, &found);
  *data = found;
  return status;
}

OrtStatus *edgegen_pending(const OrtApi *api, OrtKernelContext *context, size_t index, size_t out, int64_t batch,
                           int64_t tokens, size_t width, Pending *pending) {
  FloatTensor rows, spans;
  OrtStatus *status;
  *pending = (Pending){.width = width, .tokens = (size_t)tokens};
  if ((status = edgegen_input(api, context, index, &rows)) || !rows.data) return status;
  if ((status = edgegen_input(api, context, index + 1, &spans))) return status;
  const int64_t *d = rows.dimensions;
  if (rows.rank != 3 || d[0] != batch || d[2] < (int64_t)width || !spans.data || spans.rank != 2 ||
      spans.dimensions[0] != batch || spans.dimensions[1] != 2)
    return edgegen_failure(api, ORT_INVALID_ARGUMENT, "pending tokens do not have shapes that fit");
  pending->spans = (const int32_t *)spans.data, pending->most = (size_t)d[1], pending->width = (size_t)d[2];
  for (int64_t b = 0; b < batch; b++) {
    int64_t first = pending->spans[2 * b], whole = pending->spans[2 * b + 1];
    if (first < 0 || first > d[1] || (first && !tokens) || whole < 0 || whole > tokens || tokens - whole > d[1])
      return edgegen_failure(api, ORT_INVALID_ARGUMENT, "there are not so many pending tokens");
  }
  if ((status = edgegen_output(api, context, out, d, 3, &pending->left))) return status;
  if (!pending->left) return edgegen_failure(api, ORT_INVALID_ARGUMENT, "pending tokens have no place");
  pending->pending = rows.data;
  return NULL;
}

float *edgegen_columns_aside(const Columns *columns) {
  float *aside = malloc(columns->rows * columns->count * sizeof *aside + 1);
  for (size_t i = 0; aside && i < columns->rows; i++)
    memcpy(aside + i * columns->count, columns->at + i * columns->width, columns->count * sizeof *aside);
  return aside;
}

void edgegen_columns_back(const Columns *columns, float *aside) {
  for (size_t i = 0; i < columns->rows; i++)
    memcpy(columns->at + i * columns->width, aside + i * columns->count, columns->count * sizeof *aside);
  free(aside);
}

bool edgegen_broadcasts(const FloatTensor *skip, const FloatTensor *x) {
  if (skip->rank > x->rank) return false;
  bool whole = true; /* until an axis that is repeated */
  for (size_t i = skip->rank; i-- > 0;) {
    int64_t there = x->dimensions[x->rank - skip->rank + i], here = skip->dimensions[i];
    if (here != there || !whole) whole = false;
    if (!whole && here != 1) return false;
  }
  return skip->dimensions[skip->rank - 1] == x->dimensions[x->rank - 1];
}

OrtStatus *edgegen_run(const OrtApi *api, const OrtKernelContext *context, size_t fewest,
                       void (*function)(void *, size_t), size_t tasks, void *data) {
  if (tasks >= fewest)
    return ORT_CALL(api, ORT_KERNEL_CONTEXT_PARALLEL_FOR, OrtKernelContextParallelFor)(context, function, tasks, 0,
                                                                                       data);
  for (size_t task = 0; task < tasks; task++) function(data, task);
  return NULL;
}

static long processors(void) {
#if defined(_WIN32)
  return (long)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
#else
  return sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

size_t edgegen_workers(size_t tasks) {
  static atomic_size_t known; /* 0: not yet; who asks first does not matter */
  size_t most = atomic_load_explicit(&known, memory_order_relaxed);
  if (!most) {
    const long there = processors();
    most = there < FEWEST_WORKERS ? FEWEST_WORKERS : there > MOST_WORKERS ? MOST_WORKERS : (size_t)there;
    atomic_store_explicit(&known, most, memory_order_relaxed);
  }
  return tasks < most ? tasks : most;
}

/* A block's size stands in a line of its own before it. */
enum { BEFORE = 64 };
static _Atomic(uint8_t *) kept;

void *edgegen_take_memory(size_t size) {
  if (size > SIZE_MAX - BEFORE) return NULL;
  uint8_t *block = NULL;
  if (size >= LEAST_KEPT && size <= MOST_KEPT && (block = atomic_exchange(&kept, NULL))) {
    if (*(size_t *)block >= size) return block + BEFORE;
    free(block);
  }
  if (!(block = malloc(size + BEFORE))) return NULL;
  *(size_t *)block = size;
  return block + BEFORE;
}

void edgegen_give_memory_back(void *memory) {
  if (!memory) return;
  uint8_t *block = (uint8_t *)memory - BEFORE;
  const size_t size = *(size_t *)block;
  if (size >= LEAST_KEPT && size <= MOST_KEPT) block = atomic_exchange(&kept, block);
  free(block);
}

const char *edgegen_provider(const OrtCustomOp *op) { return (void)op, "CPUExecutionProvider"; }
int edgegen_float_type(const OrtCustomOp *op, size_t index) { return (void)op, (void)index, ORT_FLOAT; }
int edgegen_memory(const OrtCustomOp *op, size_t index) { return (void)op, (void)index, 0; }
int edgegen_one(const OrtCustomOp *op) { return (void)op, 1; }
size_t edgegen_one_value(const OrtCustomOp *op) { return (void)op, 1; }
int edgegen_required(const OrtCustomOp *op, size_t index) { return (void)op, (void)index, ORT_REQUIRED; }
int edgegen_first_required(const OrtCustomOp *op, size_t index) {
  return (void)op, index ? ORT_OPTIONAL : ORT_REQUIRED;
}
