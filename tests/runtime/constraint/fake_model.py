"""A model without sense: random logits that depend on the tokens so far, with a leaning towards short answers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.constraint import Constraint, RowConstraint
from edgegen.constraint.row import ConstraintWatch
from edgegen.engine.finish import StopMatch
from edgegen.sampling import LogitsContext, LogitsPipeline, LogitsProcessor
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processors.distribution import Temperature
from edgegen.sampling.processors.truncation import TopK, TopP
from edgegen.sampling.sampler import Sampler
from edgegen.stopping.text_watcher import TextWatcher
from edgegen.tokenizer import StreamingDetokenizer
from tests.runtime.constraint.vocabulary import Vocabulary

PROMPT: tuple[int, ...] = (11, 22, 33)
SAMPLING: tuple[LogitsProcessor, ...] = (Temperature(1.5), TopK(200), TopP(0.98))


@dataclass
class FakeModel:
    vocabulary: Vocabulary
    seed: int

    def __post_init__(self) -> None:
        enders = [*self.vocabulary.eos]
        enders += [i for text in ('"', "}", "]", '"}', "]}", '",') for i in self.vocabulary.encode_continuation(text)]
        self._noise = np.random.default_rng(self.seed).normal(0, 3, self.vocabulary.size * 2).astype(np.float32)
        self._enders = np.array(enders)

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits after ``ids``: [vocabulary]."""
        begin = hash((self.seed, *ids)) % self.vocabulary.size
        logits = self._noise[begin : begin + self.vocabulary.size].copy()
        logits[self._enders] += 8
        return logits


@dataclass(frozen=True)
class Answer:
    ids: tuple[int, ...]
    text: str
    finish: StopMatch | None
    accepted: int


def generate(
    model: FakeModel,
    constraint: Constraint,
    *,
    seed: int = 0,
    do_sample: bool = True,
    propose: bool = False,
    processors: Sequence[LogitsProcessor] = SAMPLING,
    stop_strings: Sequence[str] = (),
    most: int = 300,
) -> Answer:
    """As an engine does: draw, watch, and with ``propose`` verify what is forced, token by token."""
    vocabulary = model.vocabulary
    row = RowConstraint(vocabulary.start(constraint), len(PROMPT))
    detokenizer = StreamingDetokenizer(vocabulary.tokenizer, prompt_ids=PROMPT)
    watcher = TextWatcher(detokenizer, stop_strings, vocabulary.eos)
    watch = ConstraintWatch(watcher, row)
    pipeline, sampler = LogitsPipeline((row, *processors)), Sampler(seed=seed, do_sample=do_sample)
    ids, text, finish, accepted = list(PROMPT), "", None, 0
    while finish is None and len(ids) < most:
        proposal = row.propose(ids) if propose else []
        for proposed in [*proposal, None]:
            token_id = sampler.sample(pipeline(Candidates(model.logits(ids)), LogitsContext(ids)), len(ids))
            ids.append(token_id)
            finish = watch.watch((token_id,))
            text += watcher.take_text()
            if finish is not None or token_id != proposed:
                break
            accepted += 1
    return Answer(tuple(ids[len(PROMPT) :]), text, finish, accepted)
