"""Telling what is away, and comes back, from what is wrong."""

from __future__ import annotations

import errno

from jobs.catalog import CatalogUnavailableError
from jobs.commit.errors import CommitRefusedError, CommitUnknownError
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaUnavailableError
from jobs.spec.settings import LocalBrokerDown
from jobs.state.lease import LeaseHeldError
from jobs.stream.opening import TopicsAwaitedError
from jobs.system.full_disk import DiskFullError

AWAY_ERRNO = {
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
_AWAY_ERRORS = (
    CatalogUnavailableError,
    LocalBrokerDown,
    CommitUnknownError,
    CommitRefusedError,
    DiskFullError,
    TopicsAwaitedError,
)
# By name, so that nothing of a catalog that is not used has to be installed or imported.
_AWAY = {
    ("sqlalchemy.exc", "OperationalError"),
    ("sqlalchemy.exc", "InterfaceError"),
    ("sqlalchemy.exc", "TimeoutError"),
    ("pyiceberg.exceptions", "ServiceUnavailableError"),
    ("pyiceberg.exceptions", "ServerError"),
}


def is_away(problem: BaseException) -> bool:
    """Whether waiting and trying again is likely to help: brokers, catalog, or disk do not answer just now.

    A refused password is not: nobody mends it by waiting, and many brokers lock a user who tries again and again.
    """
    if isinstance(problem, KafkaUnavailableError):
        return not problem.refused
    if isinstance(problem, LeaseHeldError):
        # A driver that could not give its lease back, on a full disk, has it taken anew when it has run out.
        return problem.ours
    if isinstance(problem, _AWAY_ERRORS):
        return True
    if isinstance(problem, OSError):
        # Clients of object stores and catalogs give no number. What has another one is wrong with this very process,
        # such as too many open files or a folder that may not be written, and a fresh one, or a person, helps.
        return (
            problem.errno is None or problem.errno in AWAY_ERRNO or isinstance(problem, (ConnectionError, TimeoutError))
        )
    if isinstance(problem, FrazilError):
        return False
    return any((kind.__module__, kind.__name__) in _AWAY for kind in type(problem).__mro__)
