"""Writer schemas of a stream: those that it knows from before, and those that its tasks ask the registry for."""

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
        quick: A client of it that gives up within seconds, made anew and closed by whoever asks.
        subjects: Those whose schemas the stream's records have, as far as its file and its topics say.
        remade: Set once it was seen to be made anew while the stream was open.
    """

    connection: RegistryConnection
    known: KnownSchemas
    quick: Callable[[], RegistryClient]
    subjects: tuple[str, ...] = ()
    remade: RegistryRemadeError | None = None

    def lookup(self, refused: frozenset[SchemaId] = frozenset()) -> RegistryLookup:
        """What the tasks of a batch take along."""
        return RegistryLookup(self.connection, self.known.schemas, refused)

    def learn(self, learned: Mapping[SchemaId, RegistrySchema]) -> None:
        """Keep what the tasks of a batch have asked for.

        Raises:
            RegistryRemadeError: An id that is known has another schema by now.
        """
        self.refuse_remade()
        self.known.add(learned)

    def refuse_remade(self) -> None:
        """Raise if the registry was seen to be made anew."""
        if self.remade is not None:
            raise self.remade

    def compare(self) -> bool:
        """Compare some of the known schemas with the registry, if it can be asked.

        Returns:
            Whether it still has one of them; False also where it is away, or none is known.

        Raises:
            RegistryRemadeError: It has other schemas by the ids that the stream knows.
        """
        if not self.known.schemas:
            return False
        with closing(self.quick()) as client:
            return self.known.compare(client.schema)

    def refuse_all_unknown(self, counts: Counts, reasons: Mapping[str, int]) -> None:
        """Refuse a batch none of whose ids the registry knew, unless it is seen to be the one of the stream.

        It is, if it has a schema that the stream knows, or one of the stream's subjects: then the records are bad.

        Raises:
            RegistryUnavailableError: It cannot be asked for them.
            RegistryWithoutSubjectError: It has neither.
            RegistryRemadeError: It has other schemas by the ids that the stream knows.
        """
        if not unknown_ids_mean_away(counts.landed, reasons):
            return
        try:
            if self.compare():
                return
        except RegistryLostError as problem:
            # One that was just started may have them in a moment.
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
                "stream's file: where the registry has that, records with made-up ids become dead letters",
            )


def _has(client: RegistryClient, subject: str) -> bool:
    try:
        return bool(client.versions(subject))
    except NotInRegistryError:
        return False


def writer_schemas(spec: StreamSpec, settings: Settings, topics: Iterable[str] = ()) -> WriterSchemas | None:
    """The writer schemas of a stream whose lease is held; None of one whose records need no registry.

    Raises:
        RegistryRemadeError: The registry has other schemas by the ids that the stream knows.
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
    # A registry that does not answer keeps nobody from starting, and not for long.
    schemas.compare()
    return schemas


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
            fix=settings.registry_fix,
        )
    return registry_connection(settings.registry)
