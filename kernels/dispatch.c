/* Which kernels run: the best that the processor has, or those that EDGEGEN_ISA names. */
#include "attention.h"
#include "floats.h"
#include "gptq.h"
#include "matrix.h"

#include <stdlib.h>
#include <string.h>

extern const Kernels edgegen_avx512vnni, edgegen_avxvnni, edgegen_avx2, edgegen_dotprod, edgegen_neon;

#if defined(__x86_64__)
#define CHOICES &edgegen_avx512vnni, &edgegen_avxvnni, &edgegen_avx2,
static bool runs(const Kernels *kernels) {
  __builtin_cpu_init();
  if (kernels == &edgegen_avx512vnni)
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2");
  if (kernels == &edgegen_avxvnni) return __builtin_cpu_supports("avxvnni");
  if (kernels == &edgegen_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return true;
}
#elif defined(__aarch64__)
#define CHOICES &edgegen_dotprod, &edgegen_neon,
#if defined(__linux__)
#include <sys/auxv.h>
static bool has_dotprod(void) { return getauxval(AT_HWCAP) >> 20 & 1; } /* HWCAP_ASIMDDP */
#else
static bool has_dotprod(void) { return true; } /* every Mac and Windows machine that ONNX Runtime has a wheel for */
#endif
static bool runs(const Kernels *kernels) { return kernels != &edgegen_dotprod || has_dotprod(); }
#else
#define CHOICES
static bool runs(const Kernels *kernels) { return (void)kernels, true; }
#endif

static const Kernels *const ALL[] = {CHOICES & edgegen_portable};

const Kernels *edgegen_kernels(const char *name) {
  const char *wanted = name ? name : getenv("EDGEGEN_ISA");
  const Kernels *best = NULL;
  for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
    if (!runs(ALL[i])) continue;
    if (!best) best = ALL[i];
    if (wanted && !strcmp(wanted, ALL[i]->name)) return ALL[i];
  }
  return name ? NULL : best;
}

/* For programs that say what runs. */
EXPORT const char *edgegen_kernels_name(void) { return edgegen_kernels(NULL)->name; }

extern const FloatKernels edgegen_floats_avx512, edgegen_floats_avx2, edgegen_floats_neon, edgegen_floats_portable;
extern const AttentionKernels edgegen_attention_avx512, edgegen_attention_avx2, edgegen_attention_neon,
    edgegen_attention_portable;
extern const GptqKernels edgegen_gptq_avx512, edgegen_gptq_avx2, edgegen_gptq_portable;

/* What goes with the matrix kernels whose names begin so; the first that fits. */
static const struct {
  const char *prefix;
  const FloatKernels *floats;
  const AttentionKernels *attention;
  const GptqKernels *gptq;
} COMPANIONS[] = {
#if defined(__x86_64__)
    {"avx512", &edgegen_floats_avx512, &edgegen_attention_avx512, &edgegen_gptq_avx512},
    {"avx", &edgegen_floats_avx2, &edgegen_attention_avx2, &edgegen_gptq_avx2},
#elif defined(__aarch64__)
    {"neon", &edgegen_floats_neon, &edgegen_attention_neon, &edgegen_gptq_portable},
    {"dotprod", &edgegen_floats_neon, &edgegen_attention_neon, &edgegen_gptq_portable},
#endif
    {"", &edgegen_floats_portable, &edgegen_attention_portable, &edgegen_gptq_portable},
};

static size_t companion(const char *name) {
  size_t i = 0;
  while (strncmp(name, COMPANIONS[i].prefix, strlen(COMPANIONS[i].prefix))) i++;
  return i;
}

const FloatKernels *edgegen_float_kernels(const char *name) { return COMPANIONS[companion(name)].floats; }

const AttentionKernels *edgegen_attention_kernels(const char *name) { return COMPANIONS[companion(name)].attention; }

const GptqKernels *edgegen_gptq_kernels(const char *name) { return COMPANIONS[companion(name)].gptq; }
