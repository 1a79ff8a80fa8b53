"""Log configuration for Spark: one file, rotated by size."""

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
    """Return the JVM option that sends Spark's log only to a file; the configuration is written beside that file.

    Args:
        log: The file.
        file_bytes: Size at which the next file begins.
        files: Limit of files, including the present one.

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
            fix="free space there, or correct `state` in frazil.yaml",
        ) from None
    # A URI has no blanks or quotes: they are percent-encoded.
    return f"-Dlog4j2.configurationFile={configuration.as_uri()}"


def _property(text: str) -> str:
    """Escape a value for a Java properties file, which is Latin-1, and for log4j2's lookups."""
    escaped = text.replace("\\", "\\\\").replace("${", "$${")
    units = escaped.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
