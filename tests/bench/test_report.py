"""The tables of the comparison, made of invented measurements."""

from pathlib import Path

import pytest

from bench.compare.contestants import CONTESTANTS
from bench.compare.report import Agreement, Metric, Report, Result, Round, Settings, ShapeReport, metrics, rewrite

SETTINGS = Settings(threads=2, contexts=(32,), rounds=2)


def measured(decode: float, *, prefill: float = 0.2, batch: float | None = 0.02) -> Round:
    return {
        "decode_s@32": decode,
        "prefill_s": prefill,
        "load_s": 0.5,
        "cold_s": 1.0,
        "peak_bytes": 300e6,
        "disk_bytes": 140e6,
        "installed_bytes": None,
    } | ({} if batch is None else {"batch_s": batch})


def result(name: str, *rounds: Round, failure: str | None = None) -> Result:
    return Result(CONTESTANTS[name], {}, [*rounds], Agreement(0.02, 7, 8), failure)


def cells(table: str, label: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith(f"| {label} |")]
    return [line[1:] for line in lines]


@pytest.fixture
def shape() -> ShapeReport:
    results = [
        result("edgegen", measured(0.004), measured(0.008)),
        result("llama.cpp", measured(0.005, batch=None), measured(0.010, batch=None)),
        result("ctranslate2", measured(0.010, prefill=0.1), measured(0.020, prefill=0.1)),
        result("genai-int4", measured(0.001), measured(0.001)),
        result("genai-int8", failure="it cannot build this one"),
    ]
    return ShapeReport("G", "GPT-2 small", 100_000_000, SETTINGS, results, [50.0, 25.0])


def test_a_cell_is_the_median_over_rounds(shape: ShapeReport) -> None:
    row = cells(shape.markdown(), "edgegen int8")[0]
    assert row[:3] == ["188", "400", "200"]  # (250 + 125) / 2 tokens per second, 8 rows in 20 ms, 200 ms


def test_the_share_is_of_the_bandwidth_of_the_same_round(shape: ShapeReport) -> None:
    assert cells(shape.markdown(), "edgegen int8")[0][-2:] == ["50%", "2.0%, 7/8 same"]  # 25 of 50, 12.5 of 25 GB/s
    assert cells(shape.markdown(), "onnxruntime-genai int4")[0][-2] == "–"


def test_what_a_peer_does_not_give_has_no_number(shape: ShapeReport) -> None:
    assert cells(shape.markdown(), "llama.cpp Q8_0")[0][1] == "–"


def test_a_failure_is_a_line_with_its_reason(shape: ShapeReport) -> None:
    row = cells(shape.markdown(), "onnxruntime-genai int8")[0]
    assert row[-1] == "it cannot build this one"
    assert {*row[:-1]} == {"–"}


def test_edgegen_is_held_against_the_best_of_as_many_bits(shape: ShapeReport) -> None:
    """The four-bit one is faster, and not asked; what is smaller is better counts the other way round."""
    gains = cells(shape.markdown(), "edgegen int8")[1]
    assert gains[:3] == ["1.25× llama.cpp", "1.00× ctranslate2", "0.50× ctranslate2"]
    assert gains[-1] == "–"  # no runtime's size is known


def test_ratios_are_taken_within_rounds() -> None:
    """Changes of the machine's speed in a round apply to both."""
    metric = Metric("tok/s", lambda r: 1 / r["decode_s@32"], ".0f", more_is_better=True)
    slow_then_fast = result("edgegen", measured(0.010), measured(0.001), measured(0.004))
    peer = result("llama.cpp", measured(0.020), measured(0.002), measured(0.008))
    assert metric.gain(slow_then_fast, peer) == pytest.approx(2.0)


def test_private_memory_is_over_the_bare_process_and_without_kv_cache(shape: ShapeReport) -> None:
    ours = {"bare_private_bytes": 20e6, "loaded_private_bytes": 50e6, "loaded_kv_bytes": 0}
    theirs = {"bare_private_bytes": 30e6, "loaded_private_bytes": 190e6, "loaded_kv_bytes": 100e6}
    mapped = {"bare_mapped_bytes": 5e6, "loaded_mapped_bytes": 12e6}
    shape.results[0].rounds = [r | ours | mapped for r in shape.results[0].rounds]
    shape.results[1].rounds = [r | theirs for r in shape.results[1].rounds]
    row, gains = cells(shape.markdown(), "edgegen int8")
    assert row[6:8] == ["30", "7"]
    assert gains[6:8] == ["2.00× llama.cpp", "–"]  # 30 against 60 MB; no other runtime's mapped pages are known


def test_the_page_gets_the_tables_between_its_markers(tmp_path: Path, shape: ShapeReport) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- peers:begin -->\nwhat was there\n<!-- peers:end -->\nafter\n")
    report = Report("python -m bench.compare", {"cpus": 2, "cpu": "a processor"}, SETTINGS, [shape])
    rewrite(page, report.markdown())
    text = page.read_text()
    assert text.startswith("before\n<!-- peers:begin -->\n### G: GPT-2 small\n")
    assert text.endswith("\n<!-- peers:end -->\nafter\n")
    assert "what was there" not in text


@pytest.mark.parametrize("text", ["no markers", "<!-- peers:end --> <!-- peers:begin -->"])
def test_a_page_without_markers_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match="needs one line <!-- peers:begin -->"):
        rewrite(page, "tables")
    assert page.read_text() == text


def test_contexts_that_a_shape_has_no_room_for_are_left_out() -> None:
    long = Settings(threads=2, contexts=(32, 8000, 32000), rows=1)
    assert [long.within(most).contexts for most in (1024, 8192, 32768)] == [(32,), (32, 8000), (32, 8000, 32000)]
    assert [long.within(most).room for most in (1024, 8192)] == [1024, 8033]


def test_long_contexts_have_columns_of_their_prompts_and_none_of_a_batch() -> None:
    settings = Settings(threads=2, contexts=(32, 8000), rows=1)
    heads = [metric.head for metric in metrics(settings)]
    assert heads[:4] == ["tok/s @32", "tok/s @8000", "prompt of 8000, s", "prefill 512, ms"]
    assert [metric.value({"prompt_s@8000": 12.5}) for metric in metrics(settings)[2:3]] == [12.5]
