"""Tables of a stream: lookup, creation, suspension, evolution."""
