/* GPTQ in portable C, which compilers turn into NEON where there is that. */
#include "floats/portable_floats.h"

#define NAME edgegen_gptq_portable
#define LABEL "portable"
#include "gptq.inc"
