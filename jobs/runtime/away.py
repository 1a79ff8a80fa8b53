"""Telling what is away, and comes back, from what is wrong."""

from __future__ import annotations

from jobs.commit.errors import CommitRefusedError, CommitUnknownError
from jobs.errors import FrazilError
from jobs.runtime.kafka_log import KafkaUnavailableError
from jobs.runtime.opening import CatalogUnavailableError
from jobs.spec.settings import LocalBrokerDown

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
    if isinstance(problem, (CatalogUnavailableError, LocalBrokerDown, CommitUnknownError, CommitRefusedError, OSError)):
        return True
    if isinstance(problem, FrazilError):
        return False
    return any((kind.__module__, kind.__name__) in _AWAY for kind in type(problem).__mro__)
