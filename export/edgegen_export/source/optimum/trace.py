"""Tracing with optimum: which models it can trace, and the trace; the one place that uses torch and transformers.

Nothing is fetched (the checkpoint is a folder by then), no code of the checkpoint is run, and no pickle is opened.
"""

import io
import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import (
    ExportError,
    TensorError,
    UnsupportedModelError,
    UsageError,
    did_you_mean,
    first_line,
    refuse_any,
)

TASK = "text-generation-with-past"
INSTALL = 'pip install "edgegen[optimum]"'
DEFAULT_CONTEXT = 2048

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx")
_ATTENTION = {"falcon": "sdpa"}
"""All other model types: eager, which is the whole attention; the fused one leaves out what it cannot express, such as
capped scores. Falcon's eager attention adds its ALiBi twice."""


@dataclass(frozen=True, slots=True)
class TracedConfig:
    """Parts of a model's config that the runtime must know, as its own configuration class has them.

    ``warning``: where ``max_context`` is not simply what the config says.
    """

    model_type: str
    max_context: int
    hidden_size: int
    warning: str | None


class LoadedModel:
    """The model in float32, in memory, in torch."""

    def __init__(self, folder: Path, model_type: str) -> None:
        """Load the model with transformers.

        Raises:
            TensorError: weights are missing.
            UnsupportedModelError: transformers cannot load it.
        """
        torch, transformers = _import("torch"), _import("transformers")
        exporters = _import("optimum.exporters.utils")
        self._torch = torch
        try:
            with _quiet(), exporters.DisableCompileContextManager():
                self._model, loading = transformers.AutoModelForCausalLM.from_pretrained(
                    str(folder),
                    torch_dtype=torch.float32,
                    attn_implementation=_ATTENTION.get(model_type, "eager"),
                    use_safetensors=True,
                    local_files_only=True,
                    trust_remote_code=False,
                    output_loading_info=True,
                )
        except Exception as error:
            raise UnsupportedModelError(f"transformers cannot load this model: {first_line(error)}") from error
        missing = [f"{name}: missing" for name in sorted(loading["missing_keys"])]
        missing += [f"{name}: not a tensor of this architecture" for name in sorted(loading["unexpected_keys"])]
        refuse_any(missing, TensorError, "the checkpoint's tensors do not fit its config.json: ")
        self._model.eval()

    def trace(self, folder: Path) -> Path:
        """Have optimum write the graph into ``folder``; returns its path.

        Raises:
            UnsupportedModelError: optimum cannot.
        """
        convert = _import("optimum.exporters.onnx.convert")
        self._model.config.use_cache = True
        self._model.config._name_or_path = str(folder)  # where optimum looks for a tokenizer to copy: in vain
        try:
            with _quiet():
                convert.onnx_export_from_model(
                    self._model, output=folder, task=TASK, do_validation=False, no_post_process=True
                )
        except Exception as error:
            kind = self._model.config.model_type
            raise UnsupportedModelError(f"optimum cannot trace this {kind}: {first_line(error)}") from error
        return folder / "model.onnx"

    @property
    def parameters(self) -> int:
        """Weights, shared ones counted once."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    def logits(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """ids [b, t] without past → logits [b, t, vocab]."""
        with _quiet(), self._torch.no_grad():
            return self._model(self._torch.from_numpy(ids), use_cache=False).logits.numpy()


def check_traceable(config: Mapping[str, Any]) -> None:
    """Refuse, by ``config.json`` alone, what optimum does not trace as a causal decoder.

    Raises:
        ExportError: optimum is not installed.
        UnsupportedModelError: it does not know the architecture, or knows it as something else.
    """
    _import("torch")
    _import("optimum.exporters.onnx.model_configs")  # registers what optimum can trace
    tasks = _import("optimum.exporters.tasks").TasksManager
    classes = _import("transformers.models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    model_type = config.get("model_type")
    known = sorted(name for name in tasks.get_supported_model_type_for_task(TASK, "onnx") if name in classes)
    if model_type not in known:
        near = did_you_mean(model_type, known) if isinstance(model_type, str) else ""
        raise UnsupportedModelError(
            f"optimum does not trace model_type {model_type!r}{near} as a causal language model; it does trace: "
            f"{', '.join(known)}."
        )
    found = cast(list[str], config.get("architectures") or [])
    problems = [
        problem
        for problem in (
            f"it is a {' / '.join(found)}, and not a {classes[model_type]}"
            if found and classes[model_type] not in found
            else None,
            "it is an encoder and a decoder, not a decoder only" if config.get("is_encoder_decoder") else None,
            "it is already quantized: export the original checkpoint"
            if config.get("quantization_config") or config.get("quantization")  # as MLX's older tools write it
            else None,
        )
        if problem
    ]
    refuse_any(problems, UnsupportedModelError, "the checkpoint cannot be traced: ")


def read_config(folder: Path, max_context: int | None) -> TracedConfig:
    """Read the checkpoint's ``config.json`` by transformers, absent keys filled in.

    Raises:
        UsageError: the model does not accept ``max_context`` positions.
        UnsupportedModelError: transformers cannot read it.
    """
    try:
        with _quiet():
            loaded = _import("transformers").AutoConfig.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
            config = loaded.get_text_config()
    except ExportError:
        raise
    except Exception as error:
        raise UnsupportedModelError(f"transformers cannot read config.json: {first_line(error)}") from error
    context, warning = context_of(config, max_context)
    return TracedConfig(loaded.model_type, context, int(config.hidden_size), warning)


def versions() -> dict[str, str]:
    """Of what had a hand in the trace."""
    return {name: version(name) for name in ("optimum-onnx", "optimum", "transformers", "torch")}


def context_of(config: Any, wanted: int | None = None) -> tuple[int, str | None]:
    """The positions that a trace of a model with this configuration is for, and a warning where that is not plain.

    Raises:
        UsageError: it does not accept as many as are wanted.
    """
    lengths = [getattr(config, key, None) for key in _CONTEXT_KEYS]
    longest = next((length for length in lengths if isinstance(length, int) and length > 0), None)
    warning = None
    if longest is None:
        keys = ", ".join(_CONTEXT_KEYS[:-1]) + f" or {_CONTEXT_KEYS[-1]}"
        warning = (
            f"config.json does not say how many positions the model takes ({keys}): {DEFAULT_CONTEXT} are assumed; "
            "--max-context says it"
        )
    scaling = cast(dict[str, Any], getattr(config, "rope_scaling", None) or {})
    first = scaling.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
    if (
        scaling.get("rope_type", scaling.get("type")) == "longrope"
        and isinstance(first, int)
        and first < (longest or 0)
    ):
        warning = (
            "a trace holds one of this model's two sets of rotary frequencies, that of short texts: the bundle takes "
            f"{first} of {longest} positions"
        )
        longest = first
    if wanted is None:
        return longest or DEFAULT_CONTEXT, warning
    if wanted < 1 or (longest is not None and wanted > longest):
        most = "any number of" if longest is None else f"1 to {longest}"
        raise UsageError(f"max_context: this model can be traced for {most} positions, not {wanted}")
    return wanted, None


def _import(name: str) -> Any:
    """The module ``name``.

    Raises:
        ExportError: the module, or what it needs, is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except ImportError as error:
        raise ExportError(f"tracing needs optimum and torch ({error}): run `{INSTALL}`.") from error


@contextmanager
def _quiet() -> Generator[None]:
    """Mutes these libraries: errors are raised, and their warnings are for their own authors."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
        ):
            yield
    finally:
        logging.disable(disabled)
