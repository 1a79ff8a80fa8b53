"""Output of `frazil run`: the progress, and the summary at its end."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from jobs.stream.drain import DrainProgress
from jobs.stream.open_stream import OpenStream
from orchestration.cli.run.measurement import Meter
from orchestration.cli.terminal import landing_bar
from orchestration.formatting import span, thousands

_SHOWN_FIELDS = 5


def progress_on(console: Console, meter: Meter) -> Bar | Lines:
    """A bar on a terminal, lines elsewhere; the meter is told of every batch."""
    return Bar(console, meter) if console.is_terminal else Lines(console, meter)


class Lines:
    """One line per batch, where there is no terminal."""

    def __init__(self, console: Console, meter: Meter) -> None:
        self._console: Console = console
        self._meter: Meter = meter

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def opened(self, stream: OpenStream, total: int) -> None:
        self._console.print(f"{stream.spec.stream}: {total:,} records wait; epoch {stream.epoch}", markup=False)

    def progressed(self, progress: DrainProgress) -> None:
        self._meter.sample(progress)
        batch, counts = progress.batch, progress.counts
        self._console.print(
            f"batch {batch.batch}: {counts.read:,} of {progress.total:,} records, {batch.counts.landed:,} landed, "
            f"{batch.counts.dead:,} dead, {batch.counts.tombstones:,} tombstones, "
            + (f"{batch.counts.filtered:,} filtered, " if batch.counts.filtered else "")
            + f"{batch.seconds:.1f} s, "
            f"commit {batch.commit_seconds * 1000:.0f} ms, {self._meter.recent_rate():,.0f}/s",
            markup=False,
        )


class Bar:
    """A progress bar, on a terminal."""

    def __init__(self, console: Console, meter: Meter) -> None:
        self._bar = landing_bar(console)
        self._meter: Meter = meter
        self._task = self._bar.add_task("opening", total=0, rate=0.0, lag=0, note="")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def opened(self, stream: OpenStream, total: int) -> None:
        self._bar.update(
            self._task, description=stream.spec.stream, total=total, lag=total, note="Spark starts" if total else ""
        )

    def progressed(self, progress: DrainProgress) -> None:
        self._meter.sample(progress)
        waiting = max(0, progress.total - progress.counts.read)
        self._bar.update(
            self._task,
            completed=progress.counts.read,
            total=max(progress.total, progress.counts.read),
            rate=self._meter.recent_rate(),
            lag=max(waiting, sum(progress.batch.lag.values())),
            note=f"batch {progress.batch.batch}",
        )


def print_summary(console: Console, facts: dict[str, Any]) -> None:
    """What a run did, as `run_facts` has it."""
    if problem := facts["letters_problem"]:
        waiting = facts["unpublished_letters"]
        count = "Dead letters" if waiting is None else f"{waiting:,} dead letters"
        said = f"{count} are in the table and not in their topic; the next run publishes them. {problem}"
        console.print(said, style="yellow", markup=False, soft_wrap=True)
    records, undecided = facts["records"], facts["undecided_records"]
    if not records["read"]:
        has = f"all but {undecided:,} records of open transactions" if undecided else "everything the topics hold"
        console.print(f"{facts['stream']}: nothing new; the table has {has}.")
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name in ("read", "landed", "dead", "tombstones", *(["filtered"] if records["filtered"] else [])):
        table.add_row(name, f"{records[name]:,}")
    for reason, count in facts["dead_letters"].items():
        table.add_row(f"  dead: {reason}", f"{count:,}")
    if late := facts["late"]["records"]:
        table.add_row("late", f"{late:,}")
        for name, count in facts["late"]["by"].items():
            if count:
                table.add_row(f"  by {'more than 1d' if name == 'more' else f'up to {name}'}", f"{count:,}")
        table.add_row("  the latest by", span(facts["late"]["latest_seconds"]))
        for key, name in (("dead_letters", "dead letters"), ("in_their_table", "in their own table")):
            if count := facts["late"][key]:
                table.add_row(f"  of them {name}", f"{count:,}")
    for rule, count in facts["rule_warnings"].items():
        table.add_row(f"  landed, against rule {rule}", f"{count:,}")
    for path, count in facts["unknown_fields"].items():
        table.add_row(f"  unknown field {path}", f"{count:,}")
    table.add_row("batches", f"{facts['batches']:,}")
    table.add_row("seconds", f"{facts['whole']['seconds']:,.1f}")
    for part, name in (("whole", "whole run"), ("steady", "without the first batch")):
        if speed := facts[part]:
            table.add_row(f"records per second, {name}", thousands(speed["records_per_second"]))
            table.add_row(f"records per CPU-second, {name}", thousands(speed["records_per_cpu_second"]))
    if facts["commit_share"] is not None:
        table.add_row("share of time in commits", f"{facts['commit_share']:.1%}")
    table.add_row("lag", f"{facts['lag']:,}")
    if undecided:
        table.add_row("in open transactions", f"{undecided:,}")
    done = "landed" if records["landed"] else "[red]nothing landed[/]; committed"
    console.print(f"[bold]{facts['stream']}[/]: {done} in snapshot {facts['snapshot_id']}")
    console.print(table)
    for path, met in list(facts["unknown_field_examples"].items())[:_SHOWN_FIELDS]:
        where = "topic {topic}, partition {partition}, offset {offset}".format(**met)
        column = f"; `{met['column']}` would take it (a guess)" if met["column"] else ""
        within = "" if met["within"] == "$" else f" within {met['within']}"
        console.print(f"{path} is not declared: such as {where}{column}{within}", markup=False, soft_wrap=True)
    if facts["causes"]:
        console.print("why records failed, the most frequent first:")
        for cause in facts["causes"]:
            console.print(f"  {_cause(cause)}", markup=False, soft_wrap=True)
        console.print(f"  Next: frazil letters {facts['stream']}", markup=False, soft_wrap=True)


def _cause(cause: dict[str, Any]) -> str:
    field = f" at {cause['field']}" if cause["field"] else ""
    needs = f": {cause['needs']}" if cause["needs"] else ""
    where = "topic {topic}, partition {partition}, offset {offset}".format(**cause["example"])
    return f"{cause['records']:,} × {cause['reason']}{field}{needs}; such as {where}"
