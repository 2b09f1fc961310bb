"""``edgegen info``: show a bundle's model, quantization, memory and parity."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from textwrap import indent
from typing import Any, get_args

import click

from edgegen.benchmark.memory_forecast import checkpoint_bytes, forecast_memory, table_bytes
from edgegen.benchmark.memory_plan import describe_forecast
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_cost import mean_kl
from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.model_card import usage_note
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.chat import ChatTemplate
from edgegen.cli.flag import Flag, complete_bundle
from edgegen.cli.parity_table import parity_table
from edgegen.cli.printable import printable, printable_lines
from edgegen.errors import BundleNotFoundError, UsageError
from edgegen.evaluation.parity.report import ParityReport
from edgegen.model.kernels import describe_kernels
from edgegen.options.engine import EngineOptions
from edgegen.options.tuned import TunedOptions


@click.command("info")
@click.argument("bundle", default=DEFAULT_MODEL, shell_complete=complete_bundle)
@click.option("--context", type=int, help="Tokens of context to give the memory for.  [the model's most]")
@click.option(
    "--kv", cls=Flag, type=click.Choice(get_args(KVDtype)), help="The type of KV cache to give it for.  [the bundle's]"
)
@click.option(
    "--batch", type=click.IntRange(min=1), metavar="N", default=1, show_default=True, help="Sequences at once."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(bundle: str, context: int | None, kv: KVDtype | None, batch: int, as_json: bool) -> None:
    """Show what BUNDLE (a name or a path) is, and the memory it needs."""
    opened = Bundle.open(BundleStore().resolve(bundle))
    facts, parity = describe(opened, context, kv, batch), ParityReport.read(opened)
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    memory, source, tuned, head = facts["memory"], facts["source"], facts["tuned"], facts["mtp"]
    rows: dict[str, str | None] = {
        "name": facts["name"],
        "path": facts["path"],
        "sha256": facts["sha256"],
        "source": _origin(source),
        "adapter": source["adapter"] and _origin(source["adapter"]),
        "base": facts["base"] and _base(facts["base"]),
        "model": f"{facts['family']}, {facts['parameters'] / 1e6:.1f}M parameters, {facts['num_layers']} layers, "
        f"vocabulary {facts['vocab_size']}",
        "note": facts["note"],
        "quantization": facts["quantization"],
        "on disk": _megabytes(facts["disk_bytes"]),
        "context": f"{facts['max_context']} tokens",
        "template": _template(facts["chat_template"]),
        "kernels": facts["kernels"],
        "tuned": tuned
        and f"{tuned['threads']} threads, prefill chunks of {tuned['prefill_chunk']}, {tuned['kv']} KV cache",
        "memory": f"{_megabytes(memory['weights_bytes'])} weights{_tables(memory)} + "
        f"{_megabytes(memory['kv_bytes'])} {'KV cache' if memory['kv_bytes_per_token'] else 'states'} at "
        f"{f'{batch} × ' if batch > 1 else ''}{memory['context']} tokens "
        f"({_per_token(memory)})",
        "process": f"about {_megabytes(memory['process_bytes'])}: {memory['parts']}",
        "variants": ", ".join(map(_variant, facts["variants"])),
        "KV caches": ", ".join(map(_kv_cache, facts["kv_caches"])),
        "speculation": head and f"multi-token prediction head ({head['kv_bytes_per_token'] / 1024:.1f} KiB per token)",
        "parity": f"top-1 agreement {parity.preferred.top1_agreement:.1%} with the checkpoint, on "
        f"{parity.tokens} tokens of {parity.text}:",
    }
    width = max(map(len, rows))
    for key, value in rows.items():
        if value:
            click.echo(f"{key:>{width}}  {printable(value)}")
    click.echo(indent(printable_lines(parity_table(parity)), " " * (width + 2)))


def describe(bundle: Bundle, context: int | None = None, kv: KVDtype | None = None, batch: int = 1) -> dict[str, Any]:
    """The facts of a bundle; memory of ``batch`` sequences of ``context`` tokens, or at the most the model takes.

    Raises:
        UsageError: a context the model cannot have, or a type of KV cache that the bundle has no variant for.
    """
    manifest, variant = bundle.manifest, bundle.variant_with(kv)
    model, quantization = manifest.model, manifest.quantization
    wanted = model.max_context if context is None else context
    if not 1 <= wanted <= model.max_context:
        raise UsageError(f"--context {wanted}: this model takes 1 to {model.max_context} tokens.")
    template = ChatTemplate.from_bundle(bundle)
    forecast = forecast_memory(bundle, EngineOptions(kv=kv), context=wanted, batch=batch)
    scheme = quantization.scheme
    if quantization.linear.is_ternary:
        scheme += ", ternary layers in 2 bits"
    elif quantization.linear.block_size:
        scheme += f", {quantization.linear.bits}-bit blocks of {quantization.linear.block_size}"
        if quantization.narrow:
            words = " and ".join(map(str, quantization.narrow))
            scheme += f", and of {words} bits: {quantization.bits_per_weight:.2f} per weight"
    return {
        "name": manifest.name,
        "path": str(bundle.path),
        "sha256": bundle.sha256,
        "format_version": manifest.format_version,
        "source": asdict(manifest.source),
        "base": _base_facts(bundle),
        "family": model.family,
        "parameters": model.parameters,
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "max_context": model.max_context,
        "note": usage_note(bundle),
        "quantization": scheme,
        "variants": [
            {
                "name": v.name,
                "kv_dtype": v.kv.dtype,
                "embedding_size": v.hidden_states.embedding_size if v.hidden_states else None,
                "pooling": _pooling(bundle) if v.hidden_states else None,
                "kv_bytes_per_token": v.kv.bytes_per_token,
                "state_bytes_per_row": v.kv.bytes_per_row,
                "checkpoint_bytes_per_row": checkpoint_bytes(v.kv),
                "minimum_onnxruntime": v.minimum_onnxruntime,
            }
            for v in manifest.variants
        ],
        "kv_caches": [
            {"kv": v.kv.dtype, "bytes_per_token": v.kv.bytes_per_token, "mean_kl": mean_kl(bundle, v)}
            for v in (*manifest.variants, *bundle.converted_variants)
            if v.kv.layers
        ],
        "mtp": {"kv_bytes_per_token": manifest.mtp.kept_bytes_per_token} if manifest.mtp else None,
        "disk_bytes": bundle.nbytes,
        "kernels": describe_kernels(),
        "tuned": asdict(tuned) if (tuned := TunedOptions.read(bundle)) else None,
        "memory": {
            "context": wanted,
            "weights_bytes": bundle.size_of(variant.weights),
            "table_bytes": table_bytes(bundle, variant),
            "kv_bytes_per_token": variant.kv.bytes_per_token,
            "state_bytes_per_row": variant.kv.bytes_per_row,
            "checkpoint_bytes_per_row": checkpoint_bytes(variant.kv),
            "kv_bytes_per_token_with_full_windows": variant.kv.lasting_bytes_per_token,
            "kv_bytes": forecast.kv,
            "batch": batch,
            "process_bytes": forecast.total,
            "parts": describe_forecast(forecast),
        },
        "chat_template": None if template.is_fallback else template.describe(),
        "parity": bundle.json(manifest.parity),
    }


def _base_facts(bundle: Bundle) -> dict[str, Any] | None:
    """The bundle that an adapter bundle needs; its path is null where it is not there."""
    wanted = bundle.manifest.base
    if wanted is None:
        return None
    path = str(bundle.base.path) if bundle.base else None
    return {"name": wanted.name, "sha256": wanted.sha256, "path": path}


def _base(facts: Mapping[str, Any]) -> str:
    where = facts["path"] or "not there: put it beside this bundle, or into the store"
    return f"{facts['name']}, whose graphs and weights it runs with ({where})"


def _template(described: Mapping[str, Any] | None) -> str:
    """Describe what the chat template accepts that not every template does; all of it is in ``--json``."""
    if described is None:
        return "none: a base model, which continues texts"
    one = described.get("default") or next(iter(described.values()))
    if "error" in one:
        return one["error"]
    plain, with_tools = one["without_tools"], one["with_tools"]
    takes = {
        "system messages": plain["system"],
        "system messages anywhere": plain["late_systems"],
        "developer messages": plain["developer"],
        "tools": with_tools["tools"],
        "parallel tool calls": with_tools["calls"] and with_tools["parallel_calls"],
        "reasoning": plain["reasoning_key"] is not None,
    }
    return "takes " + (", ".join(name for name, there in takes.items() if there) or "users and assistants only")


def _tables(memory: Mapping[str, Any]) -> str:
    """How many of the weights stay in the file, where they are many."""
    many = memory["table_bytes"] > memory["weights_bytes"] // 10
    return f" ({_megabytes(memory['table_bytes'])} of them tables, read row by row)" if many else ""


def _per_token(memory: Mapping[str, Any]) -> str:
    """Describe the memory that a token adds, also with full windows where layers have any, and that of every row."""
    first = memory["kv_bytes_per_token"]
    later = memory.get("kv_bytes_per_token_with_full_windows", first)
    if not first:
        return f"nothing per token{_per_row(memory)}"
    windows = f", {later / 1024:.1f} with full windows" if later < first else ""
    return f"{first / 1024:.1f} KiB per token{windows}{_per_row(memory)}"


def _pooling(bundle: Bundle) -> str | None:
    """How embeddings are made by default; None where that is in a base that is not there."""
    try:
        defaults = bundle.embedding_defaults()
    except BundleNotFoundError:
        return None
    return f"{defaults.pooling}{', normalized' if defaults.normalize else ''}"


def _per_row(facts: Mapping[str, Any]) -> str:
    """Describe the memory of a sequence's fixed states, where there are any, and with their checkpoints."""
    states, checkpoints = facts["state_bytes_per_row"], facts["checkpoint_bytes_per_row"]
    with_them = f"{(states + checkpoints) / 1024:.1f} with checkpoints"
    return f" + {states / 1024:.1f} KiB per row, {with_them}" if states else ""


def _variant(facts: Mapping[str, Any]) -> str:
    """A variant in a few words."""
    cache = f"{facts['kv_dtype']} KV cache" if facts["kv_bytes_per_token"] else "no KV cache"
    embeds = f", embeddings of {facts['embedding_size']}" if facts["embedding_size"] else ""
    embeds += f" ({facts['pooling']})" if embeds and facts["pooling"] else ""
    return f"{facts['name']} ({cache}, {_per_token(facts)}{embeds})"


def _kv_cache(facts: Mapping[str, Any]) -> str:
    """A type of KV cache that the bundle can run with, in a few words."""
    cost = "not measured" if facts["mean_kl"] is None else f"mean KL {facts['mean_kl']:.2g} nats"
    return f"{facts['kv']} ({facts['bytes_per_token'] / 1024:.1f} KiB per token, {cost})"


def _origin(source: Mapping[str, Any]) -> str:
    """A source, or an adapter's, in a few words."""
    revision = f", {source['revision'][:12]}" if source["revision"] else ""
    return f"{source['id']} ({source['kind']}{revision})"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
