"""Not small: what tells that a merge is left to Spark."""


class NotSmallError(Exception):
    """A merge is more than a small one; nothing has changed. Its text says why, for the log."""
