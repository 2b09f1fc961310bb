"""A batch on Ray: blocks of lines; the same output as without, also when a worker dies amid its work."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.batch.input import read_lines
from edgegen.batch.ray import blocks_of, read_block
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from tests.root import ROOT
from tests.systems import needs_proc

ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")]),
    "RAY_USAGE_STATS_ENABLED": "0",
}
COMMAND = [sys.executable, "-m", "edgegen", "batch"]
PROMPTS = ["Once upon a time", "The dog", "One day, Lily", "A cat and"]

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason='Ray is not installed: pip install "edgegen[ray]"')


@given(st.lists(st.sampled_from([b"a\n", b"\n", b"bc\r\n", b" \n"])), st.integers(1, 4))
def test_blocks_are_the_lines(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], size: int) -> None:
    path = tmp_path_factory.mktemp("blocks") / "input"
    path.write_bytes(b"".join(pieces))
    lines = [*read_lines(io.BytesIO(path.read_bytes()))]
    blocks = [*blocks_of(lines, size)]
    assert [line for block in blocks for line in read_block(path, block)] == lines
    assert [block.count for block in blocks[:-1]] == [size] * (len(blocks) - 1)


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_it_is_said_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    done = batch(tmp_path, "out.jsonl", "--ray", "local")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        'edgegen: error: --ray needs Ray, which is not installed: pip install "edgegen[ray]".\n'
    )
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


CLUSTER = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
print("\\nADDRESS", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture
def cluster(edgegen_home: Path) -> Iterator[str]:
    """The address of two nodes of one processor each, both on this machine."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | ENVIRONMENT,
    )
    with process:
        assert process.stdin
        assert process.stdout
        yield next(line.split()[1].decode() for line in process.stdout if line.startswith(b"ADDRESS"))
        process.stdin.close()


@needs_ray
@needs_proc
class TestOnTwoWorkers:
    def test_the_output_is_that_of_one_process(self, cluster: str, tmp_path: Path) -> None:
        write_input(tmp_path, 300)
        assert batch(tmp_path, "plain.jsonl").returncode == 1
        (tmp_path / "model").symlink_to(BundleStore().resolve(DEFAULT_MODEL))
        done = batch(tmp_path, "ray.jsonl", "--ray", cluster, "-m", "model")
        assert done.returncode == 1
        assert done.stderr.decode().splitlines()[-1].startswith("edgegen: 300 lines · 30 failed · 1620 tokens in ")
        assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()

    def test_a_worker_may_be_killed(self, cluster: str, tmp_path: Path, edgegen_home: Path) -> None:
        write_input(tmp_path, 1280)
        assert batch(tmp_path, "plain.jsonl").returncode == 1
        process = start(tmp_path, "ray.jsonl", "--ray", cluster, "--threads", "1")
        seen = set[int]()
        try:
            while answered(tmp_path / "ray.jsonl.part") < 128 and process.poll() is None:
                seen |= workers(edgegen_home)
                time.sleep(0.05)
            assert len(seen) == 2
            os.kill(min(seen), signal.SIGKILL)
            while process.poll() is None:
                seen |= workers(edgegen_home)
                time.sleep(0.05)
        finally:
            process.kill()
            _, said = process.communicate()
        assert process.returncode == 1, said
        assert len(seen) == 3
        assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()

    def test_a_worker_with_another_bundle_is_refused(self, cluster: str, tmp_path: Path) -> None:
        write_input(tmp_path, 10)
        code = (
            "from pathlib import Path\nfrom edgegen.batch.input import read_lines\n"
            "from edgegen.batch.ray import answer_on_ray\nfrom edgegen.batch.settings import BatchSettings\n"
            "lines = read_lines(Path('in.jsonl').open('rb'))\n"
            f"list(answer_on_ray({cluster!r}, Path('in.jsonl'), lines, BatchSettings('stories'), 'another'))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | ENVIRONMENT, capture_output=True, check=False
        )
        assert done.returncode == 1
        assert done.stderr.decode().splitlines()[-1] == (
            "edgegen.errors.EdgegenError: the batch failed on Ray: edgegen.errors.BundleError: stories is another "
            "bundle on this worker: put the same one on every machine."
        )

    def test_what_was_begun_alone_goes_on_there(self, cluster: str, tmp_path: Path) -> None:
        write_input(tmp_path, 300)
        assert batch(tmp_path, "plain.jsonl").returncode == 1
        process = start(tmp_path, "ray.jsonl")
        while answered(tmp_path / "ray.jsonl.part") < 20:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert answered(tmp_path / "ray.jsonl.part") < 300
        done = batch(tmp_path, "ray.jsonl", "--ray", cluster, "--threads", "1")
        assert b"of them before" in done.stderr
        assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()


def test_ray_that_cannot_start(tmp_path: Path) -> None:
    """A package of that name whose node does not come up, as where shared memory or a folder is missing."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "data.py").write_text("")
    (tmp_path / "ray" / "__init__.py").write_text(
        "def init(*given, **options):\n    raise Exception('The current node timed out during startup.\\nIts logs')\n"
    )
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    paths = os.pathsep.join([str(tmp_path), ENVIRONMENT["PYTHONPATH"]])
    done = subprocess.run(
        [*COMMAND, "in.jsonl", "-o", "out.jsonl", "--ray", "local"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "edgegen: error: Ray cannot start, so the batch was not begun: The current node timed out during startup."
    ]
    assert not (tmp_path / "out.jsonl").exists()


@needs_ray
@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1", "127.0.0.1:99999"])
def test_no_cluster_there(tmp_path: Path, address: str) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    done = batch(tmp_path, "out.jsonl", "--ray", address)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"edgegen: error: no Ray cluster at {address}: ")


def write_input(folder: Path, count: int) -> None:
    """Lines of which each tenth is an error."""
    lines: list[dict[str, object]] = [
        {"prompt": PROMPTS[n % 4], "max_new_tokens": 2 + n % 9, "id": n} for n in range(count)
    ]
    for line in lines[::10]:
        line["temprature"] = 1
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def start(folder: Path, output: str, *options: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "in.jsonl", "-o", output, "--seed", "5", *options]
    return subprocess.Popen(command, cwd=folder, env=os.environ | ENVIRONMENT, stderr=subprocess.PIPE)


def batch(folder: Path, output: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    process = start(folder, output, *options)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def answered(part: Path) -> int:
    """How many lines a journal has answers to."""
    return part.read_bytes().count(b"\n") - 1 if part.exists() else 0


def workers(home: Path) -> set[int]:
    """The processes of this test in which Ray Data has a model."""
    found = set[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"MapWorker" in (folder / "cmdline").read_bytes():
                ours = f"EDGEGEN_HOME={home}".encode() in (folder / "environ").read_bytes()
                found |= {int(folder.name)} if ours else set()
        except OSError:
            continue
    return found
