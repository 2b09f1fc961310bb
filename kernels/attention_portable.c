/* Attention in portable C. */
#include "portable_floats.h"

#define VECTORS 1
#define WIDE(from) ((Floats){(from)[0], (from)[1], (from)[2], (from)[3]})
#define NAME edgegen_attention_portable
#include "attention.inc"
