"""Changes of tables: what a stream's tables lack of its file, what alters them, and what others have altered. Pure.

The changes of columns are those of `frazil schema apply` and of a stream's start; both are asked here, and nothing is
judged a second time.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.base.spark_names import spark_name
from jobs.config.documents.base import field_path
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.alteration import (
    Alteration,
    altered_metadata,
    declared_alteration,
    file_alteration,
    proposed_alteration,
)
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.protocol.named_tables import with_told_tables
from jobs.tables.commit.schema.followers import follower_names, following
from jobs.tables.commit.schema.opening_columns import has_landed, keeps_decoded, opening_columns
from jobs.tables.commit.schema.schema_history import schema_history
from jobs.tables.commit.stamp.stamps import PROPERTY_PREFIX, Stamp
from jobs.tables.write.partitioning import partition_spec, partition_texts
from jobs.tables.write.table_remaking import differs, is_as_made, made_schema_id
from jobs.tables.write.table_sort_order import sort_order, sort_order_of, sort_order_text
from orchestration.deployment_plan.change import Change, ChangeClass, Doer, StepAction
from orchestration.deployment_plan.key_classes import STREAM_KEYS

Decide = Callable[[TableMetadata], Alteration]
# Of the format, and no property that is set.
_NO_PROPERTIES = frozenset({"format-version"})


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A stream's tables of rows as the catalog has them.

    Attributes:
        tables: Metadata of each table by name, on the branch that the stream writes; None for a missing table.
        written: Names of tables that the stream has written, according to its lease.
        catalog: Name of the catalog.
        letters: Metadata of the dead-letter table; None if it does not exist.
        uuids: UUIDs of the tables that the stream has written, by name.
    """

    tables: Mapping[str, TableMetadata | None]
    written: frozenset[str]
    catalog: str
    letters: TableMetadata | None = None
    uuids: Mapping[str, str] = field(default_factory=dict)

    @property
    def existing(self) -> dict[str, TableMetadata]:
        """Metadata of the existing tables, by name."""
        return {name: each for name, each in self.tables.items() if each is not None}


def alteration_of(spec: StreamSpec, name: str) -> Decide:
    """Function that decides how a table of rows is altered, the same as in `frazil schema apply`.

    Args:
        spec: Spec of the stream, for this table if tables have columns of their own.
        name: Name of the table.
    """
    if spec.decode.declared is not None:
        own = None if name == spec.table.name else name
        return lambda now: declared_alteration(spec, now, (), own)
    if spec.chain or spec.shapes:
        return lambda now: file_alteration(spec, now)
    return lambda now: proposed_alteration(spec, now, ())


def rows_tables(spec: StreamSpec, coordinator: TableMetadata | None) -> tuple[str, ...]:
    """The names of a stream's tables of rows, those that values have named among them.

    Args:
        spec: Spec of the stream.
        coordinator: Metadata of the coordinator table; None if it does not exist.
    """
    told = with_told_tables(spec, coordinator)
    names = [each.name for each in told.targets if each.role == "rows"]
    return tuple(
        dict.fromkeys(names if spec.coordinator_has_rows else [each for each in names if each != spec.table.name])
    )


def table_changes(spec: StreamSpec, former: StreamSpec | None, facts: TableFacts) -> list[Change]:
    """Changes of a stream's tables of rows, including drift from the file.

    Args:
        spec: Spec in the stream's file.
        former: Spec of the last run; None if unknown. A table's difference from an unchanged key is drift.
        facts: The tables.
    """
    found: list[Change] = []
    followers = follower_names(with_told_tables(spec, facts.tables.get(spec.table.name)))
    named = {*spec.target_names, *(each.table for each in spec.mirrors)}
    for name in facts.tables:
        of_table = spec.for_table(name)
        metadata = facts.tables[name]
        if metadata is None:
            found.append(_missing(spec, of_table, name, facts))
            continue
        if name in followers:
            continue
        found += _existing(of_table, former, name, metadata)
        if of_table.tables_follow:
            found += _followers(of_table, name, metadata, facts)
    if former is None and facts.written and spec.table.name not in facts.written:
        found.append(_another(spec, facts))
    found += [
        _left(spec.stream, name) for name in sorted(facts.written - named) if former and name in former.target_names
    ]
    return found


def _missing(spec: StreamSpec, of_table: StreamSpec, name: str, facts: TableFacts) -> Change:
    if name in facts.written:
        return Change(
            spec.stream,
            "table",
            name,
            ChangeClass.BREAKING,
            Doer.OPERATOR,
            f"the stream has written table {name}, and catalog {facts.catalog} has it no more: it was dropped, or the "
            "catalog is another one",
            f"bring back the table, or the catalog in frazil.yaml; then frazil validate {spec.stream}",
            drift=True,
        )
    partitions = ", ".join(map(str, of_table.table_settings(name).partition_by)) or "nothing"
    columns = "with the columns that the registry, or the first records, say"
    if of_table.decode.declares_all:
        columns = f"with {len(of_table.table_schema_for(name).fields)} columns"
    said = f"table {name} is created {columns}, partitioned by {partitions}"
    return Change(spec.stream, "table", name, ChangeClass.METADATA, Doer.FRAZIL, said)


def _another(spec: StreamSpec, facts: TableFacts) -> Change:
    """A stream that has landed in other tables than its file names, of which nobody knows the former file."""
    rule = STREAM_KEYS["table.name"]
    fix = rule.fix.format(stream=spec.stream) if rule.fix else None
    said = f"the stream has landed in {', '.join(sorted(facts.written))}; {rule.sentence}"
    return Change(spec.stream, "file", "table.name", rule.kind, Doer.OPERATOR, said, fix, None, spec.table.name)


def _left(stream: str, name: str) -> Change:
    said = f"table {name} stays as it is, and gets no more rows"
    return Change(stream, "table", name, ChangeClass.NOTHING, Doer.NOBODY, said)


def _existing(spec: StreamSpec, former: StreamSpec | None, name: str, now: TableMetadata) -> Iterator[Change]:
    try:
        yield from _columns(spec, name, now)
        if is_as_made(now, spec.stream):
            return
        yield from _made_by_others(spec, name, now)
        yield from _layout(spec, former, name, now, _after(spec, name, now))
    except FrazilError as problem:
        yield _breaking(spec, name, problem.message, problem.fix)
    yield from _properties(spec, former, name, now)


def _columns(spec: StreamSpec, name: str, now: TableMetadata) -> Iterator[Change]:
    stream = spec.stream
    if spec.shapes and not keeps_decoded(spec, now) and not has_landed(spec, now):
        return
    if is_as_made(now, stream) and not spec.tables_follow:
        if spec.decode.declares_all and differs(
            now, spec.table_schema_for(name), partition_spec(spec.table_settings(name).partition_by, spec.table_schema)
        ):
            said = f"table {name} has no rows; the next start makes it as the file declares"
            yield Change(stream, "table", name, ChangeClass.METADATA, Doer.FRAZIL, said)
        return
    if spec.decode.declared is None and (spec.chain or spec.shapes):
        found = opening_columns(spec, now, None)
        for at, problem in found.problems:
            yield _breaking(spec, name, f"{field_path(at)}: {problem}", f"correct streams/{stream}.yaml")
        for refused in found.refused:
            yield _breaking(spec, name, refused, f"correct streams/{stream}.yaml, or alter table {name}")
        if found.problems or found.refused:
            return
        unasked = found.unasked(spec)
        if found.changes and not unasked:
            for each in found.changes:
                yield Change(stream, "table", name, ChangeClass.METADATA, Doer.FRAZIL, f"table {name}: {each}")
            return
    decided = alteration_of(spec, name)(now)
    if decided.refused:
        for refused in decided.refused:
            yield _breaking(spec, name, refused, f"correct streams/{stream}.yaml, or name another table")
        return
    for sentence in decided.sentences:
        yield Change(
            stream,
            "table",
            name,
            ChangeClass.METADATA,
            Doer.APPLY,
            f"table {name}: {sentence}",
            f"frazil schema apply {stream}",
            step=StepAction.ALTER,
        )
    after = altered_metadata(spec, now, decided)
    for sentence in spec.disagreements_with(after.schema(), name, properties=after.properties):
        yield _breaking(spec, name, sentence, f"correct streams/{stream}.yaml, or alter table {name}")


def _breaking(spec: StreamSpec, name: str, sentence: str, fix: str | None) -> Change:
    said = f"table {name} cannot take the rows: {sentence.rstrip('.')}"
    return Change(spec.stream, "table", name, ChangeClass.BREAKING, Doer.OPERATOR, said, fix)


def _followers(spec: StreamSpec, name: str, own: TableMetadata, facts: TableFacts) -> Iterator[Change]:
    """Changes that give dependent tables the columns that their main table will have."""
    after = _after(spec, name, own)
    for follower in follower_names(with_told_tables(spec, own)):
        now = facts.tables.get(follower)
        if now is None or is_as_made(now, spec.stream):
            continue
        try:
            fit = following(spec, after, now, follower, adopting=True)
            by_start = not following(spec, after, now, follower).refused
        except FrazilError as problem:
            yield _breaking(spec, follower, problem.message, problem.fix)
            continue
        for refused in fit.refused:
            fix = f"correct streams/{spec.stream}.yaml, or alter table {follower}"
            yield _breaking(spec, follower, refused, fix)
        for each in fit.changes if not fit.refused else ():
            said = f"table {follower}: {each}, as table {name} has it"
            # A table that others made is given what it lacks by nobody but a person.
            doer, fix = (Doer.FRAZIL, None) if by_start else (Doer.OPERATOR, f"frazil schema apply {spec.stream}")
            yield Change(spec.stream, "table", follower, ChangeClass.METADATA, doer, said, fix)


def _made_by_others(spec: StreamSpec, name: str, now: TableMetadata) -> Iterator[Change]:
    """Columns of a table that frazil made, whose schema somebody else has changed since."""
    made = made_schema_id(now, spec.stream)
    known = {each.schema for each in schema_history(now.properties)} | ({made} if made is not None else set())
    if made is None or now.current_schema_id in known:
        return
    last = max((each for each in known if each < now.current_schema_id), default=None)
    before = next((each for each in now.schemas if each.schema_id == last), None)
    said = f"table {name}: schema {now.current_schema_id} is not by frazil"
    if before is not None:
        columns, former = ({each.name for each in schema.fields} for schema in (now.schema(), before))
        signs = [
            *(f"+ {each}" for each in sorted(columns - former)),
            *(f"- {each}" for each in sorted(former - columns)),
        ]
        said += f": {', '.join(signs)}" if signs else ": types, or what may be null"
    said += ". A column that the file does not declare is null in new rows"
    yield Change(
        spec.stream,
        "table",
        name,
        ChangeClass.NOTHING,
        Doer.NOBODY,
        said,
        f"frazil schema diff {spec.stream}",
        drift=True,
    )


def _after(spec: StreamSpec, name: str, now: TableMetadata) -> TableMetadata:
    """The table with what is altered of its columns; as it is, if it cannot be."""
    try:
        decided = alteration_of(spec, name)(now)
    except FrazilError:
        return now
    return now if decided.refused else altered_metadata(spec, now, decided)


def _layout(
    spec: StreamSpec, former: StreamSpec | None, name: str, now: TableMetadata, after: TableMetadata
) -> Iterator[Change]:
    """Partitions, sort order and place, where the file says others than the table has.

    Args:
        after: The table with the columns that the file gives it.
    """
    stream, settings, schema = spec.stream, spec.table_settings(name), after.schema()
    before = former.table_settings(name) if former is not None and name in former.target_names else None
    if spec.decode.declared is not None or settings.partition_by:
        declared = _written(partition_texts(partition_spec(settings.partition_by, schema), schema))
        actual = _written(partition_texts(now.spec(), schema))
        if declared != actual:
            said = (
                f"table {name} is partitioned by {', '.join(actual) or 'nothing'}, and by "
                f"{', '.join(declared) or 'nothing'} in the file; only new files would be partitioned so"
            )
            drift = before is not None and before.partition_by == settings.partition_by
            fix = _in_shell(*_partition_statements(name, actual, declared))
            yield Change(stream, "table", name, ChangeClass.METADATA, Doer.OPERATOR, said, fix, actual, declared, drift)
            yield Change(
                stream,
                "table",
                name,
                ChangeClass.REWRITE,
                Doer.NOBODY,
                f"earlier files of table {name} keep their partitions until they are rewritten; all readers find them",
                _in_shell(
                    f"CALL system.rewrite_data_files(table => '{spark_name(name)}', "
                    "options => map('rewrite-all', 'true'))"
                ),
                drift=drift,
            )
    if settings.sort_by:
        declared_order = sort_order_text(sort_order(settings.sort_by, schema), schema)
        order = sort_order_text(sort_order_of(after), schema)
        if declared_order != order:
            said = f"table {name} is sorted by {order}, and by {declared_order} in the file"
            drift = before is not None and before.sort_by == settings.sort_by
            fix = _in_shell(f"ALTER TABLE {spark_name(name)} WRITE ORDERED BY {declared_order}")
            yield Change(
                stream, "table", name, ChangeClass.METADATA, Doer.OPERATOR, said, fix, order, declared_order, drift
            )
    if settings.location and _place(settings.location) != _place(now.location):
        said = f"table {name} lies at {now.location}, and the file has {settings.location}; location is for a new table"
        drift = before is not None and before.location == settings.location
        yield Change(
            stream,
            "table",
            name,
            ChangeClass.NOTHING,
            Doer.NOBODY,
            said,
            f"correct table.location in streams/{stream}.yaml",
            now.location,
            settings.location,
            drift,
        )


def _written(fields: list[str]) -> list[str]:
    """Partition fields as files and Spark write them: `bucket(16, id)` for Iceberg's `bucket[16](id)`."""
    return [re.sub(r"^(\w+)\[(\d+)\]\(", r"\1(\2, ", each) for each in fields]


def _partition_statements(name: str, actual: list[str], declared: list[str]) -> Iterator[str]:
    """Spark statements that alter a table's partitions, one for each added or removed field."""
    yield from (
        f"ALTER TABLE {spark_name(name)} DROP PARTITION FIELD {each}" for each in actual if each not in declared
    )
    yield from (f"ALTER TABLE {spark_name(name)} ADD PARTITION FIELD {each}" for each in declared if each not in actual)


def _in_shell(*statements: str) -> str:
    """The command that runs the statements in Spark, one after the other."""
    return f"frazil shell -c {shlex.quote('; '.join(f'sql({json.dumps(each)})' for each in statements))}"


def _place(location: str) -> str:
    """A location in one of the ways to write it."""
    return re.sub(r"^file:/*", "/", location).rstrip("/")


def properties_to_set(spec: StreamSpec, name: str, now: TableMetadata) -> dict[str, str]:
    """The properties that a stream's file gives to a table, and that it has otherwise or lacks."""
    wanted = {key: str(value) for key, value in spec.table_settings(name).properties.items()}
    return {
        key: value for key, value in wanted.items() if key not in _NO_PROPERTIES and now.properties.get(key) != value
    }


def _properties(spec: StreamSpec, former: StreamSpec | None, name: str, now: TableMetadata) -> Iterator[Change]:
    before = former.table_settings(name).properties if former is not None and name in former.target_names else None
    for key, value in properties_to_set(spec, name, now).items():
        has = now.properties.get(key)
        yield Change(
            spec.stream,
            "table",
            name,
            ChangeClass.METADATA,
            Doer.APPLY,
            f"table {name}: set property {key} to {value}" + (f", which is {has}" if has is not None else ""),
            "frazil apply " + spec.stream,
            has,
            value,
            drift=before is not None and str(before.get(key)) == value,
            step=StepAction.PROPERTIES,
        )
    for key in before or {}:
        if key not in spec.table_settings(name).properties and key in now.properties:
            said = f"table {name} keeps property {key}, which the file names no more"
            fix = _in_shell(f"ALTER TABLE {spark_name(name)} UNSET TBLPROPERTIES ('{key}')")
            yield Change(spec.stream, "table", name, ChangeClass.NOTHING, Doer.NOBODY, said, fix)


def foreign_streams(stream: str, metadata: TableMetadata) -> list[str]:
    """The other streams whose stamps a table carries; replays and the like, which stamp as well, left out."""
    names = (key.removeprefix(PROPERTY_PREFIX) for key in metadata.properties if key.startswith(PROPERTY_PREFIX))
    ids = sorted(names)
    return [each for each in ids if each != stream and "~" not in each and "." not in each]


def newest_stamp(metadata: TableMetadata | None, stream: str) -> Stamp | None:
    """Newest stamp of a stream on its coordinator table; None if it has none there."""
    return None if metadata is None else history(as_written(metadata, stream), stream).newest
