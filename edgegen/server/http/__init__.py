"""HTTP: connections, access, bodies, errors, the log, metrics, limits of time, and threads for what blocks."""
