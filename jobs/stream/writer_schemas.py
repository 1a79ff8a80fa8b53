"""Writer schemas of a stream: those that it knows from before, and those that its tasks ask the registry for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.commit.stamp_fields import Counts
from jobs.errors import FrazilError
from jobs.formats.writer_schema import RegistrySchema, SchemaId
from jobs.registry.connection import RegistryConnection, registry_connection
from jobs.registry.errors import RegistryUnavailableError
from jobs.registry.known_schemas import KnownSchemas, read_known_schemas
from jobs.registry.lookup import RegistryLookup, unknown_ids_mean_away
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.stream_folder import stream_folder


@dataclass(slots=True)
class WriterSchemas:
    """The writer schemas of an open stream, for the process that holds its lease.

    Attributes:
        connection: Of the registry.
        known: What is kept of it.
        confirmed: Whether the registry was seen to have a schema that the stream knew: it is the same one.
    """

    connection: RegistryConnection
    known: KnownSchemas
    confirmed: bool = False

    @property
    def lookup(self) -> RegistryLookup:
        """What the tasks of a batch take along."""
        return RegistryLookup(self.connection, self.known.schemas)

    def learn(self, learned: Mapping[SchemaId, RegistrySchema]) -> None:
        """Keep what the tasks of a batch have asked for.

        Raises:
            RegistryRemadeError: An id that is known has another schema by now.
        """
        self.known.add(learned)
        self.confirmed = self.confirmed or bool(learned)

    def refuse_all_unknown(self, counts: Counts, reasons: Mapping[str, int]) -> None:
        """Refuse a batch none of whose ids the registry knew, unless it is seen to be the one that the stream knows.

        Raises:
            RegistryUnavailableError: So it counts as unavailable.
        """
        if self.confirmed or not unknown_ids_mean_away(counts.landed, reasons):
            return
        raise RegistryUnavailableError(
            f"The schema registry at {self.connection.shown} knows none of the schema ids in the batch, and none that "
            "the stream has met: it is empty, lags behind the producers, or is another one.",
            fix="check registry.url in frazil.yaml",
        )


def writer_schemas(spec: StreamSpec, settings: Settings) -> WriterSchemas | None:
    """The writer schemas of a stream whose lease is held; None of one whose records need no registry.

    Raises:
        RegistryRemadeError: The registry has other schemas by the ids that the stream knows.
        FrazilError: The settings name no registry.
    """
    connection = _connection(spec, settings)
    if connection is None:
        return None
    known = KnownSchemas(stream_folder(settings, spec.stream).store, connection.identity, spec.stream)
    if not known.schemas:
        return WriterSchemas(connection, known)
    from jobs.registry.client import quick_registry

    # One that does not answer keeps nobody from starting, and not for long.
    client = quick_registry(settings.registry)
    try:
        return WriterSchemas(connection, known, confirmed=known.compare(client.schema))
    finally:
        client.close()


def schema_lookup(spec: StreamSpec, settings: Settings) -> RegistryLookup | None:
    """What finds the writer schemas of a stream's records outside its driver; None if they need no registry."""
    connection = _connection(spec, settings)
    if connection is None:
        return None
    return RegistryLookup(
        connection, read_known_schemas(stream_folder(settings, spec.stream).store, connection.identity)
    )


def _connection(spec: StreamSpec, settings: Settings) -> RegistryConnection | None:
    if not spec.decode.needs_registry:
        return None
    if settings.registry is None:
        raise FrazilError(
            f"stream {spec.stream}: the schemas of {spec.decode.of_registry} are in a registry, and frazil.yaml names "
            "none.",
            fix="add to frazil.yaml: registry: {url: https://HOST:PORT}",
        )
    return registry_connection(settings.registry)
