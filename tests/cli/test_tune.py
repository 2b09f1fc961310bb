"""``edgegen tune``: measured, kept, shown, and used by the verbs that run a model."""

import json
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.cli import run
from edgegen.options.engine import EngineOptions
from edgegen.options.tuned import TunedOptions, path_of
from edgegen.server.models.installed_models import InstalledModels
from tests.cli.conftest import Edgegen

TUNED = TunedOptions(1, 32, "float32")


@pytest.fixture
def bundle(model: str) -> Bundle:
    return Bundle.open(BundleStore().resolve(model))


@pytest.mark.slow
def test_a_choice_is_measured_kept_and_forgotten(edgegen: Edgegen, model: str, bundle: Bundle) -> None:
    done = edgegen("tune", model, "--repeats", "1", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    told = json.loads(done.stdout)
    assert told["path"] == str(path_of(bundle))
    assert TunedOptions(**told["chosen"]) == TunedOptions.read(bundle)
    assert {trial["options"]["kv"] for trial in told["trials"]} == {"int8", "float32"}
    assert b"forgotten" in edgegen("tune", model, "--forget").stdout
    assert b"nothing is kept" in edgegen("tune", model, "--forget").stdout


def test_info_and_config_show_it(model: str, bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", model]) == 0
    assert "tuned" not in capsys.readouterr().out
    TUNED.write(bundle)
    assert run(["info", model]) == 0
    assert "tuned  1 threads, prefill chunks of 32, float32 KV cache" in capsys.readouterr().out
    found = dict[str, dict[str, tuple[object, str]]]()
    for verb in ("generate", "batch", "bench"):
        assert run(["config", "--json", verb, "-m", model, *(["--prefill-chunk", "16"] * (verb == "generate"))]) == 0
        rows = json.loads(capsys.readouterr().out)["options"]
        found[verb] = {row["flag"]: (row["value"], row["source"]) for row in rows}
    assert found["generate"]["--threads"] == (1, "tuned")
    assert found["generate"]["--prefill-chunk"] == (16, "flag")
    assert found["generate"]["--kv"] == ("float32", "tuned")
    assert found["batch"]["--kv"] == ("int8", "bundle")
    assert found["bench"]["--threads"][1] == "default"


def test_generate_uses_it_but_for_what_is_given_and_for_sessions(
    edgegen: Edgegen, model: str, bundle: Bundle, tmp_path: Path
) -> None:
    TUNED.write(bundle)
    flags = ("generate", "-m", model, "Once upon a time", "-n", "8", "--json")
    begun = edgegen(*flags, "--kv", "int8", "--session", str(tmp_path / "one.session"))
    assert begun.returncode == 0, begun.stderr
    goes_on = edgegen(*flags, "--session", str(tmp_path / "one.session"))
    assert (goes_on.returncode, goes_on.stderr) == (0, b"")  # a float32 KV cache could not continue it
    plain = edgegen(*flags)
    as_told = edgegen(*flags, "--kv", "float32", "--threads", "1", "--prefill-chunk", "32")
    assert json.loads(plain.stdout)["token_ids"] == json.loads(as_told.stdout)["token_ids"]


def test_a_server_gives_every_model_its_own(model: str, bundle: Bundle) -> None:
    """The KV cache of float32 takes about four times as much, and is what is reserved."""

    def options_for(opened: Bundle) -> EngineOptions:
        return TUNED.applied(EngineOptions(), set())

    plain = InstalledModels({"one": model}, EngineOptions(), budget=1 << 40, store=False)
    with InstalledModels({"one": model}, EngineOptions(), budget=1 << 40, store=False, options_for=options_for) as mine:
        assert mine.memory("one") > plain.memory("one")
        (llm,) = mine.load_given().values()
        assert llm.generate("a", max_new_tokens=2).token_ids
