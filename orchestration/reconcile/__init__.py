"""From a stream's observation to a decision and to what is shown."""
