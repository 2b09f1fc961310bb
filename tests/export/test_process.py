"""Exports as processes: killed at any moment, on a full disk, what they import, how much memory they take."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.compare.checkpoints import Shape, write_checkpoint
from bench.exports import in_own_process
from edgegen.bundle.bundle import Bundle
from tests.export.checkpoint.layouts import write_gpt2, write_safetensors
from tests.oracle import edit_json
from tests.root import ROOT
from tests.systems import needs_posix, needs_proc

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

posix = needs_posix("fork")


def run_python(script: str, *arguments: object, **environment: str) -> str:
    """Run ``script`` in a fresh interpreter and return what it prints."""
    search = os.pathsep.join([str(ROOT), str(ROOT / "export"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": search, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("process") / "checkpoint"
    return write_gpt2(folder, layout="original", n_layer=1, n_embd=32, n_positions=16)


# The child kills itself just before its n-th change of the file system; the parent looks at what is left, and starts
# the next export over it, remains and all.
KILL_AT_EVERY_CHANGE = """
import os, signal, sys
import numpy.ma, numpy.random  # for all children, as the measurement below
from pathlib import Path
from edgegen.bundle.bundle import Bundle
from edgegen.errors import BundleNotFoundError
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.preflight.estimate import measure_gflops
from tests.export.bundles import LITTLE, compared_on, little_calibration

source, target, scheme = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"}

def child(moment):
    seen = 0
    def hook(event, args):
        nonlocal seen
        written = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
        if (written or event in CHANGES) and str(target) in str(args[0]):
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
    sys.addaudithook(hook)
    with compared_on(LITTLE), little_calibration():  # there are dozens of exports
        export(source, target, ExportOptions(scheme=scheme, force=True))

measure_gflops()
had_bundle, appeared = (target / MANIFEST_NAME).exists(), None
for moment in range(200):
    pid = os.fork()
    if pid == 0:
        child(moment)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if (target / MANIFEST_NAME).exists():
        Bundle.open(target).verify()
        appeared = moment if appeared is None else appeared
    else:
        assert not had_bundle and appeared is None
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
print(moment, appeared)
"""


@pytest.mark.release
@posix
@pytest.mark.parametrize(("replaces", "scheme"), [(False, "fp32"), (True, "int8")])
def test_an_export_killed_before_any_change_leaves_a_whole_bundle_or_none(
    checkpoint: Path, tmp_path: Path, replaces: bool, scheme: str
) -> None:
    target = tmp_path / "bundle"
    if replaces:
        run_python("import sys; from edgegen.cli import main; main(sys.argv[1:])", "export", checkpoint, "-o", target)
    moments, appeared = map(int, run_python(KILL_AT_EVERY_CHANGE, checkpoint, target, scheme).split())
    assert moments >= 12  # the folders, each file, both renames
    assert appeared == 0 if replaces else appeared >= 11
    bundle = Bundle.open(target)
    bundle.verify()
    versions = [path.name for path in target.iterdir() if path.name.startswith("v")]
    assert versions == [bundle.manifest.folder]


FULL_DISK = """
import resource, sys
from pathlib import Path
from edgegen.errors import ExportError
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    export(sys.argv[1], Path(sys.argv[2]), ExportOptions(force=True))
except ExportError as error:
    print(error)
"""


@posix
@pytest.mark.parametrize("limit", [0, 1000, 9000])
def test_a_full_disk_is_an_error_that_leaves_things_as_they_were(checkpoint: Path, tmp_path: Path, limit: int) -> None:
    message = run_python(FULL_DISK, checkpoint, tmp_path / "bundle", limit)
    assert "was not written" in message
    assert "File too large" in message
    assert not (tmp_path / "bundle").exists()


EXPORT_AND_LIST_MODULES = """
import json, sys
from pathlib import Path
from edgegen_export.pipeline import export
export(sys.argv[1], Path(sys.argv[2]))
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_an_export_imports_no_framework_and_no_hub_client(checkpoint: Path, tmp_path: Path) -> None:
    loaded = set(json.loads(run_python(EXPORT_AND_LIST_MODULES, checkpoint, tmp_path / "bundle")))
    assert {"onnx", "onnxruntime", "numpy"} <= loaded
    frameworks = {"torch", "transformers", "optimum", "tensorflow", "jax", "pandas", "scipy", "sklearn"}
    assert not loaded & (frameworks | {"huggingface_hub", "requests", "httpx"})


def test_importing_the_exporter_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import edgegen_export; print(*sorted(set(sys.modules) - before))"
    assert run_python(script).split() == ["edgegen_export"]


EXPORT = """
import sys
from pathlib import Path
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
export(sys.argv[1], Path(sys.argv[2]), ExportOptions(scheme=sys.argv[3]))
"""


@pytest.mark.parametrize("scheme", ["int8", "fp32"])
def test_two_exports_are_equal_byte_for_byte(checkpoint: Path, tmp_path: Path, scheme: str) -> None:
    trees: list[dict[str, bytes]] = []
    for seed in ("1", "2"):
        target = tmp_path / seed / "bundle"
        run_python(EXPORT, checkpoint, target, scheme, PYTHONHASHSEED=seed)
        files = (path for path in target.rglob("*") if path.is_file())
        trees.append({path.relative_to(target).as_posix(): path.read_bytes() for path in files})
    assert trees[0] == trees[1]
    assert {"edgegen.json", "v1/weights.data", "v1/prefill.onnx", "v1/parity.json"} <= trees[0].keys()


def write_distilgpt2(folder: Path) -> Path:
    """A checkpoint of DistilGPT-2's shape: 82M random float32 weights, at little cost, as views of one block."""
    write_gpt2(folder, layout="trainer", n_layer=1, n_embd=8, n_head=1, vocab_size=8, n_positions=8)
    wide = {"n_layer": 6, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024}
    edit_json(folder / "config.json", **wide, bos_token_id=50256, eos_token_id=50256)
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (50257, 768), "wpe.weight": (1024, 768)}
    for name in ("ln_f", *(f"h.{i}.{norm}" for i in range(6) for norm in ("ln_1", "ln_2"))):
        shapes |= {f"{name}.weight": (768,), f"{name}.bias": (768,)}
    for i in range(6):
        for name, rows, columns in (
            ("attn.c_attn", 768, 2304),
            ("attn.c_proj", 768, 768),
            ("mlp.c_fc", 768, 3072),
            ("mlp.c_proj", 3072, 768),
        ):
            shapes |= {f"h.{i}.{name}.weight": (rows, columns), f"h.{i}.{name}.bias": (columns,)}
    block = np.random.default_rng(0).standard_normal(50257 * 768, np.float32) * np.float32(0.02)
    tensors: dict[str, Any] = {
        f"transformer.{name}": block[: int(np.prod(shape))].reshape(shape) for name, shape in shapes.items()
    }
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


EXPORT_AND_PRINT_PEAK = """
import sys
from pathlib import Path

from bench.exports import Stages
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export

stages = Stages()
export(sys.argv[1], Path(sys.argv[2]), ExportOptions(scheme=sys.argv[3]), progress=stages)
print(max(stage.private for stage in stages.end()))
"""
"""In bytes, of private memory: what the process has written itself."""


@pytest.mark.release
@needs_proc
@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_an_82m_checkpoint_is_exported_in_the_memory_of_its_largest_tensors(scheme: str, tmp_path: Path) -> None:
    folder = write_distilgpt2(tmp_path / "distilgpt2")
    try:
        assert (folder / "model.safetensors").stat().st_size > 320e6
        peak = int(run_python(EXPORT_AND_PRINT_PEAK, folder, tmp_path / "bundle", scheme))
        bundle = Bundle.open(tmp_path / "bundle")
        bundle.verify()
        assert bundle.manifest.model.parameters == 81_912_576
        # Twice the largest tensor in float32, and 150 MB; weights and KV caches are in files.
        assert peak <= 2 * 4 * 50257 * 768 + 150e6
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / "bundle", ignore_errors=True)


@pytest.mark.release
@needs_proc
@pytest.mark.parametrize("scheme", ["fast", "int8", "int4"])
def test_private_memory_does_not_grow_with_the_layers(scheme: str, tmp_path: Path) -> None:
    peaks = list[int]()
    for layers in (4, 16):
        checkpoint = tmp_path / str(layers)
        write_checkpoint(checkpoint, Shape(layers, width=128, heads=2, vocab=1024, context=128))
        peaks.append(max(stage.private for stage in in_own_process(checkpoint, scheme)))
    few, many = peaks
    assert many - few <= 10e6
