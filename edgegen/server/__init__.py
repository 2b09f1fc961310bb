"""The HTTP server of ``edgegen serve``: OpenAI's, Anthropic's and ollama's APIs over the models of this process, and the web page."""
