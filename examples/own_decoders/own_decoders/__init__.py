"""Own decoders of a deployment, an example: each function reads values of one format."""
