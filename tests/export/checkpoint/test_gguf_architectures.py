"""GGUF files of every architecture, back to the model they were written from: its configuration and its tensors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.checkpoint.gguf.architectures import ARCHITECTURES, by_name, hybrids, kimi
from edgegen_export.families import FAMILIES
from tests.export.bundles import decoded, export_to, random_ids, runner_of
from tests.export.checkpoint.gguf_case import Case
from tests.export.checkpoint.gguf_hybrids import FAMILIES_OF_FILES
from tests.export.checkpoint.gguf_models import CASES, arrays_of, random_model, write_gguf
from tests.export.checkpoint.gguf_steps_of_experts import FAMILIES_OF_EXPERTS
from tests.oracle import import_torch, import_transformers
from tests.second_oracle import FIRST, judged

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore"),  # of the libraries that write and load the files
]

# What a configuration says about other things than what is computed.
UNRELATED = {"_name_or_path", "architectures", "dtype", "transformers_version", "use_cache", "head_dim"}


def test_a_name_in_two_files_is_an_error() -> None:
    assert by_name([hybrids, kimi]) == {**hybrids.BY_NAME, **kimi.BY_NAME}
    with pytest.raises(ValueError, match=r"kimi: bailingmoe3.* is in another file too"):
        by_name([kimi, hybrids, kimi])


def test_every_architecture_has_a_case() -> None:
    cases = {case.arch for some in (CASES, FAMILIES_OF_FILES, FAMILIES_OF_EXPERTS) for case in some.values()}
    assert cases <= ARCHITECTURES.keys()
    texts = [path.read_text("utf-8") for path in Path(__file__).parents[2].glob("*/**/test_*.py")]
    writers = [text for text in texts if "write_gguf(" in text or "GGUFWriter(" in text]
    assert not [arch for arch in ARCHITECTURES if arch not in cases and not any(f'"{arch}"' in one for one in writers)]


@pytest.mark.parametrize("name", judged((name for name, case in CASES.items() if case.loader), lambda _: FIRST))
def test_transformers_reads_the_same_from_the_file(tmp_path: Path, name: str) -> None:
    """Its own loader, where it knows the architecture: an oracle that shares nothing with the writer above."""
    torch, transformers = import_torch(), import_transformers()
    file = write_gguf(tmp_path / "model.gguf", CASES[name], random_model(CASES[name]))
    loader = getattr(transformers, CASES[name].cls)
    theirs = loader.from_pretrained(str(tmp_path), gguf_file=file.name, torch_dtype=torch.float32)
    checkpoint = Checkpoint.open(str(file))
    state = theirs.state_dict()
    assert set(state) - set(checkpoint.tensors) <= {"lm_head.weight"}  # where it is the embedding
    for tensor_name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.read(), state[tensor_name].numpy(), err_msg=tensor_name)
    config = theirs.config.to_dict()
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"):
        if key in config and key in checkpoint.config:
            assert checkpoint.config[key] == config[key]


@pytest.fixture(params=judged(CASES, lambda _: FIRST))
def case_and_model(request: pytest.FixtureRequest) -> tuple[Case, Any]:
    case = CASES[request.param]
    return case, random_model(case)


def test_the_original_is_restored(tmp_path: Path, case_and_model: tuple[Case, Any]) -> None:
    case, model = case_and_model
    checkpoint = Checkpoint.open(str(write_gguf(tmp_path / "model.gguf", case, model)))
    config = dict(checkpoint.config)
    assert case.cls in find_architecture(config, FAMILIES).classes
    assert config.pop("model_type") == model.config.model_type
    unknown = config.keys() - model.config.to_dict().keys() - {"head_dim"}
    assert not unknown, f"{case.config} has no {unknown}"
    restored = type(model.config)(**config)
    wanted, found = model.config.to_dict(), restored.to_dict()
    skip = UNRELATED | case.not_said
    assert {k: v for k, v in found.items() if k not in skip} == {k: v for k, v in wanted.items() if k not in skip}
    arrays = arrays_of(model)
    assert set(checkpoint.tensors) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].read(), array, err_msg=name)


def test_a_gguf_file_computes_what_the_original_computes(tmp_path: Path, case_and_model: tuple[Case, Any]) -> None:
    torch, (case, model) = import_torch(), case_and_model
    bundle = export_to(write_gguf(tmp_path / "model.gguf", case, model), tmp_path / "bundle")
    runner, ids = runner_of(bundle), random_ids(bundle, 12)
    with torch.no_grad():
        wanted = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), wanted, atol=1e-5)
