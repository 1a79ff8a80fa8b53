"""Connectors of a deployment, read on request and cached for some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, find_table, quick_catalog
from jobs.clients.kafka.metadata import quick_kafka
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.state.observation import observe
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.stamp.offsets import by_topic
from orchestration.connect_api.connector import Connector, connector_of, flat_config
from orchestration.reconcile.stream_files import read_files, stream_ids
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat, read_supervisor_heartbeat
from resources.deployment import Deployment

T = TypeVar("T")

FRESH_SECONDS = 2.0
"""Seconds for which connectors are cached."""
# Reading shared state sends requests to a service.
_SHARED_FRESH_SECONDS = 5.0
_CLUSTER_SECONDS = 60.0


class UnknownConnector(FrazilError):
    """No stream has the name that a request gives.

    Safe: Nothing was changed.
    Next: `frazil status`
    """


class Connectors:
    """Cached connectors of one server. Every method may block, and may be called from any thread.

    Args:
        deployment: The deployment with the streams.
        server: Host and port of the server.
    """

    def __init__(self, deployment: Deployment, server: str) -> None:
        self._deployment: Deployment = deployment
        self._server: str = server
        # Concurrent callers wait for one read and share it.
        self._lock: threading.Lock = threading.Lock()
        self._all: Mapping[str, Connector] = {}
        self._read_at: float | None = None
        self._fresh_seconds: float = FRESH_SECONDS
        self._cluster: tuple[float, str | None] | None = None
        # Each stream's spec with its flat configuration. An unchanged file is parsed once, and flattened once.
        self._configs: dict[str, tuple[StreamSpec, Mapping[str, str]]] = {}

    def all(self) -> Mapping[str, Connector]:
        """All connectors by name, in order.

        Raises:
            FrazilError: The settings cannot be read, or the state store does not answer.
        """
        with self._lock:
            now = time.monotonic()
            if self._read_at is None or now - self._read_at > self._fresh_seconds:
                self._all = self._read()
                self._read_at = time.monotonic()
            return self._all

    def one(self, name: str, *, now: bool = False) -> Connector:
        """Connector of one stream.

        Args:
            name: The stream's id.
            now: Whether to bypass the cache.

        Raises:
            UnknownConnector: No stream has the name.
        """
        if now:
            self.forget()
        found = self.all().get(name)
        if found is None:
            raise UnknownConnector(f"Connector {name} not found", fix="frazil status")
        return found

    def forget(self) -> None:
        """Clear the cache, as a stream has changed."""
        with self._lock:
            self._read_at = None

    def offsets(self, name: str) -> Mapping[str, Mapping[str, int]]:
        """Next offset of each topic and partition: from the running driver's report, else from the stream's table.

        Raises:
            FrazilError: The catalog does not answer.
        """
        connector = self.one(name)
        if connector.offsets is not None:
            return connector.offsets
        spec, _ = self._configs[name]
        try:
            table = find_table(quick_catalog(self._deployment.settings()), spec.table.name)
        except NoCatalogYet:
            return {}
        if table is None:
            return {}
        newest = history(as_written(table.metadata, name), name).newest
        return by_topic(newest.position) if newest is not None else {}

    def cluster_id(self) -> str | None:
        """Id of the Kafka cluster; None if the cluster does not answer within seconds."""
        with self._lock:
            now = time.monotonic()
            if self._cluster is None or now - self._cluster[0] > _CLUSTER_SECONDS:
                self._cluster = now, _or_none(lambda: quick_kafka(self._deployment.settings().kafka).cluster_id())
            return self._cluster[1]

    def _read(self) -> dict[str, Connector]:
        settings = self._deployment.settings()
        store = state_store(settings)
        self._fresh_seconds = _SHARED_FRESH_SECONDS if store.shared else FRESH_SECONDS
        files, note = read_files(self._deployment), _supervises(read_supervisor_heartbeat(store))
        found: dict[str, Connector] = {}
        for stream in stream_ids(files, settings):
            observed = observe(stream, files, settings)
            spec = observed.desired.spec
            if spec is not None and (observed.desired.file in ("valid", "invalid") or observed.driver is not None):
                found[stream] = connector_of(observed, spec, note, self._server, self._config(spec))
        return found

    def _config(self, spec: StreamSpec) -> Mapping[str, str]:
        known, config = self._configs.get(spec.stream, (None, {}))
        if known is not spec:
            config = flat_config(spec)
            self._configs[spec.stream] = spec, config
        return config


def _supervises(note: SupervisorHeartbeat | None) -> SupervisorHeartbeat | None:
    return None if note is None or note.is_silent(time.time()) else note


def _or_none(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except FrazilError:
        return None
