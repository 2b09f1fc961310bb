"""Stop conditions: when a sequence ends, and which of its text may be shown until then.

The engine knows token ids only. Each sequence carries a ``TextWatcher`` that turns ids into text, finds what ends it,
and never gives out half a character or a part of a stop.

**Order.** Each new token is checked against the end-of-sequence ids, the stop token ids, the stop strings and the stop
expression in the text that the token made certain, and the caller's functions. Whatever ends a text, the text that was
held back is released, and a stop string or expression found there came first.

**Stop strings**: the one that begins first; of several that begin there the longest that has arrived. A whole stop
string waits for a partial one that began before it, but not for a longer one that began with it, unless it is to be
shown (``include_stop_str_in_output``): then the longest is waited for.

**A stop expression**: the match that ends first, and of those the one that begins first. Lazy and greedy repeats are
the same.

**Both**: the text is read character by character. The first character that completes a stop of either kind ends the
text; where it completes both, the stop that begins first counts, and of two that begin together the stop string.

The result does not depend on how the text is tokenized, but for which of several stop strings that begin together is
reported where they are not shown. The prompt is no part of any match.
"""
