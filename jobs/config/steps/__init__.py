"""Models of the `transform` list: steps and their conditions."""
