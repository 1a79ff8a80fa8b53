"""Choice of the shared state store that the settings name."""

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
    """Settings of a store of its own on the service of the deployment's, which holds none of its documents.

    Args:
        chosen: The deployment's; names a store.
        name: Lower-case letters, digits and underscores: a folder within the deployment's, or a table beside its own.
        folder: Of this machine, for what is not in the store.
    """
    if chosen.kind == "s3":
        return chosen.model_copy(update={"store": f"{chosen.store}/{name}", "folder": folder})
    schema, dot, _ = str(chosen.properties.get("table", DEFAULT_TABLE)).rpartition(".")
    return chosen.model_copy(
        update={"properties": {**chosen.properties, "table": f"{schema}{dot}{name}"}, "folder": folder}
    )


def store_is_there(own: StateSettings) -> bool:
    """Whether a store of its own has anything, or its table is there.

    Raises:
        OSError: The service cannot be asked, or refuses.
        FrazilError: Its client is not installed, or an environment variable with a secret is not set.
    """
    return documents_of(own).is_there()


def remove_store(own: StateSettings) -> None:
    """Remove a store of its own, with all documents; whoever wrote there has ended.

    Raises:
        OSError, FrazilError: As `store_is_there`.
    """
    documents_of(own).remove_all()
