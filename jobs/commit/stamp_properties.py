"""Properties that a stamp sets on its table, in the commit of the snapshot that it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from operator import or_

import msgspec
from pyiceberg.table.snapshots import Snapshot

from jobs.commit.other_logs import other_logs_property
from jobs.commit.stamps import SUMMARY_KEY, Stamp, property_key, sequences_key
from jobs.commit.target_directory import TargetDirectory, directory_key, used_places
from jobs.schema.decoded_columns import whole_property


def stamp_properties(
    stamp: Stamp, table: Mapping[str, str], snapshots: Sequence[Snapshot] | None = None
) -> tuple[str, dict[str, str]]:
    """The text of a stamp, and the properties that go with it.

    These are itself, the directory if that lacks a target, the other tables' sequence numbers, and what the table is to
    remember of an answer.

    Args:
        stamp: As it is committed.
        table: The table's properties now.
        snapshots: The table's snapshots, on all branches, whose stamps use places of the directory. Without them
            all places are used.
    """
    directory = TargetDirectory.of(table, stamp.stream)
    properties: dict[str, str] = {}
    if stamp.in_bitmaps:
        full = directory.with_targets(stamp.targets, stamp.rows, partial(_used_places, stamp.stream, table, snapshots))
        if full is not directory:
            directory, properties[directory_key(stamp.stream)] = full, full.to_json()
    text = stamp.to_json(directory)
    if stamp.sequences is not None:
        properties[sequences_key(stamp.stream)] = msgspec.json.encode(dict(stamp.sequences)).decode()
    properties |= other_logs_property(stamp, table)
    return text, properties | {property_key(stamp.stream): text}


def _used_places(stream: str, table: Mapping[str, str], snapshots: Sequence[Snapshot] | None) -> int:
    if snapshots is None:
        return -1
    texts = [whole_property(table, property_key(stream)) or ""]
    texts += [each.summary.additional_properties.get(SUMMARY_KEY, "") for each in snapshots if each.summary]
    return reduce(or_, map(used_places, texts), 0)
