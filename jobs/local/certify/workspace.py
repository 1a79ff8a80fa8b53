"""The workspace of a certificate: names, folder, settings and stream, so that nothing of the user's is touched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.base.errors import FrazilError
from jobs.clients.spark.master import is_local, master_of, standalone_addresses
from jobs.clients.state_store.chosen_store import own_store
from jobs.clients.state_store.durable_files import write_durably
from jobs.config.documents.secrets import written_variables
from jobs.config.documents.units import format_duration
from jobs.config.services.services import StateSettings
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import (
    Settings,
    SettingsFile,
    SparkSettings,
    load_settings,
    secret_references,
)
from jobs.config.stream.models import StreamSpec
from jobs.local.certify.changes import CHANGES_SCHEMA
from jobs.local.certify.load import SCHEMA
from jobs.local.certify.shapes import (
    MIRROR,
    TYPES,
    Shape,
    row_tables,
    shape_blocks,
)

STREAM = "certify"
PREFIX = "frazil_certify_"
PARTITIONS = 2
# Short, so that a driver that sleeps has soon slept past it.
LEASE_SECONDS = 5
# A certificate may be long; what limits do is not its matter.
_MOST_COLUMNS = 100_000
# Nobody looks at a driver that lives for seconds.
_SHORT_LIVED = {"spark.ui.enabled": "false"}
# Without it an application takes all cores of a standalone cluster, and its successor gets none.
_CORES = {"spark.cores.max": "1"}


@dataclass(frozen=True, slots=True)
class Workspace:
    """A certificate's own names, folder and settings.

    Attributes:
        name: Name of the topic and the namespace: `frazil_certify_` and the certificate's id.
        folder: Holds `frazil.yaml`, `streams/` and `state/`, and is the home of its drivers.
        settings: The user's, with a state and a ledger of the certificate's own, and a short lease.
        shape: Shape of its stream.
    """

    name: str
    folder: Path
    settings: Settings
    shape: Shape = "plain"

    @property
    def table(self) -> str:
        """Main table of the stream, which is its coordinator."""
        return next(iter(self.row_tables))

    @property
    def row_tables(self) -> dict[str, tuple[str, ...]]:
        """The tables of rows, the stream's own first, each with the types of the records that it gets."""
        return self.row_tables_of(TYPES)

    def row_tables_of(self, types: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The same for records with these types."""
        return row_tables(self.shape, self.name, types)

    @property
    def dead_letters(self) -> str:
        """The table of the records that failed."""
        return f"{self.name}.payments_dead"

    @property
    def mirror(self) -> str | None:
        """The mirror of its stream, if the stream has one."""
        return f"{self.name}.{MIRROR}" if self.shape == "mirrored" else None

    @property
    def settings_file(self) -> Path:
        """The settings of its drivers."""
        return self.folder / "frazil.yaml"

    @property
    def logs(self) -> Path:
        """Output of its processes."""
        return self.folder / "logs"

    def spec(self) -> StreamSpec:
        """The stream, by its present file."""
        return load_stream(self._spec_file)

    def write_spec(self, version: int = 0) -> None:
        """Write the stream's file; another version is another generation, with the same rows."""
        document: dict[str, Any] = {
            "stream": STREAM,
            "description": "Of a running certificate.",
            "source": {"topics": [self.name], "max_records_per_batch": 1_000_000 + version},
            "decode": {"value": "json", "schema": CHANGES_SCHEMA if self.mirror else SCHEMA},
            "table": {"name": self.table, "partition_by": ["day(_change_at)" if self.mirror else "day(created_at)"]},
            "errors": {"dead_letters": {"table": self.dead_letters}},
            "trigger": {"every": "500ms"},
            **shape_blocks(self.shape, self.name),
        }
        if self.shape == "plain":
            document["decode"]["schema"] = "table"
            limits = {"new_columns_per_hour": _MOST_COLUMNS, "columns": _MOST_COLUMNS}
            document["evolve"] = {"add": "auto", "limits": limits}
        self._spec_file.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self._spec_file, yaml.safe_dump(document, sort_keys=False).encode())

    @property
    def _spec_file(self) -> Path:
        return self.folder / "streams" / f"{STREAM}.yaml"


def prepare_workspace(settings: Settings, run: str, shape: Shape = "plain") -> Workspace:
    """Make a certificate's workspace, with settings that differ from the user's in state and lease only.

    Secrets stay references, as they are written; the file is readable by its owner only all the same. A state store
    stays on its service, in a place of the certificate's own. With the embedded default Spark is set for drivers that
    live for seconds; on a standalone cluster a driver takes one core unless the settings say how many.

    Args:
        settings: The user's.
        run: The certificate's id: letters, digits and underscores.
        shape: Shape of its stream.

    Raises:
        FrazilError: There is no room for it, or no permission.
    """
    folder, name = settings.state / "certify" / run, f"{PREFIX}{run}"
    # Its file has only references; its processes need the user's variables.
    os.environ.update(written_variables(secret_references(settings)))
    file = folder / "frazil.yaml"
    try:
        folder.mkdir(parents=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            chosen = settings.state_store
            store = own_store(chosen, name, folder / "state") if chosen is not None else None
            document = settings_document(settings, folder / "state", f"{name}.ledger", store)
            yaml.safe_dump(document, output, sort_keys=False)
        workspace = Workspace(name, folder, load_settings(file, home=folder), shape)
        workspace.write_spec()
        workspace.logs.mkdir()
    except OSError as problem:
        raise FrazilError(f"{problem.filename or folder}: {problem.strerror}.", fix="see to that place") from None
    return workspace


def settings_document(
    settings: Settings, state: Path, ledger: str, store: StateSettings | None = None
) -> dict[str, Any]:
    """A workspace's settings as a file: with a state and ledger of its own, a short lease and no secret's value.

    Args:
        settings: The user's.
        state: Folder for this machine's state.
        ledger: The table's name.
        store: State store; None: the folder.
    """
    document = settings.model_dump(mode="json", include=set(SettingsFile.model_fields), exclude_none=True)
    # Its stream has a driver of its own, on this machine: another launcher's would be of the user's deployment.
    document.pop("groups")
    document.pop("drivers", None)
    # A stream that exists for minutes needs neither alerts nor a target file for Prometheus.
    document.pop("alerts")
    document.pop("metrics")
    if settings.kafka.is_embedded:
        document["kafka"].pop("bootstrap_servers", None)
    if settings.is_embedded and settings.spark == SparkSettings():
        document["spark"] |= {"driver_memory": "600m", "conf": dict(_SHORT_LIVED)}
    if standalone_addresses(master_of(settings)):
        document["spark"]["conf"] = _CORES | document["spark"]["conf"]
    kept = str(state) if store is None else store.model_dump(mode="json", exclude_none=True)
    own = {"state": kept, "lease_ttl": f"{LEASE_SECONDS}s", "ledger": {"table": ledger}}
    return document | own


def settings_shown(settings: Settings) -> dict[str, Any]:
    """A workspace's settings for a report, without secrets and without texts that do not matter to the test."""
    catalog, store = settings.catalog, settings.state_store
    return {
        "embedded": settings.is_embedded,
        "kafka": settings.kafka.bootstrap_servers,
        "isolation": settings.kafka.isolation,
        "security": settings.kafka.security.protocol if settings.kafka.security else "PLAINTEXT",
        "catalog": catalog.name,
        "catalog_type": catalog_kind(settings),
        "state": (store.kind if store is not None else None) or "folder",
        "spark_master": master_of(settings),
        "on_a_cluster": not is_local(master_of(settings)),
        "driver_memory": settings.spark.driver_memory,
        "lease_ttl": format_duration(settings.lease_ttl),
    }


def catalog_kind(settings: Settings) -> str:
    """The kind of catalog, and of a SQL catalog the database: no more of its address, which may hold secrets."""
    properties = settings.catalog.properties
    kind, uri = str(properties.get("type", "by its uri")), properties.get("uri")
    if kind == "sql" and isinstance(uri, str):
        return f"sql, {uri.partition(':')[0].partition('+')[0]}"
    return kind
