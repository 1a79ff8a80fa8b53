"""A stream's file: its blocks, what they say of each other, and the stream as one model."""
