"""Subjects of a registry compared with a stream: effects of the newest schema, before a record has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from jobs.base.errors import FrazilError
from jobs.clients.registry.client import RegistryClient, SubjectVersion
from jobs.clients.registry.failures import NotInRegistryError
from jobs.config.stream.evolve import Evolve
from jobs.config.stream.models import StreamSpec
from jobs.config.values.decode import Decode, key_subjects, value_subjects
from jobs.quality.schema_checks.finding import (
    ContractFinding,
    Level,
    Outcome,
    worst,
)
from jobs.quality.schema_checks.forecast import NO_TABLES, forecast
from jobs.records.formats.interface.decoder_spec import declared_of
from jobs.records.formats.interface.writer_schema import BadWriterSchema, RegistrySchema, WriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.difference import RenameSuggestion, differences, rename_suggestions
from jobs.records.schema.name_matching import with_column_names
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.schema.schema_change import columns_of


@dataclass(frozen=True, slots=True)
class SubjectContract:
    """A version of a subject, compared with a stream.

    Attributes:
        name: Name of the subject or the file.
        version: Version; None for a file.
        findings: Every difference, with its effect.
        problem: Reason why no record with this schema can be decoded; None if they can.
        renames: Columns of the table that may have another name in this schema.
    """

    name: str
    version: int | None
    findings: tuple[ContractFinding, ...] = ()
    problem: str | None = None
    renames: tuple[RenameSuggestion, ...] = ()

    @property
    def level(self) -> Level:
        """Level of attention that it needs."""
        return "warn" if self.problem is not None else worst(list(self.findings))

    @property
    def may_rename(self) -> bool:
        """Whether fields are both missing and new without a detected rename; the version before may show one."""
        kinds = {each.difference.kind for each in self.findings}
        return {"added", "gone"} <= kinds and not self.renames

    @property
    def shown(self) -> str:
        """Name of the version in messages."""
        return self.name if self.version is None else f"{self.name} version {self.version}"


def subjects_of(spec: StreamSpec) -> tuple[str, ...]:
    """Subjects of a stream's values; empty if its records name no schema."""
    return value_subjects(spec.decode, spec.source.topics or ())


def key_subjects_of(spec: StreamSpec) -> tuple[str, ...]:
    """Subjects of a stream's keys; empty if its keys name no schema."""
    return key_subjects(spec.decode, spec.source.topics or ())


def of_keys(spec: StreamSpec, metadata: TableMetadata) -> tuple[StreamSpec, TableMetadata]:
    """The stream and its table with a record's key as its value: no policy adds any columns.

    Args:
        spec: A stream with columns of keys.
        metadata: Metadata of its table, with the columns that the file does not declare.

    Raises:
        FrazilError: There are no columns of keys.
    """
    as_value = key_as_value(spec)
    if as_value.decode.declared is not None:
        return as_value, metadata_of(as_value.declared_rows, metadata.location)
    columns = spec.record_columns_for(metadata.schema(), metadata.properties).key
    assert columns is not None
    # The ids are needed, as the table's name mapping uses them.
    rows = Schema(*columns.rows.fields, schema_id=metadata.current_schema_id)
    return as_value, metadata.model_copy(update={"schemas": [rows], "partition_specs": []})


def key_as_value(spec: StreamSpec) -> StreamSpec:
    """The stream with a record's key as its value, and its only columns.

    Args:
        spec: A stream with columns of keys.

    Raises:
        FrazilError: There are no columns of keys.
    """
    key = spec.decode.key
    if key is None:
        raise FrazilError(f"stream {spec.stream} has no columns of keys (decode.key).")
    columns = key.columns
    text = declared_of(columns.decoder).text if columns.is_resolved else "table"
    decode = Decode.model_validate({"value": key.form, "schema": text, "unknown_fields": key.unknown_fields})
    table = spec.table.model_copy(update={"kafka_columns": False})
    rest = {"evolve": Evolve(), "transform": (), "rules": ()}
    return spec.model_copy(update={"decode": decode, "table": table, **rest})


def metadata_of(columns: Schema, location: str = "") -> TableMetadata:
    """Metadata of an imaginary table with these columns."""
    return new_table_metadata(columns, PartitionSpec(), UNSORTED_SORT_ORDER, location, {"format-version": "2"})


def newest_contracts(
    spec: StreamSpec,
    metadata: TableMetadata,
    client: RegistryClient,
    followers: Mapping[str, TableMetadata] = NO_TABLES,
) -> Iterator[SubjectContract]:
    """The newest version of each of a stream's subjects, those of keys last, compared with the stream.

    Each takes one request, and two more for the previous version if its fields differ from the table's. Arguments as of
    `forecast`.

    Raises:
        OSError: The registry does not answer.
    """
    for subject in subjects_of(spec):
        # Nothing was produced yet, or the producers use other names.
        if (found := _newest(client, subject)) is not None:
            yield version_contract(spec, metadata, found, client, followers)
    for subject in key_subjects_of(spec):
        if (found := _newest(client, subject)) is not None:
            as_value, columns = of_keys(spec, metadata)
            yield without_renames(subject_contract(as_value, columns, subject, found.version, found.schema))


def _newest(client: RegistryClient, subject: str) -> SubjectVersion | None:
    try:
        return client.version(subject)
    except NotInRegistryError:
        return None


def without_renames(contract: SubjectContract) -> SubjectContract:
    """A comparison of keys without renames, as no command renames their columns."""
    return replace(contract, renames=())


def version_contract(
    spec: StreamSpec,
    metadata: TableMetadata,
    found: SubjectVersion,
    client: RegistryClient,
    followers: Mapping[str, TableMetadata] = NO_TABLES,
) -> SubjectContract:
    """A version of a subject compared with a stream, with the previous version if that shows a rename.

    Arguments as of `forecast`.

    Raises:
        OSError: The registry does not answer.
    """
    held = subject_contract(spec, metadata, found.subject, found.version, found.schema, followers=followers)
    if not held.may_rename:
        return held
    try:
        earlier = [each for each in client.versions(found.subject) if each < found.version]
        before = client.version(found.subject, earlier[-1]).schema if earlier else None
    except NotInRegistryError:
        return held
    asked = (found.subject, found.version, found.schema, before)
    return subject_contract(spec, metadata, *asked, followers=followers)


def asked_contracts(
    spec: StreamSpec,
    metadata: TableMetadata,
    registry: Callable[[], RegistryClient],
    followers: Mapping[str, TableMetadata] = NO_TABLES,
) -> tuple[list[SubjectContract], str | None]:
    """The newest versions of a stream's subjects compared with it; and the reason if the registry does not answer.

    Args:
        registry: Connects to the registry; called only if the stream's records name schemas of it.
        followers: Metadata of the dependent tables, by name.
    """
    if not subjects_of(spec) and not key_subjects_of(spec):
        return [], None
    try:
        client = registry()
        try:
            return list(newest_contracts(spec, metadata, client, followers)), None
        finally:
            client.close()
    except FrazilError as problem:
        return [], problem.message


def subject_contract(
    spec: StreamSpec,
    metadata: TableMetadata,
    name: str,
    version: int | None,
    schema: RegistrySchema,
    before: RegistrySchema | None = None,
    *,
    followers: Mapping[str, TableMetadata] = NO_TABLES,
) -> SubjectContract:
    """One writer schema compared with a stream.

    Args:
        metadata: Metadata of the main table.
        name: Name of the subject or the file.
        version: Version; None for a file.
        schema: The schema.
        before: Schema of the previous version, if it was requested: it shows renames.
        followers: Metadata of the dependent tables, by name.
    """
    try:
        rows = writer_rows(spec, schema)
    except BadWriterSchema as problem:
        return SubjectContract(name, version, problem=f"it cannot be read: {problem.message}")
    except FrazilError as problem:
        return SubjectContract(name, version, problem=problem.message)
    renames = _renames(spec, rows, metadata, _rows_before(spec, before))
    return SubjectContract(name, version, tuple(forecast(spec, rows, metadata, followers)), None, renames)


def _renames(
    spec: StreamSpec, rows: Schema, metadata: TableMetadata, before: Schema | None = None
) -> tuple[RenameSuggestion, ...]:
    """Columns of a stream's table that may have another name in records of a writer schema.

    The table keeps every column that it ever had, so the previous version shows more than the table alone.

    Args:
        rows: Fields of the records, with the types of their schema.
        metadata: Metadata of the main table.
        before: Fields of the previous schema, if it was requested.
    """
    if spec.shapes:
        # The table has the columns after the steps, which name them.
        return ()
    columns = spec.resolved_for(metadata.schema(), metadata.properties)
    own = {EXTRA_COLUMN}
    fields = with_column_names(rows, columns.schema, columns.names)
    found = rename_suggestions(differences(fields, columns.schema, own=own), fields, columns.schema, own=own)
    if before is not None:
        former = with_column_names(before, columns.schema, columns.names)
        known = {path for path, _ in columns_of(columns.schema)}
        told = {each.new for each in found}
        found += [
            each
            for each in rename_suggestions(differences(fields, former), fields, former)
            if each.old in known and each.new not in known and each.new not in told
        ]
    return tuple(found)


def _rows_before(spec: StreamSpec, schema: RegistrySchema | None) -> Schema | None:
    if schema is None:
        return None
    try:
        return writer_rows(spec, schema)
    except (BadWriterSchema, FrazilError):
        # Any error means that it shows nothing.
        return None


def writer_rows(spec: StreamSpec, schema: RegistrySchema) -> Schema:
    """Fields of records of a writer schema, as the stream's format reads them.

    Raises:
        BadWriterSchema: The schema is invalid in this format.
        FrazilError: The schema is of another type.
    """
    format_ = FORMATS[spec.decode.format]
    if format_.writer_rows is None or schema.kind != _kind(spec):
        raise FrazilError(f"it is of the type {schema.kind}, and decode.value is {spec.decode.format}")
    return format_.writer_rows(schema.schema, spec.decode.options)


def schema_in_file(spec: StreamSpec, file: Path) -> RegistrySchema:
    """Read a writer schema of the stream's format from a file.

    Raises:
        FrazilError: The file cannot be read, or records of the format have no such schema.
    """
    if FORMATS[spec.decode.format].writer_rows is None:
        raise FrazilError(f"records of the format {spec.decode.format} have no writer schema.")
    try:
        return RegistrySchema(_kind(spec), WriterSchema(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as problem:
        raise FrazilError(f"{file} cannot be read: {problem}") from None


def _kind(spec: StreamSpec) -> str:
    """Name for schemas of the stream's format; some are in the records themselves, and in no registry."""
    return FORMATS[spec.decode.format].registry_kind or spec.decode.format


_SHOWN = 3
_BAD: dict[Outcome, str] = {
    "stops": "would stop the stream",
    "dead_letter": "would become dead letters",
    "proposed": "would become dead letters until somebody decides",
}


def subject_sentences(subject: SubjectContract, table: str) -> str:
    """Effects on records of a subject: faults first, then changes of the table, then omitted fields."""
    if subject.problem is not None:
        return f"Records of {subject.shown} would become dead letters: {subject.problem.rstrip('.')}."
    bad = [
        f"{what}: {listed(found)}"
        for outcome, what in _BAD.items()
        if (found := [each for each in subject.findings if each.outcome == outcome])
    ]
    if bad:
        said = [f"Records of {subject.shown} {', and '.join(bad)}."]
    else:
        said = [f"Table {table} takes what {subject.shown} brings."]
    if changes := [each.why for each in subject.findings if each.outcome == "changes_table"]:
        said.append(f"The first record of it changes the table: {_cut(changes)}.")
    if left := [each.difference.column for each in subject.findings if each.outcome == "left_out"]:
        said.append(f"No column takes, so it is left out and counted: {_cut(left)}.")
    return " ".join(said)


def renames_sentence(stream: str, renames: Iterable[RenameSuggestion]) -> str:
    """What a person can do about possible renames before their records arrive."""
    told = [f"{each}: frazil schema apply {stream} {each.option} keeps its values together" for each in renames]
    return f"Nothing is renamed by itself; {'; '.join(told)}."


def listed(findings: Sequence[ContractFinding]) -> str:
    """Some differences as one text."""
    return _cut([str(each.difference) for each in findings])


def advice(spec: StreamSpec, subject: SubjectContract) -> str | None:
    """What a person can do before such a record arrives; None if all of them land."""
    if subject.level == "ok":
        return None
    file = f"streams/{spec.stream}.yaml"
    bad = [each for each in subject.findings if each.outcome in _BAD]
    policies = [each.difference.needs for each in bad if getattr(spec.evolution, _change(each), "auto") != "auto"]
    wanted = sorted({need.change for need in policies if need is not None})
    steps: list[str] = []
    if wanted and spec.decode.declared is None:
        steps.append(f"set {', '.join(f'evolve.{each}: auto' for each in wanted)} in {file}")
    if len(policies) < len(bad) or subject.problem is not None:
        steps.append("keep its records from being produced")
    if any(each.outcome == "proposed" for each in bad):
        steps.append(f"with the first record the change is proposed: frazil schema apply {spec.stream}")
    return "; or ".join(steps) if steps else f"correct decode.schema in {file}"


def _change(finding: ContractFinding) -> str:
    return finding.difference.needs.change if finding.difference.needs else ""


def _cut(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
