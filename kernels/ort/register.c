/* Registers operators of the domain "edgegen" with a session's options: those that the entry "edgegen.operators" of its
 * configuration lists (",BlockMatMul,FusedLayers,"), or all. A session spends most of its time before the graph on the
 * descriptions of operators: some have hundreds of inputs. */
#include "matmul/matrix.h"
#include "operators.h"

#include <stdio.h>
#include <string.h>

static const OrtCustomOp *const OPERATORS[] = {
    &edgegen_block_matmul,
    &edgegen_block_gather,
    &edgegen_cached_attention,
    &edgegen_cached_attention_int8,
    &edgegen_cached_attention_int4,
    &edgegen_norm,
    &edgegen_activation,
    &edgegen_fused_layers,
    &edgegen_fused_layers_int8,
    &edgegen_fused_layers_int4,
    &edgegen_block_experts,
    &edgegen_selective_scan,
    &edgegen_block_matmul_per_head,
    &edgegen_causal_conv,
    &edgegen_gated_delta_rule,
};

enum { LONGEST_LIST = 1024, LONGEST_NAME = 64 };
static const char KEY[] = "edgegen.operators";

/* The list of operators; empty where there is none. One that is too long is an error of ONNX Runtime's. */
static OrtStatus *read_list(const OrtApi *api, const OrtSessionOptions *options, char list[LONGEST_LIST]) {
  int there = 0;
  size_t size = LONGEST_LIST;
  OrtStatus *status = ORT_CALL(api, ORT_HAS_SESSION_CONFIG_ENTRY, OrtHasSessionConfigEntry)(options, KEY, &there);
  list[0] = 0;
  if (status || !there) return status;
  return ORT_CALL(api, ORT_GET_SESSION_CONFIG_ENTRY, OrtGetSessionConfigEntry)(options, KEY, list, &size);
}

static bool is_listed(const char *list, const OrtCustomOp *op) {
  char name[LONGEST_NAME];
  snprintf(name, sizeof name, ",%s,", op->GetName(op));
  return !list[0] || strstr(list, name);
}

EXPORT OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  const OrtApi *api = base->GetApi(ORT_API_VERSION);
  if (!api) return NULL; /* older than any that is allowed; the graph will not load */
  char list[LONGEST_LIST];
  OrtStatus *status = read_list(api, options, list);
  if (status) return status;
  OrtCustomOpDomain *domain;
  status = ORT_CALL(api, ORT_CREATE_CUSTOM_OP_DOMAIN, OrtCreateCustomOpDomain)("edgegen", &domain);
  for (size_t i = 0; !status && i < sizeof OPERATORS / sizeof *OPERATORS; i++)
    if (is_listed(list, OPERATORS[i]))
      status = ORT_CALL(api, ORT_CUSTOM_OP_DOMAIN_ADD, OrtCustomOpDomainAdd)(domain, OPERATORS[i]);
  if (!status) status = ORT_CALL(api, ORT_ADD_CUSTOM_OP_DOMAIN, OrtAddCustomOpDomain)(options, domain);
  return status;
}
