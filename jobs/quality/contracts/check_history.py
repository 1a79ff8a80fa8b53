"""Check history of a stream: what came of each expectation, check by check, in its part of the state store.

One document for each check of a table, written whoever checks: a command, a Dagster run, or the gate of a stream. It is
for people who look back; what counts as checked stands in the table (`increment/validated_position`). No row is kept in
it, no sample and no condition of `--where`; what was observed is kept as it was shown, masked.
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
"""So many are kept of each table, the newest."""
_FORMAT = 1
_MOST_TEXT = 500


class KeptResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of an expectation in one check; the fields are those of `ExpectationOutcome`.

    Attributes:
        columns: That it was about.
        elements: Rows judged.
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
        at: When it began.
        seconds: How long it took.
        by: Who checked: user and host, or a Dagster run.
        rows: Looked at.
        scope: Which rows; `interval`: what a gated stream was about to publish.
        found: How the new rows were found: `files`, `offsets`, or `table` where all rows counted as new.
        since: The snapshot that was checked before; None without one, or where it was not about new rows.
        head: The snapshot up to which rows were looked at.
        snapshots: How many had new rows.
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
    """Keep what came of a check that evaluated something; of all checks of its table the newest `MOST_CHECKS` stay.

    Args:
        store: The stream's part of the state store.
        branch: That was looked at.
        interval: Whether the rows were those that a gated stream was about to publish.

    Raises:
        OSError: The store cannot be reached.
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
    # Of two checks at the same moment each has a document of its own, so neither has to read before it writes.
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
    """What came of an expectation over time.

    Attributes:
        part: Of the stream: which table it is about, see `part_of`.
        expected: Whether the contract still has it.
        results: Each with the check that it is of, oldest first.
    """

    name: str
    part: str
    expected: bool
    results: list[tuple[KeptCheck, KeptResult]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckHistory:
    """What is kept of a stream's checks.

    Attributes:
        expectations: Those of the contract first, in its order.
        damaged: Where documents stand that nobody can read.
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
    """What came of expectations, check by check.

    Args:
        store: The stream's part of the state store.
        contract: The names of the expectations that are wanted, by the part of the stream (see `part_of`); an
            expectation that a table's checks had before, and that the contract lacks by now, is in the history as well.
        names: Of these expectations alone; none: of all.
        last: So many results of each expectation at most, the newest.
        masked: Paths of columns whose values must not be shown by now, as `Mask.paths` has them.

    Raises:
        OSError: The store cannot be reached.
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
    """The result without what a mask that came later hides."""
    if not masked:
        return result
    observed = MARK if result.observed is not None and hidden.any_of(result.columns) else result.observed
    problem = "could not evaluate: what was found is masked" if result.problem is not None else None
    return msgspec.structs.replace(result, observed=observed, problem=problem)


def part_of(target: TargetSpec) -> str:
    """Which of a stream's tables a target is: `rows` its own, `dead_letters`, or another one of its route.

    The stream's own goes on with its history under another name.
    """
    return target.role if target.coordinator or target.role == "dead_letters" else f"table-{target.name}"


def _folder(part: str) -> str:
    return f"checks/{part}"


def shares(history: ExpectationHistory) -> Iterator[float | None]:
    """What part of the judged rows was not as expected, by check: 0 to 1; None where it could not be evaluated.

    An expectation about all rows together has no share: 0 where it was met, 1 where not.
    """
    for _, result in history.results:
        if result.problem is not None:
            yield None
        else:
            yield result.share if result.share is not None else 0.0 if result.passed else 1.0
