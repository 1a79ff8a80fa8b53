"""Replay: dead letters go through the stream's pipeline, each record once."""
