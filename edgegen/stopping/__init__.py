"""When a sequence ends, and which of its text may be shown until then."""
