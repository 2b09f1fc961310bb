"""Chat templates: render a conversation to the text and the token ids that a model was trained on."""

from edgegen.chat.conversation import Conversation, Message
from edgegen.chat.template import ChatTemplate
from edgegen.chat.tools import ToolCall, ToolCallDelta

__all__ = ["ChatTemplate", "Conversation", "Message", "ToolCall", "ToolCallDelta"]
