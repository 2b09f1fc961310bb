"""When a sequence ends, and which of its text may be shown until then.

The engine knows token ids only. Each sequence carries a ``TextWatcher`` that turns ids into text, finds
what ends it, and never gives out half a character or a part of a stop.

**What ends a text**, in the order in which each new token is held against it: the end-of-sequence ids; the
stop token ids; the stop strings and the stop expression, in the text that the token made certain; the
caller's functions. Whatever ends it, the text it still holds back comes out, and a stop string or expression
found there came first.

**Stop strings**: the one that begins first; of several that begin there the longest, as far as it has
arrived. A whole stop string waits for another one that began before it and is unfinished, but not for a longer
one that began with it, unless it is to be shown (``include_stop_str_in_output``): then the longest is waited for.

**A stop expression**: the match that ends first, and of those the one that begins first. Lazy and greedy
repeats are alike.

**Both**: the text is read character by character. The first one that completes a stop of either kind ends the
text; where it completes both, the stop that begins first counts, and of two that begin together the stop string.

Nothing of this depends on how the text is cut into tokens, but for which of several stop strings that begin
together is reported where they are not shown. The prompt is no part of any match.
"""

from edgegen.stopping.length_limit import LengthLimit, length_limit
from edgegen.stopping.match import FinishReason, StopMatch, StopRule
from edgegen.stopping.regex import StopRegex
from edgegen.stopping.text_watcher import TextWatcher

__all__ = ["FinishReason", "LengthLimit", "StopMatch", "StopRegex", "StopRule", "TextWatcher", "length_limit"]
