"""A regular-expression engine that reads text piece by piece, for stop expressions."""
