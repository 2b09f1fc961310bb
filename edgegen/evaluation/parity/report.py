"""ParityReport: what quantization cost, as stored in a bundle; :mod:`edgegen.evaluation.parity.measure` measures it."""

from dataclasses import asdict, dataclass
from typing import Any

from edgegen.bundle.bundle import Bundle
from edgegen.errors import ManifestError, refuse_any
from edgegen.strict_json import decode


@dataclass(frozen=True, slots=True)
class VariantParity:
    """One variant beside the unquantized model. Divergences (KL, from the model) are in nats.

    Attributes:
        mean_kl, max_kl: over positions; see :meth:`ParityReference.kl`.
        top1_agreement: share of positions with the same first choice.
        max_logprob_diff: the largest difference of a log-probability, of the ids that the reference keeps.
        perplexity: of the text.
        perplexity_change: relative to the model's: 0.01 is one per cent worse.
        perplexity_change_error: its standard error, from the differences at each position as if they were independent.
        greedy_flipped: how many prompts are continued otherwise than by the model.
        decode_step_max_diff: logits of single decode steps against those of the same positions decoded together.
        prefill_max_diff: logits of the prefill graph against the decode graph's, after the first 32 tokens of the last
            window.
    """

    mean_kl: float
    max_kl: float
    top1_agreement: float
    max_logprob_diff: float
    perplexity: float
    perplexity_change: float
    perplexity_change_error: float
    greedy_flipped: int
    decode_step_max_diff: float
    prefill_max_diff: float


@dataclass(frozen=True, slots=True)
class ParityReport:
    """All variants of a bundle beside the unquantized model.

    Attributes:
        text: what it was measured on: ``sample text``, ``random ids``, or the name of a file.
        tokens: how many of it.
        likeliest: how many ids of each position the reference keeps.
        greedy_prompts, greedy_tokens: how many prompts were continued, and by how many tokens at most.
        perplexity_reference: of the unquantized model.
        variants: by the variant's name; last of all those with a converted KV cache, where kernels ran.
        layer_errors: by the variant's name, for each layer: how far the hidden states after it are from the model's,
            relative (L2 norms, mean over positions), with all errors of the layers before. Measured at the export only;
            empty where layers are not known.
        weights_bytes, bundle_bytes: of the weights file, and of all files but the report.
    """

    text: str
    tokens: int
    likeliest: int
    greedy_prompts: int
    greedy_tokens: int
    perplexity_reference: float
    variants: dict[str, VariantParity]
    layer_errors: dict[str, tuple[float, ...]]
    weights_bytes: int
    bundle_bytes: int

    @classmethod
    def read(cls, bundle: Bundle) -> "ParityReport":
        """The report that a bundle came with.

        Raises:
            VerificationError: its file is damaged.
            ManifestError: it is malformed, or lacks a variant.
        """
        problems: list[str] = []
        report = decode(cls, bundle.json(bundle.manifest.parity), "", problems)
        if not problems:
            missing = [v.name for v in bundle.manifest.variants if v.name not in report.variants]
            problems = [f"variants.{name}: missing" for name in missing]
        refuse_any(problems, ManifestError, f"{bundle.file(bundle.manifest.parity)} is malformed: ")
        return report

    @property
    def preferred(self) -> VariantParity:
        """The first variant's."""
        return next(iter(self.variants.values()))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
