"""Trains a multi-token prediction head for a small Qwen2 checkpoint, which becomes a MiMo with one.

    python -m bench.studies.mtp_training CHECKPOINT TEXT -o FOLDER [--steps N]

The checkpoint's own weights stay as they are. The head learns from a text what comes two tokens later, and from its own
hidden states the tokens after that, as it is used. It needs torch and transformers, which a run of edgegen does not.
"""

import argparse
import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from edgegen.tokenizer import Tokenizer

ROWS, LENGTH, AHEAD, HELD_OUT = 24, 128, 3, 0.07
RATE = 2e-3


class Head:
    """The layer of MiMo's head, by the names of its checkpoints."""

    def __init__(self, model: Any) -> None:
        torch, qwen2 = imported("torch"), imported("transformers.models.qwen2.modeling_qwen2")
        config = model.config
        size, eps = config.hidden_size, config.rms_norm_eps
        self.token_layernorm, self.hidden_layernorm, self.final_layernorm = (
            qwen2.Qwen2RMSNorm(size, eps) for _ in range(3)
        )
        self.input_proj: Any = torch.nn.Linear(2 * size, size, bias=False)
        self.block = qwen2.Qwen2DecoderLayer(config, config.num_hidden_layers - 1)
        self.block.load_state_dict(model.model.layers[-1].state_dict())

    def run(self, tokens: Any, hidden: Any, rotary: Any, mask: Any) -> Any:
        """Embeddings [b, t, d] of the next tokens, hidden states [b, t, d] → hidden states [b, t, d]."""
        both = imported("torch").cat([self.hidden_layernorm(hidden), self.token_layernorm(tokens)], -1)
        made = self.block(self.input_proj(both), attention_mask=mask, position_embeddings=rotary)
        return self.final_layernorm(made[0] if isinstance(made, tuple) else made)

    @property
    def parts(self) -> dict[str, Any]:
        """The modules, by a checkpoint's names."""
        norms = ("token_layernorm", "hidden_layernorm", "final_layernorm")
        return {**{name: getattr(self, name) for name in norms}, "input_proj": self.input_proj, "": self.block}

    def parameters(self) -> list[Any]:
        """What is trained."""
        return [one for module in self.parts.values() for one in module.parameters()]

    def named(self) -> dict[str, Any]:
        """The tensors by a checkpoint's names."""
        found = ((part, name, one) for part, module in self.parts.items() for name, one in module.state_dict().items())
        return {".".join(filter(None, ("model.mtp_layers.0", part, name))): one for part, name, one in found}


def imported(name: str) -> Any:
    """A module of torch or transformers, of which no type is known: torch's are incomplete."""
    return import_module(name)


def losses(model: Any, head: Head, ids: Any) -> tuple[Any, list[float]]:
    """Of ids [b, t]: the mean loss, and of each token ahead how often the head's is the model's own choice."""
    torch = imported("torch")
    with torch.no_grad():
        hidden = model.model(ids).last_hidden_state
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    arguments = parser.parse_args()
    torch, files = imported("torch"), imported("safetensors.torch")
    qwen2 = imported("transformers.models.qwen2.modeling_qwen2")
    torch.manual_seed(0)
    model: Any = qwen2.Qwen2ForCausalLM.from_pretrained(arguments.checkpoint, attn_implementation="eager").eval()
    model.requires_grad_(requires_grad=False)
    tokenizer = Tokenizer.from_file(arguments.checkpoint / "tokenizer.json")
    ids = torch.tensor(np.array(tokenizer.encode(arguments.text.read_text("utf-8")), np.int64))
    train, held_out = ids[: -int(HELD_OUT * len(ids))], ids[-int(HELD_OUT * len(ids)) :]
    head = Head(model)
    optimizer = torch.optim.AdamW(head.parameters(), RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, arguments.steps)
    for step in range(arguments.steps):
        starts = torch.randint(0, len(train) - LENGTH, (ROWS,))
        loss, agreed = losses(model, head, torch.stack([train[start : start + LENGTH] for start in starts.tolist()]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.3f}", agreed, flush=True)
    with torch.no_grad():
        rows = held_out[: len(held_out) // LENGTH * LENGTH].view(-1, LENGTH)[:64]
        print("held out", losses(model, head, rows)[1])
    arguments.output.mkdir(parents=True, exist_ok=True)
    for file in arguments.checkpoint.iterdir():
        if file.suffix != ".safetensors" and file.is_file():
            shutil.copyfile(file, arguments.output / file.name)
    config = json.loads((arguments.checkpoint / "config.json").read_text("utf-8"))
    config |= {"model_type": "mimo", "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    (arguments.output / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    tensors = files.load_file(arguments.checkpoint / "model.safetensors") | head.named()
    files.save_file({name: one.contiguous() for name, one in tensors.items()}, arguments.output / "model.safetensors")


if __name__ == "__main__":
    main()
