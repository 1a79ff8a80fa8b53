"""Schema runs: repeat a batch's tasks until the stream's tables have what its records need, or it is refused.

Files written for the schema before a change are dropped, as they lack what the change adds. If each table of the stream
has its own columns, each is judged separately and altered in its own commit; then the tasks run again once for all
altered tables. Dependent tables are altered after the main table, before the tasks run again.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.evolution import Evolution
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults, drop_files
from jobs.streaming.driver.context.second_run import table_as_decided
from jobs.streaming.driver.tables.follower_tables import FollowerTables
from jobs.streaming.driver.tables.parked_tables import parked_where_refused
from jobs.streaming.driver.tables.schema_evolution import ROUNDS, SchemaEvolution
from jobs.tables.commit.protocol.proposals import Seen
from jobs.tables.commit.stamp.target_positions import TargetNeed

_MOST_RUNS = 20


class SchemaRuns:
    """Runs the tasks of batches, and again after each change of a table that their records need."""

    def __init__(self, stream: OpenStream) -> None:
        self._stream: OpenStream = stream
        self._evolutions: dict[str, SchemaEvolution] = {}
        self._followers: FollowerTables = FollowerTables(stream)

    def run(self, tasks: Callable[[bool], TaskResults], batch: int) -> tuple[dict[str, Seen], TaskResults]:
        """Run the tasks of a batch, again after changes of tables; returns the tables' states and the results.

        The first run may be a survey: tasks leave records undecided that need a change which is likely to be made, and
        the next run decides.

        Args:
            tasks: Runs them, by a plan of the tables' present state, as a survey or not.

        Raises:
            SchemaChangeError: The policy stops the stream for such a change; the files are dropped.
        """
        targets, made = self._stream.targets, Counter[str]()
        for number in range(_MOST_RUNS):
            for each in self._evolutions.values():
                each.forget()
            self._followers.follow(batch)
            seen = {name: target.seen() for name, target in targets.items()}
            results = tasks(number == 0 and self._surveys())
            try:
                # Records that are refused one after the other would repeat a batch endlessly.
                verdicts = self._decided(results, batch, made if number < _MOST_RUNS // 2 else None)
            except BaseException:
                drop_files(results, targets, keep=frozenset())
                raise
            # Every table has to note what it refuses.
            again = [
                self._of(name).refuse(verdict) or self._of(name).differs(seen) for name, verdict in verdicts.items()
            ]
            if not any(again) and not results.undecided:
                return seen, results
            if results.undecided:
                self._note_vain(results, seen)
            else:
                made.update(name for name, verdict in verdicts.items() if verdict.changes)
            drop_files(results, targets, keep=frozenset())
        raise FrazilError(
            f"stream {self._stream.spec.stream}: batch {batch} was run {_MOST_RUNS} times and each time the schema of "
            f"table {' or '.join(sorted(made) or [self._stream.spec.table.name])} had changed meanwhile.",
            fix="let the other writers finish, then start the stream again",
        )

    def run_again(
        self,
        tasks: Callable[[bool], TaskResults],
        schemas: Mapping[str, Schema],
        needs: Mapping[str, TargetNeed],
        batch: int,
    ) -> tuple[dict[str, Seen], TaskResults]:
        """Run the tasks of a batch whose rows have landed: records' needs change no table. Returns as `run`.

        What a table lacked stays refused. Dependent tables that were altered since get the columns that the main
        table's rows had.

        Args:
            tasks: Runs them as in `run`, by a plan of the tables' former state; never as a survey.
            schemas: Former schemas of the tables, by name.
        """
        stream = self._stream
        before, decided = copy.deepcopy(stream.refused), partial(table_as_decided, stream, needs)
        try:
            while True:
                self._followers.follow_as_decided(decided, batch)
                seen = {name: target.seen() for name, target in stream.targets.items()}
                results = tasks(False)
                # Every table has to note what it refuses.
                again = [self._of(name).refuse_again(needs, schemas[name]) for name, needs in results.needs.items()]
                if not any(again):
                    return seen, results
                drop_files(results, stream.targets, keep=frozenset())
        finally:
            stream.refused.clear()
            stream.refused.update(before)

    def _decided(self, results: TaskResults, batch: int, made: Mapping[str, int] | None) -> dict[str, Evolution]:
        """Verdict on the needs of each table that has any.

        Args:
            made: Number of times each table was altered for the batch; None: no further changes are made.
        """
        found: dict[str, Evolution] = {}
        with parked_where_refused(self._stream) as on:
            for name, needs in results.needs.items():
                with on(name):
                    may_change = made is not None and made.get(name, 0) < ROUNDS
                    verdict = self._of(name).decide(needs, batch, may_change=may_change)
                    found |= {} if verdict is None else {name: verdict}
        return found

    def _of(self, table: str) -> SchemaEvolution:
        if table not in self._evolutions:
            self._evolutions[table] = SchemaEvolution(self._stream, table)
        return self._evolutions[table]

    def _surveys(self) -> bool:
        """Whether the first run of a batch is a survey, which leaves out tables without one."""
        spec = self._stream.spec
        if not spec.evolution.surveys or not FORMATS[spec.decode.format].surveys:
            return False
        left_out = self._stream.unsurveyed
        left_out.clear()
        left_out |= {name for name, each in self._evolutions.items() if not each.surveys()}
        return spec.own_columns or spec.table.name not in left_out

    def _note_vain(self, results: TaskResults, seen: Mapping[str, Seen]) -> None:
        """Note the surveyed tables that did not change."""
        for name in results.needs or ([] if self._stream.spec.own_columns else [self._stream.spec.table.name]):
            if not self._of(name).differs(seen):
                self._of(name).surveyed_in_vain()
