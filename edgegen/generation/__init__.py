"""A request from prompt to result: building it, streaming it, cancelling it, and sessions."""
