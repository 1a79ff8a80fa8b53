"""Choice of the shared state store that the settings name."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jobs.spec.secrets import PresentValues, reveal
from jobs.spec.services import DEFAULT_TABLE, S3_PROPERTIES, StateSettings
from jobs.state.shared_store import Documents, SharedStore

if TYPE_CHECKING:
    from jobs.state.object_store import ObjectDocuments
    from jobs.state.postgres_store import PostgresDocuments

# A client of each store that this process has opened; what forks has to begin with its own connections.
_OPEN: dict[tuple[str, int], Documents] = {}
_OPENING: threading.Lock = threading.Lock()


def shared_store(chosen: StateSettings, folder: Path) -> SharedStore:
    """The deployment's store, with one client for all parts of a process.

    Args:
        chosen: Names a store.
        folder: Of this machine.

    Raises:
        FrazilError: Its client is not installed, or an environment variable with a secret is not set.
    """
    key = chosen.model_dump_json(), os.getpid()
    with _OPENING:
        if key not in _OPEN:
            _OPEN[key] = documents_of(chosen)
        return SharedStore(_OPEN[key], folder)


def documents_of(chosen: StateSettings) -> ObjectDocuments | PostgresDocuments:
    """A client of the service, of its own.

    Raises:
        FrazilError: It is not installed, or a secret cannot be had.
    """
    chosen.revealed()
    url, properties = chosen.store or "", dict(chosen.properties)
    seconds = chosen.timeout.total_seconds()
    if chosen.kind == "postgresql":
        from jobs.state.postgres_store import Database, PostgresDocuments

        table = reveal(properties.pop("table", DEFAULT_TABLE))
        return PostgresDocuments(Database(url, table, PresentValues(properties), seconds))
    from jobs.state.object_store import Bucket, ObjectDocuments

    parts = urlsplit(url)
    endpoint = properties.pop("s3.endpoint", None)
    endpoint = None if endpoint is None else reveal(endpoint)
    virtual = reveal(properties.pop("s3.force-virtual-addressing", "false")).lower() == "true"
    options = PresentValues({S3_PROPERTIES[key]: value for key, value in properties.items()})
    return ObjectDocuments(Bucket(parts.netloc, parts.path.strip("/"), endpoint, options, virtual, seconds))
