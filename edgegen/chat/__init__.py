"""A conversation as the text and the token ids that a model was trained to read."""

from edgegen.chat.conversation import Conversation, Message
from edgegen.chat.template import ChatTemplate

__all__ = ["ChatTemplate", "Conversation", "Message"]
