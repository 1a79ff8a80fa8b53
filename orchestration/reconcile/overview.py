"""Overview table of all streams, on the supervisor's page in Dagster: what needs a hand first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import dagster as dg

from assets.metadata import cell, instant
from assets.stream_checks import CheckOutcome
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from orchestration.reconcile.cursor import checksum
from orchestration.reconcile.decide import Action, Decision
from orchestration.reconcile.lag import Lag
from orchestration.reconcile.stream_state import StreamState

# Short, for what is wider than Dagster's column has to be scrolled to.
_COLUMNS = ("stream", "state", "since", "lag", "rec/s", "committed", "complete", "letters", "next")
_NO_BREAK = "\N{NO-BREAK SPACE}"
# Dagster shows Markdown on the page itself up to 1,000 characters, and behind a click from there on.
_SHOWN_LETTERS = 950
_FIRST_COMMAND = re.compile(r"; then |, once ")
# An older lag is shown with its age.
_OLD_SECONDS = 15.0


class Need(IntEnum):
    """Need of a stream for a person, the greatest first, in the overview."""

    NOW = 0  # nothing happens before somebody acts
    SOON = 1  # a check fails, or a table is suspended
    PERHAPS = 2  # a check warns: it was stopped, Kafka is away
    NONE = 3


@dataclass(frozen=True, slots=True)
class StreamRow:
    """Row of the overview about a stream.

    Attributes:
        key: Asset key of its table in Dagster; None if it has none.
        lag: The lag; None if unknown.
        rate: Records per second within the last minutes; None without a driver.
        last_commit, complete_through: Seconds since 1970; None if unknown.
        letters: Number of waiting dead letters, by the newest count.
    """

    stream: str
    state: str
    need: Need
    key: dg.AssetKey | None = None
    since: float | None = None
    lag: Lag | None = None
    rate: float | None = None
    last_commit: float | None = None
    complete_through: float | None = None
    letters: int | None = None
    fix: str | None = None


def stream_row(
    stream: str,
    key: dg.AssetKey | None,
    beat: Heartbeat | None,
    stands: StreamState,
    decision: Decision,
    lag: Lag | None,
    letters: int | None,
    found: Sequence[CheckOutcome],
) -> StreamRow:
    """The row of the overview for a stream that was looked at."""
    # Left-out keys are what the stream's file asks for, or allows: a report, and no trouble.
    wrong = [verdict for verdict in found if not verdict.passed and verdict.name != "unknown_fields"]
    need = need_of(decision, wrong, suspended=bool(stands.suspended))
    # The checks' sentences come first; a state without trouble has no next command.
    fix = stands.fix if need is not Need.NONE else None
    return StreamRow(
        stream=stream,
        key=key,
        state=stands.state if need is Need.NONE else _state_in_need(stands, wrong),
        need=need,
        since=stands.since,
        lag=lag,
        rate=beat.work.recent.rate if beat is not None and stands.lives else None,
        last_commit=beat.work.last_commit_at if beat is not None else None,
        complete_through=lag.valid_through if lag is not None else None,
        letters=letters,
        fix=fix or next((verdict.fix for verdict in wrong if verdict.fix), None),
    )


def _state_in_need(stands: StreamState, wrong: Sequence[CheckOutcome]) -> str:
    """State of a stream; at work, with its problem: a suspended table, or a check that fails or warns."""
    first = next((verdict.name for verdict in sorted(wrong, key=lambda verdict: verdict.warn)), "")
    trouble = "suspended" if stands.suspended else first
    return f"{stands.state} ({trouble})" if stands.at_work and trouble else stands.state


def need_of(decision: Decision, wrong: Sequence[CheckOutcome], *, suspended: bool = False) -> Need:
    """Judge a stream's need for a person, for the overview.

    Args:
        decision: The supervisor's decision.
        wrong: Outcomes of the checks that did not pass.
        suspended: Whether a table of the stream is suspended, so that its records become dead letters.
    """
    if decision.action is Action.HALT:
        return Need.NOW
    if suspended or any(not verdict.warn for verdict in wrong):
        return Need.SOON
    return Need.PERHAPS if wrong else Need.NONE


def overview_code(rows: Sequence[StreamRow]) -> int:
    """A checksum that changes when a stream needs somebody more or less, and not with every batch."""
    return checksum(" ".join(sorted(f"{row.stream}:{row.need}" for row in rows)))


def overview_metadata(rows: Sequence[StreamRow], now: float) -> dict[str, Any]:
    """The overview's table, the time that its ages count from, and how many streams need somebody.

    Args:
        now: Seconds since 1970.
    """
    ordered = sorted(rows, key=lambda row: (row.need, -((row.lag and row.lag.records) or 0), row.stream))
    told: dict[str, Any] = {"as_of": instant(now)}
    needy = [row for row in ordered if row.need is not Need.NONE]
    if needy:
        told["needs_a_hand"] = dg.MetadataValue.md(needs_markdown(needy, now))
    if rows:
        told["all_streams"] = dg.MetadataValue.table([dg.TableRecord(_cells(row, now)) for row in ordered])
    return told | {"streams_in_need": sum(row.need <= Need.SOON for row in rows)}


def needs_markdown(rows: Sequence[StreamRow], now: float) -> str:
    """The streams that need a hand, with links and commands to copy, as a table in Markdown that stays on the page."""
    lines = ["| stream | state | next | since | lag |", "|---|---|---|---:|---:|"]
    for number, row in enumerate(rows):
        line = _line(row, now)
        if len(line) + sum(len(each) + 1 for each in lines) > _SHOWN_LETTERS:
            lines.append(f"| … {len(rows) - number:,} more | | | | |")
            break
        lines.append(line)
    return "\n".join(lines)


def _line(row: StreamRow, now: float) -> str:
    cells = _cells(row, now)
    name = cell(row.stream)
    if row.key is not None:
        # From the supervisor's page, /assets/frazil/supervisor, under whatever prefix the web server has.
        name = f"[{name}](../{'/'.join(row.key.path)})"
    state = f"**{cell(row.state)}**" if row.need <= Need.SOON else cell(row.state)
    # The first command alone: what is wider than the column has to be scrolled to. `all_streams` has all of them.
    fix = f"`{cell(_FIRST_COMMAND.split(row.fix, 1)[0])}`" if row.fix else ""
    return f"| {name} | {state} | {fix} | {cells['since']} | {cells['lag']} |"


def _cells(row: StreamRow, now: float) -> dict[str, str]:
    """A stream's row in words. Times are how long ago something was."""
    cells = (
        row.stream,
        row.state,
        _ago(row.since, now),
        _lag(row.lag, now),
        "–" if row.rate is None else f"{row.rate:,.0f}",
        _ago(row.last_commit, now),
        _ago(row.complete_through, now),
        "–" if row.letters is None else f"{row.letters:,}",
        row.fix or "",
    )
    return dict(zip(_COLUMNS, cells, strict=True))


def _lag(lag: Lag | None, now: float) -> str:
    if lag is None or lag.records is None:
        return "–"
    age = now - lag.at
    return (
        f"{lag.records:,}" if age <= _OLD_SECONDS else f"{lag.records:,}{_NO_BREAK}({_ago(lag.at, now)}{_NO_BREAK}ago)"
    )


def _ago(at: float | None, now: float) -> str:
    """Age of a time in the table, such as 35s, 14m, 3h5m or 2d4h; narrow, and without a space."""
    if at is None:
        return "–"
    seconds = max(0, int(now - at))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600}h"
