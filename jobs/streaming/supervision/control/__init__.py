"""Actions: start, stop, pause, resume, roll, flush."""
