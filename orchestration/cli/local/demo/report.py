"""Report of the demo: sums of the stamps and of the tables' own rows, and where to look next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from rich.console import Console
from rich.table import Table

from jobs.clients.catalog.catalog import find_table
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.target_positions import restart_positions, target_positions


@dataclass(frozen=True, slots=True)
class StampedCounts:
    """Counts of the stamps on the stream's table.

    Attributes:
        totals: Records since the stream's first run.
        position: Next offset per partition.
        whole: Whether the dead letters are as new as the table: they are committed a moment later.
    """

    totals: Counts
    position: dict[TopicPartition, int]
    whole: bool = True

    @property
    def passed(self) -> int:
        """Records that became a row, a dead letter or a tombstone."""
        return self.totals.landed + self.totals.dead + self.totals.tombstones


def stamped_counts(catalog: Catalog, spec: StreamSpec) -> StampedCounts:
    """The counts of the newest stamps; all zero before the first run."""
    tables = {name: find_table(catalog, name, spec.branch_of(name)) for name in spec.target_names}
    stamps = {name: history(table.metadata, spec.stream).newest if table else None for name, table in tables.items()}
    stamp = stamps[spec.coordinator]
    if stamp is None:
        return StampedCounts(Counts(), {})
    complete = restart_positions(target_positions(stamps, spec.coordinator))
    return StampedCounts(stamp.totals, dict(stamp.position), whole=complete == dict(stamp.position))


@dataclass(frozen=True, slots=True)
class TableSums:
    """Rows of the tables, counted one by one through PyIceberg, and the records that the topic was given.

    Attributes:
        produced: Records between the topic's first and last offset.
        rows: Rows of the stream's table.
        dead: Rows of the dead-letter table.
        distinct: Different (partition, offset) among both together; None if the rows do not carry them.
        tombstones: Tombstones by the stamps, since a tombstone leaves no row.
        reasons: Dead letters by class.
    """

    produced: int
    rows: int
    dead: int
    distinct: int | None
    tombstones: int
    reasons: dict[str, int]

    @property
    def right(self) -> bool:
        """Whether the tables have every record exactly once."""
        once = self.distinct is None or self.distinct == self.rows + self.dead
        return once and self.produced == self.rows + self.dead + self.tombstones


def table_sums(catalog: Catalog, spec: StreamSpec, kafka: KafkaLog) -> TableSums:
    """Count what the tables hold of the stream's topics."""
    log = kafka.state(spec.source)
    produced = sum(end - log.earliest[at] for at, end in log.latest.items())
    columns = spec.kafka_columns
    with_offsets = set(columns.coordinates) <= columns.names
    landed = _scan(stream_table(catalog, spec, spec.table.name), columns.coordinates if with_offsets else ())
    failed = _scan(catalog.load_table(spec.dead_letter_table), ("topic", "partition", "offset", "error_class"))
    distinct = None
    if with_offsets:
        names = ["topic", "partition", "offset"]
        both = pa.concat_tables([landed.rename_columns(names), failed.select(names)], promote_options="permissive")
        distinct = both.group_by(names).aggregate([]).num_rows
    reasons = Counter(failed.column("error_class").to_pylist())
    return TableSums(
        produced,
        landed.num_rows,
        failed.num_rows,
        distinct,
        stamped_counts(catalog, spec).totals.tombstones,
        dict(reasons.most_common()),
    )


def _scan(table: IcebergTable, columns: tuple[str, ...]) -> pa.Table:
    scan = table.scan(selected_fields=columns) if columns else table.scan()
    return scan.to_arrow()


@dataclass(frozen=True, slots=True)
class Demo:
    """The facts of a demo.

    Attributes:
        produced: Payments that the broker acknowledged in this demo.
        waiting_before: Records that waited in the topic when it began.
        landed, dead, tombstones: Records of this demo, by the stamps.
        tables: Sums of the tables, all demos together.
        asset: The table's key in Dagster.
        first_row_seconds: Seconds from the start of the command to the first commit of records.
    """

    produced: int
    waiting_before: int
    landed: int
    dead: int
    tombstones: int
    tables: TableSums
    asset: list[str]
    stream: str
    first_row_seconds: float | None
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the sums are right, of this demo and of all."""
        return self.produced + self.waiting_before == self.landed + self.dead + self.tombstones and self.tables.right


def print_report(console: Console, demo: Demo, url: str, beat: Heartbeat | None) -> None:
    """Print the sums, the dead letters by reason, and where to look next."""
    _print_sums(console, demo)
    if demo.tables.reasons:
        reasons = Table(
            title="dead letters by reason", title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        reasons.add_column("error class")
        reasons.add_column("records", justify="right")
        for reason, count in demo.tables.reasons.items():
            reasons.add_row(reason, f"{count:,}")
        console.print(reasons)
        console.print()
    first = "–" if demo.first_row_seconds is None else f"{demo.first_row_seconds:.0f} s"
    console.print(f"First rows landed {first} after the start; all of it took {demo.seconds:.0f} s.")
    console.print(f"\n[bold]Where to look next[/]\n  Dagster    {url}/assets/{'/'.join(demo.asset)}")
    if beat is not None and not beat.final:
        for name, link in (("Spark UI", beat.ui_url), ("metrics", beat.metrics_url)):
            if link:
                console.print(f"  {name:<10} {link}")
    for command, meaning in (
        ("frazil status", "the state of every stream"),
        (f"frazil pause {demo.stream}", "the driver stays, and reads nothing until `frazil resume`"),
        ("frazil validate", "the streams' files against what is live"),
    ):
        console.print(f"  {command:<22} {meaning}", markup=False)
    console.print()


def _print_sums(console: Console, demo: Demo) -> None:
    sums = Table(box=None, pad_edge=False, header_style="bold")
    sums.add_column("")
    sums.add_column("this demo", justify="right")
    sums.add_column("in the tables", justify="right")
    tables = demo.tables
    rows: list[tuple[str, int | None, int]] = [("produced", demo.produced, tables.produced)]
    if demo.waiting_before:
        rows.append(("+ waiting from before", demo.waiting_before, 0))
    rows += [
        ("landed", demo.landed, tables.rows),
        ("dead letters", demo.dead, tables.dead),
        ("tombstones", demo.tombstones, tables.tombstones),
    ]
    for name, here, everywhere in rows:
        sums.add_row(name, f"{here:,}", f"{everywhere:,}")
    here = demo.produced + demo.waiting_before - demo.landed - demo.dead - demo.tombstones
    everywhere = tables.produced - tables.rows - tables.dead - tables.tombstones
    sums.add_row("missing or doubled", f"{here:,}", f"{everywhere:,}", style="bold green" if demo.right else "bold red")
    console.print()
    console.print(sums)
    if tables.distinct is not None:
        console.print(
            f"[dim]Counted row by row: {tables.rows + tables.dead:,} rows, {tables.distinct:,} different offsets.[/]"
        )
    verdict = (
        "[bold green]Produced = landed + dead letters + tombstones.[/]"
        if demo.right
        else "[bold red]It does not add up.[/]"
    )
    console.print(verdict)
    console.print()
