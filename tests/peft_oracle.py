"""Adapters as PEFT makes and saves them, with random values in place of trained ones: the oracle of merging."""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.oracle import Oracle, import_torch, import_transformers

State = dict[str, NDArray[np.float32]]


def import_peft() -> Any:
    with _quiet():
        return pytest.importorskip("peft", reason="peft is the oracle here, and it is not installed")


def write_random(folder: Path, family: str = "Llama", *, seed: int = 0, dtype: str = "float32", **given: Any) -> Path:
    """A random model of ``family`` (its name in transformers' classes) of two small layers; few matrices are square."""
    torch, transformers = import_torch(), import_transformers()
    settings: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "vocab_size": 23}
    settings |= {"num_attention_heads": 4, "num_key_value_heads": 2, **given}
    settings = {key: value for key, value in settings.items() if value is not ...}
    torch.manual_seed(seed)
    model = getattr(transformers, f"{family}ForCausalLM")(getattr(transformers, f"{family}Config")(**settings))
    model.to(getattr(torch, dtype)).save_pretrained(str(folder), safe_serialization=True)
    return folder


def write_adapter(
    folder: Path, base: Path, *, vocabulary: int | None = None, seed: int = 1, spread: float = 0.3, **settings: Any
) -> Any:
    """Adapt ``base`` by a LoraConfig of these settings, move everything that it trains, save it; the adapted model.

    ``vocabulary``: rows that the embeddings are given first.
    """
    torch, transformers, peft = import_torch(), import_transformers(), import_peft()
    torch.manual_seed(seed)
    with _quiet(), torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(base), attn_implementation="eager", torch_dtype=torch.float32
        )
        if vocabulary is not None:
            model.resize_token_embeddings(vocabulary)
        adapted = peft.get_peft_model(model, peft.LoraConfig(**settings)).eval()
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * spread)
        adapted.save_pretrained(str(folder))
    return adapted


def merged_state(adapted: Any) -> State:
    """Return the state that PEFT merges, by the model's names; ``adapted`` is used up.

    A tied head is untied first, as PEFT advises: it would add an update of either tensor to the one that both share.
    """
    torch = import_torch()
    with _quiet():
        head = _innermost(adapted.get_base_model().get_output_embeddings())
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        state = adapted.merge_and_unload().state_dict()
    return {name: tensor.float().numpy() for name, tensor in state.items()}


def _innermost(module: Any) -> Any:
    """The layer under PEFT's wrappers."""
    while True:
        inner = getattr(module, "token_adapter", None) or getattr(module, "original_module", None)
        inner = inner or getattr(module, "base_layer", None)
        if inner is None:
            return module
        module = inner


class AdaptedOracle(Oracle):
    """The oracle of a model that PEFT has adapted, with nothing merged."""

    def __init__(self, adapted: Any) -> None:
        self._torch = import_torch()
        self.model = adapted


@contextmanager
def _quiet() -> Generator[None]:
    """Without PEFT's and transformers' advice, which is not for the tests."""
    logger = logging.getLogger("transformers")
    level = logger.level
    import_transformers()
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
