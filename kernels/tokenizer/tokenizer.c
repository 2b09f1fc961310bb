/* A text is cut at the added tokens, the rest into words by automata, and the words are merged pair by pair. */
#include "tokenizer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, IGNORE_MERGES = 1 };
enum { STRIPS_LEFT = 1, STRIPS_RIGHT = 2 }; /* of an added token: it takes in the white space beside it */
enum { MOST_SPLITS = 8, PAGES = 0x110000 >> 8 };
enum { SHORT_WORD = 64 }; /* bytes; the memory of longer ones is not the stack's */
static const uint32_t NONE = UINT32_MAX, LITERAL = 1u << 31;

/* Of an automaton's move: the state, and whether a match ends before the character that is moved over. */
enum { DEAD = 0x7fff, STATE = 0x7fff, ACCEPTS = 0x8000 };

enum {
  DETAILS, /* JSON, which is Python's */
  TOKEN_STARTS,
  TOKEN_BYTES,
  SLOTS,
  ROWS,
  MERGES,
  LETTERS,
  PAGE_NUMBERS,
  CLASSES,
  STATES,
  MOVES,
  RAW_TOKENS,
  NORMALIZED_TOKENS,
  SECTIONS
};

typedef struct {
  uint32_t offset, size;
} Section;

typedef struct {
  char magic[8];
  uint32_t version, flags;
  uint8_t source[32]; /* SHA-256 of the tokenizer.json */
  uint32_t classes, reserved;
  Section sections[SECTIONS];
} Header;

/* A merge of one left token; they are in the order of `right`. */
typedef struct {
  uint32_t right, rank, merged;
} Merge;

/* A node of a tree of added tokens, reached by `byte`; its children lie one after the other. */
typedef struct {
  uint32_t first;
  uint16_t children;
  uint8_t byte, flags;
  uint32_t token; /* that ends here, or NONE */
} Node;

typedef struct {
  const Node *nodes;
  size_t count;
  bool begins[256]; /* some token */
} Tree;

typedef struct {
  const uint16_t *moves; /* [states][classes and the end of the text] */
  size_t count;
} Automaton;

typedef struct {
  size_t tokens, slot_count, merge_count, class_count, classes_size, splits;
  bool ignores_merges;
  const uint32_t *starts, *slots, *rows, *letters;
  const uint8_t *bytes, *class_of;
  size_t bytes_size;
  const Merge *merges;
  const uint16_t *page_numbers;
  Automaton automata[MOST_SPLITS];
  const Node *trees[2];
  size_t tree_sizes[2];
} Tables;

/* A section, if its elements have `step` bytes each; `count` is how many. */
static const void *section(const uint8_t *file, size_t file_size, const Header *header, int which, size_t step,
                           size_t *count) {
  Section own = header->sections[which];
  *count = 0;
  if (own.offset % 8 || own.size % step || own.offset > file_size || own.size > file_size - own.offset) return NULL;
  *count = own.size / step;
  return file + own.offset;
}

static bool read_tables(const uint8_t *file, size_t file_size, Tables *t) {
  Header header;
  if (file_size < sizeof header || (uintptr_t)file % 8) return false;
  memcpy(&header, file, sizeof header);
  if (memcmp(header.magic, "edgetok", 8) || header.version != VERSION) return false;
  size_t starts, rows, letters, pages, states, moves;
  *t = (Tables){.class_count = header.classes, .ignores_merges = header.flags & IGNORE_MERGES};
  t->starts = section(file, file_size, &header, TOKEN_STARTS, 4, &starts);
  t->bytes = section(file, file_size, &header, TOKEN_BYTES, 1, &t->bytes_size);
  t->slots = section(file, file_size, &header, SLOTS, 4, &t->slot_count);
  t->rows = section(file, file_size, &header, ROWS, 4, &rows);
  t->merges = section(file, file_size, &header, MERGES, sizeof(Merge), &t->merge_count);
  t->letters = section(file, file_size, &header, LETTERS, 4, &letters);
  t->page_numbers = section(file, file_size, &header, PAGE_NUMBERS, 2, &pages);
  t->class_of = section(file, file_size, &header, CLASSES, 1, &t->classes_size);
  const uint32_t *state_counts = section(file, file_size, &header, STATES, 4, &states);
  const uint16_t *move = section(file, file_size, &header, MOVES, 2, &moves);
  for (int i = 0; i < 2; i++)
    t->trees[i] = section(file, file_size, &header, RAW_TOKENS + i, sizeof(Node), &t->tree_sizes[i]);
  if (!t->starts || !t->bytes || !t->slots || !t->rows || !t->merges || !t->letters || !t->page_numbers ||
      !t->class_of || !state_counts || !move || !t->trees[0] || !t->trees[1])
    return false;
  if (starts < 2 || rows != starts || letters != 256 || pages != PAGES || states > MOST_SPLITS || header.classes > 255)
    return false;
  t->tokens = starts - 1;
  t->splits = states;
  for (size_t i = 0; i < states; i++) {
    size_t count = (size_t)state_counts[i] * (header.classes + 1);
    if (state_counts[i] > STATE || count > moves) return false;
    t->automata[i] = (Automaton){move, count};
    move += count;
    moves -= count;
  }
  return true;
}

/* The token of the model's vocabulary with these bytes, or NONE. */
static uint32_t find(const Tables *t, const uint8_t *bytes, size_t size, bool literal) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 16777619u;
  for (size_t tried = 0, at = t->slot_count ? hash % t->slot_count : 0; tried < t->slot_count; tried++) {
    uint32_t id = t->slots[at];
    if (id >= t->tokens) return NONE;
    size_t start = t->starts[id] & ~LITERAL, end = t->starts[id + 1] & ~LITERAL;
    if (end <= t->bytes_size && start < end && end - start == size && !(t->starts[id] & LITERAL) == !literal &&
        !memcmp(t->bytes + start, bytes, size))
      return id;
    if (++at == t->slot_count) at = 0;
  }
  return NONE;
}

static const Merge *merge_of(const Tables *t, uint32_t left, uint32_t right) {
  if (left >= t->tokens) return NULL;
  size_t low = t->rows[left], high = t->rows[left + 1];
  if (high > t->merge_count) return NULL;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const Merge *merge = t->merges + middle;
    if (merge->right == right) return merge;
    if (merge->right < right) low = middle + 1;
    else high = middle;
  }
  return NULL;
}

/* A part of a word: its token, its neighbours, and what it and the next one are merged to. */
typedef struct {
  uint32_t id, before, after, rank, merged;
} Part;

typedef struct {
  const Tables *tables;
  const uint8_t *text, *plain;
  Tree trees[2];
  uint32_t *ids, *ends;
  size_t count;
  Part *parts; /* of a long word */
  uint64_t *heap;
  size_t capacity; /* of both: bytes of a word */
} Encoder;

static void put(Encoder *e, uint32_t id, size_t end) {
  e->ids[e->count] = id;
  e->ends[e->count++] = (uint32_t)end;
}

static void push(uint64_t *heap, size_t *size, uint64_t value) {
  size_t at = (*size)++;
  for (; at && heap[(at - 1) / 2] > value; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = value;
}

static uint64_t pop(uint64_t *heap, size_t *size) {
  uint64_t least = heap[0], last = heap[--*size];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < *size; at = child) {
    if (child + 1 < *size && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= last) break;
    heap[at] = heap[child];
  }
  heap[at] = last;
  return least;
}

/* What the part at `at` and the next one would become goes to the heap: the lowest rank first, then the leftmost. */
static void offer(const Tables *t, Part *parts, uint32_t at, uint64_t *heap, size_t *size) {
  Part *part = parts + at;
  const Merge *merge = part->after == NONE ? NULL : merge_of(t, part->id, parts[part->after].id);
  part->rank = merge ? merge->rank : NONE;
  if (!merge || merge->rank == NONE) return;
  part->merged = merge->merged;
  push(heap, size, (uint64_t)merge->rank << 32 | at);
}

static void merge_parts(const Tables *t, Part *parts, uint32_t count, uint64_t *heap) {
  size_t size = 0;
  for (uint32_t i = 0; i + 1 < count; i++) offer(t, parts, i, heap, &size);
  while (size) {
    uint64_t best = pop(heap, &size);
    uint32_t at = (uint32_t)best;
    Part *part = parts + at;
    if (part->rank != best >> 32) continue; /* one of the two has become another meanwhile */
    Part *gone = parts + part->after;
    part->id = part->merged;
    part->after = gone->after;
    gone->rank = NONE;
    if (part->after != NONE) parts[part->after].before = at;
    offer(t, parts, at, heap, &size);
    if (part->before != NONE) offer(t, parts, part->before, heap, &size);
  }
}

/* Room for a word of that many bytes: each merge takes one of a word's parts, and offers two others. */
static bool make_room(Encoder *e, size_t size) {
  if (size <= e->capacity) return true;
  free(e->parts);
  free(e->heap);
  e->parts = size > SIZE_MAX / 32 ? NULL : malloc(size * sizeof *e->parts);
  e->heap = size > SIZE_MAX / 32 ? NULL : malloc(3 * size * sizeof *e->heap);
  e->capacity = e->parts && e->heap ? size : 0;
  return e->capacity;
}

static bool put_word(Encoder *e, size_t from, size_t to) {
  const Tables *t = e->tables;
  size_t size = to - from;
  uint32_t whole = t->ignores_merges ? find(t, e->text + from, size, false) : NONE;
  if (whole != NONE) return put(e, whole, to), true;
  Part few[SHORT_WORD], *parts = few;
  uint64_t small_heap[3 * SHORT_WORD], *heap = small_heap;
  if (size > SHORT_WORD) {
    if (!make_room(e, size)) return false;
    parts = e->parts;
    heap = e->heap;
  }
  for (uint32_t i = 0; i < size; i++)
    parts[i] = (Part){t->letters[e->text[from + i]], i ? i - 1 : NONE, i + 1 < size ? i + 1 : NONE, NONE, NONE};
  merge_parts(t, parts, (uint32_t)size, heap);
  for (uint32_t i = 0; i != NONE; i = parts[i].after)
    put(e, parts[i].id, parts[i].after == NONE ? to : from + parts[i].after);
  return true;
}

/* The character at `*at`, which is moved behind it. */
static uint32_t next_character(const uint8_t *text, size_t *at, size_t to) {
  uint32_t character = text[(*at)++];
  if (character < 0x80) return character;
  int more = character >= 0xf0 ? 3 : character >= 0xe0 ? 2 : 1;
  for (character &= 0x3fu >> more; more && *at < to; more--) character = character << 6 | (text[(*at)++] & 0x3f);
  return character;
}

static bool is_white_space(uint32_t character) {
  return (character >= 9 && character <= 13) || character == 32 || character == 0x85 || character == 0xa0 ||
         character == 0x1680 || (character >= 0x2000 && character <= 0x200a) || character == 0x2028 ||
         character == 0x2029 || character == 0x202f || character == 0x205f || character == 0x3000;
}

/* Where white space that begins at `at` ends. */
static size_t after_white_space(const uint8_t *text, size_t at, size_t to) {
  for (size_t next = at; at < to && is_white_space(next_character(text, &next, to));) at = next;
  return at;
}

/* Where white space that ends at `at` begins. */
static size_t before_white_space(const uint8_t *text, size_t from, size_t at) {
  while (at > from) {
    size_t begin = at - 1;
    while (begin > from && (text[begin] & 0xc0) == 0x80) begin--;
    size_t next = begin;
    if (!is_white_space(next_character(text, &next, at))) break;
    at = begin;
  }
  return at;
}

/* Where the match that begins at `from` ends; `from` where there is none. */
static size_t match(const Tables *t, const Automaton *automaton, const uint8_t *text, size_t from, size_t to) {
  size_t end = from, state = 0;
  for (size_t at = from;;) {
    size_t next = at, class = t->class_count; /* the end of the text */
    if (at < to) {
      uint32_t character = next_character(text, &next, to);
      if (character >> 8 >= PAGES) return end;
      size_t place = (size_t)t->page_numbers[character >> 8] << 8 | (character & 255);
      if (place >= t->classes_size) return end;
      class = t->class_of[place];
    }
    size_t place = state * (t->class_count + 1) + class;
    if (place >= automaton->count) return end;
    uint16_t move = automaton->moves[place];
    if (move & ACCEPTS) end = at;
    state = move & STATE;
    if (state == DEAD || at == to) return end;
    at = next;
  }
}

/* Words of the text between the two places: matches of the automaton, and what lies between them. */
static bool put_words(Encoder *e, size_t split, size_t from, size_t to) {
  const Tables *t = e->tables;
  if (from == to) return true;
  if (split == t->splits) return put_word(e, from, to);
  size_t rest = from;
  for (size_t at = from; at < to;) {
    size_t end = match(t, &t->automata[split], e->text, at, to);
    if (end == at) {
      next_character(e->text, &at, to);
      continue;
    }
    if (!put_words(e, split + 1, rest, at) || !put_words(e, split + 1, at, end)) return false;
    rest = at = end;
  }
  return put_words(e, split + 1, rest, to);
}

/* Where the longest added token that begins at `at` ends, `at` where there is none. */
static size_t longest_token(const Encoder *e, const Tree *tree, size_t at, size_t to, Node *token) {
  size_t end = at, node = 0;
  for (size_t place = at; place < to; place++) {
    const Node *here = tree->nodes + node;
    size_t child = here->first, last = child + here->children;
    if (last > tree->count) break;
    while (child < last && tree->nodes[child].byte != e->text[place]) child++;
    if (child == last) break;
    node = child;
    uint32_t found = tree->nodes[node].token;
    if (found < e->tables->tokens && !(e->plain && e->plain[found / 8] >> found % 8 & 1)) {
      *token = tree->nodes[node];
      end = place + 1;
    }
  }
  return end;
}

/* First the added tokens that are looked for in the text as it is, then those of normalized text. */
static bool put_text(Encoder *e, size_t pass, size_t from, size_t to) {
  if (pass == 2) return put_words(e, 0, from, to);
  const Tree *tree = &e->trees[pass];
  if (!tree->count) return put_text(e, pass + 1, from, to);
  size_t rest = from;
  for (size_t at = from; at < to;) {
    Node token = {.token = NONE};
    size_t end = tree->begins[e->text[at]] ? longest_token(e, tree, at, to, &token) : at;
    if (end == at) {
      at++;
      continue;
    }
    if (token.flags & STRIPS_LEFT) at = before_white_space(e->text, rest, at);
    if (token.flags & STRIPS_RIGHT) end = after_white_space(e->text, end, to);
    if (!put_text(e, pass + 1, rest, at)) return false;
    put(e, token.token, end);
    rest = at = end;
  }
  return put_text(e, pass + 1, rest, to);
}

static Tree tree_of(const Node *nodes, size_t count) {
  Tree tree = {nodes, count, {false}};
  size_t last = count ? (size_t)nodes->first + nodes->children : 0;
  for (size_t i = count ? nodes->first : 0; i < last && i < count; i++) tree.begins[nodes[i].byte] = true;
  return tree;
}

int64_t edgegen_tokenizer_encode(const uint8_t *file, size_t file_size, const uint8_t *text, size_t size,
                                 const uint8_t *plain, uint32_t *ids, uint32_t *ends) {
  Tables tables;
  if (!read_tables(file, file_size, &tables)) return TOKENIZER_DAMAGED;
  if (size >= NONE) return TOKENIZER_NO_MEMORY; /* places have 32 bits */
  Encoder encoder = {.tables = &tables, .text = text, .plain = plain, .ids = ids, .ends = ends};
  for (int i = 0; i < 2; i++) encoder.trees[i] = tree_of(tables.trees[i], tables.tree_sizes[i]);
  bool done = put_text(&encoder, 0, 0, size);
  free(encoder.parts);
  free(encoder.heap);
  return done ? (int64_t)encoder.count : TOKENIZER_NO_MEMORY;
}

int64_t edgegen_tokenizer_find(const uint8_t *file, size_t file_size, const uint8_t *bytes, size_t size, int literal) {
  Tables tables;
  if (!read_tables(file, file_size, &tables)) return TOKENIZER_DAMAGED;
  uint32_t found = find(&tables, bytes, size, literal);
  return found == NONE ? TOKENIZER_UNKNOWN : (int64_t)found;
}
