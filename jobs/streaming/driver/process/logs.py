"""Log files of a driver, each of bounded size: Python, Spark, and other output of its process."""

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
    """Log of the driver itself, in the state folder of its stream."""
    return folder / "logs" / "driver.log"


def driver_output(folder: Path) -> Path:
    """Output of the driver's process and its JVM: usually little, but also why a driver did not even start."""
    return folder / "logs" / "driver.out"


def spark_log(folder: Path) -> Path:
    """Log of Spark."""
    return folder / "logs" / "spark.log"


def start_logging(folder: Path, settings: Settings, file_bytes: int = FILE_BYTES) -> logging.Handler:
    """Write this process's log to `driver.log`: its own from INFO, that of libraries from WARNING.

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
    """Write the log of one stream to its `driver.log`, too, in a process that runs several.

    Args:
        stream: The stream, as `CURRENT_STREAM` has it in the stream's threads.

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
            fix="free space there, or correct `state` in frazil.yaml",
        ) from None
    # Py4J logs stack traces, also on the root logger, for errors that are reported as a sentence here.
    handler.addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    return handler


def cap_output(path: Path, limit: int = FILE_BYTES) -> bool:
    """Shorten a log that others append to, in place, if it has more than `limit` bytes; returns whether it had.

    The last half of the limit is kept, from the beginning of a line. A process that has the file open with O_APPEND, as
    a launch opens it, goes on behind that. What is written at that very moment may be lost.
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
        """Ignore the error: a full disk must not be filled further with stack traces about that."""
