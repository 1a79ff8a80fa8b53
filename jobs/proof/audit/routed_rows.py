"""Routed rows in a full audit: whether each row is in a table that its route names.

Counts do not show this: a row in the wrong table leaves all counts unchanged. So every row of every table is judged by
the configuration under which its offset was read, with the row's values. The ledger has those configurations, and the
state store has their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.state_store.epochs import read_file
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.documents.yaml_document import YamlUnreadable, parse_yaml
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.proof.audit.audit_ranges import OffsetRanges
from jobs.proof.audit.audit_result import (
    AuditProblem,
    NotJudged,
    RouteAudit,
    StreamAudit,
)
from jobs.proof.audit.replayed_rows import replayed_offsets
from jobs.proof.audit.route_judge import (
    LATER_NAMED,
    RouteJudge,
    Unprovable,
    route_judge,
)
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.ledger.ledger_row import LedgerRow, effective_rows
from jobs.tables.ledger.ledger_table import read_ledger
from jobs.tables.ledger.row_counter import missing_column
from jobs.tables.write.data_file_rows import equality_deletes_named

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]
_CAME_BACK = "their dead letters came back"


class StoredSpecs:
    """Lookup of the spec of a configuration hash."""

    def __init__(self, spec: StreamSpec, settings: Settings) -> None:
        self._settings: Settings = settings
        self._stream: str = spec.stream
        self._known: dict[str, StreamSpec | Unprovable] = {spec.config_hash: spec}

    def spec(self, config: str) -> StreamSpec | Unprovable:
        """The spec, or the reason why it is unknown."""
        if config not in self._known:
            self._known[config] = self._read(config)
        return self._known[config]

    def _read(self, config: str) -> StreamSpec | Unprovable:
        text = read_file(stream_folder(self._settings, self._stream).store, config, "")
        if text is None:
            return Unprovable("the stream's file as it was then is not kept")
        try:
            document = parse_yaml(text, shown=f"configuration {config}")
            found = StreamSpec.model_validate(document.data, context={"base": self._settings.home / "streams"})
        except (YamlUnreadable, ValidationError, FrazilError):
            return Unprovable("this version does not read the stream's file as it was then")
        if found.config_hash != config:
            # A file that it names has changed since, or this version hashes more of it.
            return Unprovable("the stream's file as it was then means something else by now")
        return found


class ReadConfigurations:
    """Lookup of the configurations under which an offset was read; several if it was read again.

    Args:
        rows: Ledger rows of the coordinator; also of a former table of its name.
    """

    def __init__(self, rows: Iterable[LedgerRow]) -> None:
        ranges: dict[TopicPartition, list[tuple[OffsetRange, str]]] = {}
        for row in effective_rows(rows):
            if row.kind == "batch" and row.range.end > row.range.start:
                ranges.setdefault(row.partition, []).append((row.range, row.config))
        self.configs: tuple[str, ...] = tuple(sorted({config for each in ranges.values() for _, config in each}))
        self._spans: dict[TopicPartition, tuple[Offsets, list[frozenset[str]]]] = {
            place: _spans(each) for place, each in ranges.items()
        }

    def of(self, place: TopicPartition, offsets: Offsets) -> Iterator[tuple[frozenset[str], Offsets]]:
        """Configurations of some offsets of a partition, with the indices of their offsets.

        Offsets that no batch read are left out.
        """
        if place not in self._spans:
            return
        starts, configs = self._spans[place]
        at = np.searchsorted(starts, offsets, side="right") - 1
        numbers = {each: number for number, each in enumerate(dict.fromkeys(configs))}
        of_span = np.array([numbers[each] for each in configs], np.int64)
        known = np.where(at >= 0, of_span[at], -1)
        for each, number in numbers.items():
            if each and len(found := np.flatnonzero(known == number)):
                yield each, found


def _spans(ranges: list[tuple[OffsetRange, str]]) -> tuple[Offsets, list[frozenset[str]]]:
    """Offsets at which the set of configurations changes, ascending, with the set from there on."""
    changes: dict[int, list[tuple[str, int]]] = {}
    for range_, config in ranges:
        changes.setdefault(range_.start, []).append((config, 1))
        changes.setdefault(range_.end, []).append((config, -1))
    open_: dict[str, int] = {}
    starts: list[int] = []
    sets: list[frozenset[str]] = []
    for offset in sorted(changes):
        for config, step in changes[offset]:
            open_[config] = open_.get(config, 0) + step
        now = frozenset(config for config, count in open_.items() if count > 0)
        if not sets or sets[-1] != now:
            starts.append(offset)
            sets.append(now)
    return np.array(starts, np.int64), sets


def judge_routes(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    tables: Sequence[tuple[TargetSpec, Table]],
    names: frozenset[str],
    found: StreamAudit,
) -> None:
    """Judge every row of a stream's tables of rows, and add the problems; nothing if it never had a route.

    Args:
        tables: Tables to judge.
        names: Names of all tables of the stream, also of those that its file no longer names.

    Raises:
        FrazilError: A table cannot be read.
    """
    read = ReadConfigurations(read_ledger(catalog, settings, spec.stream, spec.coordinator))
    stored = StoredSpecs(spec, settings)
    known = [each for config in read.configs if isinstance(each := stored.spec(config), StreamSpec)]
    if not any(each.route for each in known):
        return

    def on_rows(rows: int) -> None:
        found.scanned += rows

    letters = existing_table(catalog, spec.dead_letter_table)
    work = _Work(spec, stored, read, names, letters)
    for target, table in tables:
        if target.role != "rows":
            continue
        if lacking := missing_column(table, target.coordinates):
            work.leave_out(target.name, None, _row_count(table), f"the table has no column {lacking}")
            continue
        work.judge_table(target, table, on_rows)
    found.route = work.facts
    found.problems += work.problems()


def _row_count(table: Table) -> int:
    snapshot = table.current_snapshot()
    return int(snapshot.summary["total-records"] or 0) if snapshot and snapshot.summary else 0


@dataclass(slots=True)
class _Wrong:
    """Rows of one partition in a table where they do not belong."""

    offsets: list[Offsets] = field(default_factory=list)
    example: tuple[int, tuple[str, ...] | None] | None = None

    def add(self, offsets: Offsets, destinations: tuple[str, ...] | None) -> None:
        self.offsets.append(offsets)
        if self.example is None or int(offsets[0]) < self.example[0]:
            self.example = int(offsets[0]), destinations


class _Work:
    def __init__(
        self,
        spec: StreamSpec,
        stored: StoredSpecs,
        read: ReadConfigurations,
        names: frozenset[str],
        letters: Table | None,
    ) -> None:
        self._spec: StreamSpec = spec
        self._stored: StoredSpecs = stored
        self._read: ReadConfigurations = read
        self._names: frozenset[str] = names
        self._letters: Table | None = letters
        self._back: Mapping[TopicPartition, Offsets] | None = None
        self._wrong: dict[tuple[str, TopicPartition], _Wrong] = {}
        self._left: dict[tuple[str, str | None, str], int] = {}
        self._judged: int = 0

    @property
    def facts(self) -> RouteAudit:
        left = (NotJudged(*key, rows) for key, rows in sorted(self._left.items(), key=lambda each: str(each[0])))
        return RouteAudit(self._judged, tuple(left))

    def leave_out(self, table: str, config: str | None, rows: int, why: str) -> None:
        if rows:
            self._left[table, config, why] = self._left.get((table, config, why), 0) + rows

    def judge_table(self, target: TargetSpec, table: Table, on_rows: Callable[[int], None]) -> None:
        judges = {config: self._judge(config, target, table) for config in self._read.configs}
        needed = {name for each in judges.values() if isinstance(each, RouteJudge) for name in each.needs}
        columns = (*target.coordinates, *sorted(needed - set(target.coordinates)))
        if table.current_snapshot() is None:
            return
        try:
            with equality_deletes_named(target.name):
                for batch in table.scan(selected_fields=columns).to_arrow_batch_reader():
                    self._judge_batch(target, judges, batch)
                    on_rows(batch.num_rows)
        except FrazilError:
            raise
        except Exception as problem:
            raise FrazilError(
                f"the rows of table {target.name} cannot be read: {type(problem).__name__}: {problem}",
                fix="run it again; if the result is the same, look at who else writes to the table, and how",
            ) from problem

    def _judge(self, config: str, target: TargetSpec, table: Table) -> RouteJudge | Unprovable:
        found = self._stored.spec(config)
        if not isinstance(found, StreamSpec):
            return found
        dependent = found.tables_follow and not target.coordinator
        schemas = table.metadata.schemas
        return route_judge(found, target.name, table.schema(), schemas, self._names, dependent=dependent)

    def _judge_batch(
        self, target: TargetSpec, judges: Mapping[str, RouteJudge | Unprovable], batch: pa.RecordBatch
    ) -> None:
        topics, partitions, offsets = (batch.column(name) for name in target.coordinates)
        there = np.asarray(topics.is_valid()) & np.asarray(partitions.is_valid()) & np.asarray(offsets.is_valid())
        coded = topics.dictionary_encode()
        names = coded.dictionary.to_pylist()
        keys = np.asarray(coded.indices.fill_null(0)).astype(np.int64) << 32
        keys += np.asarray(partitions.fill_null(0)).astype(np.int64)
        at = np.asarray(offsets.fill_null(0)).astype(np.int64)
        for key in np.unique(keys[there]).tolist():
            place = TopicPartition(names[key >> 32], key & 0xFFFFFFFF)
            here = np.flatnonzero(there & (keys == key))
            for configs, found in self._read.of(place, at[here]):
                self._judge_rows(target, judges, configs, batch, place, here[found])

    def _judge_rows(
        self,
        target: TargetSpec,
        judges: Mapping[str, RouteJudge | Unprovable],
        configs: frozenset[str],
        batch: pa.RecordBatch,
        place: TopicPartition,
        rows: Offsets,
    ) -> None:
        """Judge rows of one partition; an offset that was read repeatedly may have any of its configurations."""
        part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
        offsets = np.asarray(part.column(target.coordinates[2])).astype(np.int64)
        allowed, unknown = np.zeros(len(rows), bool), dict[str, Unprovable]()
        perhaps = np.zeros(len(rows), bool)
        destinations: list[Callable[[int], tuple[str, ...] | None]] = []
        for config in sorted(configs):
            judge = judges[config]
            if isinstance(judge, Unprovable):
                unknown[config] = judge
                continue
            try:
                verdict = judge.verdict(part)
            except pa.ArrowInvalid as problem:
                unknown[config] = Unprovable(f"its values do not fit the route's columns: {problem}")
                continue
            allowed |= verdict.here
            perhaps |= verdict.perhaps
            destinations.append(verdict.destinations)
        wrong = ~allowed
        if unknown:
            config, why = next(iter(unknown.items()))
            self.leave_out(target.name, config, int(wrong.sum()), why.why)
        elif wrong.any():
            back = self._came_back(place, offsets) & wrong
            self.leave_out(target.name, None, int(back.sum()), _CAME_BACK)
            wrong &= ~back
            config = min(configs) if len(configs) == 1 else None
            self.leave_out(target.name, config, int((wrong & perhaps).sum()), LATER_NAMED)
            wrong &= ~perhaps
            if wrong.any():
                first = int(np.flatnonzero(wrong)[np.argmin(offsets[wrong])])
                found = self._wrong.setdefault((target.name, place), _Wrong())
                found.add(np.sort(offsets[wrong]), destinations[0](first))
            self._judged += int(wrong.sum())
        self._judged += int(allowed.sum())

    def _came_back(self, place: TopicPartition, offsets: Offsets) -> Mask:
        """Which rows may be of replayed dead letters, with another route or a correction."""
        if self._letters is None:
            return np.zeros(len(offsets), bool)
        if self._back is None:
            self._back = replayed_offsets(self._spec.stream, self._letters)
        return np.isin(offsets, self._back.get(place, np.zeros(0, np.int64)))

    def problems(self) -> list[AuditProblem]:
        """A problem for each table and partition with misplaced rows."""
        found: list[AuditProblem] = []
        for (table, place), wrong in sorted(self._wrong.items()):
            offsets = np.unique(np.concatenate(wrong.offsets))
            rows, where = sum(map(len, wrong.offsets)), OffsetRanges()
            where.add(offsets, 0)
            assert wrong.example is not None
            at, names = wrong.example
            belongs = "" if names is None else f", such as {at}, which belongs in {' and '.join(names) or 'no table'}"
            said = f"{rows:,} row{'' if rows == 1 else 's'} of records that the route does not send there{belongs}"
            range_ = OffsetRange(int(offsets[0]), int(offsets[-1]) + 1)
            kept = tuple(where.kept)
            found.append(AuditProblem("misrouted", table, place, range_, rows, said, kept, not where.more, where.more))
        return found
