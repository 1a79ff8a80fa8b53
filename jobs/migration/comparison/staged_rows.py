"""Staged rows of both sides: Parquet files in a folder, which DuckDB matches in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as ice

from jobs.base.system.pandas_import import without_pandas

if TYPE_CHECKING:
    import duckdb

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a record."""
Side: TypeAlias = Literal["ours", "theirs"]
MatchBy: TypeAlias = Literal["coordinates", "key", "rows"]
"""How rows are matched: by topic, partition and offset; by key columns; or as whole rows."""

PLACE = ("topic", "partition", "offset")
PLACE_TYPES = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
BATCH_ROWS = 2_048
MOST_NEAREST = 10_000
"""Rows of each side that are paired by their nearest, when nothing else says which belong together."""
_MEMORY = "1GB"
_COMMON_VALUE = 20
_SECOND = """EXISTS (SELECT 1 FROM theirs_v f WHERE f.topic = v.topic AND f.partition = v.partition
AND f."offset" = v."offset" AND f.seq < v.seq)"""
_NOTHING_ABSENT = """SELECT 0 AS cause, '' AS topic, 0 AS partition, 0 AS "offset" WHERE FALSE"""
_DECIMAL_DIGITS = 38


@dataclass(frozen=True, slots=True)
class SharedColumn:
    """A column that both sides have.

    Attributes:
        ours: Name that frazil gives it.
        theirs: Name in the table.
        our_type: Iceberg type that frazil gives it.
        their_type: Iceberg type in the table.
    """

    ours: str
    theirs: str
    our_type: ice.IcebergType
    their_type: ice.IcebergType

    @property
    def common(self) -> str | None:
        """SQL type in which DuckDB may compare the two; empty for as they are, None if only Python can."""
        mine, other = self.our_type, self.their_type
        if isinstance(mine, ice.DecimalType) and isinstance(other, ice.DecimalType):
            scale = max(mine.scale, other.scale)
            whole = max(mine.precision - mine.scale, other.precision - other.scale)
            return f"DECIMAL({whole + scale}, {scale})" if whole + scale <= _DECIMAL_DIGITS else None
        kind = _kind(mine)
        if kind is not None and kind == _kind(other):
            return kind[1]
        return "" if mine == other and not mine.is_primitive else None


class Pair(NamedTuple):
    """A row of each side that belong together, and where the record is."""

    place: Place
    ours: tuple[Any, ...]
    theirs: tuple[Any, ...]


def shared_columns(
    ours: Mapping[str, ice.IcebergType], theirs: Mapping[str, ice.IcebergType]
) -> tuple[SharedColumn, ...]:
    """The columns of one name on both sides; where only the case differs, those too."""
    folded = {name.casefold(): name for name in theirs}
    found: list[SharedColumn] = []
    for name, of_type in ours.items():
        other = name if name in theirs else folded.get(name.casefold())
        if other is not None and (other == name or other not in ours):
            found.append(SharedColumn(name, other, of_type, theirs[other]))
    return tuple(found)


def staged_type(of_type: pa.DataType) -> pa.DataType:
    """The Arrow type in which a column is staged: times as numbers, texts and binaries of one width, uuids as texts."""
    if pa.types.is_timestamp(of_type) or pa.types.is_time64(of_type):
        return pa.int64()
    if pa.types.is_date32(of_type) or pa.types.is_time32(of_type):
        return pa.int32()
    if pa.types.is_large_string(of_type) or pa.types.is_string_view(of_type):
        return pa.string()
    if pa.types.is_large_binary(of_type) or pa.types.is_fixed_size_binary(of_type) or pa.types.is_binary_view(of_type):
        return pa.binary()
    if pa.types.is_struct(of_type):
        return pa.struct([each.with_type(staged_type(each.type)) for each in of_type])
    if pa.types.is_map(of_type):
        return pa.map_(staged_type(of_type.key_type), staged_type(of_type.item_type))
    if pa.types.is_list(of_type) or pa.types.is_large_list(of_type):
        return pa.list_(of_type.value_field.with_type(staged_type(of_type.value_type)))
    return of_type


def staged_column(column: pa.Array) -> pa.Array:
    """A column as it is staged, see `staged_type`."""
    if isinstance(column.type, pa.UuidType):
        return pa.array([None if each is None else str(each) for each in column.to_pylist()], pa.string())
    wanted = staged_type(column.type)
    return column if wanted == column.type else column.cast(wanted)


class StagedRows:
    """Rows of both sides in a folder, to be matched; as a context manager it ends DuckDB with its block.

    Args:
        folder: Empty folder, whose files the caller removes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Path = folder
        self._parts: dict[Side, list[Path]] = {"ours": [], "theirs": []}
        self._numbers: dict[Side, dict[str, int]] = {"ours": {}, "theirs": {}}
        self._rows: dict[Side, int] = {"ours": 0, "theirs": 0}
        self._absent: list[Path] = []
        self._db: duckdb.DuckDBPyConnection | None = None
        self._columns: tuple[SharedColumn, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._db is not None:
            self._db.close()

    def rows(self, side: Side) -> int:
        """How many rows are staged of a side."""
        return self._rows[side]

    def add(self, side: Side, rows: pa.RecordBatch | pa.Table, place: Mapping[str, pa.Array] | None = None) -> None:
        """Stage rows of one side.

        Args:
            rows: Columns by their names; all of one batch at most, as each makes a file.
            place: Topic, partition and offset of each row, if the side knows.
        """
        if not rows.num_rows:
            return
        numbers, first = self._numbers[side], self._rows[side]
        columns: dict[str, Any] = {"seq": pa.array(range(first, first + rows.num_rows), pa.int64())}
        for name, of_type in PLACE_TYPES.items():
            known = place[name] if place else pa.nulls(rows.num_rows, of_type)
            columns[name] = known.cast(of_type, safe=False) if known.type != of_type else known
        for name in rows.schema.names:
            column = rows.column(name)
            array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            columns[f"c{numbers.setdefault(name, len(numbers))}"] = staged_column(array)
        path = self._folder / f"{side}-{len(self._parts[side]):06d}.parquet"
        pq.write_table(pa.table(columns), path, compression="zstd")
        self._parts[side].append(path)
        self._rows[side] += rows.num_rows

    def add_absent(self, causes: Sequence[int], places: Sequence[Place]) -> None:
        """Stage records that make no row of ours.

        Args:
            causes: Number of the cause of each; the caller says what it means.
            places: Topic, partition and offset of each.
        """
        if not places:
            return
        columns: dict[str, Any] = {"cause": pa.array(causes, pa.int32())}
        for name, values in zip(PLACE, zip(*places, strict=True), strict=True):
            columns[name] = pa.array(values, PLACE_TYPES[name])
        path = self._folder / f"absent-{len(self._absent):06d}.parquet"
        pq.write_table(pa.table(columns), path, compression="zstd")
        self._absent.append(path)

    def match(self, columns: Sequence[SharedColumn], by: MatchBy, key: Sequence[str] = ()) -> None:
        """Match the rows of both sides; each has one partner at most.

        Args:
            columns: What is compared.
            key: Names of ours of the shared columns that identify a row, for `key`.
        """
        self._columns = tuple(columns)
        self._db = self._opened()
        self._make_view("ours")
        self._make_view("theirs")
        absent = f"read_parquet([{_quoted(self._absent)}])" if self._absent else f"({_NOTHING_ABSENT})"
        self._db.execute(f"CREATE TABLE absent AS SELECT * FROM {absent}")
        comparable = [f"k{n}" for n, each in enumerate(columns) if each.common is not None]
        keys = {"coordinates": list(PLACE), "key": [f"k{self._index(each)}" for each in key], "rows": []}[by]
        self._db.execute("CREATE TABLE pairs (o BIGINT, t BIGINT)")
        # Equal rows first: of rows with one key those belong together that are the same.
        if comparable:
            self._pair([*keys, *comparable])
        if keys:
            self._pair(keys)
        elif comparable:
            self._pair_nearest(comparable)

    def pairs(self, *, only_different: bool = True) -> Iterator[Pair]:
        """Matched rows with the values of the shared columns.

        Args:
            only_different: Leave out those that DuckDB knows to be equal.
        """
        columns = self._columns
        ours = [f"o.{self._column('ours', each.ours)}" for each in columns]
        theirs = [f"t.{self._column('theirs', each.theirs)}" for each in columns]
        unequal = [
            "TRUE" if each.common is None else f"o.k{n} IS DISTINCT FROM t.k{n}" for n, each in enumerate(columns)
        ]
        where = f"WHERE {' OR '.join(unequal)}" if only_different and unequal else "WHERE FALSE" if not unequal else ""
        values = ", ".join(f"{name} AS v{n}" for n, name in enumerate([*ours, *theirs]))
        sql = f"""
            SELECT o.topic AS topic, o.partition AS partition, o."offset" AS "offset"{", " if values else ""}{values}
            FROM pairs JOIN ours_v o ON o.seq = pairs.o JOIN theirs_v t ON t.seq = pairs.t {where}
            ORDER BY o.seq
        """
        for row in self._select(sql):
            yield Pair(row[:3], row[3 : 3 + len(ours)], row[3 + len(ours) :])

    def matched(self) -> int:
        """How many rows have a partner."""
        return self._count("SELECT count(*) FROM pairs")

    def last_matched(self) -> dict[tuple[str, int], int]:
        """By topic and partition: the greatest offset whose row has a partner."""
        sql = """
            SELECT topic, partition, max("offset") FROM ours_v JOIN pairs ON pairs.o = ours_v.seq
            GROUP BY topic, partition ORDER BY ALL
        """
        return {(topic, partition): offset for topic, partition, offset in self._select(sql)}

    def last_places(self, side: Side) -> dict[tuple[str, int], int]:
        """By topic and partition: the greatest offset of a side's rows that name theirs."""
        sql = f"""
            SELECT topic, partition, max("offset") FROM {side}_v WHERE "offset" IS NOT NULL
            GROUP BY topic, partition ORDER BY ALL
        """
        return {(topic, partition): offset for topic, partition, offset in self._select(sql)}

    def unmatched(self, side: Side, examples: int) -> Iterator[tuple[Place, tuple[Any, ...]]]:
        """Rows without a partner, by place, with the values of the shared columns of the first of them.

        Rows of the table whose record makes no row of ours are left out, see `absent`.

        Args:
            examples: How many come with values; the others have an empty tuple.
        """
        mine = "o" if side == "ours" else "t"
        names = [each.ours if side == "ours" else each.theirs for each in self._columns]
        values = "".join(f", v.{self._column(side, name)} AS v{n}" for n, name in enumerate(names))
        alone = f"FROM {side}_v v WHERE NOT EXISTS (SELECT 1 FROM pairs WHERE pairs.{mine} = v.seq)"
        if side == "theirs":
            alone += f" AND NOT EXISTS (SELECT 1 FROM absent a WHERE {_same_place('a', 'v')}) AND NOT {_SECOND}"
        shown = self._select(f'SELECT v.topic, v.partition, v."offset"{values} {alone} ORDER BY v.seq LIMIT {examples}')
        yield from ((row[:3], row[3:]) for row in shown)
        rest = self._select(f'SELECT v.topic, v.partition, v."offset" {alone} ORDER BY v.seq OFFSET {examples}')
        yield from ((row[:3], ()) for row in rest)

    def absent_there(self) -> dict[int, int]:
        """By cause: how many records without a row of ours have one in the table."""
        sql = f"""
            SELECT cause, count(*) FROM absent a
            WHERE EXISTS (SELECT 1 FROM theirs_v v WHERE {_same_place("a", "v")}) GROUP BY cause ORDER BY cause
        """
        return dict(self._select(sql))

    def filled(self, side: Side, column: str) -> int:
        """How many rows of a side have a value in one of its columns."""
        number = self._numbers[side].get(column)
        return 0 if number is None else self._count(f"SELECT count(c{number}) FROM {side}_v")

    def doubled(self) -> int:
        """Rows of the table beyond the first at their coordinates."""
        return self._count(
            "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM theirs_v "
            'WHERE "offset" IS NOT NULL GROUP BY topic, partition, "offset")'
        )

    def without_place(self) -> int:
        """Rows of the table whose coordinates are null."""
        return self._count('SELECT count(*) FROM theirs_v WHERE topic IS NULL OR partition IS NULL OR "offset" IS NULL')

    def at_places(self, places: Sequence[Place]) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Rows of the table at some coordinates, with the values of all its columns by name."""
        if not places or not self._parts["theirs"]:
            return
        assert self._db is not None
        topics, partitions, offsets = zip(*places, strict=True)
        asked = pa.table(
            {"topic": pa.array(topics), "partition": pa.array(partitions, pa.int32()), "offset": pa.array(offsets)}
        )
        self._make_table("asked", asked)
        names = self._numbers["theirs"]
        values = "".join(f", v.c{number} AS v{number}" for number in names.values())
        sql = f"""
            SELECT DISTINCT ON (v.topic, v.partition, v."offset") v.topic, v.partition, v."offset"{values}
            FROM theirs_v v JOIN asked a ON v.topic = a.topic AND v.partition = a.partition AND v."offset" = a."offset"
            ORDER BY v.topic, v.partition, v."offset", v.seq
        """
        for row in self._select(sql):
            yield row[:3], dict(zip(names, row[3:], strict=True))

    def _opened(self) -> duckdb.DuckDBPyConnection:
        with without_pandas():
            import duckdb
        spill = self._folder / "spill"
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _MEMORY,
            "temp_directory": str(spill),
            "preserve_insertion_order": False,
            "autoload_known_extensions": False,
            "autoinstall_known_extensions": False,
            "python_enable_replacements": False,
        }
        return duckdb.connect(str(self._folder / "rows.duckdb"), config=config)

    def _make_view(self, side: Side) -> None:
        """The staged rows of a side, with each shared column once more in the type in which both are compared."""
        assert self._db is not None
        if not self._parts[side]:
            fields = [pa.field("seq", pa.int64()), *(pa.field(name, kind) for name, kind in PLACE_TYPES.items())]
            path = self._folder / f"{side}-empty.parquet"
            columns = {each.name: pa.nulls(0, each.type) for each in fields}
            names = {each.ours if side == "ours" else each.theirs for each in self._columns}
            numbers = self._numbers[side]
            columns |= {f"c{numbers.setdefault(name, len(numbers))}": pa.nulls(0, pa.int8()) for name in sorted(names)}
            pq.write_table(pa.table(columns), path)
            self._parts[side].append(path)
        compared = ""
        for number, each in enumerate(self._columns):
            name, of_type = (each.ours, each.our_type) if side == "ours" else (each.theirs, each.their_type)
            if each.common is not None:
                compared += f", {_in_common(self._column(side, name), of_type, each.common)} AS k{number}"
        files = f"read_parquet([{_quoted(self._parts[side])}], union_by_name=true)"
        self._db.execute(f"CREATE TABLE {side}_v AS SELECT *{compared} FROM {files}")

    def _pair(self, names: Sequence[str]) -> None:
        """Pair the rows that are left and have the same values of these columns, one with one in their order."""
        assert self._db is not None
        # Rows without coordinates belong to no record.
        known = "" if "offset" not in names else 'AND v."offset" IS NOT NULL'
        quoted = [f'"{name}"' for name in names]

        def numbered(side: Side, mine: str) -> str:
            return (
                f"SELECT seq, {', '.join(quoted)}, "
                f"row_number() OVER (PARTITION BY {', '.join(quoted)} ORDER BY seq) AS n FROM {side}_v v "
                f"WHERE NOT EXISTS (SELECT 1 FROM pairs WHERE pairs.{mine} = v.seq) {known}"
            )

        same = " AND ".join(f"o.{name} IS NOT DISTINCT FROM t.{name}" for name in quoted)
        self._db.execute(
            f"INSERT INTO pairs WITH o AS ({numbered('ours', 'o')}), t AS ({numbered('theirs', 't')}) "
            f"SELECT o.seq, t.seq FROM o JOIN t ON {same} AND o.n = t.n"
        )

    def _pair_nearest(self, names: Sequence[str]) -> None:
        """Pair rows that are left with those that have most values in common."""
        assert self._db is not None
        left: dict[Side, list[tuple[Any, ...]]] = {}
        sides: tuple[tuple[Side, str], ...] = (("ours", "o"), ("theirs", "t"))
        for side, mine in sides:
            sql = (
                f"SELECT seq, {', '.join(names)} FROM {side}_v v WHERE NOT EXISTS "
                f"(SELECT 1 FROM pairs WHERE pairs.{mine} = v.seq) ORDER BY seq DESC LIMIT {MOST_NEAREST}"
            )
            left[side] = list(self._select(sql))
        found = nearest_pairs([row[1:] for row in left["ours"]], [row[1:] for row in left["theirs"]])
        if found:
            rows = pa.table(
                {
                    "o": pa.array([left["ours"][mine][0] for mine, _ in found], pa.int64()),
                    "t": pa.array([left["theirs"][other][0] for _, other in found], pa.int64()),
                }
            )
            self._make_table("nearest", rows)
            self._db.execute("INSERT INTO pairs SELECT o, t FROM nearest")

    def _make_table(self, name: str, rows: pa.Table) -> None:
        """A table of DuckDB's own: cursors do not see what is only registered."""
        assert self._db is not None
        self._db.register("given", rows)
        self._db.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
        self._db.unregister("given")

    def _select(self, sql: str) -> Iterator[tuple[Any, ...]]:
        assert self._db is not None, "the rows are not matched yet"
        # A cursor of its own, so that another answer can be read meanwhile.
        with self._db.cursor() as cursor:
            relation = cursor.sql(sql)
            assert relation is not None, "a SELECT has rows"
            for batch in relation.to_arrow_reader(BATCH_ROWS):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def _count(self, sql: str) -> int:
        ((count,),) = self._select(sql)
        return int(count)

    def _index(self, ours: str) -> int:
        return next(n for n, each in enumerate(self._columns) if each.ours == ours)

    def _column(self, side: Side, name: str) -> str:
        return f"c{self._numbers[side][name]}"


def nearest_pairs(ours: Sequence[tuple[Any, ...]], theirs: Sequence[tuple[Any, ...]]) -> list[tuple[int, int]]:
    """Indexes of rows that have most values in common, at least half of them; each row is in one pair at most.

    A value that more than twenty rows of the other side have says nothing of which it is.

    Args:
        ours: Values of the compared columns.
        theirs: Values of the same columns.
    """
    columns = range(len(ours[0])) if ours else range(0)
    having: list[dict[str, list[int]]] = [{} for _ in columns]
    for number, row in enumerate(theirs):
        for column in columns:
            having[column].setdefault(repr(row[column]), []).append(number)
    votes: list[tuple[int, int, int]] = []
    for mine, row in enumerate(ours):
        candidates = {
            other
            for column in columns
            if len(found := having[column].get(repr(row[column]), ())) <= _COMMON_VALUE
            for other in found
        }
        for other in candidates:
            same = sum(repr(row[column]) == repr(theirs[other][column]) for column in columns)
            if 2 * same >= len(columns):
                votes.append((-same, mine, other))
    pairs: list[tuple[int, int]] = []
    ours_taken, theirs_taken = set[int](), set[int]()
    for _, mine, other in sorted(votes):
        if mine not in ours_taken and other not in theirs_taken:
            pairs.append((mine, other))
            ours_taken.add(mine)
            theirs_taken.add(other)
    return sorted(pairs)


def _kind(of_type: ice.IcebergType) -> tuple[str, str] | None:
    """What values of a type are, and the SQL type in which DuckDB compares them; None if only Python can."""
    match of_type:
        case ice.IntegerType() | ice.LongType():
            return "integer", "BIGINT"
        case ice.FloatType() | ice.DoubleType():
            return "float", "DOUBLE"
        case ice.StringType() | ice.UUIDType():
            return str(of_type), "VARCHAR"
        case ice.BooleanType():
            return "boolean", "BOOLEAN"
        case ice.BinaryType() | ice.FixedType():
            return "bytes", "BLOB"
        case ice.DateType():
            return "date", "INTEGER"
        case ice.TimeType():
            return "time", "BIGINT"
        case ice.TimestampType() | ice.TimestamptzType():
            return "timestamp", "BIGINT"
        case _:
            return None


def _same_place(first: str, second: str) -> str:
    return " AND ".join(f'{first}."{name}" = {second}."{name}"' for name in PLACE)


def _quoted(paths: Sequence[Path]) -> str:
    return ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)


def _in_common(column: str, of_type: ice.IcebergType, common: str) -> str:
    return f"CAST({column} AS {common})" if common and of_type.is_primitive else column
