"""Replaced rows: the positions of those that a small merge deletes, and the files that tell of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.mirror.small_merge.mirror_files import MirrorFile, MirrorFiles
from jobs.mirror.small_merge.rows_there import RowsThere, deleted_positions
from jobs.write.position_deletes import Positions

TOGETHER = 8
FEW_POSITIONS = 100_000
"""So many files of so many deleted positions at most, in one partition, become one with the next merge there."""
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

    Readers of a partition read all of these files.

    Args:
        found: All files of the snapshot.
        at: A data file of the partition.
        positions: New ones.

    Returns:
        The files that it makes superfluous, and the positions.
    """
    small = [
        each for each in found.deletes if each.partition == at.partition and each.file.record_count < FEW_POSITIONS
    ]
    if len(small) < TOGETHER:
        return [], positions
    data = [each for each in found.data if each.partition == at.partition]
    former = deleted_positions(mirror, small, data)
    every = {path: np.union1d(former.get(path, _NONE), positions.get(path, _NONE)) for path in {*former, *positions}}
    return [each.file for each in small], every
