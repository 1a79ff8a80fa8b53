"""Watches beside the batches: JVM, secrets, registry, lag."""
