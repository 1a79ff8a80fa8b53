"""Inference of a stream from schemas in a registry, by the schema ids in records or by a subject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.clients.registry.client import (
    RegistryClient,
    SubjectVersion,
    registry_client,
)
from jobs.clients.registry.failures import NotInRegistryError
from jobs.config.services.registry import LINES_TO_ADD, RegistrySettings
from jobs.config.values.decode import Decode
from jobs.records.formats.interface.decoder import Format
from jobs.records.formats.interface.writer_schema import BadWriterSchema, RegistrySchema, SchemaId
from jobs.records.formats.json.seen_values import Place
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.declared import quoted
from jobs.records.schema.iceberg_schema import with_null
from orchestration.cli.stream_files.schema.stream_yaml import (
    ColumnLines,
    NewStream,
    SampleCounts,
    undeclarable,
)

_PREFIX = 5
_MOST_IDS = 20
_FOLLOWS = "The table follows later versions; to decide about that, write evolve: {add: propose, widen: propose}."


def is_framed(value: bytes) -> bool:
    """Whether a value may begin with a schema id."""
    return value[:1] == b"\0" and len(value) >= _PREFIX


class LookedAtIds:
    """Counts of the schema ids in a sample of records."""

    def __init__(self) -> None:
        self._counts: SampleCounts = SampleCounts()
        self._ids: dict[int, tuple[int, Place]] = {}

    def add(self, records: Iterable[SampleRecord]) -> None:
        """Count the ids of some records."""
        for place, value in self._counts.values(records):
            if is_framed(value):
                number = int.from_bytes(value[1:_PREFIX], "big")
                count, first = self._ids.get(number, (0, place))
                self._ids[number] = (count + 1, first)
            else:
                self._counts.add_other(place)

    def stream(
        self, settings: RegistrySettings | None, topic: str, end: str, stream: str, table: str, format_: str | None
    ) -> NewStream:
        """Build the topic's stream from the registry's schemas of the counted ids.

        Args:
            settings: Settings of the registry; None if there is none.
            topic: The topic.
            end: End of the log that the sample is from.
            stream: Id of the stream.
            table: Name of the table that rows go to.
            format_: Format of the records; None for the format of most of them.

        Raises:
            FrazilError: The settings name no registry, or the registry has none of the ids with such a format.
        """
        if settings is None:
            raise FrazilError(
                f"topic {topic}: its values begin as a schema registry's serializers write them{self._such_as()}, and "
                "frazil.yaml names no schema registry.",
                fix=LINES_TO_ADD,
            )
        client = registry_client(settings)
        try:
            known = dict(self._known(client))
            number, format_ = self._most(known, topic, format_)
            subject = _subject(client, number, topic)
            version = client.version(subject) if subject is not None else None
        finally:
            client.close()
        comments = [*self._told(topic, end, known)]
        if version is None or version.schema.kind != FORMATS[format_].registry_kind:
            return _declared(FORMATS[format_], known[number], number, topic, stream, table, comments)
        return subject_stream(version, topic, stream, table, comments)

    def _such_as(self) -> str:
        return "".join(f"; the first one at {first} has the schema id {number}" for number, (_, first) in self._first())

    def _first(self) -> list[tuple[int, tuple[int, Place]]]:
        return list(self._ids.items())[:1]

    def _known(self, client: RegistryClient) -> Iterator[tuple[int, RegistrySchema]]:
        for number in sorted(self._ids, key=lambda each: -self._ids[each][0])[:_MOST_IDS]:
            try:
                yield number, client.schema(SchemaId(number=number))
            except NotInRegistryError:
                continue

    def _most(self, known: dict[int, RegistrySchema], topic: str, wanted: str | None) -> tuple[int, str]:
        """Id with the most records, and its format; only ids of the wanted format count."""
        kinds = {each.registry_kind: each.name for each in FORMATS.values() if each.registry_kind is not None}
        fitting = [number for number, schema in known.items() if wanted in (None, kinds.get(schema.kind))]
        if not fitting:
            what = f"as those of {wanted} records" if wanted and known else "which its records name"
            raise FrazilError(
                f"topic {topic}: the registry does not know the schema ids {what}{self._such_as()}.",
                fix=f"frazil schema infer {topic} --subject {topic}-value, or --format json",
            )
        chosen = max(fitting, key=lambda number: self._ids[number][0])
        return chosen, kinds[known[chosen].kind]

    def _told(self, topic: str, end: str, known: dict[int, RegistrySchema]) -> Iterator[str]:
        count = sum(count for count, _ in self._ids.values())
        yield self._counts.opening(topic, end, f"{count:,} begin with the id of a schema")
        for number, (times, first) in sorted(self._ids.items(), key=lambda each: -each[1][0])[:_MOST_IDS]:
            kind = known[number].kind if number in known else "not known to the registry: dead letters"
            yield f"  id {number} in {times:,} records, first at {first}: {kind}"
        yield from self._counts.sentences()


def _subject(client: RegistryClient, number: int, topic: str) -> str | None:
    """Subject with a schema: the topic's usual one if possible, else the first by name; None without a subject."""
    subjects = {subject for subject, _ in client.used_by(SchemaId(number=number))}
    usual = f"{topic}-value"
    return usual if usual in subjects else min(subjects, default=None)


def _declared(
    format_: Format, found: RegistrySchema, number: int, topic: str, stream: str, table: str, comments: list[str]
) -> NewStream:
    """Stream that declares the columns of a schema itself, as no subject has the schema any more."""
    rows = _rows(format_, found, f"the schema of id {number}")
    more = [f"Columns are those of id {number}, of which the registry names no subject."]
    lines: list[ColumnLines] = []
    for each in rows.fields:
        text = f"{quoted(each.name)} {with_null(each)}"
        if problem := undeclarable(each.name, text):
            more.append(f"Left out: {quoted(each.name)}: {problem}.")
        else:
            lines.append(ColumnLines(text))
    if not lines:
        raise FrazilError(
            f"topic {topic}: no column of the schema of id {number} can be declared. {' '.join(more[1:])}"
        )
    return NewStream(stream, topic, format_.name, lines, table, [*comments, *more])


def _rows(format_: Format, found: RegistrySchema, what: str) -> Schema:
    assert format_.writer_rows is not None
    try:
        return format_.writer_rows(
            found.schema, Decode.model_validate({"value": format_.name, "schema": "registry"}).options
        )
    except BadWriterSchema as problem:
        raise FrazilError(f"{what} cannot be read: {problem.message}") from None


def subject_version(settings: RegistrySettings | None, subject: str) -> SubjectVersion:
    """Newest version of a subject in the registry."""
    client = registry_client(settings)
    try:
        return client.version(subject)
    finally:
        client.close()


def subject_stream(
    found: SubjectVersion, topic: str, stream: str, table: str, comments: Iterable[str] = ()
) -> NewStream:
    """Stream for a topic whose records have a subject's schemas.

    Args:
        found: Newest version of the subject.
        topic: The topic.
        stream: Id of the stream.
        table: Name of the table that rows go to.
        comments: First comments of the stream's file.

    Raises:
        FrazilError: Schemas of this type are not supported, or the schema is invalid.
    """
    kind = found.schema.kind
    format_ = next((each for each in FORMATS.values() if each.registry_kind == kind), None)
    if format_ is None or format_.writer_rows is None:
        raise FrazilError(f"subject {found.subject} has schemas of the type {kind}, which cannot be read.")
    rows = _rows(format_, found.schema, f"{found.subject} version {found.version}")
    columns = [
        f"Columns are from the registry: subject {found.subject}, which is at version {found.version} (id {found.id}):",
        *(f"  {quoted(field.name)} {with_null(field)}" for field in rows.fields),
        _FOLLOWS,
    ]
    usual = found.subject == f"{topic}-value"
    subject = None if usual else found.subject
    return NewStream(stream, topic, format_.name, "registry", table, [*comments, *columns], subject=subject)
