"""Access to a table's files: the properties of a FileIO with credentials, and how long those are valid."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from jobs.config.services.catalog_properties import STORE_PREFIXES

log = logging.getLogger(__name__)


UNTOLD_SECONDS = 600.0
"""Age at which credentials without a known end are renewed."""

# Property in which catalogs put the end of their credentials, in milliseconds since 1970.
_ENDS = re.compile(
    r"s3\.session-token-expires-at-ms|gcs\.oauth2\.token-expires-at|adls\.sas-token-expires-at-ms(\..+)?"
)
_KEYS = re.compile(r"s3\.(access-key-id|session-token)|gcs\.oauth2\.token|adls\.sas-token(\..+)?")
# Messages of stores, and of Arrow's clients, for credentials that are expired, unknown or insufficient.
_REFUSED = re.compile(
    r"INVALID_ACCESS_KEY_ID|ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID|EXPIRED_TOKEN"
    r"|InvalidAccessKeyId|AccessDenied|ExpiredToken|InvalidToken|TokenRefreshRequired|AuthenticationFailed"
    r"|HTTP status 40[13]\b|http_status=40[13]\b"
)


class KeyAge:
    """Age of the credentials for a table's files, and whether they are due for renewal.

    Attributes:
        after_seconds: Age at which credentials without a known end are renewed.
    """

    def __init__(self, after_seconds: float = UNTOLD_SECONDS) -> None:
        self.after_seconds: float = after_seconds
        self._taken: float = time.monotonic()
        self._taken_at: float = time.time()

    def due(self, properties: Mapping[str, object]) -> bool:
        """Whether to renew: halfway through the known life, or at the default age."""
        life = seconds_left(properties, self._taken_at)
        limit = self.after_seconds if life is None else min(self.after_seconds, life / 2)
        return time.monotonic() - self._taken >= limit

    def ended(self, properties: Mapping[str, object]) -> bool:
        """Whether the credentials are known to have expired."""
        return seconds_left(properties, time.time()) == 0.0

    def refused(self) -> None:
        """Note that the store refused the credentials: the next ones are renewed at half of this age."""
        self.after_seconds = min(self.after_seconds, max(1.0, (time.monotonic() - self._taken) / 2))

    def renewed(self) -> None:
        """Note that new credentials were taken now."""
        self._taken, self._taken_at = time.monotonic(), time.time()


def seconds_left(properties: Mapping[str, object], at: float) -> float | None:
    """How long the credentials in a FileIO's properties are valid, by the shortest one.

    Args:
        at: Start of the time, seconds since 1970.

    Returns:
        Seconds, 0 if they have expired; None if the end is not known.
    """
    ends = [str(value) for key, value in properties.items() if _ENDS.fullmatch(key)]
    times = [int(end) / 1000 for end in ends if end.isdecimal()]
    return max(0.0, min(times) - at) if times else None


def keys_of(properties: Mapping[str, object]) -> dict[str, object]:
    """The properties of a FileIO that are credentials."""
    return {key: value for key, value in properties.items() if _KEYS.fullmatch(key) and value}


def refused_keys(text: str) -> str | None:
    """The part of a client's message by which a store refused credentials; None if it is another message."""
    found = _REFUSED.search(text)
    return found[0] if found else None


def store_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """The properties of a FileIO that a task needs.

    A catalog adds all of its own: its token, the password of its database, an object that holds connections and cannot
    be pickled, and the table's properties with the streams' stamps.
    """
    return {key: str(value) for key, value in properties.items() if key.startswith(STORE_PREFIXES)}


def delete_unreferenced(io: FileIO, files: Iterable[DataFile]) -> None:
    """Delete data files; one that cannot be deleted is logged, and left to the removal of orphans.

    Args:
        io: FileIO of the table that the files were written for.
        files: Files that no snapshot references, and none will.
    """
    for file in files:
        try:
            io.delete(file.file_path)
        except OSError as problem:
            log.warning("could not delete %s, which no snapshot references: %s", file.file_path, problem)
