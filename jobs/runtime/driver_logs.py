"""Where a driver logs: Python, Spark and what else its process prints, each in a file that stays within bounds."""

from __future__ import annotations

import logging
import logging.handlers
import os
from io import TextIOWrapper
from pathlib import Path

from jobs.errors import FrazilError
from jobs.runtime.durable import write_durably
from jobs.runtime.open_stream import stream_folder
from jobs.runtime.private import private_folder, private_opener
from jobs.runtime.redaction import RedactingFormatter
from jobs.spec.settings import Settings

FILE_BYTES = 10_000_000
FILES = 5

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file

appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {pattern}.%i
appender.file.filePermissions = rw-------
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}}{{UTC}} %p %c: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {size}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.fileIndex = min
appender.file.strategy.max = {kept}
"""


def driver_log(folder: Path) -> Path:
    """What the driver itself says, of the stream whose state folder this is."""
    return folder / "logs" / "driver.log"


def driver_output(folder: Path) -> Path:
    """What the driver's process and its JVM print: little, as a rule, but also why one did not even start."""
    return folder / "logs" / "driver.out"


def spark_log(folder: Path) -> Path:
    """What Spark says."""
    return folder / "logs" / "spark.log"


def start_logging(folder: Path, settings: Settings) -> logging.Handler:
    """Send this process's log to `driver.log`: its own from INFO, that of libraries from WARNING.

    Args:
        folder: The stream's state folder.
        settings: Whose secrets are kept out of it.

    Raises:
        FrazilError: The file cannot be written.
    """
    path = driver_log(folder)
    try:
        private_folder(path.parent)
        handler = _Rotating(path, maxBytes=FILE_BYTES, backupCount=FILES - 1, encoding="utf-8")
    except OSError as problem:
        raise FrazilError(
            f"the driver's log {path} cannot be written: {problem.strerror}.",
            fix="make room there, or correct `state` in frazil.yaml",
        ) from None
    handler.setFormatter(RedactingFormatter(settings))
    # Py4J logs, on the root logger too, the stack traces of what is told as a sentence here, or was an end.
    handler.addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for own in ("jobs", "__main__"):
        logging.getLogger(own).setLevel(logging.INFO)
    return handler


def spark_log_option(settings: Settings, stream: str) -> str:
    """The JVM's option that sends Spark's log to `spark.log` and nowhere else; writes the file that it names.

    Raises:
        FrazilError: The file cannot be written.
    """
    log = spark_log(stream_folder(settings, stream).root)
    configuration = log.with_name("log4j2.properties")
    # In a pattern `%` begins a conversion; in either, `${` begins a lookup.
    text = _LOG4J.format(
        file=_property(str(log)), pattern=_property(str(log).replace("%", "%%")), size=FILE_BYTES, kept=FILES - 1
    )
    try:
        write_durably(configuration, text.encode("ascii"))
    except OSError as problem:
        raise FrazilError(
            f"{configuration} cannot be written: {problem.strerror}.",
            fix="make room there, or correct `state` in frazil.yaml",
        ) from None
    # The address has no blanks or quotes: they are written as %20 and the like.
    return f"-Dlog4j2.configurationFile={configuration.as_uri()}"


def cap_output(path: Path, limit: int = FILE_BYTES) -> bool:
    """Shorten a file that others append to, in place, if it has more than `limit` bytes; returns whether it had.

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


def _property(text: str) -> str:
    """A value for a Java properties file, which is read as Latin-1, in which log4j2 looks nothing up."""
    escaped = text.replace("\\", "\\\\").replace("${", "$${")
    units = escaped.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
