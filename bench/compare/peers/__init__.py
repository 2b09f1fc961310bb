"""One adapter per runtime; each runs as a process of its own, in the Python that has its packages."""
