"""The `transforms:` block: steps and their conditions."""
