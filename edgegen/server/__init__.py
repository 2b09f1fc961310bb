"""The HTTP server of ``edgegen serve``: OpenAI's, Anthropic's and ollama's APIs over its models, and the web page."""
