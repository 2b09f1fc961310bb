/* The operators, and what they share. Every shape and length is checked: a graph that lies gets an error. */
#ifndef EDGEGEN_OPERATORS_H
#define EDGEGEN_OPERATORS_H

#include "onnxruntime_abi.h"

#include <stdbool.h>

enum { MOST_DIMENSIONS = 8 };

extern const OrtCustomOp edgegen_block_matmul, edgegen_block_gather, edgegen_cached_attention,
    edgegen_cached_attention_int8, edgegen_norm, edgegen_activation, edgegen_fused_layers, edgegen_block_experts,
    edgegen_selective_scan, edgegen_block_matmul_per_head,
    edgegen_causal_conv, edgegen_gated_delta_rule;

OrtStatus *edgegen_failure(const OrtApi *api, int code, const char *message);

/* A tensor's type and dimensions, of which there is room for MOST_DIMENSIONS. */
OrtStatus *edgegen_shape(const OrtApi *api, const OrtValue *value, int *type, int64_t *dimensions, size_t *rank);

/* A tensor's type, count of elements and data. */
OrtStatus *edgegen_tensor(const OrtApi *api, const OrtValue *value, int *type, int64_t *count, const void **data);

/* Initializer `index`, which has so many elements of that type; NULL if there is none. */
OrtStatus *edgegen_initializer(const OrtApi *api, const OrtKernelInfo *info, size_t index, const char *name,
                               int64_t expected, int *type, const void **data);

/* Initializer `index`, whatever it has; type 0 if there is none. */
OrtStatus *edgegen_any_initializer(const OrtApi *api, const OrtKernelInfo *info, size_t index, const char *name,
                                   int *type, int64_t *count, const void **data);

/* The attribute of that name, with a number of a step behind it or nothing. */
OrtStatus *edgegen_real_attribute(const OrtApi *api, const OrtKernelInfo *info, const char *name, const char *suffix,
                                  float *out);
OrtStatus *edgegen_attribute(const OrtApi *api, const OrtKernelInfo *info, const char *name, const char *suffix,
                             int64_t *out);

/* A tensor of floats that a run takes. */
typedef struct {
  const float *data; /* NULL: the input is left out */
  size_t rank;
  int64_t dimensions[MOST_DIMENSIONS];
  int64_t count;
} FloatTensor;

OrtStatus *edgegen_input(const OrtApi *api, const OrtKernelContext *context, size_t index, FloatTensor *out);

/* The memory of output `index`, of that shape; NULL if it is left out. */
OrtStatus *edgegen_output(const OrtApi *api, OrtKernelContext *context, size_t index, const int64_t *dimensions,
                          size_t rank, float **data);

/* Whether skip has the shape of x, or of its last axes with ones before them. */
bool edgegen_broadcasts(const FloatTensor *skip, const FloatTensor *x);

/* Runs function(data, task) for each task: on ONNX Runtime's threads, or here if there are fewer than `fewest`. */
OrtStatus *edgegen_run(const OrtApi *api, const OrtKernelContext *context, size_t fewest,
                       void (*function)(void *, size_t), size_t tasks, void *data);

/* What every operator on the CPU answers. */
const char *edgegen_provider(const OrtCustomOp *op);
int edgegen_float_type(const OrtCustomOp *op, size_t index);
int edgegen_memory(const OrtCustomOp *op, size_t index);
int edgegen_one(const OrtCustomOp *op);
size_t edgegen_one_value(const OrtCustomOp *op);
int edgegen_required(const OrtCustomOp *op, size_t index);
int edgegen_first_required(const OrtCustomOp *op, size_t index);

/* The fields that all operators have alike; their kernels are made by malloc. */
#define EDGEGEN_OPERATOR                                                                                               \
  .version = ORT_API_VERSION, .GetExecutionProviderType = edgegen_provider, .KernelDestroy = free,                     \
  .GetInputMemoryType = edgegen_memory, .GetVariadicInputMinArity = edgegen_one,                                       \
  .GetVariadicInputHomogeneity = edgegen_one, .GetVariadicOutputMinArity = edgegen_one,                                \
  .GetVariadicOutputHomogeneity = edgegen_one, .GetStartVersion = edgegen_one, .GetEndVersion = edgegen_one

#endif
