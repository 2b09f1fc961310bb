/* An operator that asks ONNX Runtime, by each place of onnxruntime_abi.h, for what is known otherwise.
 *
 * test_abi.py builds the graph: "Probe" of the domain "probe" with the attributes n = 42 and r = 0.5, the inputs x
 * (float [2, 3]: 0 to 5), weights (an initializer, uint8 [2, 2]: 1 to 4), one that is left out, and again x; one
 * output.
 */
#include "ort/operators.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

enum { GET_ERROR_CODE = 1, GET_ERROR_MESSAGE = 2, TASKS = 1000, MANY = 2000 };

static char report[8192];
static const OrtApi *api;

/* A line for each place: its name, and whether what it gave is right. */
static void say(const char *name, bool right) {
  size_t length = strlen(report);
  snprintf(report + length, sizeof report - length, "%s %s\n", name, right ? "right" : "wrong");
}
#define CHECK(place, right) say(#place, right)

__attribute__((visibility("default"))) const char *probe_report(void) { return report; }

/* Bytes in use; 0 where the C library does not tell. */
static size_t in_use(void) {
#if defined(__GLIBC__)
  return mallinfo2().uordblks;
#else
  return 0;
#endif
}

static OrtStatus *text_status(void) {
  char words[1001] = {0};
  memset(words, 'a', 1000);
  return ORT_CALL(api, ORT_CREATE_STATUS, OrtCreateStatus)(ORT_INVALID_ARGUMENT, words);
}

static void check_status(void) {
  OrtStatus *status = text_status();
  int code = ((int (*)(const OrtStatus *))api->at[GET_ERROR_CODE])(status);
  const char *words = ((const char *(*)(const OrtStatus *))api->at[GET_ERROR_MESSAGE])(status);
  CHECK(ORT_CREATE_STATUS, code == ORT_INVALID_ARGUMENT && strlen(words) == 1000 && words[999] == 'a');
  ORT_CALL(api, ORT_RELEASE_STATUS, OrtReleaseStatus)(status);
  size_t before = in_use();
  for (size_t i = 0; i < MANY; i++) ORT_CALL(api, ORT_RELEASE_STATUS, OrtReleaseStatus)(text_status());
  CHECK(ORT_RELEASE_STATUS, in_use() < before + MANY * 100);
}

/* An entry of the configuration that abi.py makes, and one that nobody made. */
static void check_entries(const OrtSessionOptions *options) {
  OrtHasSessionConfigEntry has = ORT_CALL(api, ORT_HAS_SESSION_CONFIG_ENTRY, OrtHasSessionConfigEntry);
  int there = 0, other = 1;
  OrtStatus *status = has(options, "probe.entry", &there);
  CHECK(ORT_HAS_SESSION_CONFIG_ENTRY, !status && there && !has(options, "probe.none", &other) && !other);
  char value[16] = {0};
  size_t size = sizeof value, few = 3;
  OrtGetSessionConfigEntry get = ORT_CALL(api, ORT_GET_SESSION_CONFIG_ENTRY, OrtGetSessionConfigEntry);
  status = get(options, "probe.entry", value, &size);
  OrtStatus *refused = get(options, "probe.entry", value, &few);
  CHECK(ORT_GET_SESSION_CONFIG_ENTRY, !status && size == 6 && !strcmp(value, "words") && refused);
  if (refused) ORT_CALL(api, ORT_RELEASE_STATUS, OrtReleaseStatus)(refused);
}

static void check_tensor(const OrtValue *value) {
  size_t before = in_use();
  OrtTensorTypeAndShapeInfo *info = NULL;
  for (size_t i = 0; i < MANY; i++) {
    ORT_CALL(api, ORT_GET_TENSOR_TYPE_AND_SHAPE, OrtGetTensorTypeAndShape)(value, &info);
    if (i + 1 < MANY) ORT_CALL(api, ORT_RELEASE_TENSOR_TYPE_AND_SHAPE_INFO, OrtReleaseTensorTypeAndShapeInfo)(info);
  }
  CHECK(ORT_RELEASE_TENSOR_TYPE_AND_SHAPE_INFO, in_use() < before + MANY * 16);
  int type = 0;
  size_t rank = 0;
  int64_t dimensions[3] = {0, 0, 99};
  OrtStatus *status = ORT_CALL(api, ORT_GET_TENSOR_ELEMENT_TYPE, OrtGetTensorElementType)(info, &type);
  CHECK(ORT_GET_TENSOR_ELEMENT_TYPE, !status && type == ORT_UINT8);
  status = ORT_CALL(api, ORT_GET_DIMENSIONS_COUNT, OrtGetDimensionsCount)(info, &rank);
  CHECK(ORT_GET_DIMENSIONS_COUNT, !status && rank == 2);
  status = ORT_CALL(api, ORT_GET_DIMENSIONS, OrtGetDimensions)(info, dimensions, 2);
  CHECK(ORT_GET_DIMENSIONS, !status && dimensions[0] == 2 && dimensions[1] == 2 && dimensions[2] == 99);
  CHECK(ORT_GET_TENSOR_TYPE_AND_SHAPE, rank == 2);
  ORT_CALL(api, ORT_RELEASE_TENSOR_TYPE_AND_SHAPE_INFO, OrtReleaseTensorTypeAndShapeInfo)(info);
  void *data = NULL;
  status = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData)((OrtValue *)value, &data);
  CHECK(ORT_GET_TENSOR_MUTABLE_DATA, !status && !memcmp(data, "\1\2\3\4", 4));
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *given, const OrtKernelInfo *info, void **out) {
  (void)op;
  CHECK(CreateKernelV2, given == api);
  int64_t n = 0;
  float r = 0;
  OrtStatus *status = ORT_CALL(api, ORT_KERNEL_INFO_GET_ATTRIBUTE_INT64, OrtKernelInfoGetAttributeInt64)(info, "n", &n);
  CHECK(ORT_KERNEL_INFO_GET_ATTRIBUTE_INT64, !status && n == 42);
  status = ORT_CALL(api, ORT_KERNEL_INFO_GET_ATTRIBUTE_FLOAT, OrtKernelInfoGetAttributeFloat)(info, "r", &r);
  CHECK(ORT_KERNEL_INFO_GET_ATTRIBUTE_FLOAT, !status && r == 0.5f);
  size_t count = 0, size = 0, none = 9;
  char name[16] = {0};
  status = ORT_CALL(api, ORT_KERNEL_INFO_GET_INPUT_COUNT, OrtKernelInfoGetInputCount)(info, &count);
  CHECK(ORT_KERNEL_INFO_GET_INPUT_COUNT, !status && count == 4);
  OrtKernelInfoGetInputName name_of = ORT_CALL(api, ORT_KERNEL_INFO_GET_INPUT_NAME, OrtKernelInfoGetInputName);
  bool named =
      !name_of(info, 1, NULL, &size) && size == 8 && !name_of(info, 1, name, &size) && !strcmp(name, "weights");
  CHECK(ORT_KERNEL_INFO_GET_INPUT_NAME, named && !name_of(info, 2, NULL, &none) && none == 1);
  int constant = 0, other = 0;
  const OrtValue *value = NULL, *x = NULL;
  OrtKernelInfoGetConstantInputTensor constant_of =
      ORT_CALL(api, ORT_KERNEL_INFO_GET_CONSTANT_INPUT_TENSOR, OrtKernelInfoGetConstantInputTensor);
  status = constant_of(info, 1, &constant, &value);
  OrtStatus *refused = constant_of(info, 0, &other, &x);
  CHECK(ORT_KERNEL_INFO_GET_CONSTANT_INPUT_TENSOR, !status && constant && value && (refused || !other || !x));
  if (refused) ORT_CALL(api, ORT_RELEASE_STATUS, OrtReleaseStatus)(refused);
  if (value) check_tensor(value);
  *out = malloc(1);
  return NULL;
}

static void count_task(void *data, size_t task) { __atomic_add_fetch((int *)data + task, 1, __ATOMIC_SEQ_CST); }

static OrtStatus *compute(void *state, OrtKernelContext *context) {
  CHECK(KernelComputeV2, state != NULL);
  size_t inputs = 0, outputs = 0;
  OrtStatus *status =
      ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT_COUNT, OrtKernelContextGetInputCount)(context, &inputs);
  CHECK(ORT_KERNEL_CONTEXT_GET_INPUT_COUNT, !status && inputs == 4);
  status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT_COUNT, OrtKernelContextGetOutputCount)(context, &outputs);
  CHECK(ORT_KERNEL_CONTEXT_GET_OUTPUT_COUNT, !status && outputs == 1);
  OrtKernelContextGetInput input = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_INPUT, OrtKernelContextGetInput);
  OrtGetTensorMutableData data_of = ORT_CALL(api, ORT_GET_TENSOR_MUTABLE_DATA, OrtGetTensorMutableData);
  const OrtValue *x = NULL, *none = NULL;
  void *data = NULL;
  bool read = !input(context, 0, &x) && x && !data_of((OrtValue *)x, &data) && ((float *)data)[5] == 5;
  CHECK(ORT_KERNEL_CONTEXT_GET_INPUT, read && !input(context, 2, &none) && !none);
  static const int64_t SHAPE[] = {3, 1};
  OrtValue *y = NULL;
  status = ORT_CALL(api, ORT_KERNEL_CONTEXT_GET_OUTPUT, OrtKernelContextGetOutput)(context, 0, SHAPE, 2, &y);
  CHECK(ORT_KERNEL_CONTEXT_GET_OUTPUT, !status && y && !data_of(y, &data));
  if (y)
    for (int i = 0; i < 3; i++) ((float *)data)[i] = (float)(10 * i);
  int done[TASKS] = {0};
  status =
      ORT_CALL(api, ORT_KERNEL_CONTEXT_PARALLEL_FOR, OrtKernelContextParallelFor)(context, count_task, TASKS, 0, done);
  size_t once = 0;
  for (size_t i = 0; i < TASKS; i++) once += done[i] == 1;
  CHECK(ORT_KERNEL_CONTEXT_PARALLEL_FOR, !status && once == TASKS);
  return NULL;
}

static void destroy(void *state) {
  CHECK(KernelDestroy, state != NULL);
  free(state);
}

static const char *name(const OrtCustomOp *op) { return (void)op, "Probe"; }
static const char *provider(const OrtCustomOp *op) { return (void)op, "CPUExecutionProvider"; }
static int input_type(const OrtCustomOp *op, size_t index) { return (void)op, index == 1 ? ORT_UINT8 : ORT_FLOAT; }
static size_t input_count(const OrtCustomOp *op) { return (void)op, 4; }
static int output_type(const OrtCustomOp *op, size_t index) { return (void)op, (void)index, ORT_FLOAT; }
static size_t output_count(const OrtCustomOp *op) { return (void)op, 1; }
static int input_need(const OrtCustomOp *op, size_t index) { return (void)op, index > 1 ? ORT_OPTIONAL : ORT_REQUIRED; }
static int output_need(const OrtCustomOp *op, size_t index) { return (void)op, (void)index, ORT_REQUIRED; }
static int memory_type(const OrtCustomOp *op, size_t index) { return (void)op, (void)index, 0; }
static int one(const OrtCustomOp *op) { return (void)op, 1; }

static const OrtCustomOp PROBE = {
    .version = ORT_API_VERSION,
    .GetName = name,
    .GetExecutionProviderType = provider,
    .GetInputType = input_type,
    .GetInputTypeCount = input_count,
    .GetOutputType = output_type,
    .GetOutputTypeCount = output_count,
    .KernelDestroy = destroy,
    .GetInputCharacteristic = input_need,
    .GetOutputCharacteristic = output_need,
    .GetInputMemoryType = memory_type,
    .GetVariadicInputMinArity = one,
    .GetVariadicInputHomogeneity = one,
    .GetVariadicOutputMinArity = one,
    .GetVariadicOutputHomogeneity = one,
    .CreateKernelV2 = create,
    .KernelComputeV2 = compute,
    .GetStartVersion = one,
    .GetEndVersion = one,
};

__attribute__((visibility("default"))) OrtStatus *RegisterCustomOps(OrtSessionOptions *options,
                                                                    const OrtApiBase *base) {
  report[0] = 0;
  api = base->GetApi(ORT_API_VERSION);
  CHECK(GetApi, api != NULL);
  check_status();
  check_entries(options);
  OrtCustomOpDomain *domain = NULL;
  OrtStatus *status = ORT_CALL(api, ORT_CREATE_CUSTOM_OP_DOMAIN, OrtCreateCustomOpDomain)("probe", &domain);
  CHECK(ORT_CREATE_CUSTOM_OP_DOMAIN, !status && domain);
  status = ORT_CALL(api, ORT_CUSTOM_OP_DOMAIN_ADD, OrtCustomOpDomainAdd)(domain, &PROBE);
  CHECK(ORT_CUSTOM_OP_DOMAIN_ADD, !status);
  status = ORT_CALL(api, ORT_ADD_CUSTOM_OP_DOMAIN, OrtAddCustomOpDomain)(options, domain);
  CHECK(ORT_ADD_CUSTOM_OP_DOMAIN, !status);
  return NULL;
}
