"""The parity report's figures against plain NumPy over whole logits, its files, and the verdict on another machine."""

import hashlib
import io
import json
import math
import shutil
import sys
import zipfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.errors import BundleError, LogitsError, ManifestError
from edgegen.evaluation.parity.measure import greedy, log_probabilities, open_graph, parity_of
from edgegen.evaluation.parity.reference import UNKNOWN, ParityReference, log_rest
from edgegen.evaluation.parity.report import ParityReport, VariantParity
from edgegen.evaluation.parity.verify import Recheck, recheck
from edgegen.llm import LLM
from tests.export.bundles import decoded, runner_of
from tests.runtime.models import VOCAB_SIZE, FakeGraphs, RandomGraphs, fake_runner

pytestmark = pytest.mark.usefixtures("whole_parity")

Ids = NDArray[np.int64]


def reference_of(graphs: FakeGraphs, ids: Ids, kept: int, prompts: Ids, continuations: Ids) -> ParityReference:
    """Return the reference of the graphs, as if they were the unquantized model, for ids [windows, t]."""
    found = np.array(
        [[log_probabilities(graphs.logits(row[: at + 1].tolist())) for at in range(len(row))] for row in ids]
    )
    likeliest = np.argsort(-found, axis=-1, kind="stable")[..., :kept]
    rest = [log_rest(*rows) for rows in zip(found, likeliest, strict=True)]
    following = np.take_along_axis(found[:, :-1], ids[:, 1:, None], axis=-1)[..., 0]
    logprobs = np.take_along_axis(found, likeliest, axis=-1)
    return ParityReference(
        ids=ids,
        likeliest=likeliest,
        logprobs=logprobs.astype(np.float32),
        rest=np.array(rest, np.float32),
        following=following.astype(np.float32),
        prompts=prompts,
        continuations=continuations,
    )


def greedy_by_hand(graphs: FakeGraphs, prompt: list[int], tokens: int) -> list[int]:
    ids = [*prompt]
    for _ in range(tokens):
        ids.append(int(graphs.logits(ids).argmax()))
    return ids[len(prompt) :]


IDS: Ids = np.random.default_rng(3).integers(0, 256, (2, 40))
PROMPTS: Ids = IDS[:, 5:9]


class Blurred(RandomGraphs):
    """Another model's random logits, and a little of something else."""

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        noise = np.random.default_rng([77, *ids]).normal(0, 0.3, self.vocab_size).astype(np.float32)
        return super().logits(ids) + noise


@pytest.mark.parametrize("kept", [1, 32, VOCAB_SIZE])
def test_figures_are_those_of_plain_numpy(kept: int) -> None:
    model, found = RandomGraphs(), Blurred()
    said = np.array([greedy_by_hand(model, prompt, 6) for prompt in PROMPTS.tolist()])
    reference = reference_of(model, IDS, kept, PROMPTS, said)
    parity = parity_of(lambda _: fake_runner(found), reference)

    kls, nlls, agree, differences = list[float](), list[tuple[float, float]](), 0, list[float]()
    for row in IDS.tolist():
        for at in range(len(row)):
            p, q = (np.exp(x, dtype=np.float64) for x in (g.logits(row[: at + 1]) for g in (model, found)))
            p, q = p / p.sum(), q / q.sum()
            best = np.argsort(-p, kind="stable")[:kept]
            cells = [(p[i], q[i]) for i in best]
            if kept < len(p):
                cells.append((1 - p[best].sum(), 1 - q[best].sum()))
            kls.append(sum(a * math.log(a / b) for a, b in cells))
            agree += p.argmax() == q.argmax()
            differences += np.abs(np.log(p[best] / q[best])).tolist()
            if at + 1 < len(row):
                nlls.append((-math.log(p[row[at + 1]]), -math.log(q[row[at + 1]])))
    before, after = np.array(nlls).T
    assert parity.mean_kl == pytest.approx(np.mean(kls), rel=1e-4)
    assert parity.max_kl == pytest.approx(max(kls), rel=1e-4)
    assert parity.top1_agreement == pytest.approx(agree / IDS.size)
    assert parity.max_logprob_diff == pytest.approx(max(differences), rel=1e-4)
    assert parity.perplexity == pytest.approx(np.exp(after.mean()), rel=1e-5)
    assert parity.perplexity_change == pytest.approx(np.exp((after - before).mean()) - 1, rel=1e-3)
    error = np.exp((after - before).mean()) * np.std(after - before, ddof=1) / math.sqrt(len(before))
    assert parity.perplexity_change_error == pytest.approx(error, rel=1e-3)
    flipped = sum(greedy_by_hand(found, p, 6) != s for p, s in zip(PROMPTS.tolist(), said.tolist(), strict=True))
    assert parity.greedy_flipped == flipped > 0
    assert parity.decode_step_max_diff == parity.prefill_max_diff == 0


def test_a_model_beside_itself_differs_by_nothing() -> None:
    model = RandomGraphs()
    said = np.array([greedy_by_hand(model, prompt, 6) for prompt in PROMPTS.tolist()])
    parity = parity_of(lambda _: fake_runner(model), reference_of(model, IDS, 16, PROMPTS, said))
    assert parity.mean_kl < 1e-12
    assert (parity.top1_agreement, parity.greedy_flipped) == (1, 0)
    assert abs(parity.perplexity_change) < 1e-7


def test_what_the_model_was_not_asked_is_not_compared() -> None:
    model = RandomGraphs()
    said = np.array([greedy_by_hand(model, prompt, 6) for prompt in PROMPTS.tolist()])
    said[0, 2:] = UNKNOWN
    said[1, 5] = (said[1, 5] + 1) % 256
    assert parity_of(lambda _: fake_runner(model), reference_of(model, IDS, 4, PROMPTS, said)).greedy_flipped == 1


def test_a_single_position_and_no_prompts_are_enough() -> None:
    none: Ids = np.zeros((0, 0), np.int64)
    parity = parity_of(lambda _: fake_runner(RandomGraphs()), reference_of(RandomGraphs(), IDS[:, :1], 8, none, none))
    assert (parity.perplexity, parity.perplexity_change, parity.perplexity_change_error) == (1, 0, 0)
    assert parity.greedy_flipped == 0


def test_logits_that_are_not_finite_are_an_error() -> None:
    class Broken(RandomGraphs):
        def logits(self, ids: list[int]) -> NDArray[np.float32]:
            return super().logits(ids) * np.float32(np.nan if len(ids) == 7 else 1)

    reference = reference_of(RandomGraphs(), IDS, 8, PROMPTS, PROMPTS)
    with pytest.raises(LogitsError, match="not finite"):
        parity_of(lambda _: fake_runner(Broken()), reference)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(2, 40).flatmap(
        lambda n: st.tuples(
            st.lists(st.floats(-30, 30, width=32), min_size=n, max_size=n),
            st.lists(st.floats(-30, 30, width=32), min_size=n, max_size=n),
            st.integers(1, n),
        )
    )
)
def test_taking_ids_together_never_adds_divergence(case: tuple[list[float], list[float], int]) -> None:
    p, q = (log_probabilities(np.array(logits, np.float32)) for logits in case[:2])
    best = np.argsort(-p, kind="stable")[: case[2]]
    none: Ids = np.zeros((0, 0), np.int64)
    reference = ParityReference(
        ids=np.zeros((1, 1), np.int64),
        likeliest=best[None, None],
        logprobs=p[best][None, None].astype(np.float32),
        rest=log_rest(p[None], best[None])[None].astype(np.float32),
        following=np.zeros((1, 0), np.float32),
        prompts=none,
        continuations=none,
    )
    whole = float((np.exp(p) * (p - q)).sum())
    (found,) = reference.kl(0, slice(1), q[None])
    assert 0 <= found <= whole * (1 + 1e-5) + 1e-5
    if case[2] == len(p):
        assert found == pytest.approx(whole, rel=1e-5, abs=1e-5)


def test_greedy_ids_are_those_of_the_engine(bundle: Bundle) -> None:
    prompts: Ids = np.random.default_rng(0).integers(0, 256, (3, 7))
    found = greedy(open_graph(bundle, bundle.variant, "decode"), prompts, 9)
    llm, asked = LLM.load(bundle.path), list[list[int]](prompts.tolist())
    for prompt, ids in zip(asked, found.tolist(), strict=True):
        answer = llm.generate(prompt, do_sample=False, max_new_tokens=9, eos_token_id=[])
        assert list(answer.token_ids) == ids


# The reference as a file.


@pytest.fixture
def small() -> ParityReference:
    return reference_of(RandomGraphs(), IDS[:, :5], 3, PROMPTS, np.full((2, 4), UNKNOWN))


def test_a_reference_is_the_same_when_read_and_the_same_bytes_when_written(
    small: ParityReference, tmp_path: Path
) -> None:
    data = small.to_bytes(VOCAB_SIZE)
    assert {entry.date_time[0] for entry in zipfile.ZipFile(io.BytesIO(data)).infolist()} == {1980}
    (tmp_path / "reference.npz").write_bytes(data)
    read = ParityReference.load(tmp_path / "reference.npz", VOCAB_SIZE, 512)
    assert read.to_bytes(VOCAB_SIZE) == data
    for field in fields(ParityReference):
        before, after = getattr(small, field.name), getattr(read, field.name)
        np.testing.assert_array_equal(after, before)
        assert after.dtype == before.dtype


def test_a_reference_is_the_same_bytes_on_every_system(small: ParityReference, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[bytes]()
    for system in ("linux", "win32"):
        with monkeypatch.context() as there:
            there.setattr(sys, "platform", system)  # of which zipfile makes a note
            found.append(small.to_bytes(VOCAB_SIZE))
    assert found[0] == found[1]
    numpy = io.BytesIO()
    np.savez(numpy, allow_pickle=False, **np.load(io.BytesIO(found[0])))
    assert sys.platform == "win32" or numpy.getvalue() == found[0]


@pytest.mark.parametrize(
    ("name", "instead", "problem"),
    [
        ("ids", np.full((2, 5), VOCAB_SIZE), "ids has ids outside the vocabulary of 260"),
        ("prompts", np.full((2, 4), -1), "prompts has ids outside the vocabulary"),
        ("continuations", np.full((2, 4), -2), "continuations has ids outside"),
        ("ids", np.zeros((2, 5), np.float32), "ids has the type float32"),
        ("rest", np.zeros((2, 5)), "rest has the type float64"),
        ("rest", np.zeros((1, 5), np.float32), r"rest has the shape \(1, 5\)"),
        ("ids", np.zeros(5, np.int64), r"ids has the shape \(5,\)"),
        ("prompts", np.zeros((2, 600), np.int64), "prompts of 600 ids with 4 to follow"),
        ("following", None, "is no parity reference: .*following"),
        ("ids", np.array([object()]), "is no parity reference: Object arrays"),
    ],
)
def test_a_reference_that_fits_no_model_is_refused(
    small: ParityReference, tmp_path: Path, name: str, instead: NDArray[Any] | None, problem: str
) -> None:
    arrays: dict[str, Any] = {field.name: getattr(small, field.name) for field in fields(ParityReference)}
    arrays[name] = instead
    np.savez(tmp_path / "reference.npz", **{key: array for key, array in arrays.items() if array is not None})
    with pytest.raises(BundleError, match=problem):
        ParityReference.load(tmp_path / "reference.npz", VOCAB_SIZE, 512)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "reference.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(BundleError, match="is no parity reference"):
        ParityReference.load(tmp_path / "reference.npz", VOCAB_SIZE, 512)


# The report, and measuring it again.


def test_a_report_is_read_strictly(int8_bundle: Bundle, tmp_path: Path) -> None:
    report = ParityReport.read(int8_bundle)
    assert json.loads(json.dumps(report.to_json())) == json.loads(int8_bundle.file("parity.json").read_text())
    assert report.preferred is report.variants["int8-kv-int8"]
    shutil.copytree(int8_bundle.path, tmp_path / "copy")
    raw = report.to_json()
    raw["toknes"] = raw.pop("tokens")
    del raw["variants"]["int8"]["mean_kl"]
    with pytest.raises(
        ManifestError, match=r"(?s)toknes: unknown key.*tokens: missing.*variants.int8.mean_kl: missing"
    ):
        ParityReport.read(_with_report(Bundle.open(tmp_path / "copy"), raw))
    raw = report.to_json()
    del raw["variants"]["int8-kv-int8"]
    with pytest.raises(ManifestError, match=r"variants\.int8-kv-int8: missing"):
        ParityReport.read(_with_report(Bundle.open(tmp_path / "copy"), raw))


def _with_report(bundle: Bundle, raw: dict[str, Any]) -> Bundle:
    """``bundle``, its report replaced."""
    data = json.dumps(raw).encode()
    bundle.file("parity.json").write_bytes(data)
    entry = replace(bundle.manifest.files["parity.json"], size=len(data), sha256=hashlib.sha256(data).hexdigest())
    return replace(bundle, manifest=replace(bundle.manifest, files={**bundle.manifest.files, "parity.json": entry}))


def test_measured_again_on_the_same_machine_the_figures_are_the_same(bundle: Bundle) -> None:
    heard: list[tuple[int, int]] = []
    done = recheck(bundle, lambda done, total: heard.append((done, total)))
    assert done.found == done.stored.variants
    assert (done.differences, done.worse, done.skipped) == ([], [], {})
    assert heard == sorted(heard)
    assert heard[-1] == (512 * len(done.found),) * 2


def test_the_figures_of_a_bundle_are_those_of_its_logits(int8_bundle: Bundle) -> None:
    model = int8_bundle.manifest.model
    reference = ParityReference.load(int8_bundle.file("reference.npz"), model.vocab_size, model.max_context)
    runner, agree = runner_of(int8_bundle), 0
    for row, best in zip(reference.ids, reference.likeliest[..., 0], strict=True):
        found = decoded(runner, runner.new_cache(), row.tolist())
        agree += int((found.argmax(-1) == best).sum())
    assert ParityReport.read(int8_bundle).preferred.top1_agreement == pytest.approx(agree / reference.ids.size)


STORED = VariantParity(0.0004, 0.01, 0.99, 0.2, 20.02, 0.001, 0.0005, 1, 0.03, 0.0)


@pytest.mark.parametrize(
    ("found", "differences", "worse"),
    [
        (STORED, [], []),
        (replace(STORED, mean_kl=0.0005), ["v: mean_kl 0.0004, now 0.0005"], []),
        (replace(STORED, greedy_flipped=8, decode_step_max_diff=0.1), 2, []),
        (replace(STORED, mean_kl=0.002), 1, ["v: mean KL 0.002 nats instead of 0.0004"]),
        (replace(STORED, top1_agreement=0.96), 1, ["v: top-1 agreement 96.0% instead of 99.0%"]),
        (replace(STORED, perplexity_change=0.02), 1, ["v: perplexity +2.00% instead of +0.10%"]),
        (replace(STORED, mean_kl=0.0, top1_agreement=1.0, perplexity_change=-0.1), 3, []),
    ],
)
def test_other_digits_are_told_and_worse_ones_are_worse(
    found: VariantParity, differences: list[str] | int, worse: list[str]
) -> None:
    report = ParityReport("t", 512, 128, 8, 24, 20.0, {"v": STORED}, {}, 1, 1)
    done = Recheck(report, {"v": found}, {})
    assert done.worse == worse
    assert (done.differences if isinstance(differences, list) else len(done.differences)) == differences
