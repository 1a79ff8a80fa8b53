"""Takeover of a sink's position by a stream, and the hand-back."""
