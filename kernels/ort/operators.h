/* The operators, and what they share. Every shape and length is checked: a graph that lies gets an error. */
#ifndef EDGEGEN_OPERATORS_H
#define EDGEGEN_OPERATORS_H

#include "onnxruntime_abi.h"

#include <stdbool.h>

enum { MOST_DIMENSIONS = 8 };

extern const OrtCustomOp edgegen_block_matmul, edgegen_block_gather, edgegen_cached_attention,
    edgegen_cached_attention_int8, edgegen_cached_attention_int4, edgegen_norm, edgegen_activation,
    edgegen_fused_layers, edgegen_fused_layers_int8, edgegen_fused_layers_int4, edgegen_block_experts,
    edgegen_selective_scan, edgegen_block_matmul_per_head, edgegen_causal_conv, edgegen_gated_delta_rule;

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

/* Tokens that a state can be left without: of some that were run earlier, the inputs are given, and of a run's last
 * ones they are given back. So what is rejected of these never was in the state, and nothing has to be copied. */
typedef struct {
  const float *pending; /* [batch][most][width]; NULL: all tokens of a run become part of the state */
  float *left;          /* as pending, whose memory it may be */
  const int32_t *spans; /* [batch][2]: how many pending tokens come first; how many of the run's become part of it */
  size_t most, width, tokens;
} Pending;

/* Inputs `index` and the next one, and output `out`, of a run of so many tokens; each has `width` floats. */
OrtStatus *edgegen_pending(const OrtApi *api, OrtKernelContext *context, size_t index, size_t out, int64_t batch,
                           int64_t tokens, size_t width, Pending *pending);

static inline size_t edgegen_first_tokens(const Pending *pending, size_t batch) {
  return pending->pending ? (size_t)pending->spans[2 * batch] : 0;
}
static inline size_t edgegen_whole_tokens(const Pending *pending, size_t batch) {
  return pending->pending ? (size_t)pending->spans[2 * batch + 1] : pending->tokens;
}

/* Columns of a matrix [rows][width], which are put aside and back. */
typedef struct {
  float *at;
  size_t rows, width, count;
} Columns;

float *edgegen_columns_aside(const Columns *columns); /* NULL: no memory */
void edgegen_columns_back(const Columns *columns, float *aside);

/* Whether skip has the shape of x, or of its last axes with ones before them. */
bool edgegen_broadcasts(const FloatTensor *skip, const FloatTensor *x);

/* Runs function(data, task) for each task: on ONNX Runtime's threads, or here if there are fewer than `fewest`. */
OrtStatus *edgegen_run(const OrtApi *api, const OrtKernelContext *context, size_t fewest,
                       void (*function)(void *, size_t), size_t tasks, void *data);

/* How many of those calls are worth memory of their own: as many as the system has processors, or FEWEST_WORKERS, since
 * there may be more threads, and `tasks` at most. */
size_t edgegen_workers(size_t tasks);

/* Memory of one call; NULL if there is none. Up to MOST_KEPT bytes of it are kept for the next call, whoever makes it:
 * the C library would take larger blocks from the system each time, a page after the other. */
void *edgegen_take_memory(size_t size);
void edgegen_give_memory_back(void *memory); /* or NULL */

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

/* These, and what the file of an operator whose outputs are floats calls the same in all of them. */
#define EDGEGEN_FLOAT_OPERATOR                                                                                         \
  EDGEGEN_OPERATOR, .GetName = name, .GetOutputType = edgegen_float_type, .CreateKernelV2 = create

#endif
