"""LatentAttention: multi-head latent attention, which keeps of a token a few numbers for all heads together."""

from dataclasses import dataclass, field
from typing import ClassVar

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Modules, Norms, Pair, Shapes
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class Latent:
    """Latent that keys and values are made of, and the sizes of these (DeepSeek-AI 2024, arXiv:2405.04434).

    ``rank``: numbers of a token's latent; ``unrotated``: of a head's key, those made of the latent, beside the rotated
    ones, which all heads share; ``value``: of a head's value; ``query_rank``: numbers that queries are made of, None
    if they are made of the hidden states; ``norm``: of the latent and of what queries are made of.
    """

    rank: int
    unrotated: int
    value: int
    query_rank: int | None
    norm: Norm


@dataclass(frozen=True, slots=True)
class LatentAttention(Attention):
    """Attention over latents: a head's key is ``k_b · latent`` and a rotated part that all heads share, its value is
    ``v_b · latent``.

    It is computed absorbed: as attention of ``heads`` queries ``[rotated, k_bᵀ · query]`` over one key head ``[rotated,
    latent]``, which is its value, too. So ``kv_heads`` is 1, and ``head_dim`` the size of both parts together; ``rope``
    rotates the first ones, which without one are shared as they are. ``scale`` is that of the heads as they are before.
    """

    sizes: Latent = field(kw_only=True)

    latent: ClassVar[bool] = True

    @property
    def rotated(self) -> int:
        """Channels of the rotated part."""
        return self.head_dim - self.sizes.rank

    @property
    def width(self) -> int:
        return self.heads * self.sizes.value

    @property
    def queries(self) -> Shapes:
        """The channels that queries have before they are absorbed: those of all heads that are not rotated, and the
        others."""
        return {"q": (self.heads * self.sizes.unrotated,), "q_rotated": (self.heads * self.rotated,)}

    @property
    def projected(self) -> Shapes:
        queries = self.queries if self.sizes.query_rank is None else {"q_a": (self.sizes.query_rank,)}
        return {**queries, "latent": (self.sizes.rank,), "k_rotated": (self.rotated,), **self.gates}

    @property
    def made_of_query(self) -> Modules:
        """The matrices that take what queries are made of, where that is not what the sublayer takes."""
        return () if self.sizes.query_rank is None else tuple(f"attn.{name}" for name in self.queries)

    @property
    def products(self) -> tuple[Modules, ...]:
        return self.inputs, *([self.made_of_query] if self.made_of_query else []), self.outputs

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        values = Pair("attn.v_b", self.outputs, width=self.sizes.value)
        return (values, *([Pair("attn.q_a_norm", self.made_of_query)] if self.made_of_query else []))

    def matrices(self, hidden: int) -> Shapes:
        taking = {f"attn.{name}": (*rows, hidden) for name, rows in self.projected.items()}
        rank = self.sizes.query_rank
        queries = {} if rank is None else {f"attn.{name}": (*rows, rank) for name, rows in self.queries.items()}
        return {**taking, **queries, "attn.o": (hidden, self.width)}

    def numbers(self, hidden: int) -> Shapes:
        """The matrices of each head."""
        own = self.sizes
        return {
            "attn.k_b.weight": (self.heads * own.unrotated, own.rank),
            "attn.v_b.weight": (self.heads * own.value, own.rank),
        }

    @property
    def of_heads(self) -> Shapes:
        own = self.sizes
        return {
            "attn.k_b.weight": (self.heads * own.rank, own.unrotated),
            "attn.v_b.weight": (self.heads * own.value, own.rank),
        }

    def norms(self, norm: Norm, hidden: int) -> Norms:
        own = self.sizes
        queries = {} if own.query_rank is None else {"attn.q_a_norm": (own.norm, (own.query_rank,))}
        return {**queries, "attn.latent_norm": (own.norm, (own.rank,))}
