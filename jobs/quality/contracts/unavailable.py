"""Unavailability: errors of an evaluation that are no fault of the rows, and pass when it is repeated.

An unavailable disk, catalog, file or Spark says nothing about rows: such an error is raised, and quarantines nothing.
An invalid pattern, or a number that does not fit, stays a problem of the expectation.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from jobs.base.errors import FrazilError, first_line
from jobs.tables.write.data_file_rows import UnreadableFileError

# Compared by name, so that unused packages need not be imported.
_AWAY = frozenset({
    "sqlalchemy.exc", "requests.exceptions", "urllib3.exceptions", "pyiceberg.exceptions", "botocore.exceptions",
})  # fmt: skip
_PY4J, _SPARK = "py4j.protocol", "pyspark.errors"
# Spark's error classes for an expression and its values.
_OF_VALUES = frozenset({
    "AnalysisException", "ParseException", "ArithmeticException", "NumberFormatException", "DateTimeException",
    "ArrayIndexOutOfBoundsException", "SparkRuntimeException", "SparkNoSuchElementException", "SparkUpgradeException",
    "UnsupportedOperationException", "PySparkTypeError", "PySparkValueError", "PySparkNotImplementedError",
})  # fmt: skip
_ENDED = re.compile(r"stopped SparkContext|SparkContext was shut down|SparkSession .*stopped|active SparkContext")
# Last line of a Python worker's traceback.
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_VALUES_IN_A_JOB = re.compile(
    r"SparkArithmeticException|SparkNumberFormatException|SparkDateTimeException|SparkRuntimeException|"
    r"PatternSyntaxException|SparkIllegalArgumentException|ArithmeticException"
)


class SparkFailedError(FrazilError):
    """Spark failed during a check, for a reason that is not in the rows.

    Safe: Nothing was recorded.
    Next: `frazil check S` again; or `frazil check S --engine pandas`
    """


def is_unavailable(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that something was unavailable."""
    return what_is_away(error) is not None


def what_is_away(error: BaseException) -> BaseException | None:
    """The error that means that something was unavailable: this one or a cause; None if none does."""
    return next(filter(_is_away, _chain(error)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _is_away(error: BaseException) -> bool:
    if isinstance(error, (OSError, MemoryError, UnreadableFileError)):
        return True
    kinds = [(kind.__module__, kind.__name__) for kind in type(error).__mro__]
    if any(module in _AWAY for module, _ in kinds):
        return True
    return _is_spark_away(error, kinds)


def _is_of_spark(error: BaseException) -> bool:
    return any(kind.__module__.startswith((_PY4J, _SPARK)) for kind in type(error).__mro__)


def _is_spark_away(error: BaseException, kinds: list[tuple[str, str]]) -> bool:
    if not _is_of_spark(error):
        return False
    names, said = {name for _, name in kinds}, str(error)
    if _ENDED.search(said):
        return True
    if "PythonException" in names:
        return _worker_was_without(said)
    if names & _OF_VALUES or "IllegalArgumentException" in names:
        return False
    # A failed job: because of values, or because a process, a file or memory was missing.
    if "PythonException" in said or "Traceback (most recent call last)" in said:
        return _worker_was_without(said)
    return not _VALUES_IN_A_JOB.search(said)


def _worker_was_without(said: str) -> bool:
    """Whether a Spark worker ended with an error about something unavailable."""
    import builtins

    for name in reversed(_RAISED.findall(said)):
        module, _, kind = name.rpartition(".")
        known = getattr(builtins, kind, None) if module in ("", "builtins") else None
        if isinstance(known, type) and issubclass(known, BaseException):
            return issubclass(known, (OSError, MemoryError))
        if module in _AWAY or name == f"{UnreadableFileError.__module__}.{UnreadableFileError.__name__}":
            return True
        if kind.endswith(("Error", "Exception")) and module:
            return False
    return False


@contextlib.contextmanager
def spark_told(table: str, stream: str, *, masked: bool) -> Iterator[None]:
    """Raise a sentence if Spark fails within the block for a reason that is not in the rows.

    Args:
        masked: Whether Spark's message may contain a value that must not be shown.

    Raises:
        SparkFailedError: Spark, or a job of it, failed.
    """
    try:
        yield
    except FrazilError:
        raise
    except Exception as error:
        at_fault = what_is_away(error)
        if at_fault is None or not _is_of_spark(at_fault):
            raise
        said = "" if masked else f": {first_line(at_fault)}"
        raise SparkFailedError(
            f"table {table} could not be checked, since Spark failed: {type(at_fault).__name__}{said}",
            fix=f"the same command again, once Spark runs; frazil check {stream} --engine pandas does without it",
        ) from None
