"""The HTTP server of ``edgegen serve``: OpenAI's API and the web page."""
