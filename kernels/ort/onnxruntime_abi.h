/* What is used of ONNX Runtime's C API: places in its table of functions, to which every version appends.
 *
 * tests/kernels checks each place against the ONNX Runtime that is installed.
 */
#ifndef EDGEGEN_ONNXRUNTIME_ABI_H
#define EDGEGEN_ONNXRUNTIME_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;

typedef void (*OrtFunction)(void);
typedef struct {
  OrtFunction at[1]; /* as many as the version has */
} OrtApi;
typedef struct {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_API_VERSION = 18, ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };
enum { ORT_FLOAT = 1, ORT_UINT8 = 2, ORT_INT8 = 3, ORT_INT32 = 6, ORT_INT64 = 7, ORT_FLOAT16 = 10, ORT_BFLOAT16 = 16, ORT_ANY_TYPE = 0 };
enum { ORT_REQUIRED = 0, ORT_OPTIONAL = 1 };

#define ORT_CALL(api, place, type) ((type)(api)->at[place])

typedef OrtStatus *(*OrtCreateStatus)(int code, const char *message);
typedef OrtStatus *(*OrtCreateCustomOpDomain)(const char *name, OrtCustomOpDomain **out);
typedef OrtStatus *(*OrtCustomOpDomainAdd)(OrtCustomOpDomain *domain, const void *op);
typedef OrtStatus *(*OrtAddCustomOpDomain)(OrtSessionOptions *options, OrtCustomOpDomain *domain);
typedef OrtStatus *(*OrtGetTensorMutableData)(OrtValue *value, void **out);
typedef OrtStatus *(*OrtGetTensorElementType)(const OrtTensorTypeAndShapeInfo *info, int *out);
typedef OrtStatus *(*OrtGetDimensionsCount)(const OrtTensorTypeAndShapeInfo *info, size_t *out);
typedef OrtStatus *(*OrtGetDimensions)(const OrtTensorTypeAndShapeInfo *info, int64_t *values, size_t count);
typedef OrtStatus *(*OrtGetTensorTypeAndShape)(const OrtValue *value, OrtTensorTypeAndShapeInfo **out);
typedef OrtStatus *(*OrtKernelInfoGetAttributeFloat)(const OrtKernelInfo *info, const char *name, float *out);
typedef OrtStatus *(*OrtKernelInfoGetAttributeInt64)(const OrtKernelInfo *info, const char *name, int64_t *out);
typedef OrtStatus *(*OrtKernelContextGetInputCount)(const OrtKernelContext *context, size_t *out);
typedef OrtStatus *(*OrtKernelContextGetOutputCount)(const OrtKernelContext *context, size_t *out);
typedef OrtStatus *(*OrtKernelContextGetInput)(const OrtKernelContext *context, size_t index, const OrtValue **out);
typedef OrtStatus *(*OrtKernelContextGetOutput)(OrtKernelContext *context, size_t index, const int64_t *dimensions,
                                                size_t count, OrtValue **out);
typedef void (*OrtReleaseStatus)(OrtStatus *status);
typedef void (*OrtReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *info);
typedef OrtStatus *(*OrtKernelInfoGetInputCount)(const OrtKernelInfo *info, size_t *out);
typedef OrtStatus *(*OrtKernelInfoGetInputName)(const OrtKernelInfo *info, size_t index, char *out, size_t *size);
typedef OrtStatus *(*OrtHasSessionConfigEntry)(const OrtSessionOptions *options, const char *key, int *out);
typedef OrtStatus *(*OrtGetSessionConfigEntry)(const OrtSessionOptions *options, const char *key, char *out,
                                               size_t *size);
typedef OrtStatus *(*OrtKernelInfoGetConstantInputTensor)(const OrtKernelInfo *info, size_t index, int *constant,
                                                          const OrtValue **out);
typedef OrtStatus *(*OrtKernelContextParallelFor)(const OrtKernelContext *context, void (*function)(void *, size_t),
                                                  size_t total, size_t batches, void *data);

enum {
  ORT_CREATE_STATUS = 0,
  ORT_CREATE_CUSTOM_OP_DOMAIN = 26,
  ORT_CUSTOM_OP_DOMAIN_ADD = 27,
  ORT_ADD_CUSTOM_OP_DOMAIN = 28,
  ORT_GET_TENSOR_MUTABLE_DATA = 51,
  ORT_GET_TENSOR_ELEMENT_TYPE = 60,
  ORT_GET_DIMENSIONS_COUNT = 61,
  ORT_GET_DIMENSIONS = 62,
  ORT_GET_TENSOR_TYPE_AND_SHAPE = 65,
  ORT_KERNEL_INFO_GET_ATTRIBUTE_FLOAT = 85,
  ORT_KERNEL_INFO_GET_ATTRIBUTE_INT64 = 86,
  ORT_KERNEL_CONTEXT_GET_INPUT_COUNT = 88,
  ORT_KERNEL_CONTEXT_GET_OUTPUT_COUNT = 89,
  ORT_KERNEL_CONTEXT_GET_INPUT = 90,
  ORT_KERNEL_CONTEXT_GET_OUTPUT = 91,
  ORT_RELEASE_STATUS = 93,
  ORT_RELEASE_TENSOR_TYPE_AND_SHAPE_INFO = 99,
  ORT_KERNEL_INFO_GET_INPUT_COUNT = 230,
  ORT_KERNEL_INFO_GET_INPUT_NAME = 232,
  ORT_HAS_SESSION_CONFIG_ENTRY = 237,
  ORT_GET_SESSION_CONFIG_ENTRY = 238,
  ORT_KERNEL_INFO_GET_CONSTANT_INPUT_TENSOR = 249,
  ORT_KERNEL_CONTEXT_PARALLEL_FOR = 274
};

typedef struct OrtCustomOp OrtCustomOp;
struct OrtCustomOp {
  uint32_t version;
  void *(*CreateKernel)(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info);
  const char *(*GetName)(const OrtCustomOp *op);
  const char *(*GetExecutionProviderType)(const OrtCustomOp *op);
  int (*GetInputType)(const OrtCustomOp *op, size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp *op);
  int (*GetOutputType)(const OrtCustomOp *op, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp *op);
  void (*KernelCompute)(void *kernel, OrtKernelContext *context);
  void (*KernelDestroy)(void *kernel);
  int (*GetInputCharacteristic)(const OrtCustomOp *op, size_t index);
  int (*GetOutputCharacteristic)(const OrtCustomOp *op, size_t index);
  int (*GetInputMemoryType)(const OrtCustomOp *op, size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp *op);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp *op);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp *op);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp *op);
  OrtStatus *(*CreateKernelV2)(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel);
  OrtStatus *(*KernelComputeV2)(void *kernel, OrtKernelContext *context);
  OrtStatus *(*InferOutputShapeFn)(const OrtCustomOp *op, void *context);
  int (*GetStartVersion)(const OrtCustomOp *op);
  int (*GetEndVersion)(const OrtCustomOp *op);
  size_t (*GetMayInplace)(int **inputs, int **outputs);
  void (*ReleaseMayInplace)(int *inputs, int *outputs);
  size_t (*GetAliasMap)(int **inputs, int **outputs);
  void (*ReleaseAliasMap)(int *inputs, int *outputs);
};

#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(OrtCustomOp) == 208, "as ONNX Runtime has it");
_Static_assert(offsetof(OrtCustomOp, CreateKernelV2) == 136, "as ONNX Runtime has it");
_Static_assert(offsetof(OrtCustomOp, GetStartVersion) == 160, "as ONNX Runtime has it");
#endif

#endif
