"""FileIO that writes nothing: it counts bytes and drops them, for dry runs."""

from __future__ import annotations

import io
from typing import Any, cast

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream

COUNTED_FILES = {"py-io-impl": "jobs.tables.write.counted_files.CountedFiles"}
"""PyIceberg's properties that select this FileIO."""


class CountedFiles(FileIO):
    """FileIO that accepts files at any location and keeps nothing of them."""

    def new_input(self, location: str) -> InputFile:
        """Raise FileNotFoundError: nothing can be read back."""
        raise FileNotFoundError(location)

    def new_output(self, location: str) -> OutputFile:
        """A file whose content is dropped."""
        return _CountedFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Do nothing: there is no such file."""


class _CountedFile(OutputFile):
    def __len__(self) -> int:
        return 0

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        raise FileNotFoundError(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        return cast(OutputStream, _CountedBytes())


class _CountedBytes(io.RawIOBase):
    def __init__(self) -> None:
        super().__init__()
        self._count: int = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        self._count += size
        return size

    def tell(self) -> int:
        return self._count
