"""The sensor that has contracts checked as rows come: `frazil_contracts`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import math
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
import msgspec

from assets import dagster_names
from assets.contract_checks import expectations_by_key
from jobs.clients.catalog.catalog import find_table
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.jobs.contract import CHECKED_TAG, JOB, check_run
from orchestration.reconcile.cursor import StreamsCursor
from orchestration.sensors.due_runs import DueRuns, due_runs, due_runs_sensor

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


# A check that a run left undone is requested again after so long, and after twice as long each time nothing changes.
AGAIN_SECONDS = 60
LONGEST_AGAIN_SECONDS = 3600
SENSOR = "frazil_contracts"


class CheckedStream(msgspec.Struct, omit_defaults=True):
    """State that the sensor keeps of one stream.

    Attributes:
        at: When the stream was looked at; seconds since 1970.
        asked_at: When a check was requested; `asks` counts the requests while nothing was recorded as checked.
        position: How far the stream was recorded as checked then.
        silent_at: When a check was requested because no records came.
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


def _look(tick: DueRuns, spec: StreamSpec, catalog: "Catalog", known: CheckedStream, now: float) -> None:
    # Imported here: a code server that only loads has no use for it.
    from jobs.quality.contracts.check import contract_of
    from jobs.quality.contracts.check_due import due_check

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


run_contracts_tick = partial(due_runs, wanted=_by_rows, remember=CheckedStream, busy="it is being checked", look=_look)
"""Look for streams whose contract is due for a check; reads only metadata, and only of those that may be due."""


def contract_sensor() -> dg.SensorDefinition:
    """The sensor; it reads tables' metadata and no row."""
    return due_runs_sensor(
        name=SENSOR,
        job=JOB,
        tag=CHECKED_TAG,
        description=(
            "Starts the checks of a stream's contract as set by contract.check of its file: after a number of "
            "unchecked snapshots, or when the first of them has waited long enough."
        ),
        nothing="No stream is to be checked by what is new.",
        cursor=ContractsCursor,
        tick=run_contracts_tick,
        request=_request,
    )


def _request(
    spec: StreamSpec, settings: Settings, loaded: Collection[dg.AssetCheckKey], why: str, now: float
) -> dg.RunRequest | str:
    expected = expectations_by_key(spec, dagster_names.target_keys(settings, spec))
    if keys := [key for key in expected if key in loaded]:
        return check_run(spec.stream, keys, f"{spec.stream}:check:{now:.0f}", why, SENSOR)
    return "its contract is new: reload the code location"
