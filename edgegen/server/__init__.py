"""The HTTP server of ``edgegen serve``: OpenAI's API over the models of this process, and the web page."""
