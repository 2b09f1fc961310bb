"""Pre-tokenizer regular expressions of byte-level BPE tokenizers, by their names in GGUF files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgegen_export.tokenizer.components import Component, byte_level, chain, isolated

NFC: Component = {"type": "NFC"}

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""As the library's ``ByteLevel`` splits by itself, too."""
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}"
_LLAMA3_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_QWEN35_WORDS = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGIT = r"\p{N}"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
_CASED_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN_WORDS = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_CASED_REST}"
_GPT4O_WORDS = rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_CASED_REST}"
_BLOOM_WORDS = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_PUNCTUATION = r"[\p{P}$+<=>^~|`]+"
_WIDE_PUNCTUATION = r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_CASED_LETTERS = """
    0041-005a 0061-007a 00b5 00c0-00d6 00d8-00f6 00f8-01ba 01bc-01bf 01c4-0293 0295-02af 0370-0373 0376-0377 037b-037d
    037f 0386 0388-038a 038c 038e-03a1 03a3-03f5 03f7-0481 048a-052f 0531-0556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba
    1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d
    1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113
    2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183-2184 2c00-2c7b 2c7e-2ce4
    2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a
    ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943
"""
"""The letters of DeepSeek's first tokenizer: most letters that have a case."""


def _letters(ranges: str) -> str:
    ends = (words.split("-") for words in ranges.split())
    return "".join("-".join(chr(int(end, 16)) for end in pair) for pair in ends)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """``splits``: regular expressions, applied one after the other to the pieces of the one before.

    ``ignore_merges``: a word that is a token is not split. ``add_bos``: the default where a file does not say.
    """

    splits: tuple[str, ...]
    composed: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    @property
    def normalizer(self) -> Component | None:
        return NFC if self.composed else None

    @property
    def component(self) -> Component | None:
        return chain("pretokenizers", [*map(isolated, self.splits), byte_level(use_regex=False)])


_GPT2 = PreTokenizer((GPT2_WORDS,))
_LLAMA3 = PreTokenizer((_LLAMA3_WORDS,), ignore_merges=True, add_bos=True)
_QWEN2 = PreTokenizer((QWEN2_WORDS,), composed=True)
_DIGITS_FIRST = PreTokenizer((_DIGIT, GPT2_WORDS))
_GPT4O = PreTokenizer((_GPT4O_WORDS,))
_DEEPSEEK_V3_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_V3 = PreTokenizer(
    (
        r"\p{N}{1,3}",
        r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        _DEEPSEEK_V3_WORDS,
    )
)

_SEED_WORDS = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_RUNS = "|".join([*(rf"\s{{{2**n}}}(?!\S)" for n in range(9, 1, -1)), r"\s{1,2}(?!\S)", r"\s"])
"""White space in pieces of 512, 256, … and 4, of 2, and of 1."""
_JAIS2_WORDS = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_RUNS}"
)
_EXAONE_MOE_WORDS = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_THOUSANDS = r"(?<!\p{N})\p{N}{1,2}(?=(?:\p{N}{3})+(?!\p{N}))|\p{N}{3}|\p{N}+"
"""Digits by three, counted from the right."""
_WIDE_LETTERS = """
    0e40-0eff 1000-109f 1100-11ff 1780-17ff 2f00-2fdf 3040-30ff 3400-4dbf 4e00-9fff a9e0-a9ff aa60-aa7f ac00-d7af
    f900-faff ff65-ff9f
"""
"""Scripts of East and Southeast Asia in Trinity's tokenizer; of Thai the part from its first vowel on, as llama.cpp has
it."""

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": PreTokenizer((_PUNCTUATION.replace("`", ""), GPT2_WORDS, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "jais", "trillion", "gigachat", "exaone4"), _GPT2),
    **dict.fromkeys(("mpt", "olmo"), replace(_GPT2, composed=True)),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), _LLAMA3
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), replace(_LLAMA3, ignore_merges=False, add_bos=False)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "hunyuan"), _QWEN2),
    "jais-2": PreTokenizer((_JAIS2_WORDS,)),
    "qwen35": PreTokenizer((_QWEN35_WORDS,), composed=True),
    **dict.fromkeys(
        ("stablelm2", "solar-open", "bailingmoe", "bailingmoe2", "llada-moe"),
        replace(_QWEN2, composed=False),
    ),
    "exaone-moe": PreTokenizer((_EXAONE_MOE_WORDS,)),
    "afmoe": PreTokenizer((_THOUSANDS, rf"[{_letters(_WIDE_LETTERS)}]+", _DEEPSEEK_V3_WORDS)),
    **dict.fromkeys(("starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b"), _DIGITS_FIRST),
    "command-r": replace(_DIGITS_FIRST, composed=True),
    "falcon": PreTokenizer((_PUNCTUATION, GPT2_WORDS, "[0-9][0-9][0-9]")),
    "deepseek-llm": PreTokenizer(
        ("[\r\n]", rf"\s?[{_letters(_CASED_LETTERS)}]+", _WIDE_PUNCTUATION, r"\s+$", _CJK, r"\p{N}+")
    ),
    "deepseek-coder": PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, _DIGIT)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), _DEEPSEEK_V3),
    "seed-coder": PreTokenizer((_SEED_WORDS,)),
    "tekken": PreTokenizer((_TEKKEN_WORDS,), ignore_merges=True, add_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "minimax-m2"), _GPT4O),
    **dict.fromkeys(("bloom", "gpt3-finnish", "poro-chat"), PreTokenizer((_BLOOM_WORDS,))),
    "viking": PreTokenizer((_BLOOM_WORDS, _DIGIT)),
}
"""By the value of ``tokenizer.ggml.pre``; ``default`` if it is absent."""
