"""Access to a table's files from tasks: those of a FileIO's properties that say how to get there."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobs.spec.catalog_properties import STORE_PREFIXES

# As catalogs say it beside the credentials that they hand out, in milliseconds since 1970.
_ENDS = re.compile(
    r"s3\.session-token-expires-at-ms|gcs\.oauth2\.token-expires-at|adls\.sas-token-expires-at-ms(\..+)?"
)


def seconds_left(properties: Mapping[str, object], at: float) -> float | None:
    """How long the credentials among a FileIO's properties hold, the shortest of them.

    Args:
        properties: Of the FileIO.
        at: From when on, seconds since 1970.

    Returns:
        Seconds, 0 where they have ended; None where nothing says so.
    """
    ends = [str(value) for key, value in properties.items() if _ENDS.fullmatch(key)]
    times = [int(end) / 1000 for end in ends if end.isdecimal()]
    return max(0.0, min(times) - at) if times else None


def store_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """Those of a FileIO's properties that a task needs.

    A catalog puts all of its own among them: its token, the password of its database, an object that holds connections
    and cannot be sent anywhere, and the table's properties, in which a stream's stamps are.
    """
    return {key: str(value) for key, value in properties.items() if key.startswith(STORE_PREFIXES)}
