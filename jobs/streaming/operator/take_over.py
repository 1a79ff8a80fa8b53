"""Takeover of a stream by an operator's command: claims its tables, then finishes the batch of a pending record."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.opening.takeover import recover
from jobs.tables.commit.stamp.stamps import Stamp


def take_over(stream: OpenStream, catalog: Catalog) -> None:
    """Claim every table of the stream, and commit what earlier drivers left half committed.

    The claims keep the configuration that ran last, as the command itself lands nothing.

    Args:
        stream: Stream whose lease is held, whose coordinator has a stamp, and whose tables were not rolled back.

    Raises:
        FencedError: A later driver has claimed a table.
        RolledBackError: A table was rolled back.
    """
    for name, target in stream.targets.items():
        target.claim(stream.epoch, lambda newest, name=name: _claimed(stream, newest, name))
    recover(stream, catalog)


def _claimed(stream: OpenStream, newest: Stamp | None, name: str) -> Stamp:
    claimed = stream.claim_of(newest, stream=stream.targets[name].stream)
    return claimed if newest is None or name == stream.anchor.name else claimed.known_to(stream.anchor.newest)
