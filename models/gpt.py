"""A compact GPT-2 for training, and its export to the Hugging Face layout.

The parameters carry the names of transformers' `GPT2LMHeadModel`, so export is a transpose of the block
matrices (transformers keeps them as [in, out]) and a `save_pretrained`. The head is the token embedding,
stored once.
"""

# pyright: basic, reportArgumentType=false, reportIndexIssue=false, reportGeneralTypeIssues=false
# (torch and transformers are only partly typed)

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

IGNORED = -100  # a target that carries no loss


@dataclass(frozen=True)
class Shape:
    """The sizes of a model."""

    vocabulary: int
    width: int = 256
    layers: int = 6
    heads: int = 4
    positions: int = 512
    dropout: float = 0.1


class _ByteDropout(torch.autograd.Function):
    """Dropout that draws one random byte per element: four times cheaper on a CPU than `nn.Dropout`."""

    @staticmethod
    def forward(ctx, x: Tensor, rate: float) -> Tensor:  # type: ignore[override]
        threshold = int(rate * 256)
        draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        ctx.keep = draws.view(torch.uint8)[: x.numel()].view_as(x) >= threshold
        ctx.scale = 256 / (256 - threshold)
        return torch.where(ctx.keep, x * ctx.scale, 0)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return torch.where(ctx.keep, gradient * ctx.scale, 0), None


class Dropout(nn.Module):
    """Drop activations at `rate` while training."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return _ByteDropout.apply(x, self.rate) if self.training and self.rate > 0 else x


class Attention(nn.Module):
    """Causal self-attention over all earlier tokens of the row."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.c_attn = nn.Linear(shape.width, 3 * shape.width)
        self.c_proj = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        query, key, value = self.c_attn(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(rows, length, width))


class FeedForward(nn.Module):
    """The two-layer perceptron of a block, four times as wide inside, with GPT-2's tanh GELU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.c_fc = nn.Linear(shape.width, 4 * shape.width)
        self.c_proj = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width)
        self.attn = Attention(shape)
        self.ln_2 = nn.LayerNorm(shape.width)
        self.mlp = FeedForward(shape)
        self.drop = Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    """GPT-2: learned positions, pre-norm blocks, and a head tied to the token embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(shape.vocabulary, shape.width),
                "wpe": nn.Embedding(shape.positions, shape.width),
                "drop": Dropout(shape.dropout),
                "h": nn.ModuleList(Block(shape) for _ in range(shape.layers)),
                "ln_f": nn.LayerNorm(shape.width),
            }
        )
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:  # what writes into the residual stream starts smaller, as in GPT-2
                scale = (2 * shape.layers) ** -0.5 if "c_proj" in name else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits for the token after each of `tokens` [rows, length]."""
        parts = self.transformer
        x = parts["drop"](parts["wte"](tokens) + parts["wpe"].weight[: tokens.shape[1]])
        for block in parts["h"]:
            x = block(x)
        return functional.linear(parts["ln_f"](x), parts["wte"].weight)

    def loss(self, row: Tensor) -> tuple[Tensor, int]:
        """Cross-entropy of each token of `row` given those before it, summed, and how many were predicted."""
        targets = row[:, 1:]
        logits = self(row[:, :-1].clamp(min=0))
        total = functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return total, int((targets != IGNORED).sum())

    def matrices(self) -> Iterator[nn.Parameter]:
        """The weights between activations (not the embeddings): what Muon is made for."""
        return (p for p in self.transformer["h"].parameters() if p.ndim == 2)

    def tables(self) -> Iterator[nn.Parameter]:
        """The token and position embeddings."""
        return (p for name in ("wte", "wpe") for p in self.transformer[name].parameters())

    def vectors(self) -> Iterator[nn.Parameter]:
        """Biases and norms."""
        return (p for p in self.parameters() if p.ndim == 1)


def export(model: GPT, out: Path, end_id: int, dtype: torch.dtype, generation: dict[str, float]) -> None:
    """Write config.json, model.safetensors and generation_config.json as transformers would."""
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    shape = model.shape
    ids = {"bos_token_id": end_id, "eos_token_id": end_id, "pad_token_id": end_id}
    config = GPT2Config(
        vocab_size=shape.vocabulary, n_positions=shape.positions, n_embd=shape.width, n_layer=shape.layers,
        n_head=shape.heads, activation_function="gelu_new",
        resid_pdrop=shape.dropout, embd_pdrop=shape.dropout, attn_pdrop=0.0, **ids,
    )  # fmt: skip
    twin = GPT2LMHeadModel(config)
    weights = {
        name: value.t() if value.ndim == 2 and ".h." in name else value for name, value in model.state_dict().items()
    }
    twin.load_state_dict(weights | {"lm_head.weight": weights["transformer.wte.weight"]})
    twin.generation_config = GenerationConfig(**ids, **generation)
    twin.to(dtype).save_pretrained(out)
