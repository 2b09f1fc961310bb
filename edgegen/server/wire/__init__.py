"""What all APIs share: parameters and their schemas, the settings of a request, and how it is answered or streamed."""
