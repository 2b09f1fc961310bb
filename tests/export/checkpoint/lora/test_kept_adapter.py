"""Adapter bundles: how they find their base, what the verbs say of them, and a server with several."""

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.bundle.store import BundleStore
from edgegen.cli import run
from edgegen.errors import BundleNotFoundError, UsageError, VerificationError
from edgegen.evaluation.parity.verify import recheck
from edgegen.graph.low_rank import Factors, linear_matrices, with_low_rank
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from edgegen.server.models.installed_models import InstalledModels
from edgegen_export.kept_adapter import FACTORS, export_adapter
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, random_ids, runner_of
from tests.export.checkpoint.adapters import C_ATTN, PREFIX, factors, write_lora
from tests.export.checkpoint.layouts import write_gpt2
from tests.kernels.stock import needs_kernels
from tests.runtime.models import VOCAB_SIZE
from tests.runtime.server.material import COMPLETION, OWN
from tests.systems import needs_proc

pytestmark = [pytest.mark.slow, pytest.mark.graph, pytest.mark.usefixtures("little_parity")]

ENGINE = EngineOptions(threads=1)
NAMES = ("tiny", "first", "second")
PROMPT = "Once upon a time"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def bundles(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundle ``tiny`` and two adapters of it, and ``merged-…`` of both."""
    folder = tmp_path_factory.mktemp("adapters")
    base, _ = export(str(checkpoint), folder / "tiny", ExportOptions(scheme="fp32"))
    for seed, name in enumerate(NAMES[1:], 1):
        arrays = {
            **factors(C_ATTN, 64, 192, seed=seed),
            **factors(f"{PREFIX}h.1.mlp.c_fc", 64, 256, seed=seed),
            **factors(f"{PREFIX}h.2.mlp.c_proj", 256, 64, seed=seed),
        }
        lora = str(write_lora(folder / f"lora-{name}", arrays, base_model_name_or_path="tiny"))
        export_adapter(str(checkpoint), base, folder / name, lora)
        export(str(checkpoint), folder / f"merged-{name}", ExportOptions(scheme="fp32", adapter=lora))
    return folder


@pytest.fixture
def store(bundles: Path, edgegen_home: Path) -> Path:
    """A store with the base and its adapters."""
    folder = edgegen_home / "bundles"
    for name in NAMES:
        shutil.copytree(bundles / name, folder / name)
    return folder


def ids_of(path: Path, options: EngineOptions = ENGINE) -> list[int]:
    with LLM.load(path, options=options) as llm:
        return list(llm.generate(PROMPT, max_new_tokens=24, do_sample=False, eos_token_id=[]).token_ids)


def test_the_ids_are_those_of_the_merged_export(bundles: Path) -> None:
    found = [ids_of(bundles / name) for name in NAMES]
    assert found[1:] == [ids_of(bundles / f"merged-{name}") for name in NAMES[1:]]
    assert len({tuple(ids) for ids in found}) == 3
    stock = EngineOptions(threads=1, kernels="stock")
    assert ids_of(bundles / "first", stock) == found[1]


@needs_kernels
def test_any_chunks_give_the_same_bits(bundles: Path) -> None:
    """With an int8 KV cache, as without an adapter."""
    runner = runner_of(Bundle.open(bundles / "first"), kv="int8")
    ids = random_ids(Bundle.open(bundles / "first"), 24)
    assert runner.chunk_invariance == "any"
    whole = decoded(runner, runner.new_cache(), ids)
    for size in (1, 2, 7):
        cache = runner.new_cache()
        parts = [decoded(runner, cache, ids[at : at + size]) for at in range(0, len(ids), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@needs_kernels
@needs_proc
def test_the_weights_are_those_that_the_base_has_mapped(
    int8_bundle: Bundle, bundles: Path, checkpoint: Path, tmp_path: Path
) -> None:
    target = tmp_path / "kept"
    shutil.copytree(int8_bundle.path, tmp_path / "base")
    base = Bundle.open(tmp_path / "base")
    kept, _ = export_adapter(str(checkpoint), base, target, str(bundles / "lora-first"))
    weights = str(base.file(base.variant.weights).resolve())
    with LLM.load(base.path, options=ENGINE) as one, LLM.load(kept.path, options=ENGINE) as two:
        for llm in (one, two):
            llm.generate(PROMPT, max_new_tokens=4)
        pages = [part for part in _mapped_parts() if part[0].endswith(weights)]
    assert len(pages) >= 2
    assert sum(private for _, private in pages) == 0


def _mapped_parts() -> list[tuple[str, int]]:
    """The files that this process has mapped, and the bytes of each part that are a copy of its own."""
    found = list[tuple[str, int]]()
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            found.append((line.split(maxsplit=5)[-1], 0))
        elif line.startswith("Anonymous:"):  # not Private_Dirty: pages of a file just written are dirty, too
            found[-1] = (found[-1][0], 1024 * int(line.split()[1]))
    return found


def test_a_bundle_of_its_own_is_small_and_names_its_base(bundles: Path) -> None:
    base, kept = (Bundle.open(bundles / name) for name in NAMES[:2])
    assert kept.manifest.base is not None
    assert (kept.manifest.base.name, kept.manifest.base.sha256) == ("tiny", base.sha256)
    assert kept.base is not None
    assert kept.base.path == base.path
    assert kept.nbytes < base.nbytes / 2
    assert kept.weights_size == base.weights_size
    assert kept.digest != base.digest
    assert not list(bundles.glob("first/*/*.onnx"))
    assert kept.manifest.source.adapter is not None
    assert kept.manifest.source.adapter.id == "lora-first"


@pytest.mark.parametrize("place", ["beside it, renamed", "in the store", "in the store, renamed"])
def test_the_base_is_found_by_its_hash(bundles: Path, tmp_path: Path, edgegen_home: Path, place: str) -> None:
    kept = shutil.copytree(bundles / "first", tmp_path / "elsewhere" / "first")
    where = kept.parent if "beside" in place else edgegen_home / "bundles"
    base = shutil.copytree(bundles / "tiny", where / ("another" if "renamed" in place else "tiny"))
    shutil.copytree(bundles / "second", where / "tiny-2")
    found = Bundle.open(kept).base
    assert found is not None
    assert found.path == base


def test_without_its_base_it_says_what_is_missing(bundles: Path, tmp_path: Path, capsys: Capture) -> None:
    kept = shutil.copytree(bundles / "first", tmp_path / "elsewhere" / "first")
    shutil.copytree(bundles / "merged-first", tmp_path / "elsewhere" / "tiny")  # of that name, and another
    bundle = Bundle.open(kept)
    assert bundle.base is None
    with pytest.raises(BundleNotFoundError) as caught:
        LLM.load(kept)
    said = str(caught.value)
    assert said.startswith(f"{kept} is an adapter of the bundle tiny, and no bundle with its SHA-256 (")
    assert run(["generate", "-m", str(kept), PROMPT]) == 1
    assert capsys.readouterr().err == f"edgegen: error: {said}\n"
    assert run(["info", str(kept)]) == 0
    assert "not there: put it beside this bundle" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["factors", "base"])
def test_damaged_files_are_found(bundles: Path, tmp_path: Path, damage: str) -> None:
    for name in NAMES[:2]:
        shutil.copytree(bundles / name, tmp_path / "copy" / name)
    kept = Bundle.open(tmp_path / "copy" / "first")
    path = kept.content / FACTORS if damage == "factors" else kept.file("weights.data")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for check in (kept.verify, kept.verify_once):
        with pytest.raises(VerificationError, match=path.name):
            check()


def test_a_base_that_was_changed_is_another(bundles: Path, tmp_path: Path) -> None:
    for name in NAMES[:2]:
        shutil.copytree(bundles / name, tmp_path / "copy" / name)
    manifest = tmp_path / "copy" / "tiny" / MANIFEST_NAME
    manifest.write_text(manifest.read_text().replace("0.1.0", "0.1.1", 1).replace('"tiny"', '"Tiny"', 1))
    assert Bundle.open(tmp_path / "copy" / "first").base is None


def test_the_parity_report_is_measured_again(bundles: Path) -> None:
    assert not recheck(Bundle.open(bundles / "first")).worse


class TestVerbs:
    def test_list(self, store: Path, capsys: Capture) -> None:
        assert run(["list"]) == 0
        assert "lora-first, an adapter beside tiny\n" in capsys.readouterr().out
        assert run(["list", "--json"]) == 0
        entries = {entry["name"]: entry for entry in map(json.loads, capsys.readouterr().out.splitlines())}
        assert entries["first"]["base"] == entries["tiny"]["sha256"]
        assert entries["tiny"]["base"] is None

    def test_info(self, store: Path, capsys: Capture) -> None:
        assert run(["info", "first"]) == 0
        out = capsys.readouterr().out
        assert f"base  tiny, whose graphs and weights it runs with ({store / 'tiny'})" in out
        assert "adapter  lora-first (folder)" in out
        assert run(["info", "first", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["base"]["path"] == str(store / "tiny")

    def test_verify(self, store: Path, capsys: Capture) -> None:
        assert run(["verify", "first", "--parity"]) == 0
        assert f"its base {store / 'tiny'}: " in capsys.readouterr().out

    def test_rm(self, store: Path, capsys: Capture) -> None:
        assert run(["rm", "tiny"]) == 0
        err = capsys.readouterr().err.splitlines()
        assert err[1:] == [f"{name} is an adapter of it, and does not run without it" for name in NAMES[1:]]
        assert run(["rm", *NAMES[1:]]) == 0
        assert list(store.iterdir()) == []

    def test_export(self, bundles: Path, checkpoint: Path, store: Path, capsys: Capture) -> None:
        given = ["export", str(checkpoint), "--adapter", str(bundles / "lora-first"), "--keep-adapter", "tiny"]
        assert run([*given, "-q"]) == 0
        assert capsys.readouterr().out == f"{store / 'tiny-lora-first'}\n"
        assert ids_of(BundleStore().resolve("tiny-lora-first")) == ids_of(bundles / "first")
        assert run([*given, "--int8", "--max-context", "8"]) == 2
        assert "--int8, --max-context: tiny decides that" in capsys.readouterr().err
        assert run(["export", str(checkpoint), "--keep-adapter", "tiny"]) == 2
        assert "give the adapter with --adapter" in capsys.readouterr().err


def refusal(base: Path, checkpoint: Path, target: Path, lora: Path) -> str:
    with pytest.raises(UsageError) as caught:
        export_adapter(str(checkpoint), Bundle.open(base), target, str(lora))
    return str(caught.value)


def test_bases_that_are_refused(bundles: Path, checkpoint: Path, tmp_path: Path) -> None:
    lora, target = bundles / "lora-first", tmp_path / "kept"
    assert "is an adapter itself" in refusal(bundles / "second", checkpoint, target, lora)
    assert "has the adapter lora-second merged in" in refusal(bundles / "merged-second", checkpoint, target, lora)
    other = write_gpt2(tmp_path / "other", layout="original", n_positions=512, vocab_size=VOCAB_SIZE, n_layer=1)
    small = write_lora(tmp_path / "small", factors(C_ATTN, 64, 192), base_model_name_or_path="other")
    assert "tiny is not a bundle of this checkpoint" in refusal(bundles / "tiny", other, target, small)
    assert not target.exists()


def test_a_server_with_both_gives_each_its_own_ids_at_the_same_time(store: Path, bundles: Path) -> None:
    alone = {name: ids_of(bundles / name) for name in NAMES}
    with InstalledModels({name: name for name in NAMES}, ENGINE) as models:
        assert models.memory("first") < models.memory("tiny") + 10_000_000
        app = create_app(models.load_given(), ServerOptions(), source=models)
        with TestClient(app, base_url=OWN) as client, ThreadPoolExecutor(6) as pool:

            def ask(name: str) -> str:
                body = {"model": name, "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
                answer = client.post(COMPLETION, json=body)
                assert answer.status_code == 200, answer.text
                return answer.json()["choices"][0]["text"]

            texts = [*pool.map(ask, NAMES * 4)]
            for name, text in zip(NAMES * 4, texts, strict=True):
                with LLM.load(bundles / name, options=ENGINE) as llm:
                    assert llm.tokenizer is not None
                    assert text == llm.tokenizer.decode(alone[name])
            listed = [entry["id"] for entry in client.get("/v1/models").json()["data"]]
            assert listed[:3] == [*NAMES]
            adapters = client.get("/lora-adapters").json()
            assert [(one["id"], one["path"], one["scale"], one["base"]) for one in adapters] == [
                (0, "first", 0.0, "tiny"),
                (1, "second", 0.0, "tiny"),
            ]


BROKEN: list[tuple[str, Callable[[Factors], dict[str, Factors]]]] = [
    ("does not multiply by layers.9.attn.q", lambda pair: {"layers.9.attn.q": pair}),
    ("is for another matrix", lambda pair: {"layers.0.attn.o": pair}),
]


@pytest.mark.parametrize(("said", "changed"), BROKEN)
def test_factors_of_another_graph_are_refused(
    bundles: Path, said: str, changed: Callable[[Factors], dict[str, Factors]]
) -> None:
    graph = Bundle.open(bundles / "tiny").file("prefill.onnx").read_bytes()
    assert {"layers.0.attn.q+k+v", "layers.2.mlp.down"} < linear_matrices(graph)
    with pytest.raises(ValueError, match=said):
        with_low_rank(graph, changed(Factors(np.ones((3, 2), np.float32), np.ones((2, 5), np.float32))))
