"""EngineOptions: how a bundle is run, as a frozen dataclass."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgegen.bundle.kv_format import KV_FORMATS, KVDtype
from edgegen.options.kinds import BundleName, Number, OneOf, Sha256, Switch
from edgegen.options.option import ANSWERING, MOST_SEQUENCES, OPENING, RUNNING, option
from edgegen.options.option_set import OptionSet, documented

_, *_BETWEEN, _SMALLEST = KV_FORMATS.values()


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(OptionSet):
    """How a bundle is run: every option of the engine, which holds for all requests."""

    device: Literal["auto", "cpu", "cuda"] = option(
        "auto",
        "Speed and memory",
        OneOf(("auto", "cpu", "cuda")),
        "Run on the CPU, or on a GPU with CUDA.",
        OPENING,
        note="`auto` takes a GPU where ONNX Runtime was built for one, and says why where it cannot. On a GPU the KV "
        "cache is float16: `--kv` and `--kernels` are the CPU's. See [GPUs](gpus.md).",
    )
    threads: int | None = option(
        None,
        "Speed and memory",
        Number(int, 1, 1024),
        "Threads to compute with.",
        RUNNING,
        note="One per physical core is the fastest.",
        default="physical cores",
        common=True,
    )
    prefill_chunk: int = option(
        256,
        "Speed and memory",
        Number(int, 2),
        "Chunked prefill: most prompt tokens per step.",
        ("generate", "chat", "bench", "serve"),
        note="Smaller chunks need less memory, and others wait less for the next step.",
    )
    max_pause: int = option(
        100,
        "Speed and memory",
        Number(int, 0, 600_000),
        "Longest pause of a stream while another prompt is read, in milliseconds.",
        ("serve",),
        note="Chunks of a prompt get shorter, down to 16 tokens, while other requests wait for their next token, so "
        "that a step takes no longer than this where it can. 0 is no limit: every chunk has `prefill_chunk` tokens. "
        "Texts stay the same. Where they would not, chunks stay as they are: on a GPU, and where ONNX Runtime's "
        "operators compute experts, or 4 bits without VNNI.",
    )
    kernels: Literal["auto", "stock"] = option(
        "auto",
        "Speed and memory",
        OneOf(("auto", "stock")),
        "Use edgegen's own kernels, or 'stock': ONNX Runtime's.",
        RUNNING,
        note="`auto` uses them where there is a library for this platform, also for a draft model. "
        "See [Kernels](kernels.md).",
    )
    draft: str | Path | None = option(
        None,
        "Speed and memory",
        BundleName(),
        "Draft model for speculative decoding.",
        ("generate", "chat", "serve"),
        note="A smaller model with the same tokenizer; its proposals are verified, and the text stays the model's own.",
        metavar="BUNDLE",
        common=True,
    )
    speculate: Literal["auto", "off", "mtp", "lookup", "draft"] = option(
        "auto",
        "Speed and memory",
        OneOf(("auto", "off", "mtp", "lookup", "draft")),
        "Speculative decoding: what proposes tokens.",
        ("generate", "chat", "batch", "serve"),
        note="`auto` takes the multi-token prediction head of a bundle that has one (`mtp`), unless there is a draft "
        "model (`draft`), and prompt lookup where a request asks for it. `lookup` is prompt lookup for every request, "
        "`off` nothing at all. See [Speculative decoding](speculative-decoding.md).",
    )
    kv: KVDtype | None = option(
        None,
        "Speed and memory",
        OneOf(tuple(KV_FORMATS)),
        f"KV cache type; {_SMALLEST.saving}.",
        RUNNING,
        note="".join(f"{one.saving}. " for one in _BETWEEN)
        + "".join(f"{one.note} " for one in KV_FORMATS.values() if one.note)
        + "With all but float32, a text does not depend on how its prompt was chunked. `edgegen info` shows what each "
        "costs in quality.",
        default="the bundle's",
        common=True,
    )
    max_batch_size: int = option(
        8,
        "Speed and memory",
        Number(int, 1, MOST_SEQUENCES),
        "Continuous batching: most sequences of one request, and most requests, that run together.",
        ("batch", "serve"),
        note="Beams and several answers of a prompt count each, and run together in any case. See "
        "[Scheduling](continuous-batching.md#scheduling).",
        common=True,
    )
    kv_budget: int | None = option(
        None,
        "Speed and memory",
        Number(int, 1),
        "Most bytes of KV cache of all running requests.",
        (),
        note="A request that does not fit waits.",
        default="half the memory that is free when the model is loaded",
    )
    prefix_cache: int | None = option(
        None,
        "Speed and memory",
        Number(int, 0),
        "Prefix caching: bytes of KV cache to keep of finished requests.",
        ("serve",),
        note="0 is off. Left out, a finished request's KV cache serves new prompts that share a prefix with it for as "
        "long as its slot is not needed; a number keeps so many bytes beyond that. `edgegen serve` keeps half as many "
        "bytes as the KV cache has.",
    )
    deterministic: bool = option(
        False,
        "Speed and memory",
        Switch(),
        "Bit-reproducible output whatever else is in the batch.",
        (*ANSWERING, "serve"),
        note="Always on with edgegen's kernels or an int8 KV cache, where it costs nothing. With ONNX Runtime's "
        "operators and float32, proposals are not used, and of an answer that goes on only the prompt's KV cache is "
        "used again. Refused where ONNX Runtime's operators would compute experts, or 4 bits without VNNI.",
        default="off",
        flag="--deterministic/--no-deterministic",
    )
    verify: Literal["once", "always", "never"] = option(
        "once",
        "Prompt",
        OneOf(("once", "always", "never")),
        "Compare the bundle's files with their hashes.",
        OPENING,
        note="`once` does not read files again that have passed before and have not changed since.",
    )
    expect_sha256: str | None = option(
        None,
        "Prompt",
        Sha256(),
        "Run no bundle but the one with this hash.",
        OPENING,
        note="`edgegen info` and `edgegen list --json` show it. A draft model is not compared; a server "
        "serves that bundle alone. See [Security](security.md).",
        metavar="HASH",
    )

    def _contradictions(self) -> list[str]:
        if self.speculate == "draft" and self.draft is None:
            return ["speculate: 'draft' takes a draft model: give one with draft, or leave speculate out"]
        if self.speculate not in ("auto", "draft") and self.draft is not None:
            return [f"draft: of no use with speculate={self.speculate!r}: leave one of them out"]
        return []
