"""Writer schemas of a stream: those stored from before, and those that its tasks get from the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.base.errors import FrazilError
from jobs.clients.registry.connection import RegistryConnection, registry_connection
from jobs.clients.registry.failures import (
    NotInRegistryError,
    RegistryUnavailableError,
    RegistryWithoutSubjectError,
)
from jobs.clients.registry.known_schemas import (
    KnownSchemas,
    RegistryLostError,
    RegistryRemadeError,
    read_known_schemas,
)
from jobs.clients.registry.lookup import RegistryLookup, unknown_ids_mean_away
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.decode import key_subjects, value_subjects
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId
from jobs.tables.commit.stamp.stamp_fields import Counts

if TYPE_CHECKING:
    from jobs.clients.registry.client import RegistryClient


_SHOWN = 3


@dataclass(slots=True)
class WriterSchemas:
    """The writer schemas of an open stream, for the process that holds its lease.

    Attributes:
        quick: Makes a client that gives up within seconds; the caller closes it.
        subjects: Subjects of the stream's records, as far as its file and its topics show them.
        remade: Set once the registry was seen to be rebuilt while the stream was open.
    """

    connection: RegistryConnection
    known: KnownSchemas
    quick: Callable[[], RegistryClient]
    subjects: tuple[str, ...] = ()
    remade: RegistryRemadeError | None = None

    def lookup(self, refused: frozenset[SchemaId] = frozenset()) -> RegistryLookup:
        """Registry lookup for the tasks of a batch."""
        return RegistryLookup(self.connection, self.known.schemas, refused)

    def learn(self, learned: Mapping[SchemaId, RegistrySchema]) -> None:
        """Store the schemas that the tasks of a batch got from the registry.

        Raises:
            RegistryRemadeError: A known id has another schema by now.
        """
        self.refuse_remade()
        self.known.add(learned)

    def refuse_remade(self) -> None:
        """Raise if the registry was seen to be rebuilt."""
        if self.remade is not None:
            raise self.remade

    def compare(self) -> bool:
        """Compare some of the known schemas with the registry, if it answers.

        Returns:
            True if it still has one of them; False as well if it is unavailable, or if none is known.

        Raises:
            RegistryRemadeError: The registry has other schemas under the stream's ids.
        """
        if not self.known.schemas:
            return False
        with closing(self.quick()) as client:
            return self.known.compare(client.schema)

    def refuse_all_unknown(self, counts: Counts, reasons: Mapping[str, int]) -> None:
        """Raise for a batch of which the registry knew no id, unless the registry is shown to be the stream's.

        It is, if it has a schema that the stream knows, or one of the stream's subjects. Then the records are bad.

        Raises:
            RegistryUnavailableError: The registry does not answer.
            RegistryWithoutSubjectError: The registry has neither.
            RegistryRemadeError: The registry has other schemas under the stream's ids.
        """
        if not unknown_ids_mean_away(counts.landed, reasons):
            return
        try:
            if self.compare():
                return
        except RegistryLostError as problem:
            # A registry that has just started may have them in a moment.
            raise RegistryWithoutSubjectError(problem.message, fix=problem.fix) from None
        if self.known.schemas:
            raise RegistryUnavailableError(
                f"The schema registry at {self.connection.shown} knows none of the schema ids in the batch, and does "
                "not say whether it has those that the stream has met.",
                fix="frazil validate",
            )
        with closing(self.quick()) as client:
            has_one = any(_has(client, subject) for subject in self.subjects)
        if not has_one:
            raise RegistryWithoutSubjectError(
                f"The schema registry at {self.connection.shown} knows none of the schema ids in the batch, and has no "
                f"subject {' or '.join(self.subjects[:_SHOWN]) or 'of the topics'}: it is empty, lags behind the "
                "producers, or is another one.",
                fix="check registry.url in frazil.yaml; or name the subject of the records as decode.subject in the "
                "stream's file: if the registry has it, records with made-up ids become dead letters",
            )


def _has(client: RegistryClient, subject: str) -> bool:
    try:
        return bool(client.versions(subject))
    except NotInRegistryError:
        return False


def writer_schemas(spec: StreamSpec, settings: Settings, topics: Iterable[str] = ()) -> WriterSchemas | None:
    """Writer schemas of a stream whose lease is held; None if its records need no registry.

    Raises:
        RegistryRemadeError: The registry has other schemas under the stream's ids.
        FrazilError: The settings name no registry.
    """
    connection = _connection(spec, settings)
    if connection is None:
        return None

    def quick() -> RegistryClient:
        from jobs.clients.registry.client import quick_registry

        return quick_registry(settings.registry)

    known = KnownSchemas(stream_folder(settings, spec.stream).store, connection.identity, spec.stream)
    there = sorted(topics)
    subjects = (*value_subjects(spec.decode, there), *key_subjects(spec.decode, there))
    schemas = WriterSchemas(connection, known, quick, subjects)
    # A registry that does not answer does not prevent a start, and delays it only briefly.
    schemas.compare()
    return schemas


def schema_lookup(spec: StreamSpec, settings: Settings) -> RegistryLookup | None:
    """Lookup of the writer schemas outside the stream's driver; None if its records need no registry."""
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
            fix=settings.registry_fix,
        )
    return registry_connection(settings.registry)
