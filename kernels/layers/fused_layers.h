/* Fused layers: matrices, norms, activations and attention that follow one another, computed in one loop over ONNX
 * Runtime's threads.
 *
 * Each step takes what the one before it gives. Norms may add what is skipped: the first that does takes an input of
 * the operator, the others the sum of the one before.
 */
#ifndef EDGEGEN_FUSED_LAYERS_H
#define EDGEGEN_FUSED_LAYERS_H

#include "attention/cached_attention.h"
#include "floats/floats.h"
#include "matmul/matrix.h"
#include "ort/operators.h"

enum { MOST_STEPS = 64, MOST_MATRICES = 33, MOST_NORMS = 33, MOST_ATTENTIONS = 8 };

/* Where the inputs of each kind of steps begin: so each input has its type, and an operator's description is short. */
enum {
  MATRIX_INPUTS = 2,
  NORM_INPUTS = MATRIX_INPUTS + 4 * MOST_MATRICES,
  ATTENTION_STEP_INPUTS = NORM_INPUTS + 3 * MOST_NORMS,
  INPUTS_OF_ATTENTION = ATTENTION_INPUTS - PAST_KEY,
  FUSED_INPUTS = ATTENTION_STEP_INPUTS + INPUTS_OF_ATTENTION * MOST_ATTENTIONS
};

typedef enum { MATRIX_STEP, NORM_STEP, ACTIVATION_STEP, ATTENTION_STEP, STEP_KINDS } StepKind;

typedef struct {
  StepKind kind;
  size_t columns, rows; /* floats of a row that the step takes, and that it gives */
  Matrix matrix;
  Norm norm;
  bool skips; /* of a norm: something is added first */
  Activation activation;
  size_t gate_axis; /* of an activation: 0, or the last axis, whose second half is multiplied in */
  size_t attention; /* which of the layers' attentions: its number */
} Step;

typedef struct {
  const OrtApi *api;
  const char *wrong_width; /* the error where x has rows of another width */
  const Kernels *kernels;
  const FloatKernels *floats;
  size_t count;                 /* of steps; the last is a matrix or a norm */
  size_t first_skip, sum_width; /* the first step that skips, and the width of what is skipped; 0 if none does */
  size_t matrices, norms, attentions;
  Step steps[MOST_STEPS];
  CachedAttention attention[MOST_ATTENTIONS];
} FusedLayers;

/* Reads a matrix: codes, scales, zero points and biases from input `first` on, and attributes, whose names end so. */
OrtStatus *edgegen_read_matrix(const OrtApi *api, const OrtKernelInfo *info, size_t first, const char *suffix,
                               Matrix *out);

/* Reads the first of `count` matrices of that size; the others lie behind it. */
OrtStatus *edgegen_read_matrices(const OrtApi *api, const OrtKernelInfo *info, size_t first, const char *suffix,
                                 int64_t count, Matrix *out);

/* The inputs of an operator whose first is x and whose others are matrices, as BlockMatMul has them. */
int edgegen_matrix_input_type(const OrtCustomOp *op, size_t index);
size_t edgegen_matrix_input_count(const OrtCustomOp *op);
int edgegen_matrix_input_characteristic(const OrtCustomOp *op, size_t index);

/* Reads a norm, of the inputs with its weight, biases and skipped biases; the last two may be left out. */
OrtStatus *edgegen_read_norm(const OrtApi *api, const OrtKernelInfo *info, const size_t inputs[3], const char *suffix,
                             Norm *out);

/* Reads the attributes of an activation; `wrong` is the error where there is no such kind or axis. */
OrtStatus *edgegen_read_activation(const OrtApi *api, const OrtKernelInfo *info, const char *suffix, const char *wrong,
                                   Activation *out, size_t *gate_axis);

/* Runs FusedLayers. Inputs: x float [..., columns of the first step]; what is skipped (optional). Outputs: what the
 * last step gives; the last sum of a norm (optional); present keys and values of each attention. */
OrtStatus *edgegen_run_fused(void *state, OrtKernelContext *context);

#endif
