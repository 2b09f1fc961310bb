/* Encodes a text by a compiled tokenizer that is damaged in many ways, each in memory of just its size: compiled with
 * sanitizers, any access beyond it ends the program. Prints how many of the damaged files were refused, and the ids of
 * the whole one. */
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS = 3000, HEAD = 160 };

static uint64_t state = 88172645463325252u;

static size_t below(size_t count) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % count;
}

static uint8_t *read_file(const char *name, size_t *size) {
  FILE *file = fopen(name, "rb");
  if (!file || fseek(file, 0, SEEK_END)) exit(2);
  *size = (size_t)ftell(file);
  rewind(file);
  uint8_t *data = malloc(*size);
  if (!data || fread(data, 1, *size, file) != *size) exit(2);
  fclose(file);
  return data;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  size_t size, text_size, refused = 0;
  uint8_t *whole = read_file(argv[1], &size), *text = read_file(argv[2], &text_size);
  uint32_t *ids = malloc(text_size * sizeof *ids), *ends = malloc(text_size * sizeof *ends);
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    size_t own_size = attempt % 8 ? size : below(size + 1);
    uint8_t *damaged = malloc(own_size ? own_size : 1);
    memcpy(damaged, whole, own_size);
    /* The header and the details more often; behind the details all is numbers. */
    for (size_t i = attempt % 3 == 0 ? 1 : attempt % 3 == 1 ? 8 : 300; i && own_size; i--)
      damaged[below(attempt % 2 && own_size > HEAD ? HEAD : own_size)] = (uint8_t)below(256);
    if (attempt % 2) memcpy(damaged, whole, own_size < 12 ? own_size : 12);
    int64_t count = edgegen_tokenizer_encode(damaged, own_size, text, text_size, NULL, ids, ends);
    refused += count < 0;
    for (int64_t i = 0; i < count; i++)
      if (ends[i] > text_size || (i && ends[i] <= ends[i - 1])) return 3;
    edgegen_tokenizer_find(damaged, own_size, text, text_size < 5 ? text_size : 5, attempt & 1);
    free(damaged);
  }
  printf("%zu of %d refused\n", refused, ATTEMPTS);
  int64_t count = edgegen_tokenizer_encode(whole, size, text, text_size, NULL, ids, ends);
  for (int64_t i = 0; i < count; i++) printf("%u ", ids[i]);
  puts("");
  free(whole), free(text), free(ids), free(ends);
  return 0;
}
