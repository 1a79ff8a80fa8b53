"""Replaced rows: the positions of those that a small merge deletes, and the files that tell of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.mirror.small_merge.mirror_files import MirrorFile, MirrorFiles
from jobs.mirror.small_merge.rows_there import RowsThere, deleted_positions
from jobs.write.position_deletes import Positions

log = logging.getLogger(__name__)

TOGETHER = 8
FEW_POSITIONS = 100_000
"""So many files of a partition, with less deleted positions than that in all, become one with the next merge: files of
several data files, or of the same one."""
_MOST_AT_ONCE = 200
_NONE: Positions = np.zeros(0, np.int64)


def replaced_rows(there: Sequence[RowsThere]) -> list[tuple[MirrorFile, dict[str, Positions]]]:
    """By partition, told by one of its files: the positions of the rows that changes replace, by their files' paths."""
    found: dict[tuple[object, ...], tuple[MirrorFile, dict[str, Positions]]] = {}
    for part in there:
        if part.newer.any():
            _, positions = found.setdefault(part.at.partition, (part.at, {}))
            positions[part.at.file.file_path] = part.positions[part.newer]
    return [*found.values()]


def with_former_deletes(
    mirror: Table, found: MirrorFiles, at: MirrorFile, positions: dict[str, Positions]
) -> tuple[list[DataFile], dict[str, Positions]]:
    """What a new file of deleted positions of a partition holds: also what small ones there tell, once they are many.

    Who reads a data file reads all of these that are of several data files, and those of this one alone: each of these
    kinds is counted by itself.

    Args:
        found: All files of the snapshot.
        at: A data file of the partition.
        positions: New ones.

    Returns:
        The files that it makes superfluous, and the positions.
    """
    kinds: dict[bytes | None, list[MirrorFile]] = {}
    for each in sorted(found.deletes, key=lambda each: each.file.record_count):
        if each.partition == at.partition:
            kinds.setdefault(each.only_path, []).append(each)
    small, total = list[MirrorFile](), 0
    for kind in sorted(kinds.values(), key=len, reverse=True):
        few = [*_few(kind[:_MOST_AT_ONCE], FEW_POSITIONS - total)]
        if len(few) >= TOGETHER and len(small) + len(few) <= _MOST_AT_ONCE:
            small += few
            total += sum(each.file.record_count for each in few)
    if not small:
        return [], positions
    data = [each for each in found.data if each.partition == at.partition]
    try:
        former = deleted_positions(mirror, small, data)
    except (OSError, pa.ArrowException) as problem:
        log.warning("deletes of mirror %s are not brought together: %s", ".".join(mirror.name()), problem)
        return [], positions
    every = {path: np.union1d(former.get(path, _NONE), positions.get(path, _NONE)) for path in {*former, *positions}}
    return [each.file for each in small], every


def _few(files: Sequence[MirrorFile], positions: int) -> Iterator[MirrorFile]:
    """The first of the files, with less than so many positions in all."""
    for each in files:
        positions -= each.file.record_count
        if positions <= 0:
            return
        yield each
