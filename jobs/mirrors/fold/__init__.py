"""Order of changes, and their collapse by key."""
