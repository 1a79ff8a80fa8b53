"""Access to a table's files from tasks: those of a FileIO's properties that say how to get there."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.spec.catalog_properties import STORE_PREFIXES


def store_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """Those of a FileIO's properties that a task needs.

    A catalog puts all of its own among them: its token, the password of its database, an object that holds connections
    and cannot be sent anywhere, and the table's properties, in which a stream's stamps are.
    """
    return {key: str(value) for key, value in properties.items() if key.startswith(STORE_PREFIXES)}
