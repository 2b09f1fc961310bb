/* Causal attention over a KV cache to which it appends: what the operators of that name, and fused layers, run. */
#ifndef EDGEGEN_CACHED_ATTENTION_H
#define EDGEGEN_CACHED_ATTENTION_H

#include "attention.h"
#include "floats/floats.h"
#include "ort/operators.h"

#include <stdatomic.h>

/* Inputs of the operators; fused layers have those from PAST_KEY on, and query, keys and values in one. */
enum {
  QUERY,
  KEY,
  VALUE,
  PAST_KEY,
  PAST_VALUE,
  LENGTHS,
  TOTAL,
  COSINES,
  SINES,
  POSITIONS,
  ATTENTION_BIAS,
  SINK,
  KEY_SCALES,
  VALUE_SCALES,
  QUERY_NORM,
  KEY_NORM,
  ATTENTION_INPUTS,
  KEY_MEANS = KEY_SCALES
};
typedef enum { FLOATS, CODES, NIBBLES } CacheKind; /* what the KV cache has */

typedef struct {
  const OrtApi *api;
  const AttentionKernels *kernels;
  int64_t heads, kv_heads, window, rotary, interleaved;
  float scale, cap;
  const float *key_scales, *value_scales; /* [kv_heads][size], of codes of 8 bits */
  const float *key_means;                 /* the same of codes of 4 bits, or NULL */
  int64_t scales;                         /* how many, or how many means */
  const FloatKernels *floats;
  Norm query_norm, key_norm; /* of each head before it is rotated; without weights there are none */
  CacheKind kind;
} CachedAttention;

typedef struct {
  int there, type;
  size_t rank;
  int64_t dimensions[MOST_DIMENSIONS];
  const void *data;
} AttentionInput;

/* One run of attention. */
typedef struct {
  const CachedAttention *attention;
  AttentionInput in[KEY_SCALES];
  size_t batch, tokens, heads, kv_heads, group, size, capacity, row; /* row: floats of a token of the query input */
  float *y;
  void *queries;                 /* [b][kv_heads][t][group], each of query_bytes */
  float *steps;                  /* of queries that are whole numbers, */
  float *sums;                   /* and their sums, of nibbles */
  size_t query_bytes, row_bytes; /* row_bytes: of a position's keys or values of a head */
  int most;                      /* what their numbers may be */
  void *keys, *values;
  size_t blocks, block_tokens, slices, parts; /* parts: of the longest row */
  float *states;                              /* [b][kv_heads][blocks][parts], where there are several slices */
  atomic_size_t *done;                        /* slices of each block */
  atomic_size_t next;
  atomic_int failed;
  const int32_t *total; /* of the input of that name; NULL where it is left out */
} AttentionRun;

/* Reads attributes, whose names end so, and the initializers among the inputs, of which number `begin` is the node's
 * input `first`. */
OrtStatus *edgegen_read_attention(const OrtApi *api, const OrtKernelInfo *info, CacheKind kind, size_t begin,
                                  size_t first, const char *suffix, CachedAttention *out);

/* Reads the inputs from number `begin` on; those before it are the run's already. Of an attention that goes without
 * lengths, these and what belongs to the positions are those of the run `before`, unless that is NULL. Checks all, and
 * makes the outputs of keys and values, `present` and the next. */
OrtStatus *edgegen_begin_attention(const CachedAttention *attention, OrtKernelContext *context, size_t begin,
                                   size_t first, size_t present, const AttentionRun *before, AttentionRun *run);

/* Bytes of memory that the run needs for itself until it ends, and while its tasks run; both of whole 64 bytes. */
typedef struct {
  size_t kept, passing;
} AttentionMemory;
AttentionMemory edgegen_attention_memory(const AttentionRun *run);
void edgegen_lay_out_attention(AttentionRun *run, uint8_t *kept, uint8_t *passing);

/* First keys and values of `edgegen_heads_to_append` heads are appended, and the queries made ready, from one of them
 * to another; then that many tasks attend, in any order, on any threads. `failed` says that there was no memory. */
size_t edgegen_heads_to_append(const AttentionRun *run);
void edgegen_append_heads(AttentionRun *run, size_t first, size_t last);
size_t edgegen_attention_tasks(const AttentionRun *run);
void edgegen_attend(AttentionRun *run);

/* Whether the caller has made total_sequence_length negative since the run began: then what is left need not be
 * computed, and the run fails. ONNX Runtime looks for an interruption between two operators only. */
bool edgegen_interrupted(const AttentionRun *run);
OrtStatus *edgegen_interruption(const OrtApi *api);

#endif
