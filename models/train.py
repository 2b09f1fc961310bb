"""Train the small story teller that ships with edgegen, from raw text to a Hugging Face folder.

    python models/train.py --data tinystories.txt --out models/stories --work build/stories

What it does, in order: repairs and splits the stories, gives them capital letters (restore_case.py), holds
out the last 7%, trains a byte-level BPE tokenizer on the rest, trains a GPT-2 (gpt.py) with Muon and AdamW,
keeps the weights with the best held-out loss, writes them to --out, and prints sample stories. It resumes
from --work when stopped; give a fresh --work to start again. The card in models/stories names the flags that
the shipped model was trained with.

Needs Python 3.11, torch 2.13 (a CPU is enough), transformers 4.57, tokenizers, safetensors and numpy.
"""

# pyright: basic
# (torch, tokenizers and transformers are only partly typed)

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from gpt import GPT, IGNORED, Shape, export
from restore_case import find_names, repair, restore_case, split_stories
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END = "<|endoftext|>"  # opens every story and closes the last one
END_ID = 0
GENERATION = {
    "do_sample": True, "temperature": 0.6, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.2,
    "max_new_tokens": 256,
}  # fmt: skip
PROMPTS = ("Once upon a time", "One day, a little girl named Lily", "The dragon", "")

Rows = np.ndarray  # int64 [rows, length]; IGNORED where there is no token


def read_stories(path: Path) -> list[str]:
    """The stories of a lower-cased TinyStories file, repaired and with capital letters."""
    stories = split_stories(repair(path.read_text(encoding="utf-8")))
    names = find_names(stories)
    return [restore_case(story, names) for story in stories]


def train_tokenizer(stories: list[str], size: int) -> Tokenizer:
    """A byte-level BPE tokenizer like GPT-2's, fitted to these stories."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(stories, trainer)
    # A prompt is the start of a story, and in training every story follows the mark.
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, END_ID)])
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, positions: int, out: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, unk_token=END, pad_token=END,
        model_max_length=positions, clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],  # a GPT-2 would add token types to its embeddings
    ).save_pretrained(out)  # fmt: skip


def encode(tokenizer: Tokenizer, stories: list[str]) -> list[list[int]]:
    """Token ids of each story, between two end marks."""
    return [[*encoding.ids, END_ID] for encoding in tokenizer.encode_batch(stories)]


def to_rows(pieces: list[list[int]]) -> Rows:
    """Pieces of different lengths as one array."""
    rows = np.full((len(pieces), max(map(len, pieces))), IGNORED, dtype=np.int64)
    for row, piece in zip(rows, pieces, strict=True):
        row[: len(piece)] = piece
    return rows


def alone(stories: list[list[int]], length: int, budget: int, rng: np.random.Generator | None = None) -> list[Rows]:
    """Batches of at most `budget` tokens with one story to a row, stories of like length together.

    With `rng` the order is shuffled; long stories continue in a row of their own.
    """
    pieces = [s[i : i + length + 1] for s in stories for i in range(0, len(s) - 1, length)]
    jitter = rng.uniform(-8, 8, len(pieces)) if rng else np.zeros(len(pieces))
    batches: list[list[list[int]]] = [[]]
    for index in np.argsort([len(p) for p in pieces] + jitter):
        width = max([len(p) for p in batches[-1]] + [len(pieces[index])])
        if width * (len(batches[-1]) + 1) > budget and batches[-1]:
            batches.append([])
        batches[-1].append(pieces[index])
    order = rng.permutation(len(batches)) if rng else range(len(batches))
    return [to_rows(batches[i]) for i in order]


def packed(stories: list[list[int]], length: int, budget: int, rng: np.random.Generator) -> list[Rows]:
    """Batches of full rows, each filled with as many whole stories as fit."""
    pieces = [s[i : i + length + 1] for s in stories for i in range(0, len(s) - 1, length)]
    rows: list[list[int]] = []
    unfilled: list[list[int]] = []
    for index in rng.permutation(len(pieces)):
        piece = pieces[index]
        fits = [row for row in unfilled if len(row) + len(piece) - 1 <= length + 1]
        row = max(fits, key=len) if fits else []
        if not fits:
            rows.append(row)
            unfilled.append(row)
        row.extend(piece[1:] if row else piece)  # the end mark of one story opens the next
        unfilled = [row for row in unfilled if len(row) < length - 30]
    order = rng.permutation(len(rows))
    per_batch = budget // length
    return [to_rows([rows[i] for i in order[j : j + per_batch]]) for j in range(0, len(rows), per_batch)]


def batches(stories: list[list[int]], length: int, budget: int, seed: int) -> Iterator[tuple[int, Rows]]:
    """Endless (epoch, batch): stories alone, and every fourth epoch packed, to learn late positions too."""
    for epoch in itertools.count():
        rng = np.random.default_rng([seed, epoch])
        arrange = packed if epoch % 4 == 3 else alone
        for rows in arrange(stories, length, budget, rng):
            yield epoch, rows


@torch.no_grad()
def evaluate(model: GPT, stories: list[list[int]], amp: torch.autocast | None = None) -> float:
    """Mean cross-entropy per token over whole stories, each read from its start."""
    training = model.training
    model.eval()
    device = next(model.parameters()).device
    total, count = 0.0, 0
    for rows in alone(stories, model.shape.positions, 8192):
        with amp or torch.autocast(device.type, enabled=False):
            loss, tokens = model.loss(torch.from_numpy(rows).to(device))
        total, count = total + loss.item(), count + tokens
    model.train(training)
    return total / count


def make_optimizers(model: GPT, flags: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for embeddings, biases and norms."""
    matrices = list(model.matrices())
    muon = torch.optim.Muon(
        matrices, lr=flags.matrix_rate, weight_decay=flags.matrix_decay, adjust_lr_fn="match_rms_adamw"
    )
    groups = [
        {"params": list(model.tables()), "weight_decay": flags.table_decay},
        {"params": list(model.vectors()), "weight_decay": 0.0},
    ]
    return [muon, torch.optim.AdamW(groups, lr=flags.table_rate, betas=(0.9, 0.98))]


def rate_at(progress: float, step: int, flags: argparse.Namespace) -> float:
    """Share of the full learning rate: a short warm-up, a plateau, then a straight line down to 1%."""
    falling = (1.0 - progress) / (1.0 - flags.plateau)
    return min(1.0, (step + 1) / flags.warmup, max(falling, 0.01))


def train(flags: argparse.Namespace) -> None:
    """Run the recipe; see the module's text."""
    started = time.monotonic()
    torch.manual_seed(flags.seed)
    if flags.threads:
        torch.set_num_threads(flags.threads)
    out, work = Path(flags.out), Path(flags.work)
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)

    stories = read_stories(Path(flags.data))
    cut = round(len(stories) * (1 - flags.held_out))
    tokenizer = train_tokenizer(stories[:cut], flags.vocabulary)
    save_tokenizer(tokenizer, flags.positions, out)
    training, held_out = encode(tokenizer, stories[:cut]), encode(tokenizer, stories[cut:])
    bytes_per_token = sum(len(s.encode()) for s in stories[cut:]) / sum(len(s) - 1 for s in held_out)

    shape = Shape(flags.vocabulary, flags.width, flags.layers, flags.heads, flags.positions, flags.dropout)
    model = GPT(shape).to(flags.device)
    optimizers = make_optimizers(model, flags)
    full_rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    amp = torch.autocast(torch.device(flags.device).type, torch.bfloat16, enabled=flags.bfloat16)
    size = sum(p.numel() for p in model.parameters())
    print(
        f"{len(training)} stories of {sum(map(len, training))} tokens to train on, {len(held_out)} held out "
        f"({bytes_per_token:.3f} bytes per token), {size:,} parameters",
        flush=True,
    )

    step, spent, tokens, best = 0, 0.0, 0, math.inf
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        torch.set_rng_state(state["random"])
        step, spent, tokens, best = state["step"], state["spent"], state["tokens"], state["best"]
        print(f"resumed at step {step}", flush=True)

    loss_sum, loss_count = 0.0, 0
    stream = itertools.islice(batches(training, flags.positions, flags.batch, flags.seed), step, None)
    for epoch, rows in stream:
        minutes = (spent + time.monotonic() - started) / 60
        progress = max(step / flags.steps, minutes / flags.minutes if flags.minutes else 0.0)
        if progress >= 1:
            break
        for optimizer, rates in zip(optimizers, full_rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * rate_at(progress, step, flags)
        with amp:
            loss, count = model.loss(torch.from_numpy(rows).to(flags.device))
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        tokens += count
        loss_sum, loss_count = loss_sum + loss.item(), loss_count + count
        if step % flags.evaluate_every == 0:
            held = evaluate(model, held_out, amp)
            report = {
                "step": step, "epoch": epoch + 1, "tokens": tokens, "minutes": round(minutes, 1),
                "train": round(loss_sum / loss_count, 4), "held_out": round(held, 4),
                "bits_per_byte": round(held / math.log(2) / bytes_per_token, 4),
            }  # fmt: skip
            print(json.dumps(report), flush=True)
            loss_sum, loss_count = 0.0, 0
            if held < best:
                best = held
                export(model, out, END_ID, torch.float16, GENERATION)
                model.to(flags.device)
            state = {
                "model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step,
                "spent": spent + time.monotonic() - started, "tokens": tokens, "best": best,
                "random": torch.get_rng_state(),
            }  # fmt: skip
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)

    if (held := evaluate(model, held_out)) < best:
        best = held
        export(model, out, END_ID, torch.float16, GENERATION)
    print(f"done at step {step}: held-out loss {best:.4f}", flush=True)
    tell(out, flags.stories, flags.seed)


def tell(out: Path, count: int, seed: int) -> None:
    """Print stories told by the exported model under its own generation settings."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(out).float().eval()
    for index in range(count):
        prompt = PROMPTS[index % len(PROMPTS)]
        set_seed(seed + index)
        ids = tokenizer(prompt, return_tensors="pt")
        told = model.generate(**ids)[0]
        story = tokenizer.decode(told, skip_special_tokens=True)
        print(f"--- seed {seed + index}, prompt {prompt!r}\n{story}\n")


def parse_flags() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", required=True, help="lower-cased TinyStories text, stories separated by one line break")
    add("--out", required=True, help="folder for the Hugging Face files")
    add("--work", default="build/stories", help="folder for the checkpoint that a stopped run resumes from")
    add("--held-out", type=float, default=0.07, help="share of the stories, from the end, to measure loss on")
    add("--vocabulary", type=int, default=2048)
    add("--width", type=int, default=256)
    add("--layers", type=int, default=6)
    add("--heads", type=int, default=4)
    add("--positions", type=int, default=512)
    add("--dropout", type=float, default=0.1)
    add("--batch", type=int, default=8192, help="tokens per step")
    add("--steps", type=int, default=2000)
    add("--minutes", type=float, default=0, help="finish the schedule after this long at the latest; 0: never")
    add("--warmup", type=int, default=40, help="steps until the full learning rate")
    add("--plateau", type=float, default=0.3, help="share of the run before the learning rate falls")
    add("--matrix-rate", type=float, default=0.006, help="learning rate of Muon")
    add("--matrix-decay", type=float, default=0.2, help="weight decay of Muon")
    add("--table-rate", type=float, default=0.003, help="learning rate of AdamW")
    add("--table-decay", type=float, default=0.1, help="weight decay of the embeddings")
    add("--bfloat16", action=argparse.BooleanOptionalAction, default=True, help="multiply in bfloat16")
    add("--evaluate-every", type=int, default=100, help="steps between held-out losses and checkpoints")
    add("--seed", type=int, default=0)
    add("--threads", type=int, default=0, help="CPU threads; 0: torch's own choice")
    add("--device", default="cpu")
    add("--stories", type=int, default=8, help="sample stories to print at the end")
    return parser.parse_args()


if __name__ == "__main__":
    train(parse_flags())
