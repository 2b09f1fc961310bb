"""Trains a multi-token prediction head: for a small Qwen2 checkpoint, or for a tiny hybrid that is trained before it.

    python -m bench.studies.mtp_training CHECKPOINT TEXT -o FOLDER [--steps N] [--minutes N]
    python -m bench.studies.mtp_training CHECKPOINT TEXT -o FOLDER --hybrid [--trunk-steps N]

The checkpoint's own weights stay as they are, and it becomes a MiMo. With ``--hybrid`` only its tokenizer is taken: a
model with the layers of Qwen3.5 (three gated delta nets, then attention) is trained from nothing, and then its head.
The head learns from the text what comes two tokens later, and from its own hidden states the tokens after that, as it
is used. The end of the text is held out: see :func:`split`. ``--minutes`` ends a run early, with its state in FOLDER;
the same command goes on from there. It needs torch and transformers, of the hybrid transformers 5, which a run of
edgegen does not.
"""

import argparse
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

from edgegen.tokenizer import Tokenizer

ROWS, LENGTH, AHEAD, HELD_OUT = 8, 256, 3, 0.07
RATE = 2e-3

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")

HYBRID: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "max_position_embeddings": LENGTH,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
"""Qwen3.5's shape, tiny."""


@dataclass(frozen=True, slots=True)
class Head:
    """A layer that takes hidden states and the next tokens: its modules, and what checkpoints call them.

    ``hidden_first``: whether the hidden states are before the tokens where they stand side by side.
    """

    hidden_norm: Any
    token_norm: Any
    join: Any
    block: Any
    final_norm: Any
    names: tuple[str, str, str, str, str]
    hidden_first: bool

    @classmethod
    def of(cls, model: Any, norm: Any, layer: Any, names: tuple[str, str, str, str, str], hidden_first: bool) -> "Head":
        """A new one, whose layer begins as the last of the ``model``, made of its classes ``norm`` and ``layer``."""
        config = model.config
        size, eps = config.hidden_size, config.rms_norm_eps
        block = layer(config, config.num_hidden_layers - 1)
        block.load_state_dict(model.model.layers[-1].state_dict())
        join = imported("torch").nn.Linear(2 * size, size, bias=False)
        return cls(norm(size, eps), norm(size, eps), join, block, norm(size, eps), names, hidden_first)

    def run(self, tokens: Any, hidden: Any, rotary: Any, mask: Any) -> Any:
        """Embeddings [b, t, d] of the next tokens, hidden states [b, t, d] → hidden states [b, t, d]."""
        tokens, hidden = self.token_norm(tokens), self.hidden_norm(hidden)
        both = imported("torch").cat([hidden, tokens] if self.hidden_first else [tokens, hidden], -1)
        made = self.block(self.join(both), attention_mask=mask, position_embeddings=rotary)
        return self.final_norm(made[0] if isinstance(made, tuple) else made)

    @property
    def parts(self) -> dict[str, Any]:
        """The modules, by a checkpoint's names."""
        modules = (self.hidden_norm, self.token_norm, self.join, self.block, self.final_norm)
        return dict(zip(self.names, modules, strict=True))

    def parameters(self) -> list[Any]:
        """Return the parameters to train."""
        return [one for module in self.parts.values() for one in module.parameters()]

    def named(self) -> dict[str, Any]:
        """The tensors by a checkpoint's names."""
        return {
            f"{part}.{name}": one for part, module in self.parts.items() for name, one in module.state_dict().items()
        }


def imported(name: str) -> Any:
    """A module of torch or transformers, of which no type is known: torch's are incomplete."""
    return import_module(name)


def split(ids: list[int]) -> tuple[list[int], list[int]]:
    """Split into ids to train on, and ids that are held out."""
    end = len(ids) - int(HELD_OUT * len(ids))
    return ids[:end], ids[end:]


def mimo_head(model: Any) -> Head:
    """As MiMo's."""
    qwen2, layer = imported("transformers.models.qwen2.modeling_qwen2"), "model.mtp_layers.0"
    own = ("hidden_layernorm", "token_layernorm", "input_proj")
    hidden_norm, token_norm, join = (f"{layer}.{name}" for name in own)
    names = (hidden_norm, token_norm, join, layer, f"{layer}.final_layernorm")
    return Head.of(model, qwen2.Qwen2RMSNorm, qwen2.Qwen2DecoderLayer, names, hidden_first=True)


def qwen3_5_head(model: Any) -> Head:
    """As Qwen3.5's."""
    qwen = imported("transformers.models.qwen3_5.modeling_qwen3_5")
    names = ("mtp.pre_fc_norm_hidden", "mtp.pre_fc_norm_embedding", "mtp.fc", "mtp.layers.0", "mtp.norm")
    return Head.of(model, qwen.Qwen3_5RMSNorm, qwen.Qwen3_5DecoderLayer, names, hidden_first=False)


def losses(model: Any, head: Head, ids: Any) -> tuple[Any, list[float]]:
    """Of ids [b, t]: the mean loss, and of each token ahead how often the head's is the model's own choice."""
    torch = imported("torch")
    with torch.no_grad():
        hidden = model.model(ids, use_cache=False).last_hidden_state
        chosen = model.lm_head(hidden).argmax(-1)
    total, agreed = torch.zeros(()), list[float]()
    mask = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1)
    for ahead in range(1, AHEAD + 1):
        hidden = hidden[:, :-1]
        count = hidden.shape[1]
        rotary = model.model.rotary_emb(hidden, torch.arange(count)[None])
        tokens = model.model.embed_tokens(ids[:, ahead : ahead + count])
        hidden = head.run(tokens, hidden, rotary, mask[None, None, :count, :count])
        logits = model.lm_head(hidden[:, :-1])
        total = total + torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, ahead + 1 :].flatten())
        agreed.append((logits.argmax(-1) == chosen[:, ahead:-1]).float().mean().item())
    return total / AHEAD, agreed


def own_loss(model: Any, ids: Any) -> tuple[Any, list[float]]:
    """Of ids [b, t]: the model's mean loss of the next token, and how often its choice is right."""
    logits, following = model(ids, use_cache=False).logits[:, :-1], ids[:, 1:]
    loss = imported("torch").nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
    return loss, [(logits.argmax(-1) == following).float().mean().item()]


@dataclass(frozen=True, slots=True)
class Training:
    """Training on ``ids`` until a time (as of ``monotonic``); ``folder`` keeps the state of what is not done yet."""

    ids: Any
    folder: Path
    until: float

    def train(
        self, name: str, parameters: list[Any], loss_of: Callable[[Any], tuple[Any, list[float]]], steps: int
    ) -> bool:
        """Whether all ``steps`` are done."""
        torch, file, step = imported("torch"), self.folder / f"{name}.pt", 0
        optimizer = torch.optim.AdamW(parameters, RATE, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
        if file.exists():
            kept = torch.load(file)
            step = kept["step"]
            for one, value in zip(parameters, kept["parameters"], strict=True):
                one.data.copy_(value)
            optimizer.load_state_dict(kept["optimizer"])
            schedule.load_state_dict(kept["schedule"])
            torch.set_rng_state(kept["random"])
        while step < steps and monotonic() < self.until:
            starts = torch.randint(0, len(self.ids) - LENGTH, (ROWS,)).tolist()
            loss, right = loss_of(torch.stack([self.ids[start : start + LENGTH] for start in starts]))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step % 50 == 0:
                print(name, step, f"{loss.item():.3f}", [round(one, 3) for one in right], flush=True)
        state = {
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "random": torch.get_rng_state(),
        }
        torch.save({"step": step, "parameters": [one.data for one in parameters], **state}, file)
        return step == steps


def report(name: str, loss_of: Callable[[Any], tuple[Any, list[float]]], held_out: Any) -> None:
    """Print what comes of it on the text that is held out."""
    with imported("torch").no_grad():
        loss, right = loss_of(held_out[: len(held_out) // LENGTH * LENGTH].view(-1, LENGTH)[:64])
    print(name, "held out", f"perplexity {math.exp(loss):.2f}", [round(one, 3) for one in right], flush=True)


def write(folder: Path, checkpoint: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    """The trained checkpoint, with the tokenizer of another."""
    for name in TOKENIZER:
        if (checkpoint / name).exists():
            shutil.copyfile(checkpoint / name, folder / name)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    contiguous = {name: one.detach().contiguous() for name, one in tensors.items()}
    imported("safetensors.torch").save_file(contiguous, folder / "model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300, help="of the head")
    parser.add_argument("--hybrid", action="store_true")
    parser.add_argument("--trunk-steps", type=int, default=600, help="of the hybrid")
    parser.add_argument("--minutes", type=float, default=math.inf)
    arguments = parser.parse_args()
    until = monotonic() + 60 * arguments.minutes
    torch = imported("torch")
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(arguments.checkpoint / "tokenizer.json")
    train, held_out = map(torch.tensor, split(tokenizer.encode(arguments.text.read_text("utf-8"))))
    arguments.output.mkdir(parents=True, exist_ok=True)
    training = Training(train, arguments.output, until)
    config: dict[str, Any] = json.loads((arguments.checkpoint / "config.json").read_text("utf-8"))
    if arguments.hybrid:
        qwen = imported("transformers.models.qwen3_5")
        config = {**HYBRID, "vocab_size": config["vocab_size"]}
        model: Any = qwen.Qwen3_5ForCausalLM(qwen.Qwen3_5TextConfig(**config, attn_implementation="eager"))
        if not training.train("trunk", [*model.parameters()], lambda ids: own_loss(model, ids), arguments.trunk_steps):
            return
        report("trunk", lambda ids: own_loss(model, ids), held_out)
        own = {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "mtp_num_hidden_layers": 1}
        config |= own
        head = qwen3_5_head(model)
    else:
        qwen = imported("transformers.models.qwen2")
        model = qwen.Qwen2ForCausalLM.from_pretrained(arguments.checkpoint, attn_implementation="eager").eval()
        config |= {"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
        head = mimo_head(model)
    model.requires_grad_(requires_grad=False)
    if not training.train("head", head.parameters(), lambda ids: losses(model, head, ids), arguments.steps):
        return
    report("head", lambda ids: losses(model, head, ids), held_out)
    trunk = {name: one for name, one in model.state_dict().items() if name != "lm_head.weight"}  # which is tied
    write(arguments.output, arguments.checkpoint, config, trunk | head.named())


if __name__ == "__main__":
    main()
