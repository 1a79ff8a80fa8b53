"""Names of tables and branches in the Spark SQL that messages give."""

from __future__ import annotations


def spark_name(name: str) -> str:
    """A dotted name in Spark SQL, with backticks around each part that is no plain identifier, such as `pay-ments`."""
    return ".".join(part if part.isascii() and part.isidentifier() else _quoted(part) for part in name.split("."))


def _quoted(part: str) -> str:
    return f"`{part.replace('`', '``')}`"
