"""What is watched beside the batches: JVM, secrets, registry, lag."""
