"""Factory of the shared state store in the settings."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jobs.clients.state_store.shared_store import Documents, SharedStore
from jobs.config.documents.secrets import PresentValues, reveal
from jobs.config.services.services import DEFAULT_TABLE, S3_PROPERTIES, StateSettings

if TYPE_CHECKING:
    from jobs.clients.state_store.object_store import ObjectDocuments
    from jobs.clients.state_store.postgres_store import PostgresDocuments


# One client of each store for each process id, because a forked process needs its own connections.
_OPEN: dict[tuple[str, int], Documents] = {}
_OPENING: threading.Lock = threading.Lock()


def shared_store(chosen: StateSettings, folder: Path) -> SharedStore:
    """Return the deployment's store; all parts of a process share one client.

    Args:
        chosen: Settings that name a store.
        folder: State folder of this machine.

    Raises:
        FrazilError: The store's client is not installed, or an environment variable with a secret is not set.
    """
    key = chosen.model_dump_json(), os.getpid()
    with _OPENING:
        if key not in _OPEN:
            _OPEN[key] = documents_of(chosen)
        return SharedStore(_OPEN[key], folder)


def documents_of(chosen: StateSettings) -> ObjectDocuments | PostgresDocuments:
    """Return a new client of the service.

    Raises:
        FrazilError: The client is not installed, or a secret is not available.
    """
    chosen.revealed()
    url, properties = chosen.store or "", dict(chosen.properties)
    seconds = chosen.timeout.total_seconds()
    if chosen.kind == "postgresql":
        from jobs.clients.state_store.postgres_store import Database, PostgresDocuments

        table = reveal(properties.pop("table", DEFAULT_TABLE))
        return PostgresDocuments(Database(url, table, PresentValues(properties), seconds))
    from jobs.clients.state_store.object_store import Bucket, ObjectDocuments

    parts = urlsplit(url)
    endpoint = properties.pop("s3.endpoint", None)
    endpoint = None if endpoint is None else reveal(endpoint)
    virtual = reveal(properties.pop("s3.force-virtual-addressing", "false")).lower() == "true"
    options = PresentValues({S3_PROPERTIES[key]: value for key, value in properties.items()})
    return ObjectDocuments(Bucket(parts.netloc, parts.path.strip("/"), endpoint, options, virtual, seconds))


def own_store(chosen: StateSettings, name: str, folder: Path) -> StateSettings:
    """Return the settings of a separate store on the deployment's service, without the deployment's documents.

    Args:
        chosen: Settings of the deployment, which name a store.
        name: Lower-case letters, digits and underscores; names a folder within the deployment's, or a table beside it.
        folder: Folder of this machine for documents that are not in the store.
    """
    if chosen.kind == "s3":
        return chosen.model_copy(update={"store": f"{chosen.store}/{name}", "folder": folder})
    schema, dot, _ = str(chosen.properties.get("table", DEFAULT_TABLE)).rpartition(".")
    return chosen.model_copy(
        update={"properties": {**chosen.properties, "table": f"{schema}{dot}{name}"}, "folder": folder}
    )


def store_is_there(own: StateSettings) -> bool:
    """Whether a separate store has documents, or its table exists.

    Raises:
        OSError: The service does not answer, or refuses.
        FrazilError: The client is not installed, or an environment variable with a secret is not set.
    """
    return documents_of(own).is_there()


def remove_store(own: StateSettings) -> None:
    """Remove a separate store with all its documents; its writers have to have ended.

    Raises:
        OSError, FrazilError: See `store_is_there`.
    """
    documents_of(own).remove_all()
