"""Dead letters through the stream's pipeline, each record once."""
