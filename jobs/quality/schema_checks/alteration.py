"""Alteration of a table's schema by request: its changes, its obstacles, and its one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.stream.column_problems import contract_problems_of
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import changed_columns
from jobs.quality.schema_checks.adoption import NOTHING, Adoption, adoption
from jobs.quality.schema_checks.declared import declared_columns, own_columns
from jobs.records.schema.column_names import name_problems, partition_names
from jobs.records.schema.difference import RenamedColumn, renamed_schema
from jobs.records.schema.evolution import fitting
from jobs.records.schema.identifier_fields import (
    identifier_names,
    identifier_problem,
    with_identifier_fields,
)
from jobs.records.schema.needs import (
    NO_EVOLUTION,
    Coordinates,
    EvolutionPolicy,
    Path,
    RecordNeed,
    column_name,
)
from jobs.records.schema.parser import KAFKA_COLUMN_PREFIX
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.schema.schema_change import SchemaChange, changed_schema, columns_of
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.followers import following, needed_changes
from jobs.tables.commit.schema.opening_columns import (
    OpeningColumns,
    columns_operation,
    has_landed,
    keeps_decoded,
    opening_columns,
    opening_operation,
)
from jobs.tables.commit.schema.operations import ChangeSchema
from jobs.tables.commit.schema.schema_operation import changed_mapping, schema_operation, with_operation
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.write.table_sort_order import sort_order

_ANY = 1_000_000


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes of a table's schema.

    Attributes:
        changes: Additions, promotions and relaxed columns.
        renames: Renames, made before them.
        refused: Reasons why the table would still not be as the file declares, as sentences.
        identifiers: New identifier fields of the table, by full names; None: unchanged.
        adoption: Further additions that let frazil land rows in it.
        row_changes: Changes as sentences, if they are of the columns before a stream's steps.
        opening: Changes that the next start would make, if those are made.
    """

    changes: tuple[SchemaChange, ...] = ()
    renames: tuple[RenamedColumn, ...] = ()
    refused: tuple[str, ...] = ()
    identifiers: tuple[str, ...] | None = None
    row_changes: tuple[str, ...] = ()
    opening: OpeningColumns | None = None
    adoption: Adoption = NOTHING

    @property
    def sentences(self) -> list[str]:
        """Each change, in order of execution."""
        columns = list(self.row_changes) or [*map(str, self.renames), *map(str, self.changes)]
        return [*columns, *self.further]

    @property
    def further(self) -> list[str]:
        """Each change beside those of rows' columns."""
        named = [] if self.identifiers is None else [f"set identifier fields {', '.join(self.identifiers)}"]
        return [*self.adoption.sentences, *named]


def declared_alteration(
    spec: StreamSpec,
    metadata: TableMetadata,
    renames: Sequence[RenamedColumn] = (),
    name: str | None = None,
    *,
    given: bool = False,
) -> Alteration:
    """Alteration that lets a table take the columns that a stream's file declares; nothing is ever dropped.

    Args:
        spec: A stream whose file declares its columns.
        renames: Columns to rename.
        name: Name of the table; None for the main table.
        given: See `adoption`.

    Raises:
        FrazilError: A rename is not possible.
    """
    own = own_columns(spec)
    for rename in renames:
        if rename.old[0] in own:
            raise FrazilError(f"column {rename.old[0]} is frazil's own, and is not renamed.")
    schema = renamed_schema(metadata.schema(), renames)
    rows = declared_columns(spec, name, metadata.schema(), metadata.properties)
    fit = fitting(rows, metadata, schema, own=own, relax_missing=True)
    refused = (*fit.refused, *_misnamed(metadata, schema))
    return with_table_settings(spec, metadata, Alteration(fit.changes, tuple(renames), refused), name, given=given)


def file_alteration(spec: StreamSpec, metadata: TableMetadata) -> Alteration:
    """Alteration that lets a table take the result of a stream's steps, if its file does not declare its columns.

    Raises:
        FrazilError: The decoded columns are unknown before the stream has been started.
    """
    if spec.shapes and not keeps_decoded(spec, metadata) and not has_landed(spec, metadata):
        if (found := with_table_settings(spec, metadata, Alteration())).sentences or found.refused:
            # The first start needs the columns of the records' coordinates.
            return found
        raise FrazilError(
            f"stream {spec.stream}: which columns are decoded, before its steps, is known with its first start.",
            fix=f"frazil run {spec.stream}",
        )
    found = opening_columns(spec, metadata, None, relax_missing=True)
    problems = tuple(f"{'.'.join(map(str, at))} in the stream's file: {said}" for at, said in found.problems)
    made = Alteration(
        found.changes, (), (*found.refused, *problems), row_changes=tuple(map(str, found.changes)), opening=found
    )
    return with_table_settings(spec, metadata, made if found.changes or made.refused else Alteration())


def renaming_alteration(spec: StreamSpec, metadata: TableMetadata, renames: Sequence[RenamedColumn]) -> Alteration:
    """Renames of columns that the stream's file does not declare: they take effect with the next batch.

    Records with the former name still land in the column, by the table's name mapping.

    Args:
        renames: Columns to rename.

    Raises:
        FrazilError: A rename is not possible.
    """
    if spec.shapes and _made_by_steps(spec, metadata) & {rename.old for rename in renames}:
        raise FrazilError(
            f"stream {spec.stream}: the columns of table {spec.table.name} are those that its steps make, and so are "
            "their names.",
            fix=f"name the column with rename in the transform of streams/{spec.stream}.yaml first",
        )
    own = {*spec.columns_from_elsewhere, EXTRA_COLUMN}
    for rename in renames:
        if taken := own & {rename.old[0], rename.new[0]}:
            raise FrazilError(f"column {', '.join(taken)} is not from records' values, and is not renamed.")
        if rename.new[0].lower().startswith(KAFKA_COLUMN_PREFIX):
            raise FrazilError(f"names that start with {KAFKA_COLUMN_PREFIX} are kept for frazil's own columns.")
    renamed = renamed_schema(metadata.schema(), renames)
    before = _named_problems(spec, metadata.schema(), metadata.properties)
    wrong = [each for each in _named_problems(spec, renamed, metadata.properties) if each not in before]
    wrong += _misnamed(metadata, renamed)
    wrong += [each for rename in renames for each in _unmasked(spec, rename)]
    return with_table_settings(spec, metadata, Alteration((), tuple(renames), tuple(wrong)))


def _made_by_steps(spec: StreamSpec, metadata: TableMetadata) -> set[Path]:
    decoded = spec.decoded_for(metadata.schema(), metadata.properties)
    columns = spec.record_columns_of(decoded, metadata.schema()).beside(decoded.rows)
    return {path for path, _ in columns_of(spec.transformed(columns))}


def _misnamed(metadata: TableMetadata, renamed: Schema) -> list[str]:
    """Reasons why engines could not read a table with the renamed columns, as ends of sentences."""
    before, after = (
        [why for _, why in name_problems(schema, partition_names(schema, metadata.partition_specs))]
        for schema in (metadata.schema(), renamed)
    )
    return [each for each in after if each not in before]


def _unmasked(spec: StreamSpec, rename: RenamedColumn) -> Iterator[str]:
    """Masked columns that another name would uncover, where values are shown by column names."""
    masked, size = set(spec.errors.mask.paths), len(rename.old)
    for path in sorted(masked):
        new = (*rename.new, *path[size:])
        if path[:size] == rename.old and new not in masked:
            place = "errors.dead_letters.mask.columns in the stream's file"
            yield f"{place} names {column_name(path)}: name {column_name(new)} beside it"


def _named_problems(spec: StreamSpec, table: Schema, properties: Mapping[str, str]) -> list[str]:
    """Names in a stream's file that its table does not have, as sentences.

    Args:
        spec: The stream.
        table: Schema of its table.
        properties: Properties of the table, which keep the columns that are decoded before the stream's steps.
    """
    problems = [*spec.problems_with(table, properties), *contract_problems_of(spec.contract, table, NO_EVOLUTION)]
    return [f"{'.'.join(map(str, place))} in the stream's file: {problem}" for place, problem in problems]


def proposed_alteration(
    spec: StreamSpec, metadata: TableMetadata, proposed: Sequence[SchemaChange], *, given: bool = False
) -> Alteration:
    """Alteration by proposals, which were made one by one for earlier states of the table.

    Args:
        spec: The stream of the proposals.
        proposed: Accepted proposals, regardless of limits.
        given: See `adoption`.
    """
    nowhere = Coordinates("", 0, 0)
    found = needed_changes(
        spec,
        [RecordNeed(each.change, each.path, each.type, each.at or nowhere) for each in proposed],
        metadata,
        policy=EvolutionPolicy("auto", "auto", "auto", columns=_ANY, new_columns_per_hour=_ANY, depth=_ANY),
    )
    refused = tuple(map(str, found.refused))
    if spec.shapes and found.changes:
        shown = changed_columns(spec, metadata, found.changes).sentences
        return Alteration(found.changes, (), refused, row_changes=shown)
    return with_table_settings(spec, metadata, Alteration(found.changes, (), refused), given=given)


def following_alteration(
    spec: StreamSpec, own: TableMetadata, metadata: TableMetadata, name: str, *, given: bool = False
) -> Alteration:
    """Alteration that lets a dependent table take the main table's rows.

    Args:
        own: Metadata of the main table.
        metadata: Metadata of the dependent table.
        name: Name of the dependent table.
        given: See `adoption`.
    """
    fit = following(spec, own, metadata, name, adopting=True)
    # Kafka's columns are listed with their purpose.
    changes = tuple(each for each in fit.changes if not each.purpose)
    return with_table_settings(spec, metadata, Alteration(changes, (), fit.refused), name, given=given)


def with_table_settings(
    spec: StreamSpec, metadata: TableMetadata, decided: Alteration, name: str | None = None, *, given: bool = False
) -> Alteration:
    """The alteration with further changes that the stream or its file requires of the table.

    Args:
        decided: Other changes.
        name: Name of the table; None for the main table.
        given: See `adoption`.
    """
    renamed = renamed_schema(metadata.schema(), decided.renames)
    after = changed_schema(renamed, decided.changes, metadata.last_column_id, own_columns(spec))
    found, unfit = adoption(spec, metadata, after, name, given=given)
    if decided.renames:
        # The commit of a rename sets one by itself.
        found = replace(found, mapping=False)
    if any(each.startswith("table.sort_by.") for each in decided.refused):
        # Reported already, with its place in the file.
        unfit = tuple(each for each in unfit if not each.startswith("table.sort_by:"))
    decided = replace(decided, adoption=found, refused=(*decided.refused, *unfit))
    names = spec.table.identifier_names
    if not names or names == identifier_names(renamed):
        return decided
    problems = [identifier_problem(path, after) for path in spec.table.identifiers]
    if refused := tuple(f"table.identifier_fields: {problem} in the table" for problem in problems if problem):
        return replace(decided, refused=(*decided.refused, *refused))
    return replace(decided, identifiers=tuple(names))


def alter_table(
    catalog: Catalog,
    spec: StreamSpec,
    alteration: Callable[[TableMetadata], Alteration],
    seen_schema_id: int,
    by: str,
    *,
    table: str | None = None,
) -> tuple[int, Alteration]:
    """Change the schema of a stream's table in one commit, on exactly the head and the schema that it is decided on.

    Writers go on: files of the former schema are accepted.

    Args:
        alteration: Changes, based on the present table.
        seen_schema_id: Schema for which the change was shown.
        by: Author, recorded in the table.
        table: The stream's table; None for the main table.

    Returns:
        Id of the new schema, and the changes.

    Raises:
        FrazilError: Somebody has changed the schema meanwhile, or claimed the table, or the catalog refuses.
    """
    name = table or spec.table.name

    def attempt() -> tuple[int, Alteration]:
        found = stream_table(catalog, spec, name)
        metadata = found.metadata
        if metadata.current_schema_id != seen_schema_id:
            raise FrazilError(
                f"the schema of table {name} has been changed meanwhile: it was schema {seen_schema_id}, and is "
                f"schema {metadata.current_schema_id}. Nothing was changed here.",
                fix=f"frazil schema diff {spec.stream}",
            )
        decided = alteration(metadata)
        if decided.refused:
            raise FrazilError(
                f"table {name} has been changed meanwhile: {'; '.join(decided.refused)}. Nothing was changed here.",
                fix=f"frazil schema diff {spec.stream}",
            )
        return commit_once(found, _operation(spec, metadata, decided, by), summary={}, properties={}), decided

    return compare_and_swap(name, attempt, lambda said: CommitRefusedError(said, fix="try again in some minutes"))


def altered_metadata(spec: StreamSpec, metadata: TableMetadata, decided: Alteration) -> TableMetadata:
    """Metadata of the main table after an alteration; nothing is committed."""
    if not decided.sentences:
        return metadata
    return with_operation(metadata, _operation(spec, metadata, decided, "nobody"))


def _operation(spec: StreamSpec, metadata: TableMetadata, decided: Alteration, by: str) -> ChangeSchema:
    if decided.opening is not None:
        operation = opening_operation(spec, metadata, decided.opening, by, decided.further)
        assert operation is not None
    elif decided.row_changes:
        operation = columns_operation(spec, metadata, decided.changes, by=by)
    else:
        renamed = renamed_schema(metadata.schema(), decided.renames)
        after = changed_schema(renamed, decided.changes, metadata.last_column_id, own_columns(spec))
        operation = schema_operation(
            *(spec.stream, metadata, after, decided.changes, decided.sentences),
            renames=decided.renames,
            same_schema=not (decided.changes or decided.renames or decided.adoption.columns or decided.identifiers),
            by=by,
        )
    return _with_further(operation, spec, metadata, decided)


def _with_further(
    operation: ChangeSchema, spec: StreamSpec, metadata: TableMetadata, decided: Alteration
) -> ChangeSchema:
    """The operation with further alterations beside the rows' columns, in the same commit."""
    given, before = decided.adoption, operation.schema
    after = given.added_to(before, metadata.last_column_id, own_columns(spec))
    properties = {**metadata.properties, **operation.properties}
    mapping = changed_mapping(properties, before, after, given.columns)
    if decided.identifiers is not None:
        after = with_identifier_fields(after, decided.identifiers)
    return replace(
        operation,
        schema=after,
        properties={**operation.properties, **mapping, **given.properties(after)},
        order=sort_order(given.sort_by, after) if given.sort_by is not None else None,
    )
