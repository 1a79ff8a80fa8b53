"""Tables of a stream: found, created, suspended, evolved."""
