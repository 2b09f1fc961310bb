/* The operators, and what they share. Every shape and length is checked: a graph that lies gets an error. */
#ifndef EDGEGEN_OPERATORS_H
#define EDGEGEN_OPERATORS_H

#include "onnxruntime_abi.h"

#include <stdbool.h>

enum { MOST_DIMENSIONS = 8 };

extern const OrtCustomOp edgegen_block_matmul, edgegen_block_gather, edgegen_cached_attention,
    edgegen_cached_attention_int8;

OrtStatus *edgegen_failure(const OrtApi *api, int code, const char *message);

/* A tensor's type and dimensions, of which there is room for MOST_DIMENSIONS. */
OrtStatus *edgegen_shape(const OrtApi *api, const OrtValue *value, int *type, int64_t *dimensions, size_t *rank);

/* A tensor's type, count of elements and data. */
OrtStatus *edgegen_tensor(const OrtApi *api, const OrtValue *value, int *type, int64_t *count, const void **data);

/* Initializer `index`, which has so many elements of that type; NULL if there is none. */
OrtStatus *edgegen_initializer(const OrtApi *api, const OrtKernelInfo *info, size_t index, const char *name,
                               int64_t expected, int *type, const void **data);

/* Initializer `index`, whatever it has; NULL if there is none. */
OrtStatus *edgegen_any_initializer(const OrtApi *api, const OrtKernelInfo *info, size_t index, const char *name,
                                   int *type, int64_t *count, const void **data);

OrtStatus *edgegen_real_attribute(const OrtApi *api, const OrtKernelInfo *info, const char *name, float *out);
OrtStatus *edgegen_attribute(const OrtApi *api, const OrtKernelInfo *info, const char *name, int64_t *out);

#endif
