"""Speculative decoding: prompt lookup and draft models propose tokens, the target model verifies them."""
