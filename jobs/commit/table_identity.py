"""The identity of a stream's tables: a table of the same name may be another one, or gone."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.commit.errors import TargetRecreatedError


def gone(stream: str, table: str) -> TargetRecreatedError:
    """The stop for a table that the stream wrote before and that is no more."""
    return TargetRecreatedError(
        f"stream {stream}: table {table} is gone, and what the stream had landed in it.",
        fix=f"restore the table, or `frazil accept {stream} --recreated {table}` to begin it anew",
    )


def recreated(stream: str, table: str, before: str, now: str) -> TargetRecreatedError:
    """The stop for a table that is not the one the stream wrote before."""
    return TargetRecreatedError(
        f"stream {stream}: table {table} was dropped and created again (it was {before}, it is {now}); "
        "what the stream had landed in it is gone.",
        fix=f"`frazil accept {stream} --recreated {table}` to begin it anew from the stream's `start`",
    )


def refuse_recreated(stream: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that tables are the ones that the stream wrote before.

    Args:
        stream: The stream's id.
        before: Uuids by name, of the tables that the stream knows.
        now: The same, of the tables as they are.

    Raises:
        TargetRecreatedError: One is not.
    """
    for name, uuid in now.items():
        if before.get(name, uuid) != uuid:
            raise recreated(stream, name, before[name], uuid)
