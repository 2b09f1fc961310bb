"""The server's OpenAPI document: every route with its parameters, answers and errors."""
