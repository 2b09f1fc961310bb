"""The models that are served: found, loaded, leased, unloaded, pulled and described."""
