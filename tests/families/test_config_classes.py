"""The configs that transformers' own classes write are read, whatever of the training they say.

Oracle: the classes of every supported ``model_type``, and their models at inference, which dropouts do not change.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.families import FAMILIES
from edgegen_export.families.refused import why_not
from tests.families.cases import CASES
from tests.oracle import import_torch, import_transformers

pytestmark = [pytest.mark.parity, pytest.mark.slow]

Config = Mapping[str, Any]

OF_NO_MODEL: Mapping[str, str] = {case.family: case.no_defaults for case in CASES if case.no_defaults}
"""Classes whose defaults make no model that runs, and why."""


@pytest.fixture(scope="module")
def configs() -> dict[str, Config]:
    """Config that each class writes of its defaults, by type, for types that have an exporter."""
    return dict(_written())


def _written() -> Iterator[tuple[str, Config]]:
    transformers = import_transformers()
    mapping: Any = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    for model_type, name in mapping.items():
        try:
            made = transformers.AutoConfig.for_model(model_type).to_dict()
        except (TypeError, ValueError, AttributeError):  # it has no defaults
            continue
        config = json.loads(json.dumps(made, default=str)) | {"architectures": [name], "model_type": model_type}
        try:
            find_architecture(config, FAMILIES, why_not)
        except UnsupportedModelError:
            continue
        yield model_type, config


def refusal(config: Config) -> str | None:
    try:
        find_architecture(config, FAMILIES, why_not).read_config(config)
    except UnsupportedModelError as error:
        return str(error)
    return None


def test_what_classes_write_is_read(configs: dict[str, Config]) -> None:
    assert len(configs) > 70
    refused = {model_type: said for model_type, config in configs.items() if (said := refusal(config))}
    assert refused.keys() <= OF_NO_MODEL.keys(), refused
    assert all(re.search(OF_NO_MODEL[model_type], said) for model_type, said in refused.items()), refused


def test_dropouts_of_all_classes_are_read_by_all_families(configs: dict[str, Config]) -> None:
    """Wherever a fine-tune's config was made up from."""
    names = {key for config in configs.values() for key in config if "drop" in key}
    assert len(names) > 12
    for model_type, config in configs.items():
        if refusal(config) is None:
            assert refusal({**config, **dict.fromkeys(names, 0.25)}) is None, model_type


SMALL = {
    "hidden_size": 32, "n_embd": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
    "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    "model_type", ["gpt2", "opt", "phi", "phi3", "starcoder2", "gpt_neox", "bloom", "llama", "mpt"]
)
def test_dropouts_change_nothing_at_inference(model_type: str) -> None:
    torch, transformers = import_torch(), import_transformers()
    logits = list[Any]()
    for share in (0.0, 0.5):
        config = transformers.AutoConfig.for_model(model_type)
        for key, value in SMALL.items():
            if hasattr(config, key):
                setattr(config, key, value)
        if model_type == "opt":
            config.ffn_dim, config.word_embed_proj_dim = 48, 32
        names = [key for key in config.to_dict() if "drop" in key and isinstance(getattr(config, key), int | float)]
        for key in names:
            setattr(config, key, share)
        config.pad_token_id = config.bos_token_id = config.eos_token_id = 0
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            logits.append(model(torch.arange(12)[None]).logits)
    assert torch.equal(*logits)
