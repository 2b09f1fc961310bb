"""Checkpoints with a multi-token prediction head, and what transformers' own layers make of it.

transformers leaves these heads out. A head here is one of its decoder layers, with the norms and the projection that
the published code puts before it (vLLM: ``qwen3_next_mtp``, ``deepseek_mtp``, ``glm4_moe_mtp``, ``mimo_mtp``).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen import EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.kv_cache import KVCache
from edgegen.model.loading import open_graphs
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of
from tests.oracle import import_torch, import_transformers

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Head:
    """``case``: the model's; ``module``: transformers' module of its layers, whose class ``layer`` is.

    ``prefix``: of the layer's tensors, ``{n}`` being the number of layers; ``names``: of the norms of embeddings and of
    hidden states, of the projection, and of the norm before the head. ``config``: changes that make it another family.
    """

    case: str
    module: str
    layer: str
    prefix: str
    names: tuple[str, ...]
    hidden_first: bool = False
    normed_output: bool = True
    config: Mapping[str, Any] | None = None
    repeats: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.case


_QWEN = ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm")
_DEEPSEEK = tuple(f"model.layers.{{n}}.{name}" for name in ("enorm", "hnorm", "eh_proj", "shared_head.norm"))
_MIMO = ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")
_LAYER, _COPIES = "model.layers.{n}.", ("model.layers.{n}.embed_tokens", "model.layers.{n}.shared_head.head")

HEADS = (
    Head("qwen3_next: base", "qwen3_next", "Qwen3NextDecoderLayer", "mtp.layers.0.", _QWEN),
    Head("glm4_moe: base", "glm4_moe", "Glm4MoeDecoderLayer", _LAYER, _DEEPSEEK, normed_output=False, repeats=_COPIES),
    Head("deepseek_v3: base", "deepseek_v3", "DeepseekV3DecoderLayer", _LAYER, _DEEPSEEK, normed_output=False),
    Head(
        "qwen2: base",
        "qwen2",
        "Qwen2DecoderLayer",
        "model.mtp_layers.0.",
        tuple(f"model.mtp_layers.0.{name}" for name in _MIMO),
        hidden_first=True,
        config={"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1},
    ),
)


class ReferenceHead:
    """A head with random weights for the model in a checkpoint folder, in torch."""

    def __init__(self, head: Head, folder: Path) -> None:
        torch, transformers = import_torch(), import_transformers()
        self._torch, self._head = torch, head
        load = transformers.AutoModelForCausalLM.from_pretrained
        self._model: Any = load(folder, attn_implementation="eager", dtype=torch.float32).eval()
        config = self._model.config
        modeling = getattr(getattr(transformers.models, head.module), f"modeling_{head.module}")
        size, last = config.hidden_size, config.num_hidden_layers - 1
        torch.manual_seed(5)
        norm: Any = self._model.model.norm.__class__
        self._norms = [norm(size, config.rms_norm_eps) for _ in range(3)]
        self._projection = torch.nn.Linear(2 * size, size, bias=False)
        self._layer = getattr(modeling, head.layer)(config, last)
        self._parts = torch.nn.ModuleList([*self._norms[:2], self._projection, self._norms[2]])
        with torch.no_grad():
            for module in (self._parts, self._layer):
                for parameter in module.parameters():
                    torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
        self._layer.eval()
        self._layers = config.num_hidden_layers

    def tensors(self) -> dict[str, Array]:
        """By the names of checkpoints."""
        prefix = self._head.prefix.replace("{n}", str(self._layers))
        found = {f"{prefix}{name}": one for name, one in self._layer.state_dict().items()}
        for name, module in zip(self._head.names, self._parts, strict=True):
            found[f"{name}.weight".replace("{n}", str(self._layers))] = module.weight
        for name, module in zip(
            self._head.repeats, (self._model.model.embed_tokens, self._model.lm_head), strict=False
        ):
            found[f"{name}.weight".replace("{n}", str(self._layers))] = module.weight
        return {name: one.detach().numpy() for name, one in found.items()}

    def hidden(self, ids: NDArray[np.int64]) -> Array:
        """ids [t] → the model's hidden states after its final norm, [t, d]."""
        with self._torch.no_grad():
            return self._model.model(self._torch.tensor(ids)[None]).last_hidden_state[0].numpy()

    def run(self, ids: NDArray[np.int64], hidden: Array) -> tuple[Array, Array]:
        """ids [t] of next tokens and hidden states [t, d] → logits [t, vocab], and hidden states [t, d]."""
        torch, model = self._torch, self._model
        embed_norm, hidden_norm, norm = self._norms
        with torch.no_grad():
            token = embed_norm(model.model.embed_tokens(torch.tensor(ids)[None]))
            previous = hidden_norm(torch.tensor(hidden)[None])
            both = (previous, token) if self._head.hidden_first else (token, previous)
            x = self._projection(torch.cat(both, -1))
            count = len(ids)
            positions = torch.arange(count)[None]
            mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
            rotary = model.model.rotary_emb(x, positions)
            made: Any = self._layer(x, attention_mask=mask, position_ids=positions, position_embeddings=rotary)
            made = made if torch.is_tensor(made) else made[0]
            final = norm(made)
            return model.lm_head(final)[0].numpy(), (final if self._head.normed_output else made)[0].numpy()


def head_runner(bundle: Bundle) -> InPlaceRunner:
    """The head of ``bundle``, running."""
    head, model = bundle.manifest.mtp, bundle.manifest.model
    assert head is not None
    return InPlaceRunner(open_graphs(bundle, head, EngineOptions(threads=1)), head, model.vocab_size, 256)


def run_head(runner: InPlaceRunner, ids: list[int], hidden: Array, cache: KVCache | None = None) -> tuple[Array, Array]:
    """The logits [vocab] after the last of ``ids``, and the hidden states [tokens, size], a copy.

    ``cache``: what the head has read before; an empty one where there is none.
    """
    if cache is None:
        cache = runner.new_cache()
        cache.reserve(1, len(ids))
    found = list[Array]()
    logits = runner.prefill(cache, 0, ids, lambda one: found.append(one.copy()), hidden)
    return logits, found[0]


def assert_head_computes(
    bundle: Bundle, ids: list[int], hidden: Array, expected: tuple[Array, Array], chunk: int
) -> None:
    """That the head of ``bundle`` has the ``expected`` logits [16, vocab] and hidden states [16, size] of 16 ``ids``,
    ``hidden`` being the states before them, in runs of ``chunk``."""
    runner, (logits, states) = head_runner(bundle), expected
    cache = runner.new_cache()
    cache.reserve(1, 16)
    for start in range(0, 16, chunk):
        part = slice(start, start + chunk)
        found, found_states = run_head(runner, ids[part], hidden[part], cache)
        np.testing.assert_allclose(found, logits[start + chunk - 1], rtol=0, atol=1e-3)
        np.testing.assert_allclose(found_states, states[part], rtol=0, atol=1e-3)


def write_with_head(head: Head, folder: Path, *, vocab_size: int | None = None) -> ReferenceHead:
    """Write the case's random checkpoint, with a head, to ``folder``; ``vocab_size``: another than the case's."""
    case = next(one for one in CASES if str(one) == head.case)
    if vocab_size is not None:
        case = replace(case, config={**case.config, "vocab_size": vocab_size})
    plain = checkpoint_of(case, folder.with_name(f"{folder.name}-plain"), oracle=4)
    reference = ReferenceHead(head, plain)
    folder.mkdir()
    tensors = {name: one.read() for name, one in open_safetensors(plain / "model.safetensors").items()}
    write_safetensors(folder / "model.safetensors", {**tensors, **reference.tensors()})
    config = json.loads((plain / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **(head.config or {})}), "utf-8")
    return reference
