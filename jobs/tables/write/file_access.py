"""Access to a table's files: which of a FileIO's properties say how to get there, and for how long they hold."""

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
"""After which keys are asked for anew of which nobody says when they end."""

# As catalogs say it beside the credentials that they hand out, in milliseconds since 1970.
_ENDS = re.compile(
    r"s3\.session-token-expires-at-ms|gcs\.oauth2\.token-expires-at|adls\.sas-token-expires-at-ms(\..+)?"
)
_KEYS = re.compile(r"s3\.(access-key-id|session-token)|gcs\.oauth2\.token|adls\.sas-token(\..+)?")
# A store's words, and those of Arrow's clients for them, where keys have ended, are not known, or may not do that.
_REFUSED = re.compile(
    r"INVALID_ACCESS_KEY_ID|ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID|EXPIRED_TOKEN"
    r"|InvalidAccessKeyId|AccessDenied|ExpiredToken|InvalidToken|TokenRefreshRequired|AuthenticationFailed"
    r"|HTTP status 40[13]\b|http_status=40[13]\b"
)


class KeyAge:
    """How old the keys of a table's files are, and whether it is time for others.

    Attributes:
        after_seconds: Their age at which others are asked for, where nobody says when they end.
    """

    def __init__(self, after_seconds: float = UNTOLD_SECONDS) -> None:
        self.after_seconds: float = after_seconds
        self._taken: float = time.monotonic()
        self._taken_at: float = time.time()

    def due(self, properties: Mapping[str, object]) -> bool:
        """Whether others are to be asked for: in the middle of the life that is told, or at the age that is not."""
        life = seconds_left(properties, self._taken_at)
        limit = self.after_seconds if life is None else min(self.after_seconds, life / 2)
        return time.monotonic() - self._taken >= limit

    def ended(self, properties: Mapping[str, object]) -> bool:
        """Whether it is known that they hold no longer."""
        return seconds_left(properties, time.time()) == 0.0

    def refused(self) -> None:
        """The store took them no longer: the next ones are renewed in the middle of that time."""
        self.after_seconds = min(self.after_seconds, max(1.0, (time.monotonic() - self._taken) / 2))

    def renewed(self) -> None:
        """Others have been taken just now."""
        self._taken, self._taken_at = time.monotonic(), time.time()


def seconds_left(properties: Mapping[str, object], at: float) -> float | None:
    """How long the credentials among a FileIO's properties hold, the shortest of them.

    Args:
        at: From when on, seconds since 1970.

    Returns:
        Seconds, 0 where they have ended; None where nothing says so.
    """
    ends = [str(value) for key, value in properties.items() if _ENDS.fullmatch(key)]
    times = [int(end) / 1000 for end in ends if end.isdecimal()]
    return max(0.0, min(times) - at) if times else None


def keys_of(properties: Mapping[str, object]) -> dict[str, object]:
    """Those of a FileIO's properties by which a store knows who asks."""
    return {key: value for key, value in properties.items() if _KEYS.fullmatch(key) and value}


def refused_keys(text: str) -> str | None:
    """The word by which a store has refused somebody's keys, of what its client says; None if that is not it."""
    found = _REFUSED.search(text)
    return found[0] if found else None


def store_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """Those of a FileIO's properties that a task needs.

    A catalog puts all of its own among them: its token, the password of its database, an object that holds connections
    and cannot be sent anywhere, and the table's properties, in which a stream's stamps are.
    """
    return {key: str(value) for key, value in properties.items() if key.startswith(STORE_PREFIXES)}


def delete_unreferenced(io: FileIO, files: Iterable[DataFile]) -> None:
    """Delete data files; one that cannot be deleted is logged, and left to the removal of orphans.

    Args:
        io: Of the table that they were written for.
        files: Such that no snapshot names them, and none will.
    """
    for file in files:
        try:
            io.delete(file.file_path)
        except OSError as problem:
            log.warning("could not delete %s, which no snapshot references: %s", file.file_path, problem)
