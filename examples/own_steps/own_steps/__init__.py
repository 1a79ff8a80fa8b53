"""Own steps of a deployment, an example: each function is one step of a stream's `transform` list."""
