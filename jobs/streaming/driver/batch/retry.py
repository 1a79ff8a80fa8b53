"""Retry of transient failures: which errors mean that a service is unavailable, and how a batch is retried.

Before a batch records or commits anything it is retried in place, for `errors.retry.timeout`. Afterwards a running
stream is reopened (`jobs.streaming.driver.process.runner`), and a drain ends with the error. After the pending record
is written nothing is retried here: the commit protocol finds out what has landed.
"""

from __future__ import annotations

import builtins
import errno
import logging
import random
import re
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.full_disk import DiskFullError
from jobs.clients.catalog.catalog import CatalogUnavailableError
from jobs.clients.kafka.metadata import KafkaUnavailableError
from jobs.clients.registry.failures import (
    RegistryError,
    RegistryUnavailableError,
    RegistryWithoutSubjectError,
)
from jobs.clients.spark.executors import ApplicationEndedError, ExecutorsLostError
from jobs.clients.spark.master import MasterUnavailableError
from jobs.clients.state_store.store_proof import StoreAwayError
from jobs.config.redaction import redacted
from jobs.config.services.registry import LocalRegistryDown
from jobs.config.settings.settings import LocalBrokerDown, Settings
from jobs.config.stream.error_handling import Retry
from jobs.streaming.driver.context.source_topics import TopicsAwaitedError
from jobs.streaming.driver.tables.first_records import RecordsAwaitedError
from jobs.streaming.driver.tables.new_rows import SchemaAwaitedError
from jobs.tables.commit.stamp.errors import (
    CommitRefusedError,
    CommitUnknownError,
    TableDroppedError,
    TableUnableError,
)
from jobs.tables.write.file_access import refused_keys

if TYPE_CHECKING:
    from jobs.tables.commit.protocol.target import Target


log = logging.getLogger(__name__)


Result = TypeVar("Result")

FIRST_DELAY = 0.3
_NOT_TRANSIENT = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)
_OS_ERRORS = {
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, OSError) and not issubclass(kind, _NOT_TRANSIENT)
} - {"EnvironmentError", "IOError"}
# The last line of a Python traceback within Spark's own message.
RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?::|$)(.*)$", re.MULTILINE)
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_UNAVAILABLE_ERRNO = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.ESTALE,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ETIMEDOUT,
}
# Errors of frazil, by their names in a task's traceback.
_OURS = (KafkaUnavailableError.__name__, RegistryUnavailableError.__name__)
_UNAVAILABLE_ERRORS = (
    CatalogUnavailableError,
    LocalBrokerDown,
    LocalRegistryDown,
    MasterUnavailableError,
    ExecutorsLostError,
    ApplicationEndedError,
    CommitUnknownError,
    CommitRefusedError,
    DiskFullError,
    StoreAwayError,
    TableDroppedError,
    TableUnableError,
    SchemaAwaitedError,
    TopicsAwaitedError,
    RecordsAwaitedError,
)
# Compared by name, so that unused catalogs need not be installed or imported.
_UNAVAILABLE_BY_NAME = {
    ("sqlalchemy.exc", "OperationalError"),
    ("sqlalchemy.exc", "InterfaceError"),
    ("sqlalchemy.exc", "TimeoutError"),
    ("pyiceberg.exceptions", "ServiceUnavailableError"),
    ("pyiceberg.exceptions", "ServerError"),
    ("pyiceberg.exceptions", "TooManyRequestsError"),
    ("thrift.transport.TTransport", "TTransportException"),
}


def is_unavailable(problem: BaseException) -> bool:
    """Whether waiting and retrying is likely to help: brokers, catalog, registry, or disk do not answer just now.

    A refused password does not count: waiting does not correct it, and many brokers lock a user after repeated
    attempts.
    """
    if isinstance(problem, KafkaUnavailableError):
        return not problem.refused
    if isinstance(problem, RegistryError):
        return isinstance(problem, RegistryUnavailableError)
    if isinstance(problem, _UNAVAILABLE_ERRORS):
        return True
    if isinstance(problem, OSError):
        # Clients of object stores and catalogs set no errno. Any other errno is a fault of this process, such as too
        # many open files or a folder without write permission. A new process, or a person, helps.
        by_kind = isinstance(problem, (ConnectionError, TimeoutError))
        return by_kind or problem.errno is None or problem.errno in _UNAVAILABLE_ERRNO
    if isinstance(problem, FrazilError):
        return False
    return any((kind.__module__, kind.__name__) in _UNAVAILABLE_BY_NAME for kind in type(problem).__mro__)


def is_transient(problem: BaseException) -> bool:
    """Whether retrying in a moment is likely to help; includes errors of Spark tasks."""
    if isinstance(problem, ApplicationEndedError):
        # The session cannot be used any more; a new one begins when the stream is reopened.
        return False
    passing = is_unavailable(problem) or isinstance(problem, RegistryWithoutSubjectError)
    return passing or _task_says_unavailable(problem)


def retry_delay(
    attempt: int, longest: timedelta, rest: float | None, chance: Callable[[], float] = random.random
) -> float:
    """Seconds to wait after a failed attempt.

    Args:
        longest: Limit of the doubling; a random time below it is added, so that many drivers do not return at once.
        rest: Seconds that are left; None for no limit.
    """
    most = longest.total_seconds()
    # The exponent is capped, as the number would overflow a float.
    wanted = FIRST_DELAY * 2.0 ** min(attempt - 1, 64)
    if wanted > most:
        wanted = chance() * most
    return max(0.0, wanted if rest is None else min(wanted, rest))


def with_retries(
    action: Callable[[], Result],
    retry: Retry,
    *,
    wait: Callable[[float], bool],
    on_failure: Callable[[Exception, float], None],
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Call an action, and repeat it while it fails transiently and time is left.

    Args:
        action: Leaves nothing behind if it fails.
        wait: Waits for some seconds; returns True at once if the process is to end, and then the error is raised.
        on_failure: Called with each error that is followed by another attempt, and the pause.

    Raises:
        Exception: The last error, if the time is up or the error is not transient.
    """
    began, attempt = clock(), 1
    while True:
        try:
            return action()
        except Exception as problem:
            rest = None if isinstance(retry.timeout, str) else retry.timeout.total_seconds() - (clock() - began)
            if (rest is not None and rest <= 0) or not is_transient(problem):
                raise
            pause = retry_delay(attempt, retry.max_delay, rest)
            on_failure(problem, pause)
            if wait(pause):
                raise
            attempt += 1


def _task_says_unavailable(problem: BaseException) -> bool:
    """Whether a task failed because a service is unavailable. Its error is text: a traceback with the name last."""
    for name, rest in _raised_in_task(problem):
        if name in _OS_ERRORS:
            number = _ERRNO.search(rest)
            return name != "OSError" or number is None or int(number[1]) in _UNAVAILABLE_ERRNO
        if name in _OURS:
            return True
        if name.endswith(("Error", "Exception")) and name != "PythonException":
            return False
    return False


def _raised_in_task(problem: BaseException) -> list[tuple[str, str]]:
    """Names and texts of the exceptions in a Spark task's error, the last first; empty for other errors."""
    if not any(kind.__module__.startswith("pyspark.") for kind in type(problem).__mro__):
        return []
    return list(reversed(RAISED.findall(str(problem))))


def error_text(problem: Exception, settings: Settings) -> str:
    """Text about a retried error.

    It has frazil's own messages in full. For other errors it has only type and system error, or a store's error code,
    as their texts may quote secrets.
    """
    if isinstance(problem, FrazilError):
        return redacted(settings, first_line(problem.message))
    for name, rest in _raised_in_task(problem):
        if name in _OURS:
            return redacted(settings, first_line(rest.strip()))
    if (word := refused_keys(str(problem))) is not None:
        return f"{type(problem).__name__} (the store answers {word})"
    code = errno.errorcode.get(getattr(problem, "errno", None) or 0)
    return f"{type(problem).__name__} ({code})" if code else type(problem).__name__


# Java's message about a key encrypted with OpenSSL 3's defaults; Kafka's client supports only older ciphers.
_PBES2 = "PBES2 SecretKeyFactory not available"
_ENCRYPTED = (
    "Java cannot read the private key of kafka.security, for how it is encrypted (PBES2). Convert it, and name the "
    "new file: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in client.key -out client.pbes1.key"
)


def query_failure_text(problem: BaseException, limit: int = 600) -> str:
    """First lines of Spark's message about a failed query: no stack traces, and for a task only its exception."""
    # PySpark keeps the JVM's stack trace beside the message.
    if _PBES2 in f"{problem}{getattr(problem, '_stackTrace', '')}":
        return _ENCRYPTED
    text = str(problem).split("JVM stacktrace")[0].strip()
    before, trace, below = text.partition("Traceback (most recent call last):")
    if trace and (raised := [match[0].strip() for match in RAISED.finditer(below)]):
        text = f"{before.strip()} {raised[-1]}".strip()
    return text[:limit] + ("…" if len(text) > limit else "")


def once_more_with_new_keys(action: Callable[[], Result], targets: Iterable[Target], what: str) -> Result:
    """Call an action, and repeat it once if a store refuses credentials and the catalog has new ones.

    A catalog need not announce the expiry of its credentials, and tasks cannot ask it.

    Args:
        action: Leaves nothing behind if it fails.
        targets: Targets whose credentials are renewed.
        what: Description of the action, for the log.
    """
    try:
        return action()
    except FrazilError:
        raise
    except Exception as problem:
        if (word := refused_keys(str(problem))) is None:
            raise
        # All credentials are renewed, whichever was refused.
        renewed = [target.renew_access(refused=True) for target in targets]
        if not any(renewed):
            raise
        log.warning("%s: the store answered %s, and is asked again with new keys of the catalog", what, word)
    return action()
