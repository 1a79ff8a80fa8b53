"""Takeover of a sink's position by a stream, and the way back."""
