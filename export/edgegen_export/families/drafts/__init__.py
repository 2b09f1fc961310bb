"""The families of draft models, which are exported beside the model that they propose for."""
