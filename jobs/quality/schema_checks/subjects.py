"""Subjects of a registry held against a stream: what its newest schema would lead to, before a record has it."""

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
    """A version of a subject, held against a stream.

    Attributes:
        name: Of the subject, or of a file.
        version: None of a file.
        findings: Every difference, with what it leads to.
        problem: Why no record with this schema can be decoded; None if they can.
        renames: Columns of the table that may be called otherwise in this schema.
    """

    name: str
    version: int | None
    findings: tuple[ContractFinding, ...] = ()
    problem: str | None = None
    renames: tuple[RenameSuggestion, ...] = ()

    @property
    def level(self) -> Level:
        """Whether anybody should look at it."""
        return "warn" if self.problem is not None else worst(list(self.findings))

    @property
    def may_rename(self) -> bool:
        """Whether something is gone and something new, and no rename was seen: the version before tells."""
        kinds = {each.difference.kind for each in self.findings}
        return {"added", "gone"} <= kinds and not self.renames

    @property
    def shown(self) -> str:
        """The version as messages name it."""
        return self.name if self.version is None else f"{self.name} version {self.version}"


def subjects_of(spec: StreamSpec) -> tuple[str, ...]:
    """The subjects that say what a stream's records will be; none of a stream whose records name no schema."""
    return value_subjects(spec.decode, spec.source.topics or ())


def key_subjects_of(spec: StreamSpec) -> tuple[str, ...]:
    """The subjects that say what its records' keys will be; none of a stream whose keys name no schema."""
    return key_subjects(spec.decode, spec.source.topics or ())


def of_keys(spec: StreamSpec, metadata: TableMetadata) -> tuple[StreamSpec, TableMetadata]:
    """The stream and its table as if a record's key were its value: no policy adds any columns.

    Args:
        spec: A stream with columns of keys.
        metadata: Of its table, which says them where the file does not.

    Raises:
        FrazilError: There are none.
    """
    as_value = key_as_value(spec)
    if as_value.decode.declared is not None:
        return as_value, metadata_of(as_value.declared_rows, metadata.location)
    columns = spec.record_columns_for(metadata.schema(), metadata.properties).key
    assert columns is not None
    # With their ids, by which the table's name mapping knows them.
    rows = Schema(*columns.rows.fields, schema_id=metadata.current_schema_id)
    return as_value, metadata.model_copy(update={"schemas": [rows], "partition_specs": []})


def key_as_value(spec: StreamSpec) -> StreamSpec:
    """The stream as if a record's key were its value, and its only columns.

    Args:
        spec: A stream with columns of keys.

    Raises:
        FrazilError: There are none.
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
    """Of a table with these columns that nobody has made."""
    return new_table_metadata(columns, PartitionSpec(), UNSORTED_SORT_ORDER, location, {"format-version": "2"})


def newest_contracts(
    spec: StreamSpec,
    metadata: TableMetadata,
    client: RegistryClient,
    followers: Mapping[str, TableMetadata] = NO_TABLES,
) -> Iterator[SubjectContract]:
    """The newest version of each of a stream's subjects, those of keys last, held against it.

    One question for each; two more of one whose fields are not those of the table, for the version before it.
    Arguments as of `forecast`.

    Raises:
        OSError: The registry cannot be asked.
    """
    for subject in subjects_of(spec):
        # Otherwise nothing was produced as yet, or its producers use other names.
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
    """A contract of keys: no command renames their columns."""
    return replace(contract, renames=())


def version_contract(
    spec: StreamSpec,
    metadata: TableMetadata,
    found: SubjectVersion,
    client: RegistryClient,
    followers: Mapping[str, TableMetadata] = NO_TABLES,
) -> SubjectContract:
    """A version of a subject, held against a stream, with the version before it where that tells a rename.

    Arguments as of `forecast`.

    Raises:
        OSError: The registry cannot be asked.
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
    """The newest versions of a stream's subjects held against it; and why the registry could not be asked.

    Args:
        registry: Connects to the registry; asked only for a stream whose records name schemas of it.
        followers: Of the tables that follow its table, by name.
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
    """One writer schema, held against a stream.

    Args:
        metadata: Of its table.
        name: Of the subject, or of a file.
        version: None of a file.
        schema: The schema.
        before: The one of the version before, where it was asked for: it tells what was renamed.
        followers: Of the tables that follow it, by name.
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
    """Columns of a stream's table that may be called otherwise in records of a writer schema.

    The table keeps every column that it ever had, so the version before tells more than the table alone.

    Args:
        rows: The fields of the records, with the types that their schema gives them.
        metadata: Of the stream's table.
        before: The fields of the schema before, if there is one that was asked for.
    """
    if spec.shapes:
        # The table's columns are those behind the steps, which name them.
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
        # Whatever it was, it tells nothing.
        return None


def writer_rows(spec: StreamSpec, schema: RegistrySchema) -> Schema:
    """The fields of records of a writer schema, as the stream's format reads them.

    Raises:
        BadWriterSchema: It is none of this format.
        FrazilError: It is of another kind.
    """
    format_ = FORMATS[spec.decode.format]
    if format_.writer_rows is None or schema.kind != _kind(spec):
        raise FrazilError(f"it is of the kind {schema.kind}, and decode.value is {spec.decode.format}")
    return format_.writer_rows(schema.schema, spec.decode.options)


def schema_in_file(spec: StreamSpec, file: Path) -> RegistrySchema:
    """A writer schema of the stream's format that stands in a file.

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
    """What the schemas of the stream's format are called; some stand in the records themselves, and in no registry."""
    return FORMATS[spec.decode.format].registry_kind or spec.decode.format


_SHOWN = 3
_BAD: dict[Outcome, str] = {
    "stops": "would stop the stream",
    "dead_letter": "would become dead letters",
    "proposed": "would become dead letters until somebody decides",
}


def subject_sentences(subject: SubjectContract, table: str) -> str:
    """What records of a subject would lead to: what is bad of it, then what changes the table, and what is left out."""
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
    """What somebody can do about columns that may be called otherwise, before their records come."""
    told = [f"{each}: frazil schema apply {stream} {each.option} keeps its values together" for each in renames]
    return f"Nothing is renamed by itself; {'; '.join(told)}."


def listed(findings: Sequence[ContractFinding]) -> str:
    """Some differences as one text."""
    return _cut([str(each.difference) for each in findings])


def advice(spec: StreamSpec, subject: SubjectContract) -> str | None:
    """What somebody can do before such a record comes; None where all of them land."""
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
