"""A file of prompts, answered line by line: read, answered, written; resumable, and on several machines."""
