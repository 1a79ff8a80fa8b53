"""An operator's actions on a stream: accept, reset, suspended tables."""
