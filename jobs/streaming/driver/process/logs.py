"""Log files of a driver: Python, Spark and what else its process prints, each within bounds."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.base.system.private_files import private_folder, private_opener
from jobs.base.system.threads import CURRENT_STREAM
from jobs.config.documents.secrets import Secret
from jobs.config.redaction import RedactingFormatter
from jobs.config.settings.settings import Settings

FILE_BYTES = 10_000_000
FILES = 5


def driver_log(folder: Path) -> Path:
    """What the driver itself says, of the stream whose state folder this is."""
    return folder / "logs" / "driver.log"


def driver_output(folder: Path) -> Path:
    """What the driver's process and its JVM print: little, as a rule, but also why one did not even start."""
    return folder / "logs" / "driver.out"


def spark_log(folder: Path) -> Path:
    """What Spark says."""
    return folder / "logs" / "spark.log"


def start_logging(folder: Path, settings: Settings, file_bytes: int = FILE_BYTES) -> logging.Handler:
    """Send this process's log to `driver.log`: its own from INFO, that of libraries from WARNING.

    Raises:
        FrazilError: The file cannot be written.
    """
    path = driver_log(folder)
    handler = _handler(path, file_bytes)
    handler.setFormatter(RedactingFormatter(settings))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for own in ("jobs", "__main__"):
        logging.getLogger(own).setLevel(logging.INFO)
    return handler


@contextlib.contextmanager
def stream_logging(folder: Path, settings: Settings, stream: str, secrets: Iterable[Secret]) -> Iterator[None]:
    """Send what is logged for one stream to its `driver.log`, too, in a process that carries several.

    Args:
        stream: The stream, as `CURRENT_STREAM` has it in the threads that work for it.

    Raises:
        FrazilError: The file cannot be written.
    """
    handler = _handler(driver_log(folder), FILE_BYTES)
    handler.setFormatter(RedactingFormatter(settings, also=secrets))
    handler.addFilter(lambda record: CURRENT_STREAM.get() == stream)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _handler(path: Path, file_bytes: int) -> logging.Handler:
    try:
        private_folder(path.parent)
        handler = _Rotating(path, maxBytes=file_bytes, backupCount=FILES - 1, encoding="utf-8")
    except OSError as problem:
        raise FrazilError(
            f"the driver's log {path} cannot be written: {problem.strerror}.",
            fix="make room there, or correct `state` in frazil.yaml",
        ) from None
    # Py4J logs, on the root logger too, the stack traces of what is told as a sentence here, or was an end.
    handler.addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    return handler


def cap_output(path: Path, limit: int = FILE_BYTES) -> bool:
    """Shorten a log that others append to, in place, if it has more than `limit` bytes; returns whether it had.

    The last half of the limit is kept, from the beginning of a line. Whoever holds the file open (with O_APPEND, as a
    launch opens it) goes on behind that; what is written at this very moment may be lost.
    """
    try:
        if path.stat().st_size <= limit:
            return False
        with path.open("r+b") as file:
            file.seek(-(limit // 2), os.SEEK_END)
            kept = file.read()
            first_line = kept.find(b"\n") + 1
            file.seek(0)
            file.truncate()
        with open(path, "ab", opener=private_opener) as file:
            file.write(b"(what was here before was dropped)\n" + kept[first_line:])
    except FileNotFoundError:
        return False
    return True


class _Rotating(logging.handlers.RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private_opener)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """A disk that is full must not fill what is left of it with stack traces about that."""
