"""Gone tables of a stream: those that it has written and that somebody has dropped, or renamed."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.catalog import Catalog

from jobs.commit.errors import table_gone
from jobs.spec.models import StreamSpec


def refuse_gone(spec: StreamSpec, catalog: Catalog, written: Collection[str]) -> None:
    """Refuse a table that is gone, before any is made: one made anew would look like the one that was there.

    Args:
        spec: The stream, with all of its targets.
        catalog: Where they are.
        written: The tables that the stream knows as its targets, by its coordinator and its lease.

    Raises:
        TargetRecreatedError: One of them is gone; the message names it, and the answer.
    """
    for name in spec.target_names:
        if name in written and not catalog.table_exists(name):
            raise table_gone(spec.stream, name)
