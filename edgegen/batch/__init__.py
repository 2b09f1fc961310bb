"""Batch inference: a file of prompts is answered line by line; resumable, and on several machines with Ray."""
