"""A fake peer: it generates the ids that follow the last id of a prompt."""

from pathlib import Path

import numpy as np

from bench.compare.peers.protocol import Ids, Logits, Model, Peer, SteppedModel, run

VOCAB = 97


class CountingModel(SteppedModel):
    def __init__(self, *, batches: bool) -> None:
        self.batches = batches
        self.weights = np.zeros(0, np.uint8)
        self._last: Ids = np.zeros(0, np.int64)

    def start(self, prompts: Ids) -> Ids:
        self._last = (prompts[:, -1] + 1) % VOCAB
        return self._last

    def step(self) -> Ids:
        self._last = (self._last + 1) % VOCAB
        return self._last

    def logits(self, ids: Ids) -> Logits:
        return np.eye(VOCAB, dtype=np.float32)[(ids[-1] + 1) % VOCAB]


class CountingPeer(Peer):
    """Variants: `alone` takes one prompt at a time."""

    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        (out / "model.txt").write_text(checkpoint.name)

    def imports(self) -> None:
        print("a library may say what it likes")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return CountingModel(batches=variant != "alone")


if __name__ == "__main__":
    run(CountingPeer({"numpy": "numpy"}, ("numpy",)))
