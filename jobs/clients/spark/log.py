"""Log configuration for Spark: a file of its own, which stays within bounds."""

from __future__ import annotations

from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.clients.state_store.durable_files import write_durably

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


def spark_log_option(log: Path, file_bytes: int, files: int) -> str:
    """The JVM's option that sends Spark's log to a file and nowhere else; writes the configuration beside that file.

    Args:
        log: The file.
        file_bytes: How large it grows before the next one is begun.
        files: How many there are at most, the one that is written among them.

    Raises:
        FrazilError: The configuration cannot be written.
    """
    configuration = log.with_name("log4j2.properties")
    # In a pattern `%` begins a conversion; in either, `${` begins a lookup.
    text = _LOG4J.format(
        file=_property(str(log)), pattern=_property(str(log).replace("%", "%%")), size=file_bytes, kept=files - 1
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


def _property(text: str) -> str:
    """A value for a Java properties file, which is read as Latin-1, in which log4j2 looks nothing up."""
    escaped = text.replace("\\", "\\\\").replace("${", "$${")
    units = escaped.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
