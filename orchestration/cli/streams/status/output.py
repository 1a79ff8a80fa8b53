"""Output of `frazil status` on a terminal: a table of streams, or the details of one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jobs.streaming.supervision.documents.heartbeat import Work
from jobs.streaming.supervision.documents.measures import OF_WORK, Measure
from jobs.tables.commit.stamp.offsets import describe_ranges, from_topics
from orchestration.cli.common.terminal import print_columns
from orchestration.cli.streams.status.stream_status import StreamStatus, utc
from orchestration.formatting import lateness, span, thousands

if TYPE_CHECKING:
    from jobs.quality.incremental_scan.validated_position import ValidatedPosition

COLUMNS = (
    "stream",
    "table",
    "state",
    "generation",
    "attempt",
    "batch",
    "lag",
    "rec/s",
    "up",
    "last commit",
    "complete through",
    "rows",
    "dead",
)
_SHOWN_FIELDS = 5
_SHOWN_PARTITIONS = 10
_TEXT = frozenset(COLUMNS) - {"attempt", "batch", "lag", "rec/s", "rows", "dead"}
_LEFT_OUT_FIRST = ("attempt", "batch", "up", "dead", "rec/s", "complete through", "rows", "table")
# States that a stream leaves only with a person's help.
_NEED_A_PERSON = ("halted", "frozen", "stalled")
# States in which a noted error is an old one.
_AT_REST = ("running", "waiting", "paused", "stopped", "idle", "draining")
_COLOURS = {"red": {"failed", "halted", "dead", "frozen", "unknown"}, "yellow": {"retrying", "fenced", "stopping"}}


def print_table(statuses: list[StreamStatus]) -> None:
    """Print a line per stream, with fewer columns on a narrow terminal; then problems and their next commands."""
    console = Console(highlight=False)
    colours = {(number, "state"): colour for number, each in enumerate(statuses) if (colour := state_style(each))}
    rows = [cells(each) for each in statuses]
    # A generation that is about to change is shown even on a narrow terminal.
    changing = any("->" in _generation(each) for each in statuses)
    optional = [*_LEFT_OUT_FIRST, "generation"] if changing else ["generation", *_LEFT_OUT_FIRST]
    left_out = print_columns(COLUMNS, rows, text=_TEXT, optional=optional, styles=colours)
    if left_out and console.is_terminal:
        said = f"For want of width not shown: {', '.join(left_out)}. frazil status STREAM has all."
        console.print(said, markup=False, style="dim", soft_wrap=True)
    for line in _groups(statuses):
        console.print(line, markup=False, soft_wrap=True)
    for status in statuses:
        for sentence, fix in troubles(status):
            console.print(f"! {status.stream}: {sentence}", markup=False, style="red", soft_wrap=True)
            if fix:
                console.print(f"  Next: {fix}", markup=False, soft_wrap=True)
        if passing := passing_trouble(status):
            console.print(f"~ {status.stream}: {passing}", markup=False, style="yellow", soft_wrap=True)
            if status.fix:
                console.print(f"  Next: {status.fix}", markup=False, soft_wrap=True)
        known, unexpected = status.undeclared.known, status.undeclared.unexpected
        if known is not None and unexpected:
            left_out = "; ".join(known.sentence(path) for path in unexpected[:3])
            said = f"{len(unexpected)} keys are left out that the schema does not declare: {left_out}"
            console.print(f"~ {status.stream}: {said}", markup=False, style="yellow", soft_wrap=True)
            advice = known.advice(unexpected[0], status.stream)
            console.print(f"  Next: {advice}", markup=False, soft_wrap=True)
    for reason in sorted({f"{part}: {text}" for each in statuses for part, text in each.unknown.items()}):
        console.print(f"? {reason}", markup=False, style="yellow", soft_wrap=True)


def _groups(statuses: list[StreamStatus]) -> Iterator[str]:
    """Yield a line for each driver group, with its driver and its streams."""
    carried: dict[tuple[str, str], list[str]] = {}
    for each in statuses:
        if each.group is not None and each.holder is not None:
            carried.setdefault((each.group, each.holder), []).append(each.stream)
    for (group, holder), streams in sorted(carried.items()):
        yield f"group {group}: {holder} carries {', '.join(streams)}"


def print_details(status: StreamStatus, supervision: str) -> None:
    """Print the details of one stream, a line each; then a line per partition."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(status.stream)}[/] {_coloured(status, status.state)}")
    launched, reasons = status.launched, status.work.reasons
    process, tables, freshness = status.process, status.tables, status.freshness
    # A list, since several parts have a next command.
    lines = [
        ("desired", f"{status.control.mode}{status.control.origin}"),
        ("driver", (status.holder or "none") + (f", which carries group {status.group}" if status.group else "")),
        ("up", _uptime(status) + (f", since {_instant(process.since)}" if process.since else "")),
        ("last heartbeat", "–" if process.beat_age_seconds is None else f"{process.beat_age_seconds:.1f} s ago"),
        ("generation", _generation(status)),
        ("attempt", f"{thousands(launched.attempt)}, after {launched.failures_in_a_row} that failed in a row"),
        ("epoch", thousands(status.epoch)),
        ("table", f"{status.table}: {_unless(status, 'catalog', thousands(tables.rows))} rows"),
        *_route(status).items(),
        *((f"  suspended: {name}", said) for name, said in _parked(status).items()),
        *_branch(status).items(),
        ("dead letters", f"{status.dead_letter_table}: {_unless(status, 'catalog', thousands(tables.dead))} rows"),
        *((f"  {reason}", f"{count:,} since the driver started") for reason, count in sorted(reasons.items())),
        *_letter_topic(status).items(),
        *_unknown_fields(status).items(),
        *((measure.line, _figure(status, measure)) for measure in OF_WORK if measure.line),
        ("complete through", f"{ago(utc(freshness.complete_through))}{_landed(status, freshness.through)}"),
        *_watermark(status).items(),
        *_last_check(status).items(),
        *_undecided(status).items(),
        *([("without an id", f"topic {', '.join(tables.topics_without_id)}")] if tables.topics_without_id else []),
        ("log", process.log or "–"),
        ("Spark UI", process.spark_ui or "–"),
        ("metrics", process.metrics or "–"),
        ("supervision", supervision),
        ("decision", status.decision or "–"),
        ("file", status.file_problem or "good"),
        ("last error", _error(status)),
        ("next", status.fix or "–"),
    ]
    for name, text in lines:
        console.print(f"  {name:<17} {text}", markup=False)
    if status.error is not None and status.error.trace:
        console.print(f"  the stack trace is in {process.log}", markup=False)
    position, lag = from_topics(status.work.position), from_topics(status.work.lag if status.work.knows_lag else {})
    if position or lag:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="bold")
        for name in ("topic", "partition", "next offset", "lag"):
            table.add_column(name, justify="left" if name == "topic" else "right", no_wrap=True)
        for at in sorted({*position, *lag}):
            table.add_row(at.topic, str(at.partition), thousands(position.get(at)), thousands(lag.get(at)))
        console.print(table)
    for part, reason in sorted(status.unknown.items()):
        console.print(f"? {part}: {reason}", markup=False, style="yellow")


def _figure(status: StreamStatus, measure: Measure[Work]) -> str:
    value = measure.source(status.work)
    if measure.is_time:
        return ago(utc(value))
    text = f"{value:,.1f}" if isinstance(value, float) else thousands(value)
    return _unless(status, "kafka", text) if measure.line == "lag" else text


def _route(status: StreamStatus) -> dict[str, str]:
    """Total of all tables of a stream with outputs."""
    tables = status.tables
    if tables.tables is None:
        return {}
    return {"route": f"{thousands(tables.landed)} records landed in {tables.tables:,} tables"}


def _watermark(status: StreamStatus) -> dict[str, str]:
    freshness, work = status.freshness, status.work
    if freshness.watermark is None and freshness.readers_watermark is None:
        return {}
    lines = {"watermark": f"{ago(utc(freshness.readers_watermark))}{_landed(status, freshness.watermark)}"}
    if freshness.event_times is not None:
        least, greatest = freshness.event_times
        lines["event times"] = f"{_instant(least)} to {_instant(greatest)} in the newest batch"
    if work.late:
        said = lateness(work.late_by, work.latest_ms) if any(work.late_by) else "by how much is not known"
        lines["late"] = f"{work.late:,} records since the driver started: {said}"
    return lines


def _landed(status: StreamStatus, at: float | None) -> str:
    """Suffix with the branch's newest time, if a stream publishes from a branch that is ahead of main."""
    main, ahead = status.freshness.main, status.ahead
    return f", and {ago(utc(at))} on branch {ahead.branch}" if at and main and main.lacks and ahead else ""


def _branch(status: StreamStatus) -> dict[str, str]:
    """Rows that main lacks, if the stream writes another branch."""
    ahead = status.ahead
    if ahead is None:
        return {}
    if not ahead.snapshots:
        return {"branch": f"{ahead.branch}: main has all of it"}
    since = f", the first of {ago(ahead.since)}" if ahead.since else ""
    count = f"{ahead.snapshots:,} {'snapshot' if ahead.snapshots == 1 else 'snapshots'}"
    lines = {"branch": f"{ahead.branch}: {ahead.rows:,} rows of {count} are not in main{since}"}
    if (held := ahead.held) is not None:
        why = "; ".join(held.reasons[:2])
        lines["  held"] = f"{held.rows:,} rows are quarantined since {ago(held.since)}: {why}"
        if held.ranges:
            lines["  offsets"] = describe_ranges(held.ranges, limit=_SHOWN_PARTITIONS)
        # Imported here and below: what is held was found in a table, by a module that few streams need.
        from jobs.quality.publishing.gate import answers_to_held

        if (answers := answers_to_held(status.stream)) != status.fix:
            lines["  next"] = answers
    return lines


def _last_check(status: StreamStatus) -> dict[str, str]:
    """Result of the last contract check of each checked table."""
    own = {"last check": _check_text(status.last_check)} if status.last_check is not None else {}
    others = {f"  {table}": f"checked {_check_text(each)}" for table, each in status.last_checks.items()}
    return own | others


def _check_text(checked: ValidatedPosition) -> str:
    found = checked.summary
    failed = ", ".join(f"{count:,} {severity}" for severity, count in sorted(found.failed.items()))
    said = (
        f"{failed} of {found.expectations} expectations not met"
        if failed
        else f"all {found.expectations} expectations met"
    )
    return f"{ago(checked.at)}: {found.rows:,} rows, {said}"


def _unknown_fields(status: StreamStatus) -> dict[str, str]:
    """The most frequent undeclared keys, with advice on the first."""
    known, unexpected = status.undeclared.known, status.undeclared.unexpected
    if known is None or not unexpected:
        return {}
    since = _instant(datetime.fromtimestamp(known.since, UTC))
    lines = {"not declared": f"{len(unexpected)} keys, since {since}"}
    for path in unexpected[:_SHOWN_FIELDS]:
        lines[f"  {path}"] = known.sentence(path).removeprefix(f"{path} ")
    return lines | {"  next": known.advice(unexpected[0], status.stream)}


def _undecided(status: StreamStatus) -> dict[str, str]:
    """Records that wait for the end of transactions, if any."""
    waiting, since = status.work.total_undecided, utc(status.work.undecided_since)
    if not waiting:
        return {}
    decided = f", none decided since {_instant(since)}" if since else ""
    return {"undecided": f"{waiting:,} records of open transactions{decided}"}


def _letter_topic(status: StreamStatus) -> dict[str, str]:
    """Backlog of the dead-letter publisher, for streams with a topic for dead letters."""
    if status.beat is None or (status.beat.unpublished_letters is None and status.beat.outbox_error is None):
        return {}
    waiting, error = status.beat.unpublished_letters, status.beat.outbox_error
    wait = "it is not known how many wait" if waiting is None else f"{waiting:,} wait"
    if error is None:
        return {"their topic": f"{wait} to be published"}
    return {"their topic": f"{wait} to be published: {error.message}"} | ({"  next": error.fix} if error.fix else {})


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """Time as the status shows it: its age within a day, else date and time in UTC."""
    if at is None:
        return "–"
    seconds = int(((now or datetime.now(UTC)) - at).total_seconds())
    return f"{span(seconds)} ago" if seconds < 86400 else _instant(at)


def cells(status: StreamStatus) -> list[str]:
    """Status as a row of `COLUMNS`."""
    work, tables = status.work, status.tables
    times = [ago(utc(work.last_commit_at)), ago(utc(status.freshness.complete_through))]
    return [
        status.stream,
        status.table,
        f"{status.state} ({status.holder})" if status.state == "draining" else status.state,
        _generation(status),
        thousands(status.launched.attempt),
        thousands(work.batch),
        _unless(status, "kafka", thousands(work.total_lag)),
        f"{work.recent.rate:,.0f}" if status.process.since else "–",
        _uptime(status),
        *(_unless(status, "catalog", cell) for cell in (*times, thousands(tables.rows), thousands(tables.dead))),
    ]


def troubles(status: StreamStatus) -> list[tuple[str, str | None]]:
    """Problems that need a person, each with its next command; the stream's own command is named once."""
    found = [f"its file has problems, and nothing is changed: {status.file_problem}"] if status.file_problem else []
    if _needs_a_person(status):
        found.append(_state_sentence(status))
    if status.hangs:
        found.append(f"an open transaction blocks {_undecided(status)['undecided']}")
    last = found[-1] if found and not passing_trouble(status) else None
    told: list[tuple[str, str | None]] = [(each, status.fix if each is last else None) for each in found]
    for name, said in _parked(status).items():
        answer = f"frazil accept {status.stream} --unpark {name}"
        told.append((f"table {name} is suspended {said}", f"{answer}, once it takes commits"))
    if status.ahead is not None and (held := status.ahead.held) is not None:
        from jobs.quality.publishing.gate import answers_to_held

        told.append((held.sentence, answers_to_held(status.stream)))
    return told


def passing_trouble(status: StreamStatus) -> str | None:
    """Reason why a stream does not run, if it goes on by itself; its next command is the stream's."""
    silent = status.error is None and status.state != "dead"
    return None if silent or status.state in _AT_REST or _needs_a_person(status) else _state_sentence(status)


def _needs_a_person(status: StreamStatus) -> bool:
    # A driver that is about to end with such an error leaves a halted stream.
    halts = status.state == "stopping" and status.error is not None and status.error.kind == "operator"
    return halts or status.state in _NEED_A_PERSON


def _state_sentence(status: StreamStatus) -> str:
    if status.error is not None:
        return f"{status.state}: {status.error.message}"
    return status.decision or f"{status.state}; its log is {status.process.log or 'not there'}"


def _parked(status: StreamStatus) -> dict[str, str]:
    """Time since when each suspended table is so, with the number of its dead letters."""
    return {
        name: f"since {_instant(parked.since)}: {parked.dead_letters:,} dead letters were made for it"
        for name, parked in status.tables.parked.items()
    }


def _generation(status: StreamStatus) -> str:
    shown, wanted = status.launched.generation, status.launched.wanted_generation
    if shown is None:
        return "–"
    return f"{shown} -> {wanted}" if wanted is not None and wanted != shown else shown


def _uptime(status: StreamStatus) -> str:
    seconds = status.process.uptime_seconds
    return "–" if seconds is None else span(seconds)


def _error(status: StreamStatus) -> str:
    if status.error is None:
        return "none"
    return f"{ago(datetime.fromtimestamp(status.error.at, UTC))}: {status.error.message}"


def _unless(status: StreamStatus, part: str, text: str) -> str:
    return "?" if part in status.unknown else text


def _instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")


def state_style(status: StreamStatus) -> str:
    """Colour of the state; empty for a state that needs no attention."""
    return next((colour for colour, states in _COLOURS.items() if status.state in states), "")


def _coloured(status: StreamStatus, text: str) -> str:
    colour = state_style(status)
    return f"[{colour}]{escape(text)}[/]" if colour else escape(text)
