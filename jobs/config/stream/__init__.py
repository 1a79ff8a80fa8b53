"""Models of a stream's file: its blocks, the checks between them, and the stream as a whole."""
