"""Operations of a commit as data: what becomes of a table's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile


@dataclass(frozen=True, slots=True)
class Append:
    """The commit operation that adds data files to main.

    Attributes:
        files: Of the table's current partition spec; none makes an empty snapshot.
    """

    files: Sequence[DataFile] = ()


@dataclass(frozen=True, slots=True)
class ReplaceFiles:
    """The commit operation by which data files of main's head make room for others.

    Attributes:
        removed: Files of the head.
        added: What comes in their place, of the table's current partition spec.
    """

    removed: Sequence[DataFile]
    added: Sequence[DataFile] = ()


Operation = Append | ReplaceFiles
