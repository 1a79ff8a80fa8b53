"""Own state store of something passing, such as a certificate: beside the deployment's, and removed as a whole."""

from __future__ import annotations

from pathlib import Path

from jobs.spec.services import DEFAULT_TABLE, StateSettings
from jobs.state.chosen_store import documents_of


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
