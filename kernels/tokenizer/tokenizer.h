/* Byte-level BPE over a compiled tokenizer, a file that is mapped and not trusted: docs/bundle-format.md describes it.
 *
 * All three answer TOKENIZER_DAMAGED where the file is none, or has not the sizes that it states. Whatever else stands in
 * it is checked where it is used, so that a damaged file gives other ids at worst. Nothing is kept between calls.
 */
#ifndef EDGEGEN_TOKENIZER_H
#define EDGEGEN_TOKENIZER_H

#include "matmul/matrix.h"

#include <stddef.h>
#include <stdint.h>

enum { TOKENIZER_DAMAGED = -1, TOKENIZER_NO_MEMORY = -2, TOKENIZER_UNKNOWN = -3 };

/* The ids of a text in UTF-8, and where in it each one's part ends; at most `size` of each. `plain`: a bit for each id,
 * set for the added tokens that are not looked for; NULL looks for all. Answers their number. */
EXPORT int64_t edgegen_tokenizer_encode(const uint8_t *file, size_t file_size, const uint8_t *text, size_t size,
                                        const uint8_t *plain, uint32_t *ids, uint32_t *ends);

/* The id of the token of the model's vocabulary with these bytes, which are letters as they are if it is `literal`, or
 * TOKENIZER_UNKNOWN. */
EXPORT int64_t edgegen_tokenizer_find(const uint8_t *file, size_t file_size, const uint8_t *bytes, size_t size,
                                      int literal);

#endif
