"""Properties that a stamp sets on its table, in the commit of the snapshot that it is of."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.commit.other_logs import other_logs_property
from jobs.commit.stamps import Stamp, property_key
from jobs.commit.target_directory import TargetDirectory, directory_key


def stamp_properties(stamp: Stamp, table: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The text of a stamp, and the properties that go with it.

    These are itself, the directory if that lacks a target, and what the table is to remember of an answer.

    Args:
        stamp: As it is committed.
        table: The table's properties now.
    """
    directory = TargetDirectory.of(table, stamp.stream)
    properties: dict[str, str] = {}
    if stamp.in_bitmaps and (full := directory.with_targets(stamp.targets, stamp.rows)) is not directory:
        directory, properties[directory_key(stamp.stream)] = full, full.to_json()
    text = stamp.to_json(directory)
    properties |= other_logs_property(stamp, table)
    return text, properties | {property_key(stamp.stream): text}
