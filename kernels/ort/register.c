/* Registers the operators of the domain "edgegen" with a session's options. */
#include "matmul/matrix.h"
#include "operators.h"

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

EXPORT OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  const OrtApi *api = base->GetApi(ORT_API_VERSION);
  if (!api) return NULL; /* older than any that is allowed; the graph will not load */
  OrtCustomOpDomain *domain;
  OrtStatus *status = ORT_CALL(api, ORT_CREATE_CUSTOM_OP_DOMAIN, OrtCreateCustomOpDomain)("edgegen", &domain);
  for (size_t i = 0; !status && i < sizeof OPERATORS / sizeof *OPERATORS; i++)
    status = ORT_CALL(api, ORT_CUSTOM_OP_DOMAIN_ADD, OrtCustomOpDomainAdd)(domain, OPERATORS[i]);
  if (!status) status = ORT_CALL(api, ORT_ADD_CUSTOM_OP_DOMAIN, OrtAddCustomOpDomain)(options, domain);
  return status;
}
