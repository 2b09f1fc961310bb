"""KL divergence from float32 of weights in trellis codes, beside codes in blocks, at the same number of bits.

    python -m bench.studies.trellis DATA [--models gpt2 …] [--budgets 3.4 …] [--methods trellis-12 …] [--steps 200]

DATA is the folder of real checkpoints and corpora. Weights are rounded here and run by torch, in floats: no bundle has
such codes, and inputs are not rounded. Text, judge and the weights that count
are those of :mod:`bench.studies.few_bits`.

A matrix is multiplied by random Hadamard matrices from both sides (tables from one, for their rows are looked up), and
rounded column by column as GPTQ does, in one of the codes of :mod:`bench.studies.trellis_codes`. Each column has a
scale of 8 bits and a width of 4, and each row a scale of 8 where rows are not rotated. "Ideal": random errors of the
size that no code of Gaussian weights undercuts.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.gguf.__main__ import HELD_OUT, known
from bench.studies.few_bits import CALIBRATION
from bench.studies.trellis_codes import WIDTHS, Code, ideal, rotation, trellis, uniform
from edgegen.tokenizer import Tokenizer
from edgegen_export.calibration.int4_allocation import LOOKED_UP
from edgegen_export.quantize.allocation import Rung, upgraded_within
from edgegen_export.quantize.blockwise import round_rows, stored_bits
from edgegen_export.quantize.gptq import gptq
from edgegen_export.quantize.hessian import DAMPING, Hessian, factors_of
from edgegen_export.quantize.recipe import EIGHT_BITS, FOUR_BITS, NARROW
from edgegen_export.tensors.lazy import LazyTensor

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Widths = dict[str, NDArray[np.int64]]
Found = tuple[str, float, float]
"""A method, bits per weight, divergence."""
FORMS = (*NARROW, replace(FOUR_BITS, symmetric=True), FOUR_BITS, EIGHT_BITS)
TABLES = ("embed", "positions")
TOGETHER = ("q_proj+k_proj+v_proj", "gate_proj+up_proj")
LENGTH, CALIBRATED, PROBED, SEEN = 256, 32, 4, 40960
CHEAP, BEST = "trellis-12", "trellis-16"
METHODS = (
    ("uniform", "matrix", False),
    ("uniform", "column", False),
    ("uniform", "matrix", True),
    (CHEAP, "matrix", True),
    (CHEAP, "column", False),
    (CHEAP, "column", True),
    (BEST, "column", True),
    ("ideal", "column", True),
)
"""The code; whether a matrix or each column of it has its own width; whether it is rotated."""


class Model:
    """A checkpoint in torch: ``weights`` [n, k] of matrices that take the same, ``squares`` the products of inputs."""

    def __init__(self, name: str, data: Path, tokens: int) -> None:
        self.torch, transformers = import_module("torch"), import_module("transformers")
        with tempfile.TemporaryDirectory() as folder:
            checkpoint, file = known(name, data, Path(folder))
            text = file.read_text(encoding="utf-8")
        load: Any = transformers.AutoModelForCausalLM.from_pretrained
        self.net = load(checkpoint, dtype=self.torch.float32).eval().requires_grad_(False)
        tokenizer = Tokenizer.from_file(checkpoint / "tokenizer.json")

        def rows(text: str, wanted: slice) -> Any:
            ids = tokenizer.encode(text, add_special_tokens=False)[wanted]
            return self.torch.tensor(ids[: len(ids) // LENGTH * LENGTH]).reshape(-1, LENGTH)

        self.judge = rows(text[-tokens * 6 :], slice(-tokens, None))
        self.seen = rows(text[: min(CALIBRATION, round(len(text) * (1 - HELD_OUT)) - 6 * tokens)], slice(SEEN))
        self.squares, self._parts = dict[str, Doubles](), dict[str, list[tuple[Any, bool]]]()
        hooks: list[Any] = []
        for path, module in self.net.named_modules():
            kind, (parent, _, last) = type(module).__name__, path.rpartition(".")
            own = next((f"{parent}.{several}" for several in TOGETHER if last in several.split("+")), path)
            own = "embed" if path == "lm_head" else own
            if kind in ("Linear", "Conv1D") and own not in self._parts:
                hooks.append(module.register_forward_pre_hook(self._listener(own)))
            if kind in ("Linear", "Conv1D"):
                self._parts.setdefault(own, []).append((module.weight, kind == "Conv1D"))
        self.run(self.seen[:CALIBRATED])
        for hook in hooks:
            hook.remove()
        of_head = self.squares["embed"]
        of_head += LOOKED_UP * np.diag(of_head).mean() * np.eye(len(of_head))
        for path, parameter in self.net.named_parameters():
            if path.endswith("wpe.weight"):
                self._parts["positions"], self.squares["positions"] = [(parameter, False)], np.eye(parameter.shape[1])
        self.weights = {own: np.concatenate([_rows_of(*part) for part in of]) for own, of in self._parts.items()}
        self.count = sum(weight.size for weight in self.weights.values())
        self.exact = {"judge": self.run(self.judge), "probe": self.run(self.seen[:PROBED])}

    def _listener(self, name: str) -> Any:
        def heard(_module: object, inputs: tuple[Any, ...]) -> None:
            x = inputs[0].reshape(-1, inputs[0].shape[-1]).double().numpy()
            self.squares[name] = self.squares.get(name, 0) + x.T @ x

        return heard

    def run(self, ids: Any) -> Any:
        """Log-probabilities [n, t, vocabulary]."""
        with self.torch.no_grad():
            return self.torch.cat([self.net(row[None]).logits.double().log_softmax(-1).float() for row in ids])

    def put(self, weights: Mapping[str, Floats]) -> None:
        for name, weight in weights.items():
            at = 0
            for parameter, transposed in self._parts[name]:
                n = parameter.shape[1 if transposed else 0]
                part = self.torch.tensor(np.ascontiguousarray(weight[at : at + n]))
                parameter.data.copy_(part.T if transposed else part)
                at += n

    def divergence(self, weights: Mapping[str, Floats], text: str = "judge") -> float:
        """Mean KL in nats of these weights from those of the checkpoint, which are in their place again afterwards."""
        self.put(weights)
        p, q = self.exact[text], self.run(self.judge if text == "judge" else self.seen[:PROBED])
        self.put({name: self.weights[name] for name in weights})
        return float((p.double().exp() * (p.double() - q.double())).sum(-1).mean())

    def trained(self, weights: Mapping[str, Floats], steps: int, rate: float = 3e-3, together: int = 4) -> float:
        """The divergence after norms and biases have learned on the text to make up for the weights."""
        taught, vectors = self.run(self.seen), [vector for vector in self.net.parameters() if vector.dim() == 1]
        before = [vector.clone() for vector in vectors]
        self.put(weights)
        optimizer = self.torch.optim.Adam([vector.requires_grad_() for vector in vectors], betas=(0.9, 0.95))
        random, order = np.random.default_rng(0), list[int]()
        for step in range(steps):
            order = order if len(order) >= together else random.permutation(len(self.seen)).tolist()
            some, order = order[:together], order[together:]
            optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 10) * (1 - step / steps)
            p, q = taught[some], self.net(self.seen[some]).logits.log_softmax(-1)
            optimizer.zero_grad()
            (p.exp() * (p - q)).sum(-1).mean().backward()
            optimizer.step()
        result = self.divergence(weights)
        for vector, old in zip(vectors, before, strict=True):
            vector.requires_grad_(False).copy_(old)
        return result


def _rows_of(parameter: Any, transposed: bool) -> Floats:
    return (parameter.T if transposed else parameter).numpy().copy()


@dataclass
class Matrix:
    """A matrix to be rounded, and the products of its inputs; ``loss``: what its outputs have lost."""

    weight: Floats
    squares: Doubles
    looked_up: bool
    rotated: bool
    loss: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        n, k = self.weight.shape
        self._turn = rotation(k, 7) if self.rotated else np.eye(k)
        self._rows = rotation(n, 8) if self.rotated and not self.looked_up else None
        values = self.weight @ self._turn.T if self._rows is None else self._rows @ self.weight @ self._turn.T
        self._scales, self._bits = np.ones((n, 1)), 12 * k + 16
        if self._rows is None:
            self._scales = _in_8_bits(np.sqrt(np.square(values).mean(1, keepdims=True)))
            self._bits += 8 * n + 16
        self._values = values / self._scales
        damped = self._turn @ self.squares @ self._turn.T / (CALIBRATED * LENGTH)
        damped += DAMPING * np.diag(damped).mean() * np.eye(k)
        self._upper = np.ascontiguousarray(np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1], np.float64)
        of_columns = np.square(np.diagonal(self._upper)) * np.square(self._values).mean(0)
        self.costs: Doubles = n * np.square(self._scales).mean() * of_columns
        """By column, the loss if nothing of it were left."""

    def rounded(self, code: Code, widths: NDArray[np.int64]) -> Floats:
        """The matrix as it is read again."""
        follow: Doubles = self._upper / np.diagonal(self._upper)
        errors, out = np.zeros_like(self._values), np.zeros_like(self._values)
        for j, bits in enumerate(widths.tolist()):
            wanted: Doubles = self._values[:, j] + errors[:, :j] @ follow[:j, j]
            scale = _in_8_bits(np.sqrt(np.square(wanted).mean(keepdims=True)) + 1e-12)
            out[:, j] = code.rounded((wanted / scale).astype(np.float32), bits) * scale
            errors[:, j] = self._values[:, j] - out[:, j]
        self.loss = float(np.square((errors * self._scales) @ self._upper).sum())
        out *= self._scales
        return ((out if self._rows is None else self._rows.T @ out) @ self._turn).astype(np.float32)

    def bits(self, widths: NDArray[np.int64]) -> int:
        return len(self.weight) * int(widths.sum()) + self._bits


def _in_8_bits(sizes: Doubles) -> Doubles:
    return 2 ** (np.round(16 * np.log2(sizes)) / 16)


def widths_within(own: Mapping[str, Matrix], prices: Mapping[str, float], code: Code, total: float, by: str) -> Widths:
    """The widths of matrices or columns that cost least. ``prices``: by matrix, divergence per loss."""

    def at(of_bit: float) -> Widths:
        result: Widths = {}
        for name, matrix in own.items():
            costs = prices[name] * matrix.costs[:, None] * np.array([code.lost[bits] for bits in WIDTHS])
            costs = costs if by == "column" else np.tile(costs.mean(0), (len(costs), 1))
            result[name] = 1 + np.argmin(costs + of_bit * len(matrix.weight) * np.array(WIDTHS), axis=1)
        return result

    low, high = 1e-16, 1e3
    for _ in range(80):
        middle = (low * high) ** 0.5
        fits = sum(own[name].bits(widths) for name, widths in at(middle).items()) <= total
        low, high = (low, middle) if fits else (middle, high)
    return at(high)


def in_blocks(model: Model, budgets: list[float]) -> Iterator[Found]:
    """The formats of today, each matrix in one of them."""
    made: dict[str, list[tuple[Floats, int]]] = {}
    for name, weight in model.weights.items():
        factors, made[name] = factors_of(Hessian([model.squares[name].astype(np.float32)]), 32), []
        for form in FORMS if name != "positions" else FORMS[-1:]:
            given, tensor = (form.bits, form.block_size), LazyTensor.from_array(weight)
            plain = form == EIGHT_BITS
            blocks = round_rows(weight, *given) if plain else gptq(tensor, factors, *given, symmetric=form.symmetric)
            made[name].append((blocks.values()[:, : weight.shape[1]], stored_bits(weight.shape, form)))
    ladders = {n: [Rung(model.divergence({n: w}, "probe"), bits) for w, bits in of] for n, of in made.items()}
    least = sum(rungs[0].bits for rungs in ladders.values())
    for budget in budgets:
        chosen = upgraded_within(ladders, int(budget * model.count) - least)
        bits = sum(made[name][i][1] for name, i in chosen.items()) / model.count
        yield "codes in blocks of 32", bits, model.divergence({name: made[name][i][0] for name, i in chosen.items()})


def in_columns(model: Model, budgets: list[float], codes: Mapping[str, Code], steps: int) -> Iterator[Found]:
    """Each method with the first budget, and one of them with the others."""
    both, prices = (True, False), dict[str, float]()
    matrices = {r: {n: Matrix(w, model.squares[n], n in TABLES, r) for n, w in model.weights.items()} for r in both}
    for name, matrix in matrices[True].items():
        tried = matrix.rounded(codes[CHEAP], np.full(len(matrix.squares), 5 if name in TABLES else 3, np.int64))
        prices[name] = model.divergence({name: tried}, "probe") / matrix.loss
    tried_with = [(method, budgets[0]) for method in METHODS if method[0] in codes]
    for (name, by, rotated), budget in tried_with + [((CHEAP, "column", True), budget) for budget in budgets[1:]]:
        own, code = matrices[rotated], codes[name]
        widths = widths_within(own, prices, code, budget * model.count, by)
        weights = {key: matrix.rounded(code, widths[key]) for key, matrix in own.items()}
        bits = sum(own[key].bits(of) for key, of in widths.items()) / model.count
        label = f"{name}, widths by {by}{', rotated' if rotated else ''}"
        yield label, bits, model.divergence(weights)
        if steps and name == BEST:
            yield f"{label}, norms and biases trained", bits, model.trained(weights, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description="Weights in trellis codes beside codes in blocks.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", nargs="*", default=["stories", "gpt2", "qwen2"])
    parser.add_argument("--budgets", nargs="*", type=float, default=[3.4, 4, 5])
    parser.add_argument("--methods", nargs="*", default=["uniform", BEST, "ideal"], help=f"beside {CHEAP}")
    parser.add_argument("--steps", type=int, default=200, help="in which norms and biases learn")
    parser.add_argument("--tokens", type=int, default=5120)
    args = parser.parse_args()
    makers = {"uniform": uniform, CHEAP: lambda: trellis(12), BEST: lambda: trellis(16), "ideal": ideal}
    codes = {name: makers[name]() for name in {*args.methods, CHEAP}}
    print("| model | method | bits per weight | KL to fp32 |\n|---|---|---|---|")
    for name in args.models:
        model = Model(name, args.data, args.tokens)
        for label, bits, kl in chain(
            in_blocks(model, args.budgets), in_columns(model, args.budgets, codes, args.steps)
        ):
            print(f"| {name} | {label} | {bits:.3f} | {kl:.3g} |", flush=True)


if __name__ == "__main__":
    main()
