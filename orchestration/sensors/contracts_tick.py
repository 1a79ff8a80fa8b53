"""One tick of the sensor `frazil_contracts`: which streams have so much that is new that their contract is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from jobs.catalog import find_table
from jobs.spec.models import StreamSpec
from orchestration.reconcile.streams_cursor import StreamsCursor
from orchestration.sensors.due_runs import BUDGET_SECONDS, DueRuns, due_runs
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# What a run left unchecked is asked for again after so long, and after twice as long each time it changes nothing.
AGAIN_SECONDS = 60
LONGEST_AGAIN_SECONDS = 3600


class CheckedStream(msgspec.Struct, omit_defaults=True):
    """What the sensor remembers of one stream.

    Attributes:
        at: When it was looked at; seconds since 1970.
        asked_at: When a check was asked for; `asks`: how often, while nothing was recorded as checked.
        position: What was recorded then.
        silent_at: When a check was asked for because nothing came.
    """

    at: int = msgspec.field(default=0, name="a")
    asked_at: int = msgspec.field(default=0, name="q")
    asks: int = msgspec.field(default=0, name="n")
    position: tuple[int, ...] = msgspec.field(default=(), name="p")
    silent_at: int = msgspec.field(default=0, name="s")

    def rests(self, position: tuple[int, ...], now: float) -> bool:
        """Whether a check that was asked for has come to nothing, and it is too early to ask again."""
        if not self.asks or position != self.position:
            return False
        return now - self.asked_at < min(LONGEST_AGAIN_SECONDS, AGAIN_SECONDS * 2.0 ** (self.asks - 1))

    def note(self, position: tuple[int, ...], now: float) -> None:
        """Remember that a check is asked for."""
        self.asks = self.asks + 1 if position == self.position else 1
        self.position, self.asked_at = position, math.floor(now)


class ContractsCursor(StreamsCursor[CheckedStream]):
    """The cursor of the sensor. Where it is lost, what is due is asked for once more."""


def run_contracts_tick(
    deployment: Deployment,
    catalog: Callable[[], Catalog],
    memory: ContractsCursor,
    under_way: Collection[str],
    now: float,
    budget: float = BUDGET_SECONDS,
) -> DueRuns:
    """Look for streams whose contract is to be checked now; reads metadata only of those that may have to be.

    Args:
        catalog: Connects to the catalog.
        under_way: Streams whose contract a run checks now.
        now: Seconds since 1970.
        budget: Seconds after which no other stream is looked at.
    """
    return due_runs(
        *(deployment, catalog, memory, under_way, now, budget),
        wanted=_by_rows,
        remember=CheckedStream,
        busy="it is being checked",
        look=_look,
    )


def _look(tick: DueRuns, spec: StreamSpec, catalog: Catalog, known: CheckedStream, now: float) -> None:
    # Imported here: a code server that only loads has no use for it.
    from jobs.contract.check import contract_of
    from jobs.contract.check_due import due_check

    asked = [each.name for each in spec.targets if contract_of(spec, each)]
    tables = {name: table.metadata for name in asked if (table := find_table(catalog, name)) is not None}
    found = due_check(spec, tables, now)
    every = spec.contract.check.every if spec.contract is not None and spec.contract.check is not None else None
    quiet_since = max(known.silent_at, known.asked_at)
    if found.silent and every is not None and now - quiet_since >= every.total_seconds():
        known.silent_at = math.floor(now)
        tick.start.append((spec, "nothing came for as long as it is checked after"))
    elif not found.due:
        tick.sentences[spec.stream] = f"{found.sentence}"
    elif known.rests(found.position, now):
        tick.sentences[spec.stream] = f"{found.sentence}; the last check of them did not count, see its run"
    else:
        known.note(found.position, now)
        tick.start.append((spec, found.sentence))


def _by_rows(spec: StreamSpec) -> bool:
    check = spec.contract.check if spec.contract is not None else None
    return check is not None and check.schedule is None
