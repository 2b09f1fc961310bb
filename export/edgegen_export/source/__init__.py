"""Where a model comes from: its own checkpoint and family, optimum's graphs, or the checkpoint of a draft."""
