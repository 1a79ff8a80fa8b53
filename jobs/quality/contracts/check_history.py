"""Check history of a stream: results of each expectation by check, in its part of the state store.

Each check of a table writes one document, whether a command, a Dagster run, or a publication runs it. It is for people
who look back; the table records what counts as checked (`increment/validated_position`). It contains no row, no sample
and no condition of `--where`. Observed values are stored as they were shown, masked.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.config.contract.contract import columns_of
from jobs.config.values.targets import Role, TargetSpec
from jobs.quality.contracts.check_result import Scope, TableCheck
from jobs.quality.contracts.check_rows import EngineName
from jobs.quality.contracts.outcome import ExpectationOutcome, Hidden
from jobs.tables.dead_letter_table.masking import MARK

MOST_CHECKS = 1_000
"""Most checks of each table that are kept, the newest ones."""
_FORMAT = 1
_MOST_TEXT = 500


class KeptResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of an expectation in one check; the fields are those of `ExpectationOutcome`.

    Attributes:
        columns: Its columns.
        elements: Number of judged rows.
    """

    name: str
    type: str
    severity: str
    passed: bool
    columns: tuple[str, ...] = ()
    problem: str | None = None
    elements: int | None = None
    unexpected: int | None = None
    share: float | None = None
    observed: str | None = None


class KeptCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check of a table.

    Attributes:
        at: Start of the check.
        seconds: Its duration.
        by: Author: user and host, or a Dagster run.
        rows: Number of checked rows.
        scope: Scope of the rows; `interval`: unpublished snapshots of a write-audit-publish stream.
        found: How the new rows were found: `files`, `offsets`, or `table` if all rows counted as new.
        since: Snapshot of the previous check; None without one, or if the check was not about new rows.
        head: Snapshot up to which rows were checked.
        snapshots: Number of snapshots with new rows.
    """

    v: int
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    seconds: float
    by: str
    table: str
    role: Role
    branch: str
    engine: EngineName | None
    rows: int
    scope: Scope | Literal["interval"]
    found: str = ""
    since: int | None = None
    head: int | None = None
    snapshots: int = 0
    results: tuple[KeptResult, ...] = ()


_DECODER = typed_decoder(KeptCheck)


def keep_check(store: StateStore, check: TableCheck, *, by: str, branch: str, interval: bool = False) -> None:
    """Store the results of a check that evaluated something; the newest `MOST_CHECKS` of its table stay.

    Args:
        store: The stream's part of the state store.
        branch: Checked branch.
        interval: Whether the rows were unpublished snapshots of a write-audit-publish stream.

    Raises:
        OSError: The store is unavailable.
    """
    found, at = check.found, check.at
    kept = KeptCheck(
        v=_FORMAT,
        at=at,
        seconds=round((datetime.now(UTC) - at).total_seconds(), 3),
        by=by,
        table=check.table,
        role=check.role,
        branch=branch,
        engine=check.engine,
        rows=check.rows,
        scope="interval" if interval else check.asked.scope,
        found=found.found if found else "",
        since=found.begin if found else None,
        head=found.head.snapshot_id if found and found.head else None,
        snapshots=len(found.snapshots) if found else 0,
        results=tuple(map(_result, check.outcomes)),
    )
    # Two checks at the same moment have separate documents, so neither reads before it writes.
    milliseconds = int(at.timestamp() * 1000)
    folder = _folder(check.part)
    store.put(f"{folder}/{milliseconds:014d}-{secrets.token_hex(3)}.json", msgspec.json.encode(kept))
    keys = store.keys(f"{folder}/*.json")
    for key in keys[: max(len(keys) - MOST_CHECKS, 0)]:
        store.delete(key)


def _result(outcome: ExpectationOutcome) -> KeptResult:
    return KeptResult(
        outcome.name,
        outcome.type,
        outcome.severity,
        outcome.passed,
        columns_of(outcome.type, outcome.arguments),
        _short(outcome.problem),
        outcome.elements,
        outcome.unexpected,
        outcome.share,
        _short(outcome.observed),
    )


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


@dataclass(slots=True)
class ExpectationHistory:
    """Results of an expectation over time.

    Attributes:
        part: Table of the stream that it is about, see `part_of`.
        expected: Whether the contract still has it.
        results: Results with their checks, oldest first.
    """

    name: str
    part: str
    expected: bool
    results: list[tuple[KeptCheck, KeptResult]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckHistory:
    """Stored checks of a stream.

    Attributes:
        expectations: Histories of expectations; those of the contract first, in its order.
        damaged: Locations of unreadable documents.
    """

    expectations: Sequence[ExpectationHistory]
    damaged: Sequence[str]


def read_history(
    store: StateStore,
    contract: Mapping[str, Sequence[str]],
    *,
    names: Collection[str] = (),
    last: int,
    masked: Collection[tuple[str, ...]] = (),
) -> CheckHistory:
    """Read the results of expectations by check.

    Args:
        store: The stream's part of the state store.
        contract: Names of the wanted expectations, by the part of the stream (see `part_of`). Expectations of earlier
            checks that the contract no longer has are included as well.
        names: Only these expectations; empty for all.
        last: Most results of each expectation, the newest ones.
        masked: Paths of columns whose values must not be shown by now, as in `Mask.paths`.

    Raises:
        OSError: The store is unavailable.
    """
    found: dict[tuple[str, str], ExpectationHistory] = {}
    damaged: list[str] = []
    hidden = Hidden(masked)
    for part, expected in contract.items():
        mine = [name for name in expected if not names or name in names]
        found |= {(part, name): ExpectationHistory(name, part, expected=True) for name in mine}
        waiting = {*mine}
        for key in reversed(store.keys(f"{_folder(part)}/*.json")):
            check = _read(store, key, damaged)
            if check is None:
                continue
            for result in check.results:
                if names and result.name not in names:
                    continue
                history = found.setdefault((part, result.name), ExpectationHistory(result.name, part, expected=False))
                if len(history.results) < last:
                    history.results.append((check, _hidden(result, hidden, masked=bool(masked))))
                if len(history.results) >= last:
                    waiting.discard(result.name)
            if mine and not waiting:
                break
    for each in found.values():
        each.results.reverse()
    return CheckHistory([each for each in found.values() if each.expected or each.results], damaged)


def _read(store: StateStore, key: str, damaged: list[str]) -> KeptCheck | None:
    content = store.get(key)
    if content is None:
        # Another check has just removed it.
        return None
    with contextlib.suppress(*DAMAGED):
        check = _DECODER.decode(content)
        if check.v == _FORMAT:
            return check
    damaged.append(store.place(key))
    return None


def _hidden(result: KeptResult, hidden: Hidden, *, masked: bool) -> KeptResult:
    """The result without what a later mask hides."""
    if not masked:
        return result
    observed = MARK if result.observed is not None and hidden.any_of(result.columns) else result.observed
    problem = "could not evaluate: what was found is masked" if result.problem is not None else None
    return msgspec.structs.replace(result, observed=observed, problem=problem)


def part_of(target: TargetSpec) -> str:
    """Part of the stream that a target is: `rows`, `dead_letters`, or another table of its route.

    If the main table is renamed, its history goes on.
    """
    return target.role if target.coordinator or target.role == "dead_letters" else f"table-{target.name}"


def _folder(part: str) -> str:
    return f"checks/{part}"


def shares(history: ExpectationHistory) -> Iterator[float | None]:
    """Share of the judged rows that failed, by check: 0 to 1; None if it could not be evaluated.

    An expectation about all rows together has 0 if it passed, and 1 if not.
    """
    for _, result in history.results:
        if result.problem is not None:
            yield None
        else:
            yield result.share if result.share is not None else 0.0 if result.passed else 1.0
