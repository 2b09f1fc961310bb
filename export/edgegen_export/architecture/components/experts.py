"""Experts: a mixture of experts in place of an MLP."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from edgegen_export.architecture.components.component import (
    FUSED_EXPERTS,
    Component,
    Modules,
    Norms,
    Shapes,
    Tensors,
    scale,
)
from edgegen_export.architecture.components.mlp import Activation, mlp_inputs, mlp_matrices
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.tensor_layouts import Shape

CHOICE_BIAS = "mlp.router.choice_bias"
"""The numbers that are added to the scores of experts for the choice."""
EXPERT_SCALES = "mlp.router.expert_scales"
"""The factors of the experts' weights."""


@dataclass(frozen=True, slots=True)
class SwiGLU:
    """``(up + offset) · gate · sigmoid(alpha · gate)``; gate at most ``limit``, and up within it on both sides.

    ``softcaps``: both factors of the sigmoid, gate and up, are ``c · tanh(x / c)``, each with its c.
    """

    alpha: float = 1.0
    offset: float = 0.0
    limit: float = 1e30
    softcaps: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """How the router's logits choose experts and weigh them.

    ``scores``: the softmax of all logits, or the sigmoid of each. ``choice_bias``: trained numbers are added to the
    scores for the choice alone; ``choice_by_logits``: to the logits. ``groups``: experts are chosen from the
    ``chosen_groups`` of so many whose best scores, ``best_of_group`` in each, have the greatest sum. ``epsilon``: added
    to the sum that weights are normalized by, which is at least ``least_sum``. ``scaling``: factor of all weights,
    which is put into the experts; ``expert_scales``: a trained factor of each expert's weight. ``softcap`` c: logits
    are ``c · tanh(logit / c)``. ``shared``: so many shared experts, which are behind the others in the router, and
    weighed with the chosen ones by sigmoids that are made to sum to one.
    """

    scores: Literal["softmax", "sigmoid"] = "softmax"
    choice_bias: bool = False
    choice_by_logits: bool = False
    groups: int = 1
    chosen_groups: int = 1
    best_of_group: Literal[1, 2] = 2
    epsilon: float = 0.0
    least_sum: float = 0.0
    scaling: float = 1.0
    expert_scales: bool = False
    softcap: float | None = None
    shared: int = 0

    @property
    def grouped(self) -> bool:
        """Whether some groups of experts are left out of the choice."""
        return self.chosen_groups < self.groups

    @property
    def by_scores(self) -> bool:
        """Whether experts are chosen by the order of their scores alone."""
        return not self.choice_bias and not self.grouped


@dataclass(frozen=True, slots=True)
class Experts(Component):
    """Mixture of experts: each token uses the ``per_token`` MLPs of ``count`` that the router scores highest, weighted
    by these scores; ``normalized``: the weights of the chosen experts are made to sum to one.

    ``width``: the intermediate size of each. ``shared_width``: that of one more, which every token uses, 0 without
    one, or all of them side by side where the router weighs them; ``shared_gated``: its result times the sigmoid of a
    gate of its own; ``shared_scaling``: a factor of its result, which is put into it. ``latent``: experts take a
    projection to so many numbers, and what they give is projected back. ``own_norms``: router and experts take the
    residual stream, each through a norm of its own, and what the shared expert and the others give is normalized before
    it is summed.
    """

    count: int
    per_token: int
    normalized: bool
    width: int
    activation: Activation = "silu"
    gated: bool = True
    glu: SwiGLU = SwiGLU()
    shared_width: int = 0
    shared_gated: bool = False
    shared_scaling: float = 1.0
    routing: Routing = Routing()
    latent: int | None = None
    own_norms: bool = False

    sublayer: ClassVar[str | None] = "mlp"
    operators_since: ClassVar[str] = FUSED_EXPERTS

    @property
    def fused(self) -> bool:
        """Whether one operator computes them: if they are gated with SiLU, and weighed by what the router says."""
        plain = self.gated and self.activation == "silu" and not self.glu.softcaps
        return plain and not self.routing.expert_scales

    @property
    def stacks(self) -> tuple[Modules, Modules]:
        """The matrices of all experts, each of them concatenated: what takes the input, and what gives the output."""
        return mlp_inputs("mlp", gated=self.gated), ("mlp.down",)

    @property
    def outputs(self) -> Modules:
        return ("latent_out" if self.latent else "mlp.down", *(["shared.down"] if self.shared_width else []))

    @property
    def products(self) -> tuple[Modules, ...]:
        """Without the experts' own: their operator takes them as they are."""
        latent = (("latent_in",), ("latent_out",)) if self.latent else ()
        shared = (mlp_inputs("shared", gated=self.gated), ("shared.down",)) if self.shared_width else ()
        return (*latent, *shared)

    def matrices(self, hidden: int) -> Shapes:
        latent, wide = self.latent, self.shared_width
        return {
            "mlp.router": (self.count + self.routing.shared, hidden),
            **mlp_matrices("mlp", latent or hidden, self.width, gated=self.gated, count=self.count),
            **({"latent_in": (latent, hidden), "latent_out": (hidden, latent)} if latent else {}),
            **(mlp_matrices("shared", hidden, wide, gated=self.gated) if wide else {}),
        }

    def numbers(self, hidden: int) -> Shapes:
        found: dict[str, Shape] = {"shared_gate.weight": (1, hidden)} if self.shared_width and self.shared_gated else {}
        found |= {CHOICE_BIAS: (self.count,)} if self.routing.choice_bias else {}
        return found | ({EXPERT_SCALES: (self.count,)} if self.routing.expert_scales else {})

    def norms(self, norm: Norm, hidden: int) -> Norms:
        names = ("router_norm", "expert_norm", "shared_post_norm", "expert_post_norm") if self.own_norms else ()
        return dict.fromkeys(names, (norm, (hidden,)))

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The routing's scaling in the experts, the shared one's in it."""
        scale(tensors, (f"{layer}mlp.down",), self.routing.scaling)
        shared = self.routing.scaling if self.routing.shared else self.shared_scaling
        scale(tensors, (f"{layer}shared.down",) if self.shared_width else (), shared)
