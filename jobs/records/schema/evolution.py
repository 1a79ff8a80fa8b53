"""Evolution: schema changes that records need of a table, judged by policy, table, protections and limits. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from typing import TYPE_CHECKING

from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import NestedField

from jobs.records.schema.column_names import NO_PARTITIONS, ColumnNames, partition_names
from jobs.records.schema.compatibility import holds, promotes
from jobs.records.schema.difference import Difference, differences
from jobs.records.schema.iceberg_schema import schema_text, unread_by_spark
from jobs.records.schema.name_matching import Aliases
from jobs.records.schema.needs import (
    Change,
    Coordinates,
    EvolutionPolicy,
    Path,
    RecordNeed,
)
from jobs.records.schema.new_column import NewColumn
from jobs.records.schema.schema_change import (
    RefusedChange,
    SchemaChange,
    columns_in,
    columns_of,
    numbered,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.sorting import SortOrder


@dataclass(frozen=True, slots=True)
class Evolution:
    """The decisions about the needs of a batch.

    Attributes:
        changes: Changes to make, in one commit.
        proposed: Changes that somebody has to decide about.
        failed: Changes for which the stream stops.
        refused: Changes that are not possible.
        met: Whether the table already has something that some records needed.
    """

    changes: tuple[SchemaChange, ...] = ()
    proposed: tuple[SchemaChange, ...] = ()
    failed: tuple[SchemaChange, ...] = ()
    refused: tuple[RefusedChange, ...] = ()
    met: bool = False

    def refusing_changes(self, why: str) -> Evolution:
        """Return the same with the changes refused, for this reason."""
        left = (RefusedChange(each.change, each.path, why, each.at) for each in self.changes if each.at)
        return replace(self, changes=(), refused=(*self.refused, *left))

    def without_additions(self, records: Collection[Coordinates] | None = None) -> Evolution:
        """Return the same without new columns.

        Args:
            records: Records whose additions are left out; None for all records.
        """
        made, proposed, failed = (
            tuple(each for each in changes if each.change != "add" or (records is not None and each.at not in records))
            for changes in (self.changes, self.proposed, self.failed)
        )
        return replace(self, changes=made, proposed=proposed, failed=failed)


def judged(
    needs: Iterable[RecordNeed],
    schema: Schema,
    policy: EvolutionPolicy,
    *,
    protected: Mapping[int, str] | None = None,
    added_lately: int = 0,
    json: bool = False,
    always: Container[Path] = (),
    maintained: bool = True,
    partitions: Mapping[str, str] | None = NO_PARTITIONS,
    aliases: Aliases = (),
) -> Evolution:
    """Decide about the needs of records; the result does not depend on their order.

    Args:
        needs: Needs from all tasks of a batch.
        schema: The table's present schema.
        policy: The stream's policy.
        protected: Columns whose type must not change, by field id, with the reason.
        added_lately: Number of columns that were added within the last hour.
        json: Whether numbers and texts of the records are JSON's, see `NewColumn.primitive`.
        always: Columns that are added whatever the policy says.
        maintained: Whether Spark has to read the table.
        partitions: See `ColumnNames`.
        aliases: See `ColumnNames`.
    """
    names = ColumnNames(schema, partitions, aliases=aliases)
    judge = _Judge(schema, policy, protected or {}, added_lately, names, json=json, maintained=maintained)
    return judge.judge(needs, always)


def protected_columns(schema: Schema, specs: Iterable[PartitionSpec], order: SortOrder | None) -> dict[int, str]:
    """Return the columns whose type must not change, by field id, with the reason: a partition or sort order uses them.

    A promotion would give a partition's value another type, except with a bucket, whose number stays the same. It keeps
    the order of whole values.

    Args:
        schema: The table's schema, with the names of its columns.
        specs: All partition specs of the table.
        order: The table's present sort order.
    """
    found: dict[int, str] = {
        each.source_id: f"the table is sorted by {each.transform}({schema.find_column_name(each.source_id)})"
        for each in (order.fields if order else ())
        if not isinstance(each.transform, IdentityTransform)
    }
    for spec in specs:
        for each in spec.fields:
            name = schema.find_column_name(each.source_id)
            if name is not None and not isinstance(each.transform, (BucketTransform, VoidTransform)):
                found[each.source_id] = f"the table is, or was, partitioned by {each.transform}({name})"
    return found


@dataclass(slots=True)
class _Found:
    """The needs, gathered by path.

    Attributes:
        added: Fields that the table lacks, by the path of the struct that would get them.
        wider: Types that a column would have to hold.
        relaxed: Required columns that records lack.
    """

    added: dict[Path, dict[str, NewColumn]] = field(default_factory=dict)
    wider: dict[Path, NewColumn] = field(default_factory=dict)
    relaxed: dict[Path, Coordinates] = field(default_factory=dict)
    met: bool = False


class _Judge:
    def __init__(
        self,
        schema: Schema,
        policy: EvolutionPolicy,
        protected: Mapping[int, str],
        added_lately: int,
        names: ColumnNames,
        *,
        json: bool,
        maintained: bool,
    ) -> None:
        self._maintained: bool = maintained
        self._columns: dict[Path, ice.NestedField] = dict(columns_of(schema))
        self._identifiers: frozenset[int] = frozenset(schema.identifier_field_ids)
        self._policy: EvolutionPolicy = policy
        self._protected: Mapping[int, str] = protected
        self._names: ColumnNames = names
        self._left: int = policy.columns - len(index_by_id(schema))
        self._left_now: int = policy.new_columns_per_hour - added_lately
        self._json: bool = json
        self._refused: list[RefusedChange] = []

    def judge(self, needs: Iterable[RecordNeed], always: Container[Path]) -> Evolution:
        found = _Found()
        for need in needs:
            self._gather(need, found)
        by_answer: dict[str, list[SchemaChange]] = {"auto": [], "propose": [], "fail": [], "ignore": []}
        for change in (*self._additions(found), *self._promotions(found), *self._relaxations(found)):
            answer = "auto" if change.path in always else self._policy.answer(change.change)
            by_answer[answer].append(change)
        return Evolution(
            tuple(by_answer["auto"]),
            tuple(by_answer["propose"]),
            tuple(by_answer["fail"]),
            tuple(sorted(self._refused, key=lambda each: (each.at, each.path, each.why))),
            found.met,
        )

    def _gather(self, need: RecordNeed, found: _Found) -> None:
        column = self._columns.get(need.path)
        match need.change:
            case "add" if need.type is not None:
                self._gather_addition(need.path, need.type, need.at, found, need.former)
            case "widen" if column is not None and need.type is not None:
                if need.type.is_primitive and column.field_type.is_primitive and holds(need.type, column.field_type):
                    found.met = True
                else:
                    found.wider.setdefault(need.path, NewColumn()).see(need.type, need.at)
            case "relax" if column is not None and column.required:
                known = found.relaxed.get(need.path)
                found.relaxed[need.path] = need.at if known is None else min(known, need.at)
            case _:
                found.met = True

    def _gather_addition(
        self, path: Path, kind: ice.IcebergType, at: Coordinates, found: _Found, former: Path | None = None
    ) -> None:
        column = self._columns.get(path)
        if column is None:
            if path[:-1] and not self._is_struct(path[:-1]):
                # The column around it was dropped or replaced.
                found.met = True
            else:
                found.added.setdefault(path[:-1], {}).setdefault(path[-1], NewColumn()).see(kind, at, former)
            return
        match kind, column.field_type:
            case ice.StructType(), ice.StructType():
                for each in kind.fields:
                    self._gather_addition((*path, each.name), each.field_type, at, found)
            case ice.ListType(), ice.ListType():
                self._gather_addition((*path, "element"), kind.element_type, at, found)
            case ice.MapType(), ice.MapType():
                self._gather_addition((*path, "value"), kind.value_type, at, found)
            case _:
                # The column exists already; its decoder decides whether it takes the records.
                found.met = True

    def _is_struct(self, path: Path) -> bool:
        column = self._columns.get(path)
        return column is not None and isinstance(column.field_type, ice.StructType)

    def _additions(self, found: _Found) -> Iterator[SchemaChange]:
        """Yield new columns in the order of their first records, as far as names and limits allow."""
        new = [(column, (*parent, name)) for parent, named in found.added.items() for name, column in named.items()]
        new.sort(key=lambda each: (each[0].first, each[1][:-1], each[1][-1]))
        for _, of_record in groupby(new, key=lambda each: each[0].first):
            left, names, refused = (self._left, self._left_now), self._names.copy(), len(self._refused)
            yield from [change for each in of_record for change in self._addition(*each)]
            if len(self._refused) > refused:
                # The record does not land, so its columns use up no room and no name.
                (self._left, self._left_now), self._names = left, names

    def _addition(self, column: NewColumn, path: Path) -> Iterator[SchemaChange]:
        if why := self._names.field_refusal(path):
            self._refuse(path, why, column.first)
            return
        if (kind := self._whole_type(column, path)) is None:
            return
        made = ice.NestedField(0, path[-1], numbered(kind, count(1)), required=False)
        if why := self._names.column_refusal(made, path):
            self._refuse(path, why, column.first)
            return
        if self._maintained and unread_by_spark(Schema(made)):
            self._refuse(path, "maintenance reads no table with a column of the type time", column.first)
            return
        size = column.size()
        if size > self._left:
            self._refuse(path, f"the table would have more than {self._policy.columns:,} columns", column.first)
        elif size > self._left_now:
            most = self._policy.new_columns_per_hour
            self._refuse(path, f"more than {most:,} columns would be added within an hour", column.first)
        else:
            self._left -= size
            self._left_now -= size
            for each, _ in columns_in(made, path):
                self._names.add(each)
            former = column.former if column.former in self._columns else None
            yield SchemaChange("add", path, kind, column.first, former)

    def _whole_type(self, column: NewColumn, path: Path) -> ice.IcebergType | None:
        """Return the type of a new column; if none of its parts is possible, the column itself is refused."""
        before = len(self._refused)
        kind = self._type(column, path)
        if kind is None and (within := self._refused[before:]):
            del self._refused[before:]
            self._refuse(path, within[0].why, column.first)
        return kind

    def _type(self, column: NewColumn, path: Path) -> ice.IcebergType | None:
        """Return the type of a new column; impossible parts are left out, and refused. None if nothing is left."""
        if len(path) > self._policy.depth:
            self._refuse(path, f"it is nested more than {self._policy.depth} deep", column.first)
            return None
        match column.kind:
            case "struct":
                fields = self._fields(column, path)
                return ice.StructType(*fields) if fields else None
            case "list":
                element = self._type(column.element, (*path, "element")) if column.element else None
                return ice.ListType(0, element, element_required=False) if element else None
            case "map":
                value = self._type(column.value, (*path, "value")) if column.value else None
                key = column.key or ice.StringType()
                return ice.MapType(0, key, 0, value, value_required=False) if value else None
            case _:
                return column.primitive(json=self._json)

    def _fields(self, column: NewColumn, path: Path) -> list[ice.NestedField]:
        fields: list[ice.NestedField] = []
        names = self._names.alone()
        for name, inner in list(column.parts()):
            here = (*path, name)
            if why := names.field_refusal(here):
                self._refuse(here, why, inner.first)
            kind = None if why else self._whole_type(inner, here)
            if kind is None:
                # Its size does not count either.
                del column.fields[name]
                continue
            names.add(here)
            fields.append(ice.NestedField(0, name, kind, required=False))
        return fields

    def _promotions(self, found: _Found) -> Iterator[SchemaChange]:
        for path, wanted in sorted(found.wider.items()):
            column = self._columns[path]
            old = column.field_type
            new = None if wanted.kind in ("struct", "list", "map") else wanted.primitive(json=self._json)
            if new is None or not old.is_primitive or not promotes(old, new):
                told = wanted.kind if new is None else schema_text(new)
                why = f"Iceberg does not widen {schema_text(old)} to {told}"
                self._refuse(path, why, wanted.first, "widen")
            elif self._is_key(path):
                self._refuse(path, "the keys of a map keep their type", wanted.first, "widen")
            elif why := self._protected.get(column.field_id):
                self._refuse(path, why, wanted.first, "widen")
            else:
                yield SchemaChange("widen", path, new, wanted.first)

    def _relaxations(self, found: _Found) -> Iterator[SchemaChange]:
        for path, at in sorted(found.relaxed.items()):
            if self._columns[path].field_id in self._identifiers:
                self._refuse(path, "it is an identifier field of the table", at, "relax")
            elif self._is_key(path):
                self._refuse(path, "the keys of a map are never null", at, "relax")
            else:
                yield SchemaChange("relax", path, None, at)

    def _is_key(self, path: Path) -> bool:
        above = self._columns.get(path[:-1])
        return path[-1] == "key" and above is not None and isinstance(above.field_type, ice.MapType)

    def _refuse(self, path: Path, why: str, at: Coordinates, change: Change = "add") -> None:
        self._refused.append(RefusedChange(change, path, why, at))


@dataclass(frozen=True, slots=True)
class Fitting:
    """The changes that let a table take rows.

    Attributes:
        changes: Additions, promotions and relaxed columns.
        refused: Why it would still not take the rows, as sentences without a full stop.
    """

    changes: tuple[SchemaChange, ...] = ()
    refused: tuple[str, ...] = ()


def fitting(
    rows: Schema,
    metadata: TableMetadata,
    table: Schema | None = None,
    *,
    own: Collection[str],
    relax_missing: bool,
    maintained: bool = False,
) -> Fitting:
    """Return the changes that let a table take rows.

    Args:
        rows: Columns of the rows, without those that frazil fills itself.
        metadata: The table's metadata.
        table: The table's columns, if some are renamed first; by default those of the metadata.
        own: Names of the columns that frazil fills itself.
        relax_missing: Whether a required column that the rows lack is relaxed; otherwise it is refused.
        maintained: Whether Spark has to read the table.
    """
    table, specs = table or metadata.schema(), metadata.partition_specs
    protected = protected_columns(table, specs, metadata.sort_order_by_id(metadata.default_sort_order_id))
    columns, changes, refused = dict(columns_of(table)), list[SchemaChange](), list[str]()
    names = ColumnNames(table, partition_names(table, specs))
    for difference in differences(rows, table, own=own):
        if difference.fits:
            continue
        needs, why = difference.needs, _kept(difference, columns, table, protected)
        if needs is not None and needs.change == "add":
            why = _unusable(needs.path, difference, names, maintained=maintained)
        if difference.kind == "gone" and not relax_missing:
            refused.append(f"{difference}, which requires it")
        elif needs is None or why:
            refused.append(f"{difference}; {why}" if why else str(difference))
        else:
            changes.append(SchemaChange(needs.change, needs.path, needs.type))
    return Fitting(tuple(changes), tuple(refused))


def _unusable(path: Path, difference: Difference, names: ColumnNames, *, maintained: bool) -> str | None:
    """Return why a column cannot be added; None if it can."""
    if difference.rows is None:
        return None
    if why := names.column_refusal(difference.rows, path):
        return why
    for each, _ in columns_in(difference.rows, path):
        names.add(each)
    if maintained and unread_by_spark(Schema(difference.rows)):
        return "maintenance reads no table with a column of the type time"
    return None


def _kept(
    difference: Difference, columns: Mapping[Path, NestedField], table: Schema, protected: Mapping[int, str]
) -> str | None:
    """Return why a column has to stay as it is; None if it need not."""
    column = columns.get(difference.needs.path) if difference.needs else None
    if column is None or difference.needs is None:
        return None
    if difference.needs.change == "widen":
        return protected.get(column.field_id)
    return "it is an identifier field of the table" if column.field_id in table.identifier_field_ids else None
