"""Context overflow: drops the oldest turns of a chat until its prompt fits the model's context."""

from collections.abc import Callable, Sequence

from edgegen.chat.conversation import Conversation, Message

LARGEST_RESERVE = 4
"""At most the context over this number is kept free for the answer."""


def drop_oldest(
    conversation: Conversation, encode: Callable[[Conversation], list[int]], max_context: int, max_new_tokens: int
) -> tuple[list[int], int]:
    """The ids of the conversation without as many of its oldest turns as must go, and how many messages these have.

    A turn is a user's message with all that follows it up to the next one. System messages stay, and so does the last
    turn, whether it fits or not. Room is kept for ``max_new_tokens``, or for a quarter of the context if that is less.
    """
    room = max_context - min(max_new_tokens, max_context // LARGEST_RESERVE)
    ids = encode(conversation)
    if len(ids) <= room:
        return ids, 0
    kept = _shortened(conversation.messages)
    low, high = 0, len(kept) - 1  # of the last turn, and of turns that fit, the first
    if high < 0:
        return ids, 0
    while low < high:
        middle = (low + high) // 2
        if len(encode(conversation.with_messages(kept[middle]))) <= room:
            high = middle
        else:
            low = middle + 1
    ids = encode(conversation.with_messages(kept[low]))
    return ids, len(conversation.messages) - len(kept[low])


def _shortened(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages without the first turn, without the first two, and so on to the last turn alone."""
    starts = [n for n, message in enumerate(messages) if message["role"] == "user"]
    system = [n for n, message in enumerate(messages) if message["role"] in ("system", "developer")]
    return [[message for n, message in enumerate(messages) if n >= start or n in system] for start in starts[1:]]
