"""GuidanceGroup: classifier-free guidance, with two sequences for each answer."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids

from edgegen.engine.sequence import Fork, Logits, Sequence, SequenceGroup, Update, ignore


class GuidanceGroup(SequenceGroup):
    """Samples each answer from the logits of its own sequence and of a companion with the negative prompt.

    Sanchez et al., "Stay on topic with Classifier-Free Guidance", 2023 (arXiv:2306.17806).
    """

    def __init__(
        self, choices: Ids[Sequence], companions: Ids[Sequence], emit: Callable[[Update], None] = ignore
    ) -> None:
        """``companions``: for each of ``choices``, the sequence with the negative prompt."""
        super().__init__([*choices, *companions], emit)
        self.choices = tuple(choices)
        self._companions = dict(zip(choices, companions, strict=True))
        self._ready: dict[Sequence, Logits] = {}  # of sequences whose companion has not run yet

    def advance(self, logits: Mapping[Sequence, Logits], fork: Fork) -> list[Update]:
        ready = {**self._ready, **logits}
        updates = list[Update]()
        for choice, companion in self._companions.items():
            if choice.finish is None and choice in ready and companion in ready:
                updates.append(self._extend(choice, companion, ready.pop(choice), ready.pop(companion)))
        self._ready = {sequence: found.copy() for sequence, found in ready.items()}
        return updates

    def expire(self) -> list[Update]:
        updates = super().expire()
        for update in updates:
            self._companions[update.sequence].finish = update.sequence.finish
        return updates

    def _extend(self, choice: Sequence, companion: Sequence, logits: Logits, unconditional: Logits) -> Update:
        update = choice.extend(logits, unconditional)
        companion.ids += update.new_ids
        companion.finish = choice.finish
        return update
