"""Files that tasks on other machines have written into a folder of theirs, which is not the driver's."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.manifest import DataFile

from jobs.errors import FrazilError
from jobs.write.locations import local_folder


def refuse_unseen(files: Iterable[DataFile], master: str) -> None:
    """See that each file that lies in a folder is one of the driver's machine, too.

    A table that named the others would have rows that nobody can read, and offsets that say that they have landed.

    Args:
        files: Which tasks wrote, and that no table names yet. Those in an object store are not asked for.
        master: Of the cluster.

    Raises:
        FrazilError: One is not there, or has another size.
    """
    for file in files:
        folder = local_folder(file.file_path)
        if folder is None:
            continue
        try:
            there = folder.stat().st_size == file.file_size_in_bytes
        except OSError:
            there = False
        if not there:
            raise FrazilError(
                f"a task on {master} wrote {file.file_path}, and the driver does not find it there: the folder is not "
                "one that all hosts share. Nothing of the batch is committed.",
                fix="put the warehouse into an object store, or mount one folder on every host under this path",
            )
