"""OpenAI's requests and answers, as a batch line and the server read and write them."""
