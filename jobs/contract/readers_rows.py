"""Readers' rows: the table that rows are held against, as its readers have it, or are about to.

Readers of a gated stream see `main`. What the stream has landed on its branch is theirs once it is published, and what
was discarded there never is. So rows are held against `main` together with what waits for its publication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.contract.earlier_rows import EarlierRows
from jobs.contract.usual_volume import Extent
from jobs.errors import FrazilError
from jobs.increment.increment import Increment
from jobs.increment.row_selection import RowSelection, whole_table
from jobs.publish.publishing import unpublished
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.targets import TargetSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Beside:
    """What rows that are checked are held against.

    Attributes:
        everything: All rows of the table, those that are checked among them.
        counted: Those that count for its rows per hour; None: all.
        alone: Whether the rows that are checked are the whole table.
        now: By which hours are over; None: they are by later rows alone.
        hours: Which are judged.
    """

    everything: RowSelection
    counted: RowSelection | None = None
    alone: bool = False
    now: datetime | None = None
    hours: Extent = "new"

    def context(
        self,
        rows: pa.Table | DataFrame,
        spark: Callable[[], SparkSession],
        settings: Settings,
        time_column: str | None,
    ) -> Mapping[str, Any]:
        """What an evaluation is told of it, as arguments of an `EvaluationContext`.

        Args:
            rows: That are checked.
            spark: Starts Spark, or gives the session that runs.
            time_column: Kafka's timestamp, as the table calls it.
        """
        earlier = EarlierRows(self.everything, rows, spark, settings)
        counted = replace(earlier, everything=self.counted or self.everything)
        past = partial(counted.past_volumes, time_column=time_column)
        return {
            "earlier_keys": None if self.alone else earlier.keys,
            "past_volumes": _none_before if self.alone else past,
            "now": self.now,
            "hours": self.hours,
        }


def beside(
    spec: StreamSpec,
    target: TargetSpec,
    table: Table,
    found: Increment,
    *,
    alone: bool = False,
    now: datetime | None,
    hours: Extent = "new",
) -> Beside:
    """What rows of a branch are held against.

    Args:
        table: As it is, not as a branch has it.
        found: The branch, and the snapshot that the check reaches up to.
    """
    head = found.head.snapshot_id if found.head else None
    everything = readers_rows(spec, target, table, found.branch, head)
    counted = None
    if target.role == "dead_letters" and head is not None:
        # Other streams may have theirs there, too.
        counted = whole_table(table, target.coordinates, spec.stream, snapshot_id=head)
    return Beside(everything, counted, alone=alone, now=now, hours=hours)


def _none_before(_: str | None, first: datetime, last: datetime) -> Mapping[datetime, int]:
    return {}


def readers_rows(spec: StreamSpec, target: TargetSpec, table: Table, branch: str, head: int | None) -> RowSelection:
    """All rows of a table beside which a check sees its own.

    Args:
        table: As it is, not as a branch has it.
        branch: That is checked.
        head: Its snapshot that the check reaches up to; None: it has none.
    """
    gated = spec.publish is not None and target.name == spec.table.name
    if gated and branch == target.branch != MAIN_BRANCH:
        try:
            waiting = unpublished(spec, table, unfinished=True)
        except FrazilError:
            # Nobody can say now what main lacks. The branch has all of it, and what was discarded, too.
            waiting = None
        if waiting is not None:
            return with_main(table, target, waiting.files)
    if head is None:
        return RowSelection(table, None)
    return whole_table(table, target.coordinates, None, snapshot_id=head)


def with_main(table: Table, target: TargetSpec, files: Sequence[DataFile]) -> RowSelection:
    """The rows of `main`, and those of files that are to become part of it."""
    return replace(whole_table(table, target.coordinates, None), files=tuple(files))
