"""Models of other architectures, traced by optimum."""
