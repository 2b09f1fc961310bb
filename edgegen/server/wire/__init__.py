"""Parts that all APIs share: parameters and their schemas, settings of a request, how it is answered or streamed."""
