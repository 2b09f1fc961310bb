"""The docs use the field's terms: each feature has its usual name on its page, and private words are nowhere."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT, blocks, prose

SCANNED: tuple[str, ...] = ("edgegen", "export", "bench", "models")
"""The folders of sources whose docstrings, comments and messages are scanned like the pages."""

TERMS = {
    "README.md": """
        continuous batching; chunked prefill; prefix caching; speculative decoding; prompt lookup; draft model; KV
        cache; constrained output; JSON Schema; GBNF; sampling; top-k; top-p; min-p; mirostat; DRY; logit bias; stop
        strings; beam search; classifier-free guidance; log-probabilities; chat template; perplexity; quantization;
        int8; int4; SmoothQuant; GPTQ; GGUF; AWQ; LoRA; KL divergence; parity report; latency; throughput; bit-exact;
        preemption; sliding window attention; sessions; asyncio; lm-evaluation-harness
        """,
    "CONTRIBUTING.md": "commit titles; test levels; logits processor",
    "docs/adapters.md": "LoRA; rank; KV cache; SmoothQuant; KL divergence; PSS; safetensors",
    "docs/architecture.md": "continuous batching; prefix caching; speculative decoding; constrained decoding; KV cache",
    "docs/batch.md": "continuous batching; resumed; Ray; throughput",
    "docs/chat.md": "REPL; chat template; base model; KV cache; session; system message; streams",
    "docs/installing.md": "wheel; glibc; aarch64; Windows; macOS; llguidance",
    "docs/releasing.md": "wheel; reproducible builds; bill of materials; trusted publishing; provenance; glibc",
    "docs/published.md": "tokenizer; chat template; greedy; safetensors; GGUF; int8; int4",
    "docs/pulling.md": "hub; instruct; bundle; parameters; KV cache; ollama; llama.cpp",
    "docs/benchmarking.md": """
        edgegen doctor; edgegen tune; performance cores; quota; kernels; temperature; throttling; KV cache; prefill
        chunk; PSS; --max-memory; latency; throughput; memory bandwidth; prefix caching
        """,
    "docs/browser.md": "onnxruntime-web; WebAssembly; worker; KV cache; prefill; greedy; tokenizers",
    "docs/gpus.md": "CUDA; float16; KV cache; prefill; I/O binding; provider",
    "docs/embedding.md": "tkinter; asyncio; PyInstaller; signal; cancels; KV cache",
    "docs/bundle-format.md": "manifest; KV cache; prefill; decode; block_size; SmoothQuant",
    "docs/cli.md": "KV cache; temperature; beam",
    "docs/clients.md": """
        openai; anthropic; stream; logprobs; JSON; tools; prefix caching; constrained decoding; chat template; function
        calling; context; KV cache; reasoning; slot; API key; schema; CORS; base model; ollama; NDJSON; llama-server;
        FIM; samplers; greedy; log-probabilities; server-sent events
        """,
    "docs/configuration.md": "environment variable; precedence; flag; completion; system message",
    "docs/constrained-output.md": "constrained decoding; JSON Schema; regular expression; Lark; GBNF",
    "docs/continuous-batching.md": """
        continuous batching; chunked prefill; admission; first come, first served; preemption; priority; throughput;
        latency; KV cache; bit-exact; prefix caching
        """,
    "docs/evaluating.md": "perplexity; standard error; lm-evaluation-harness; log-probabilities",
    "docs/embeddings.md": "embedding; hidden states; pooling; cosine similarity; chunked prefill; prefix caching",
    "docs/exporting.md": """
        checkpoint; safetensors; GGUF; GPTQ; AWQ; LoRA; RoPE; parity report; KV cache; SentencePiece
        """,
    "docs/generating.md": """
        sampling; greedy; top-k; top-p; nucleus; min-p; typical; mirostat; XTC; DRY; penalties; logit bias; stop
        string; beam search; classifier-free guidance; log-probabilities; constrained decoding; chat template;
        perplexity
        """,
    "docs/web-page.md": "chat template; sampling; JSON Schema; parity report; system prompt; stop string; context",
    "docs/chat-templates.md": "chat template; system message; parallel_tool_calls; reasoning; content parts",
    "docs/tools.md": "function calling; tool choice; constrained decoding; reasoning; JSON schema; turn",
    "docs/glossary.md": """
        acceptance rate; batch; beam search; bit-exact; block size; bundle; calibration; chat template; chunked
        prefill; classifier-free guidance; constrained decoding; continuous batching; decode; decode graph; draft
        model; DRY; GGUF; GPTQ; GQA; grammar; int4; int8; KL divergence; KV cache; latency; logits processor; LoRA;
        manifest; min-p; mirostat; mixture of experts; parity report; perplexity; preemption; prefill; prefill graph;
        prefix caching; prompt; prompt lookup; proposal; quantization; request; RoPE; sampling; self-sampling;
        sequence; session; sliding window attention; slot; SmoothQuant; speculative decoding; step; stop string;
        temperature; throughput; tied embedding; time to first token; token; top-1 agreement; top-k; top-p; typical-p;
        XTC
        """,
    "docs/life-of-a-request.md": """
        continuous batching; chunked prefill; prefix caching; speculative decoding; KV cache; logits processors; slot;
        proposer
        """,
    "docs/life-of-an-export.md": """
        calibration; self-sampling; SmoothQuant; GPTQ; int4 allocation; int8 refinement; KV cache; resume; parity
        report
        """,
    "docs/parity.md": "KL divergence; top-1 agreement; perplexity; standard error; KV cache; hidden states",
    "docs/kernels.md": "kernels; weights; bit-exact",
    "docs/performance.md": """
        prefill; decode; latency; throughput; memory bandwidth; chunked prefill; KV cache; bit-exact; sliding window
        attention; prefill graph; decode graph; speculative decoding; load time
        """,
    "docs/prefix-caching.md": """
        prefix caching; prefix; KV cache; time to first token; slot; session; prefill; safetensors
        """,
    "docs/python.md": """
        continuous batching; asyncio; logits processor; stopping criteria; KV cache; log-probabilities
        """,
    "docs/layer-state.md": "hybrid; fixed state; KV cache; sliding window; checkpoint; speculative decoding",
    "docs/quantization.md": """
        quantization; int8; int4; calibration; self-sampling; SmoothQuant; GPTQ; KV cache; GGUF; KL divergence;
        perplexity
        """,
    "docs/serving.md": """
        continuous batching; prefix caching; OpenAI; API key; Host; Origin; DNS rebinding; CORS; time to first token;
        least recently used; lm-evaluation-harness
        """,
    "docs/service.md": "systemd; Containerfile; KV cache; API; TLS; Prometheus; health check",
    "docs/speculative-decoding.md": """
        speculative decoding; prompt lookup; draft model; proposals; accepted; acceptance rate; n-gram
        """,
}
"""Terms that each page must have, whatever the case of its letters."""

WITHOUT_TERMS = {
    "SECURITY.md",
    "CHANGELOG.md",
    "docs/adding-a-family.md",
    "docs/families.md",
    "docs/index.md",
    "docs/options.md",
    "docs/security.md",
}
"""Lists, and pages on other matters."""

PRIVATE = {
    r"at work": "running",
    r"compan(y|ies)": "the other requests in the batch",
    r"(the|a|its|their|same|shared|common|longest) beginnings?(?! of)|beginnings(?! of)": "prefix",
    r"beg[ia]ns? alike": "prefix caching",
    r"guess(es|ed|ing)?": "propose, proposal",
    r"(its|their|float32|int8|keeps?|kept|past) keys and values|keys and values (take|stay|lie|of a row)": "KV cache",
    r"how (a|the) prompt is cut|how the work (is|was) cut|how it is cut|under any cut|another cut": "chunking",
    r"cannot be right": "invalid arguments",
    r"short cuts?": "bit-exact",
    r"drawn alike": "has its own seed",
    r"climb(s|ed|ing)?": "int4 allocation",
    r"shortfalls?": "warnings",
    r"unfinished": "resume",
    r"faults": "problems, validation errors",
    r"boards?": "system, machine",
    r"who (sits|runs|is) where": "slots",
    r"nobody overtakes|nobody else|somebody (knows|needs|else)": "the noun",
}
"""Words that only this project used, as expressions, and what to write instead."""

PRIVATE_IN_PAGES = {
    r"(?<!those )(?<!lag )behind": "after, before",
    r"(?-i:(is|are) none)": "is not a …, there is no …",
    r"so many": "at most n, the first n",
    r"(?<!supply )chains?": "fused layers, operator fusion",
    r"half attention": "float16 attention",
    r"think(s|ing)? aloud|thoughts": "reasoning",
    r"bytes (per|of) (a )?row|far back a row|rows? (can|may|that begin|has up to)": "sequence",
    r"nobody|somebody": "the noun",
}
"""More of them, to which only pages are held that are written by hand."""

_GENERATED = {"families.md", "options.md"}
"""Pages whose words are those of sources."""


def _compiled(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.])(?:{word})(?![\w-])", re.IGNORECASE)


class _Words:
    """Expressions and what to write instead; ``found`` finds any of them, for most texts have none."""

    def __init__(self, words: dict[str, str]) -> None:
        self.found = _compiled("|".join(words)).search
        self.instead = {_compiled(word): instead for word, instead in words.items()}


_PRIVATE = _Words(PRIVATE)
_PRIVATE_IN_PAGES = _Words(PRIVATE | PRIVATE_IN_PAGES)

_STORIES = {"sample_text.py"}
"""Sources of prose that is data."""


@pytest.mark.parametrize("name", TERMS)
def test_page_names_its_features(name: str) -> None:
    text = _plain((ROOT / name).read_text("utf-8"))
    assert [term for term in _terms(name) if _plain(term) not in text] == []


def test_every_page_has_terms() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert sorted(names - set(TERMS) - WITHOUT_TERMS) == []


def test_glossary_defines_each_term_once() -> None:
    """A definition is a line of the list that begins with its term in bold."""
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    heads = [head for bold in re.findall(r"^- \*\*(.+?)\*\*", text, re.MULTILINE) for head in bold.lower().split(", ")]
    assert [term for term in _terms("docs/glossary.md") if term.lower() not in heads] == []
    assert sorted(heads) == sorted(set(heads))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_has_no_private_words(path: Path) -> None:
    texts = [*prose(path), *((block.line, block.code) for block in blocks(path) if block.kind != "help")]
    assert _private(texts, _PRIVATE if path.name in _GENERATED else _PRIVATE_IN_PAGES) == []


def test_sources_have_no_private_words() -> None:
    files = [file for folder in SCANNED for file in sorted((ROOT / folder).rglob("*.py")) if file.name not in _STORIES]
    found = {str(file): _private(_said(file)) for file in files}
    assert {file: words for file, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "sentence", ["A row at work stays.", "Texts that begin alike", "no short cut", "It guesses ahead"]
)
def test_private_words_are_found(sentence: str) -> None:
    assert _private([(1, sentence)])


@pytest.mark.parametrize("sentence", ["Norms behind attention", "There are none.", "keeps so many bytes", "a chain"])
def test_words_private_to_pages_are_found(sentence: str) -> None:
    assert _private([(1, sentence)], _PRIVATE_IN_PAGES)


@pytest.mark.parametrize("sentence", ["blocks those behind it", "the supply chain", "none of them"])
def test_usual_words_are_not_found(sentence: str) -> None:
    assert not _private([(1, sentence)], _PRIVATE_IN_PAGES)


def test_docstrings_comments_and_messages_are_read(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""At\nwork."""\nraise ValueError(f"{1} the unfinished")  # who climbs\nclimb = 1\n')
    assert len(_private(_said(file))) == 3


def _terms(name: str) -> list[str]:
    return [" ".join(term.split()) for term in TERMS[name].split(";")]


def _plain(text: str) -> str:
    """Lower case, in one line of single spaces."""
    return re.sub(r"\s+", " ", text.lower())


def _private(texts: Iterable[tuple[int, str]], words: _Words = _PRIVATE) -> list[str]:
    """The private words in numbered texts, and what to write instead."""
    plain = ((line, re.sub(r"\s+", " ", text)) for line, text in texts)
    return [
        f"{line}: {match[0]!r}: write {instead!r}"
        for line, text in plain
        if words.found(text)
        for expression, instead in words.instead.items()
        for match in expression.finditer(text)
    ]


def _said(file: Path) -> Iterator[tuple[int, str]]:
    """The strings and comments of a source file, with their lines."""
    source = file.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    ends = (line.partition("#")[2] for line in source.split("\n"))  # of comments, and of some strings
    if any(_PRIVATE.found(end) for end in ends):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
