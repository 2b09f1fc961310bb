"""The HTTP server of ``edgegen serve``: OpenAI's API over the models of this process."""
