"""The parity report of an export: layer errors, warnings, and the plot."""
