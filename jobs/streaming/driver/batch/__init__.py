"""One batch: tasks, retries, commit."""
