"""llama-server's own API: ``/completion``, ``/infill`` and the routes beside them."""
