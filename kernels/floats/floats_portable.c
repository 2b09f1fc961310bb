/* Norms and activations in portable C. */
#include "portable_floats.h"

#define NAME edgegen_floats_portable
#define LABEL "portable"
#include "floats.inc"
