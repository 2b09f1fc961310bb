"""Every other verb, and what all of them share."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

import edgegen as package
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.bundle.store import BundleStore
from edgegen.cli import VERBS, main, run
from edgegen.cli.overview import GROUPS, meant_by
from edgegen.evaluation.parity.report import ParityReport
from tests.cli.conftest import Edgegen
from tests.kernels.stock import needs_kernels
from tests.runtime.models import raw_manifest
from tests.runtime.parity_reports import replace_parity, with_costly_int4_kv
from tests.systems import needs_posix

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def copy(int8_bundle: Bundle, tmp_path: Path) -> Path:
    """A bundle of one's own, to be damaged."""
    shutil.copytree(int8_bundle.path, tmp_path / "copy")
    return tmp_path / "copy"


class TestShared:
    def test_the_version_is_the_packages(self, edgegen: Edgegen) -> None:
        done = edgegen("--version")
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"edgegen {package.__version__}\n", b"")

    @pytest.mark.parametrize("verb", [None, *VERBS])
    @pytest.mark.parametrize("option", ["-h", "--help"])
    def test_every_verb_explains_itself(self, capsys: Capture, verb: str | None, option: str) -> None:
        assert run([*([verb] if verb else []), option]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"Usage: edgegen {verb or ''}")
        assert err == ""
        assert max(map(len, out.splitlines())) <= 80

    def test_the_overview_names_every_verb(self, capsys: Capture) -> None:
        run(["--help"])
        out = capsys.readouterr().out
        assert all(f"  {verb} " in out and text in out for verb, text in VERBS.items())

    def test_without_a_verb_the_overview_is_shown(self, capsys: Capture) -> None:
        assert run([]) == 2
        assert "Run         run " in capsys.readouterr().err

    def test_the_overview_fits_one_screen_and_groups_all_verbs(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        run(["--help"])
        assert len(capsys.readouterr().out.splitlines()) <= 24
        assert sorted(verb for verbs in GROUPS.values() for verb in verbs) == sorted(VERBS)
        monkeypatch.setenv("COLUMNS", "50")
        run(["--help"])
        assert max(map(len, capsys.readouterr().out.splitlines()[2:-2])) <= 50

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["genrate", "x"], "no such command 'genrate' (did you mean 'generate'?)."),
            (["zzz"], "no such command 'zzz'."),
            (["show", "x"], "no such command 'show': `edgegen info BUNDLE` shows what a bundle is."),
            (["llama-cli", "-m", "x"], "no such command 'llama-cli': `edgegen chat -m BUNDLE` talks with a model"),
            (["quantize"], "no such command 'quantize': `edgegen export CHECKPOINT --int4` or `--int8` makes"),
            (["generate", "a", "--temprature", "1"], "No such option '--temprature'. Did you mean '--temperature'?"),
            (["generate", "a", "--top-k", "x"], "'x' is not a valid integer."),
            (["generate", "a", "b"], "Got unexpected extra argument (b)"),
            (["export"], "Missing argument 'SOURCE'."),
            (["export", "a", "--int8", "--fp32"], "--int8 and --fp32 contradict each other: give one."),
            (["export", "a", "--int3", "--fast"], "--int3 and --fast contradict each other: give one."),
            (["export", "a", "--int2", "--bits-budget", "3"], "--int2 and --bits-budget contradict each other: give"),
            (["export", "a", "--adapter", "b", "--adapter", "c"], "'--adapter': give one, not 2: b, c."),
            (["rm"], "Missing argument 'NAMES...'."),
            (["list", "a"], "Got unexpected extra argument (a)"),
            (["info", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
            (["generate", "a", "--sessions", "two"], "No such option '--sessions'."),
            (["batch", "a", "-o", "b", "--packed-weights"], "No such option '--packed-weights'."),
            (["export", "a", "--fast-prefill"], "No such option '--fast-prefill'."),
            (["generate", "a", "--kv", "int2"], "'int2' is not one of 'float32', 'int8', 'int4'."),
        ],
    )
    def test_invalid_arguments_are_told_and_end_with_2(
        self, capsys: Capture, arguments: list[str], message: str
    ) -> None:
        assert run(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err.splitlines()[-1]

    def test_no_command_is_a_word_of_other_programs(self) -> None:
        assert [verb for verb in VERBS if meant_by(verb)] == []

    @pytest.mark.parametrize("verb", ["generate", "info", "verify"])
    def test_a_bundle_that_is_not_there_ends_with_1(self, capsys: Capture, verb: str) -> None:
        arguments = ["-m", "nowhere", "a"] if verb == "generate" else ["nowhere"]
        assert run([verb, *arguments]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("edgegen: error: no bundle named or at 'nowhere'")

    @pytest.mark.parametrize("verb", ["generate", "info", "verify"])
    def test_a_checkpoint_in_a_bundles_place_is_told_to_be_exported(
        self, capsys: Capture, checkpoint: Path, verb: str
    ) -> None:
        where, exports = str(checkpoint), verb == "generate"
        assert run([verb, *(["-m", where, "a"] if exports else [where])]) == (2 if exports else 1)
        said = capsys.readouterr().err
        assert ("is no bundle yet: run `edgegen export " if exports else f"run `edgegen export {where}` first") in said

    def test_main_leaves_with_the_exit_code(self) -> None:
        for arguments, code in ((["--version"], 0), (["info", "nowhere"], 1), (["nonsense"], 2)):
            with pytest.raises(SystemExit) as caught:
                main(arguments)
            assert caught.value.code == code


class TestExport:
    def test_makes_a_named_bundle_and_prints_its_folder(
        self, edgegen: Edgegen, checkpoint: Path, edgegen_home: Path
    ) -> None:
        done = edgegen("export", str(checkpoint))
        target = edgegen_home / "bundles" / "tiny-int8"
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"{target}\n", b"")
        Bundle.open(target).verify()
        again = edgegen("generate", "-m", "tiny-int8", "a", "-n", "3")
        assert (again.returncode, again.stderr) == (0, b"")

    def test_says_nothing_when_it_is_to_be_quiet(self, edgegen: Edgegen, checkpoint: Path, tmp_path: Path) -> None:
        done = edgegen("export", str(checkpoint), "--fp32", "-q", "-o", str(tmp_path / "out"))
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode() == f"{tmp_path / 'out'}\n"
        assert Bundle.open(tmp_path / "out").manifest.quantization.scheme == "fp32"

    @pytest.mark.parametrize("arguments", [("stories260K-f32.gguf",), ("", "--gguf-file", "stories260K-f32.gguf")])
    def test_of_a_gguf_file_has_its_name(
        self, edgegen: Edgegen, edgegen_home: Path, test_data: Path, arguments: tuple[str, ...]
    ) -> None:
        source = test_data / "models" / "stories260K" / arguments[0]
        done = edgegen("export", str(source), *arguments[1:], "-q")
        target = edgegen_home / "bundles" / "stories260K-f32-int8"
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"{target}\n", b"")
        assert Bundle.open(target).manifest.provenance["gguf"] == "stories260K-f32.gguf"

    def test_over_a_bundle_needs_force(self, capsys: Capture, checkpoint: Path, copy: Path) -> None:
        assert run(["export", str(checkpoint), "-o", str(copy)]) == 1
        assert "already holds a bundle; replace it with --force" in capsys.readouterr().err
        assert run(["export", str(checkpoint), "-q", "--force", "-o", str(copy)]) == 0
        assert Bundle.open(copy).manifest.folder == "v2"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--eval-text", "nowhere.txt"], "File 'nowhere.txt' does not exist."),
            (["--parity-plot", "plot.jpg"], "give it a name that ends with .png, not 'plot.jpg'"),
            (["--parity-plot", "plot.png", "--via", "optimum"], "leave --via optimum or --parity-plot out"),
        ],
    )
    def test_of_a_report_that_cannot_be_made_is_refused(
        self, capsys: Capture, tmp_path: Path, arguments: list[str], message: str
    ) -> None:
        assert run(["export", "nowhere", "-o", str(tmp_path / "out"), *arguments]) == 2
        assert message in capsys.readouterr().err

    def test_compares_on_a_text_of_ones_own(self, capsys: Capture, checkpoint: Path, tmp_path: Path) -> None:
        text = tmp_path / "mine.txt"
        text.write_text("Once upon a time. " * 40)
        out = str(tmp_path / "out")
        assert run(["export", str(checkpoint), "--fp32", "-q", "-o", out, "--eval-text", str(text)]) == 0
        assert run(["info", out]) == 0
        assert "on 512 tokens of mine.txt:" in capsys.readouterr().out

    def test_of_nothing_ends_with_1(self, capsys: Capture, tmp_path: Path) -> None:
        assert run(["export", str(tmp_path / "nowhere"), "-q"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("edgegen: error: ")

    def test_a_shorter_context_can_be_asked_for(self, capsys: Capture, checkpoint: Path, tmp_path: Path) -> None:
        arguments = ["export", str(checkpoint), "-q", "-o", str(tmp_path / "out"), "--max-context"]
        assert run([*arguments, "100"]) == 0
        assert Bundle.open(tmp_path / "out").manifest.model.max_context == 100
        assert run([*arguments, "513", "--force"]) == 2
        assert "this model can be exported for 1 to 512 positions, not 513" in capsys.readouterr().err
        assert Bundle.open(tmp_path / "out").manifest.model.max_context == 100


class TestVerify:
    def test_says_that_all_is_well(self, capsys: Capture, int8_bundle: Bundle) -> None:
        assert run(["verify", str(int8_bundle.path)]) == 0
        out, err = capsys.readouterr()
        assert f"{len(int8_bundle.manifest.files)} files" in out
        assert out.endswith(f"all as the manifest says\nsha256 {int8_bundle.sha256}\n")
        assert err == ""

    def test_refuses_another_bundle_than_the_expected_one(self, capsys: Capture, int8_bundle: Bundle) -> None:
        path, found = str(int8_bundle.path), int8_bundle.sha256
        assert run(["verify", path, "--expect-sha256", found.upper()]) == 0
        assert run(["info", path, "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["sha256"] == found
        other = "0123456789abcdef" * 4
        for argv in (["verify", path], ["generate", "-m", path, "--max-new-tokens", "1", "a"]):
            assert run([*argv, "--expect-sha256", other]) == 1
            said = f"is not the bundle that was expected: its SHA-256 is {found}, not {other}."
            assert said in capsys.readouterr().err
            assert run([*argv, "--expect-sha256", "c0ffee"]) == 2
            assert "expect_sha256: a SHA-256 of 64 hex digits expected, found 'c0ffee'" in capsys.readouterr().err
        assert run(["serve", "-m", path, "-m", "stories", "--expect-sha256", found]) == 2
        assert "--expect-sha256 is the hash of one bundle, and 2 are to be served" in capsys.readouterr().err

    def test_says_when_the_manifest_has_no_hash(self, capsys: Capture, copy: Path) -> None:
        (copy / MANIFEST_NAME).write_text(json.dumps(raw_manifest(copy)))
        assert run(["verify", str(copy)]) == 0
        assert "its edgegen.json has no hash of its own" in capsys.readouterr().out

    def test_names_what_is_damaged(self, capsys: Capture, copy: Path) -> None:
        (copy / "v1" / "tokenizer.json").unlink()
        (copy / "v1" / "decode.onnx").write_bytes(b"")
        assert run(["verify", str(copy)]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "tokenizer.json: missing" in err
        assert "decode.onnx: 0 bytes, but the manifest says" in err

    def test_measures_the_report_again(self, capsys: Capture, int8_bundle: Bundle) -> None:
        assert run(["verify", "--parity", str(int8_bundle.path)]) == 0
        out, err = capsys.readouterr()
        assert f"\nsha256 {int8_bundle.sha256}\nagainst the checkpoint, on 512 tokens of sample text:\n" in out
        assert "greedy prompts flipped" in out
        assert "layer" not in out
        assert out.endswith("\nthe stored report, to the last digit\n")
        assert err == ""

    def test_tells_other_figures_and_fails_over_worse_ones(self, capsys: Capture, copy: Path) -> None:
        better = replace(ParityReport.read(Bundle.open(copy)).preferred, max_kl=0.5)
        replace_parity(copy, "int8-kv-int8", better)
        assert run(["verify", "--parity", str(copy)]) == 0
        assert (
            "within tolerance of the stored report, but not the same: int8-kv-int8: max_kl 0.5"
            in capsys.readouterr().out
        )
        replace_parity(copy, "int8-kv-int8", replace(better, perplexity_change=-0.5))
        assert run(["verify", "--parity", str(copy)]) == 1
        out, err = capsys.readouterr()
        assert "greedy prompts flipped" in out
        assert "is worse on this machine than when it was exported: int8-kv-int8: perplexity " in err

    def test_a_damaged_bundle_is_not_generated_from(self, capsys: Capture, copy: Path) -> None:
        (copy / "v1" / "prefill.onnx").write_bytes(b"")
        assert run(["generate", "-m", str(copy), "a"]) == 1
        assert "is damaged: prefill.onnx: 0 bytes" in capsys.readouterr().err

    @needs_kernels
    def test_an_int4_kv_cache_that_costs_much_is_a_warning(self, edgegen: Edgegen, copy: Path) -> None:
        said = with_costly_int4_kv(copy)
        done = edgegen("generate", "-m", str(copy), "-n", "1", "--kv", "int4", "a")
        assert done.returncode == 0
        assert done.stderr.decode().splitlines()[:1] == [f"edgegen: warning: {said}"]


class TestInfo:
    def test_tells_what_a_bundle_is(self, capsys: Capture, model: str) -> None:
        assert run(["info", model]) == 0
        out, err = capsys.readouterr()
        for part in ("tiny-int8", "gpt2, ", "3 layers", "vocabulary 260", "512 tokens", "int8, 8-bit blocks", "top-1"):
            assert part in out
        for part in (
            "parity  top-1 agreement ",
            "mean KL, nats",
            "greedy prompts flipped",
            "worst layer's relative error",
        ):
            assert part in out
        assert err == ""

    def test_tells_of_its_variants(self, capsys: Capture, model: str) -> None:
        assert run(["info", model]) == 0
        out = capsys.readouterr().out
        assert "int8-kv-int8 (int8 KV cache, 0.4 KiB per token), int8 (float32 KV cache, 1.5 KiB" in out
        assert run(["info", model, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert [(v["kv_dtype"], v["kv_bytes_per_token"], v["minimum_onnxruntime"]) for v in facts["variants"]] == [
            ("int8", 2 * 3 * 64, "1.27.0"),
            ("float32", 2 * 3 * 64 * 4, "1.23.2"),
        ]
        assert facts["parity"]["variants"]["int8-kv-int8"]["mean_kl"] >= 0

    def test_tells_what_each_kv_cache_takes_and_costs(self, capsys: Capture, copy: Path) -> None:
        with_costly_int4_kv(copy)
        found = ParityReport.read(Bundle.open(copy)).variants
        assert run(["info", str(copy)]) == 0
        assert (
            f"  KV caches  int8 (0.4 KiB per token, mean KL {found['int8-kv-int8'].mean_kl:.2g} nats), "
            f"float32 (1.5 KiB per token, mean KL {found['int8'].mean_kl:.2g} nats), "
            "int4 (0.3 KiB per token, mean KL 0.31 nats)\n"
        ) in capsys.readouterr().out
        assert run(["info", str(copy), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kv_caches"][2] == {
            "kv": "int4",
            "bytes_per_token": 2 * 3 * 4 * (8 + 4),
            "mean_kl": 0.31,
        }

    def test_computes_memory_by_the_formula(self, capsys: Capture, model: str) -> None:
        assert run(["info", model, "--context", "100", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["memory"]["kv_bytes_per_token"] == 2 * 3 * 64
        assert facts["memory"]["kv_bytes"] == 100 * 2 * 3 * 64
        assert (facts["memory"]["context"], facts["max_context"]) == (100, 512)
        assert facts["memory"]["weights_bytes"] < facts["disk_bytes"]

    @pytest.mark.parametrize("context", ["0", "-1", "513"])
    def test_of_a_context_the_model_cannot_have_is_refused(self, capsys: Capture, model: str, context: str) -> None:
        assert run(["info", model, "--context", context]) == 2
        assert "this model takes 1 to 512 tokens" in capsys.readouterr().err


class TestListAndRm:
    def test_lists_names_for_people_and_for_machines(self, capsys: Capture, model: str) -> None:
        assert run(["list"]) == 0
        head, *lines = capsys.readouterr().out.splitlines()
        assert head.split() == ["name", "scheme", "params", "size", "source"]
        (cells,) = (line.split() for line in lines if line.startswith("tiny-int8 "))
        nbytes = Bundle.open(BundleStore().resolve(model)).nbytes
        assert cells == ["tiny-int8", "int8", "0.2M", f"{nbytes / 1e6:.1f}", "MB", "tiny"]
        assert {line.rindex(" int8 ") + 1 for line in lines} == {head.index("scheme")}
        assert run(["list", "--json"]) == 0
        entries = {entry["name"]: entry for entry in map(json.loads, capsys.readouterr().out.splitlines())}
        assert entries[model]["scheme"] == "int8"
        assert entries[model]["problem"] is None
        assert entries[model]["bytes"] > 100_000
        assert entries[model]["sha256"] == Bundle.open(Path(entries[model]["path"])).sha256

    @needs_posix("control characters in names of files")
    def test_shows_no_control_characters_of_a_bundle(self, capsys: Capture, copy: Path, edgegen_home: Path) -> None:
        manifest = copy / MANIFEST_NAME
        raw = raw_manifest(copy)
        raw["name"] = raw["source"]["id"] = raw["model"]["family"] = "a\x1b]0;owned\x07\x9b2J\nb"
        manifest.write_text(json.dumps(raw))
        shutil.copytree(copy, edgegen_home / "bundles" / "red\x1b[31m")
        (edgegen_home / "bundles" / "bad\x1b[2J").mkdir()
        (edgegen_home / "bundles" / "bad\x1b[2J" / MANIFEST_NAME).write_text("{")
        for argv in (["list"], ["info", str(copy)]):
            assert run(argv) == 0
            out = capsys.readouterr().out
            assert r"a\x1b]0;owned\x07\x9b2J\nb" in out
            assert {c for c in out if not c.isprintable()} == {"\n"}
        assert run(["list"]) == 0
        assert r"bad\x1b[2J" in capsys.readouterr().out

    def test_an_error_has_no_control_characters_of_a_bundle(self, capsys: Capture, copy: Path) -> None:
        """ONNX Runtime quotes a graph's names."""
        bundle, raw = Bundle.open(copy), raw_manifest(copy)
        for name in {name for variant in bundle.manifest.variants for name in (variant.prefill, variant.decode)}:
            graph = onnx.ModelProto.FromString(bundle.file(name).read_bytes())
            graph.graph.node[-1].input[0] = "\x1b]0;owned\x07"
            data = graph.SerializeToString()
            bundle.file(name).write_bytes(data)
            raw["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (copy / MANIFEST_NAME).write_text(json.dumps(raw))
        assert run(["generate", "-m", str(copy), "a"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert r"\x1b]0;owned\x07" in err
        assert {c for c in err if not c.isprintable()} == {"\n"}

    def test_lists_unreadable_ones_with_the_reason(self, capsys: Capture, edgegen_home: Path) -> None:
        (edgegen_home / "bundles" / "broken").mkdir(parents=True)
        (edgegen_home / "bundles" / "broken" / "edgegen.json").write_text("[")
        assert run(["list"]) == 0
        assert "broken" in (out := capsys.readouterr().out)
        assert "unreadable: " in out
        assert run(["list", "--json"]) == 0
        entries = {entry["name"]: entry for entry in map(json.loads, capsys.readouterr().out.splitlines())}
        assert "is not valid JSON" in entries["broken"]["problem"]

    def test_removes_by_name(self, capsys: Capture, copy: Path, edgegen_home: Path) -> None:
        (edgegen_home / "bundles").mkdir(parents=True)
        for name in ("one", "two"):
            shutil.copytree(copy, edgegen_home / "bundles" / name)
        assert run(["rm", "one", "two"]) == 0
        assert [entry.name for entry in BundleStore() if entry.path.parent.name == "bundles"] == []
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("removed ") == 2

    def test_an_unknown_name_ends_with_1_and_a_path_with_2(self, capsys: Capture, copy: Path) -> None:
        assert run(["rm", "nothing"]) == 1
        assert run(["rm", str(copy)]) == 2
        assert "cannot be a bundle's name" in capsys.readouterr().err
        Bundle.open(copy).verify()
