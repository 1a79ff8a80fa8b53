"""How much goes into a row group and a file."""

from __future__ import annotations

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

MIB = 1024 * 1024
# Compressed bytes per byte in Arrow, until a row group has been written that tells.
FIRST_RATIO = 0.3
# A file counts as full a little below its target size, so that no sliver of a row group is needed to reach it.
FULL = 0.95


class FileSizing:
    """Sizes as the table's properties ask for, learning from what is written how far rows shrink.

    Args:
        metadata: The table.
        memory_budget: Bytes of Arrow that a task may keep; a row group takes at most a quarter of them.

    Attributes:
        group_bytes: Most bytes of Arrow in a row group.
        group_rows: Most rows in a row group.
    """

    def __init__(self, metadata: TableMetadata, memory_budget: int) -> None:
        self._target: int = _property(metadata, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, 512 * MIB)
        group_bytes = _property(metadata, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES, 128 * MIB)
        self.group_bytes: int = min(group_bytes, max(memory_budget // 4, 1))
        self.group_rows: int = _property(metadata, TableProperties.PARQUET_ROW_GROUP_LIMIT, 1_048_576)
        self._arrow_bytes: int = 0
        self._compressed_bytes: int = 0

    def learn(self, arrow_bytes: int, compressed_bytes: int) -> None:
        """A row group of so many bytes in Arrow has become so many in its file."""
        self._arrow_bytes += arrow_bytes
        self._compressed_bytes += compressed_bytes

    def next_group(self, written: int) -> float:
        """Bytes of Arrow that make a row group, or fill a file of `written` compressed bytes up to its target."""
        ratio = self._compressed_bytes / self._arrow_bytes if self._arrow_bytes else FIRST_RATIO
        room = max(self._target - written, (1 - FULL) * self._target)
        return min(self.group_bytes, room / max(ratio, 0.001))

    def is_full(self, written: int) -> bool:
        """Whether a file of so many compressed bytes has its size."""
        return written >= FULL * self._target


def _property(metadata: TableMetadata, name: str, default: int) -> int:
    return max(1, int(metadata.properties.get(name, default)))
