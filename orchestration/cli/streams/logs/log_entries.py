"""Entries of log files: read from the end, merged by time, and followed through rotation and restarts."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# `2026-01-31T08:00:00.123Z INFO jobs.x: …` of a driver, `2026-01-31T08:00:00Z watchdog of attempt 3: …`.
_LINE = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) "
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<logger>[^\s:]+): )?(?P<message>.*)",
    re.DOTALL,
)
_CHUNK = 1 << 20


@dataclass(slots=True)
class LogEntry:
    """Entry of a log: a line with a time and the lines after it, such as a stack trace.

    Attributes:
        at: Time of the entry, in ISO 8601 and UTC; for output without a time, that of the next entry.
        text: Lines of the entry as written, without the last line's end.
        file: The file with the entry.
        timed: Whether the entry itself has the time.
    """

    at: str
    text: str
    file: Path
    timed: bool = True

    @property
    def facts(self) -> dict[str, Any]:
        """Entry as JSON."""
        match = _LINE.match(self.text) if self.timed else None
        return {
            "at": self.at if self.timed else None,
            "level": match["level"] if match else None,
            "logger": match["logger"] if match else None,
            "message": match["message"] if match else self.text,
            "file": str(self.file),
        }


def newest_entries(files: Iterable[Path], most: int) -> list[LogEntry]:
    """The newest entries of several logs with their rotated files, oldest first.

    Args:
        files: Current logs, such as `driver.log`; files such as `driver.log.1` are its older parts.
        most: Largest number of entries, over all logs.
    """
    entries = [entry for file in files for entry in _newest_of(file, most)]
    entries.sort(key=lambda entry: _comparable(entry.at))
    return entries[-most:] if most else []


def _newest_of(file: Path, most: int) -> list[LogEntry]:
    found: list[LogEntry] = []
    for part in [file, *_rotated(file)]:
        try:
            text = part.read_text(encoding="utf-8", errors="replace")
            changed = datetime.fromtimestamp(part.stat().st_mtime, UTC)
        except FileNotFoundError:
            continue
        entries = deque(parse_entries(text.splitlines(), file, f"{changed:%Y-%m-%dT%H:%M:%S.%f}Z"), maxlen=most or 1)
        found = [*entries, *found]
        if len(found) >= most:
            break
    return found[-most:] if most else []


def _rotated(file: Path) -> list[Path]:
    """Older parts of a log, the newest of them first."""
    numbered = {int(part.suffix[1:]): part for part in file.parent.glob(f"{file.name}.*") if part.suffix[1:].isdigit()}
    return [numbered[number] for number in sorted(numbered)]


def parse_entries(lines: Iterable[str], file: Path, now: str) -> Iterator[LogEntry]:
    """Entries of consecutive lines of a log.

    Args:
        lines: Lines without their ends.
        file: The log.
        now: Time for last lines without a time before or after them, in ISO 8601.
    """
    untimed: list[str] = []
    entry: LogEntry | None = None
    for line in lines:
        match = _LINE.match(line)
        if match is not None:
            if untimed:
                yield LogEntry(match["at"], "\n".join(untimed), file, timed=False)
                untimed = []
            if entry is not None:
                yield entry
            entry = LogEntry(match["at"], line, file)
        elif entry is not None and file.suffix == ".log":
            entry.text += f"\n{line}"
        elif line.strip():
            # In a process's output, each line is an entry of its own.
            if entry is not None:
                yield entry
                entry = None
            untimed.append(line)
    if entry is not None:
        yield entry
    if untimed:
        yield LogEntry(now, "\n".join(untimed), file, timed=False)


def _comparable(at: str) -> str:
    # The watchdog writes whole seconds, and its reports come after the driver's last line.
    return at.removesuffix("Z") if "." in at else f"{at.removesuffix('Z')}.999"


@dataclass(slots=True)
class FollowedLog:
    """Reader that follows a growing log, from its beginning or from `skip_to_end`.

    The file may be rotated, truncated in place, or not exist yet.

    Attributes:
        path: Path of the log.
    """

    path: Path
    _file: int | None = field(default=None, init=False)
    _inode: int = field(default=0, init=False)
    _position: int = field(default=0, init=False)
    _rest: bytes = field(default=b"", init=False)

    def skip_to_end(self) -> None:
        """Skip the lines that the file has now."""
        if self._opened():
            assert self._file is not None
            self._position = os.fstat(self._file).st_size

    def new_lines(self) -> list[str]:
        """Complete lines that were written since the last call."""
        if not self._opened():
            return []
        lines = self._read()
        if self._moved():
            # Lines may have been written between the read and the file's renaming.
            lines += self._read(whole=True)
            self.close()
            lines += self.new_lines()
        return lines

    def close(self) -> None:
        """Close the file; a later call opens it again, from its beginning."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._position, self._rest = None, 0, b""

    def _opened(self) -> bool:
        if self._file is None:
            try:
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            self._inode = os.fstat(self._file).st_ino
        return True

    def _moved(self) -> bool:
        try:
            return self.path.stat().st_ino != self._inode
        except FileNotFoundError:
            # The file is just being rotated, and the next call sees the new one.
            return False

    def _read(self, *, whole: bool = False) -> list[str]:
        assert self._file is not None
        size = os.fstat(self._file).st_size
        if size < self._position:
            # The file was truncated in place, and its rest was read before.
            self._position, self._rest = size, b""
        content = self._rest
        while chunk := os.pread(self._file, _CHUNK, self._position):
            content += chunk
            self._position += len(chunk)
        complete, _, self._rest = content.rpartition(b"\n")
        if whole and self._rest:
            complete, self._rest = content, b""
        return complete.decode("utf-8", "replace").split("\n") if complete else []


def followed_entries(logs: Sequence[FollowedLog]) -> list[LogEntry]:
    """Entries that were written to the logs since the last call."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    entries = [entry for log in logs for entry in parse_entries(log.new_lines(), log.path, now)]
    return sorted(entries, key=lambda entry: _comparable(entry.at))
