/* Which kernels run: the best that the processor has, or those that EDGEGEN_ISA names. */
#include "attention/attention.h"
#include "floats/floats.h"
#include "gptq/gptq.h"
#include "matmul/matrix.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#endif

extern const Kernels edgegen_amx, edgegen_avx512vnni, edgegen_avxvnni, edgegen_avx2, edgegen_i8mm, edgegen_dotprod,
    edgegen_neon;

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(WITH_TILES)
#define CHOICES &edgegen_amx, &edgegen_avx512vnni, &edgegen_avxvnni, &edgegen_avx2,
#else
#define CHOICES &edgegen_avx512vnni, &edgegen_avxvnni, &edgegen_avx2,
#endif

/* Which registers the system saves when it changes threads, a bit each; none where it does not say. */
static unsigned saved_registers(unsigned ecx_of_1) {
  if (!(ecx_of_1 >> 27 & 1)) return 0; /* OSXSAVE */
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

#if defined(EDGEGEN_EMULATED_TILES)
static bool has_tiles(unsigned features, unsigned saved) { return (void)features, (void)saved, true; }
#elif defined(WITH_TILES)
/* Tiles are 8 KB of each thread that uses them, and a process asks the system once for those of all its threads. A
 * refusal is no error: AVX-512's kernels run then. Linux ends a process that uses tiles unasked; it refuses where a
 * signal's stack is too small, and sandboxes may. Windows, from 11 and Server 2022 on, gives them at first use too; its
 * function, which tells older ones apart, is untried. No Mac has AMX. */
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
static bool may_use_tiles(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 }; /* headers have the names only since a while */
  return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA);
}
#elif defined(_WIN32)
static bool may_use_tiles(void) {
  typedef BOOL(WINAPI * Enable)(DWORD64);
  const HMODULE system = GetModuleHandleA("kernel32.dll");
  const Enable enable =
      system ? (Enable)(void (*)(void))GetProcAddress(system, "EnableProcessOptionalXStateFeatures") : NULL;
  return enable && enable((DWORD64)3 << 17);
}
#else
static bool may_use_tiles(void) { return false; }
#endif

/* `features`: what CPUID 7 has in edx. Leaf 0x1d is asked for the tiles that amx.c takes: 8 of 16 rows of 64 bytes. */
static bool has_tiles(unsigned features, unsigned saved) {
  enum { AMX = 3u << 24, TILED = 3u << 17 }; /* tiles and products of bytes; registers of shapes and of tiles */
  unsigned eax, ebx, ecx, edx;
  if ((features & AMX) != AMX || (saved & TILED) != TILED || !__get_cpuid_count(0x1d, 1, &eax, &ebx, &ecx, &edx))
    return false;
  return eax >> 16 >= 1024 && ebx >> 16 >= 8 && (ebx & 0xffff) >= 64 && (ecx & 0xffff) >= 16 && may_use_tiles();
}
#endif

/* By CPUID: __builtin_cpu_supports of compilers without their own runtime library answers no to everything. */
static bool runs(const Kernels *kernels) {
  enum { AVX = 0x06, AVX512 = 0xe6 }; /* registers; the other names are bits of what CPUID gives */
  enum { FMA = 1u << 12, F16C = 1u << 29, AVX2 = 1u << 5, BMI2 = 1u << 8, AVX512F = 1u << 16, AVX512DQ = 1u << 17, AVX512BW = 1u << 30 };
  const unsigned AVX512VL = 1u << 31, AVX512VNNI = 1u << 11, AVXVNNI = 1u << 4;
  if (kernels == &edgegen_portable) return true;
  unsigned eax, ebx, ecx, edx, fma, deeper, extended, vnni, more;
  if (!__get_cpuid(1, &eax, &ebx, &fma, &edx)) return false;
  if (!__get_cpuid_count(7, 0, &deeper, &extended, &vnni, &more)) return false;
  unsigned saved = saved_registers(fma), with_avx512 = BMI2 | AVX512F | AVX512DQ | AVX512BW | AVX512VL;
#if defined(__APPLE__)
  if (saved & 4) saved |= AVX512; /* macOS saves them from a thread's first use on, and only then says so */
#endif
  if ((saved & AVX) != AVX || !(fma & FMA) || !(fma & F16C) || !(extended & AVX2)) return false;
  const bool avx512 = (saved & AVX512) == AVX512 && (extended & with_avx512) == with_avx512 && vnni & AVX512VNNI;
  if (kernels == &edgegen_avx512vnni) return avx512;
#if defined(WITH_TILES)
  if (kernels == &edgegen_amx) return avx512 && has_tiles(more, saved);
#endif
  if (kernels == &edgegen_avxvnni)
    return deeper >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && eax & AVXVNNI;
  return true;
}
#elif defined(__aarch64__)
#define CHOICES &edgegen_i8mm, &edgegen_dotprod, &edgegen_neon,
#if defined(__APPLE__)
#include <sys/sysctl.h>
static bool has(const char *name) {
  int value = 0;
  size_t size = sizeof value;
  return !sysctlbyname(name, &value, &size, NULL, 0) && value;
}
static bool has_dotprod(void) { return has("hw.optional.arm.FEAT_DotProd"); }
static bool has_i8mm(void) { return has("hw.optional.arm.FEAT_I8MM"); }
#elif defined(_WIN32) /* by number: headers have the names only since a while */
static bool has_dotprod(void) { return IsProcessorFeaturePresent(43); } /* PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE */
static bool has_i8mm(void) { return IsProcessorFeaturePresent(66); }    /* PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE */
#elif defined(__linux__)
#include <sys/auxv.h>
static bool has_dotprod(void) { return getauxval(AT_HWCAP) >> 20 & 1; } /* HWCAP_ASIMDDP */
static bool has_i8mm(void) { return getauxval(AT_HWCAP2) >> 13 & 1; }   /* HWCAP2_I8MM */
#else
static bool has_dotprod(void) { return false; }
static bool has_i8mm(void) { return false; }
#endif
static bool runs(const Kernels *kernels) {
  if (kernels == &edgegen_i8mm) return has_i8mm() && has_dotprod();
  return kernels != &edgegen_dotprod || has_dotprod();
}
#else
#define CHOICES
static bool runs(const Kernels *kernels) { return (void)kernels, true; }
#endif

/* What EDGEGEN_ISA is now, or NULL. */
static const char *wanted_name(char *to, size_t size) {
#if defined(_WIN32) /* of the process: the C library's copy may be another one than Python's */
  DWORD length = GetEnvironmentVariableA("EDGEGEN_ISA", to, (DWORD)size);
  return length && length < size ? to : NULL; /* no name is longer */
#else
  (void)to, (void)size;
  return getenv("EDGEGEN_ISA");
#endif
}

static const Kernels *const ALL[] = {CHOICES & edgegen_portable};
enum { COUNT = sizeof ALL / sizeof *ALL };

/* Whether the processor runs ALL[i], asked once: where a virtual machine traps CPUID, a choice took 50 microseconds. */
static bool runs_here(size_t i) {
  enum { UNKNOWN, NO, YES };
  static _Atomic int answers[COUNT];
  int answer = atomic_load_explicit(&answers[i], memory_order_relaxed);
  if (answer == UNKNOWN) {
    answer = runs(ALL[i]) ? YES : NO;
    atomic_store_explicit(&answers[i], answer, memory_order_relaxed);
  }
  return answer == YES;
}

const Kernels *edgegen_kernels(const char *name) {
  char value[16];
  const char *wanted = name ? name : wanted_name(value, sizeof value);
  for (size_t i = 0; wanted && i < COUNT; i++) /* only this one: AMX asks the system for more than an answer */
    if (!strcmp(wanted, ALL[i]->name) && runs_here(i)) return ALL[i];
  if (name) return NULL;
  size_t best = 0;
  while (!runs_here(best)) best++; /* portable C always does */
  return ALL[best];
}

/* For programs that say what runs. */
EXPORT const char *edgegen_kernels_name(void) { return edgegen_kernels(NULL)->name; }

extern const FloatKernels edgegen_floats_avx512, edgegen_floats_avx2, edgegen_floats_neon, edgegen_floats_portable;
extern const AttentionKernels edgegen_attention_avx512, edgegen_attention_avxvnni, edgegen_attention_avx2,
    edgegen_attention_neon, edgegen_attention_portable, edgegen_attention_amx;
extern const GptqKernels edgegen_gptq_avx512, edgegen_gptq_avx2, edgegen_gptq_portable;

/* What goes with the matrix kernels whose names begin so; the first that fits. */
static const struct {
  const char *prefix;
  const FloatKernels *floats;
  const AttentionKernels *attention;
  const GptqKernels *gptq;
} COMPANIONS[] = {
#if defined(WITH_TILES)
    {"amx", &edgegen_floats_avx512, &edgegen_attention_amx, &edgegen_gptq_avx512},
#endif
#if defined(__x86_64__)
    {"avx512", &edgegen_floats_avx512, &edgegen_attention_avx512, &edgegen_gptq_avx512},
    {"avxvnni", &edgegen_floats_avx2, &edgegen_attention_avxvnni, &edgegen_gptq_avx2},
    {"avx", &edgegen_floats_avx2, &edgegen_attention_avx2, &edgegen_gptq_avx2},
#elif defined(__aarch64__)
    {"neon", &edgegen_floats_neon, &edgegen_attention_neon, &edgegen_gptq_portable},
    {"i8mm", &edgegen_floats_neon, &edgegen_attention_neon, &edgegen_gptq_portable},
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
