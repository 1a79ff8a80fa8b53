"""One tick of the sensor `frazil_replays`: the letters that an earlier configuration left, and that would come back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import dagster as dg
import msgspec

from assets import dagster_names
from assets.dead_letters import KNOWN_FILES, LETTERS_WAITING, REPLAY_WOULD_HELP, letters_waiting
from assets.stream_checks import CheckOutcome, evaluation, totals_of
from jobs.deadletter.tally import tally
from jobs.errors import FrazilError
from jobs.spec.generation import generation
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.stream_folder import stream_folder
from jobs.supervise.actual import read_actual
from jobs.supervise.control_request import read_control
from jobs.translate import translate_errors
from orchestration.reconcile.background_query import BackgroundQuery
from orchestration.reconcile.cursor import checksum, due
from orchestration.reconcile.stream_files import read_files
from orchestration.sensors.replay_proposal import Proposal, propose, verdict
from resources.deployment import Deployment

# A tick has 60 s in all. What takes longer goes on, and is picked up by a later tick.
BUDGET_SECONDS = 15.0
# What is proposed, or could not be found out, is looked at again after so long.
AGAIN_SECONDS = 600
_LOOKING = BackgroundQuery()
# By table and stream, what was found and what it was found for: letters that nobody touched need not be tried again.
_LAST: dict[tuple[str, str], tuple[tuple[object, ...], Proposal]] = {}


class Judged(msgspec.Struct, omit_defaults=True):
    """What is remembered of one stream.

    Attributes:
        config: The hash of the configuration for which its letters were looked at.
        at: When; seconds since 1970.
        proposed: Whether a replay would help.
        failed: The hash of the configuration for which they could not be looked at, at that time.
        told: A checksum of what the check said last.
    """

    config: str = msgspec.field(default="", name="c")
    at: int = msgspec.field(default=0, name="a")
    proposed: bool = msgspec.field(default=False, name="p")
    failed: str = msgspec.field(default="", name="f")
    told: int = msgspec.field(default=0, name="t")

    def rests(self, config: str, now: float) -> bool:
        """Whether there is nothing to look at now."""
        if self.config == config and not self.proposed:
            return True
        return config in (self.config, self.failed) and not due(now, self.at, AGAIN_SECONDS)


class Memory(msgspec.Struct, omit_defaults=True):
    """The cursor. All of it may be lost: then the letters are looked at once more, and none is replayed twice."""

    streams: dict[str, Judged] = msgspec.field(default_factory=dict)

    @staticmethod
    def from_cursor(cursor: str | None) -> Memory:
        """What a cursor holds; nothing of one that cannot be read."""
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(cursor or "{}", type=Memory)
        return Memory()

    def to_cursor(self) -> str:
        """As Dagster keeps it."""
        return msgspec.json.encode(self).decode()


@dataclass(slots=True)
class Tick:
    """What a tick comes to.

    Attributes:
        start: The replays to start, if they were not started for the same configuration before.
        sentences: By stream, what is to be said.
    """

    start: list[Proposal] = field(default_factory=list)
    events: list[dg.AssetCheckEvaluation] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)


def run_tick(
    deployment: Deployment,
    memory: Memory,
    under_way: Collection[str],
    replayed_for: Callable[[str], str],
    now: float,
) -> Tick:
    """Look at the streams whose configuration has changed; asks nobody for any other.

    Args:
        under_way: Streams whose letters a run replays now.
        replayed_for: The hash of the configuration that a stream's newest automatic replay was for; empty without one.
        now: Seconds since 1970.
    """
    tick, began = Tick(), time.monotonic()
    files = read_files(deployment)
    settings = deployment.settings()
    for spec in files.specs.values():
        judged = memory.streams.setdefault(spec.stream, Judged())
        if judged.rests(spec.config_hash, now):
            continue
        try:
            if waits := _waits(spec, settings, under_way):
                tick.sentences[spec.stream] = waits
                continue
            left = max(0.0, BUDGET_SECONDS - (time.monotonic() - began))
            key = (str(deployment.home), spec.stream, spec.config_hash)
            found = _LOOKING.ask(key, left, lambda spec=spec: look(spec, settings))
            if found is None:
                tick.sentences[spec.stream] = "its letters are being looked at"
                continue
            _conclude(tick, spec, settings, found, judged, replayed_for, now)
        except Exception as problem:
            # One stream's trouble is none of the others'.
            judged.at, judged.failed = int(now), spec.config_hash
            tick.sentences[spec.stream] = str(problem) if isinstance(problem, FrazilError) else type(problem).__name__
    if not files.absence:
        for stream in set(memory.streams) - set(files.specs) - set(files.claimed):
            del memory.streams[stream]
    return tick


def _conclude(
    tick: Tick,
    spec: StreamSpec,
    settings: Settings,
    found: Proposal,
    judged: Judged,
    replayed_for: Callable[[str], str],
    now: float,
) -> None:
    starts = bool(found.helping) and _may_start(spec, settings) and replayed_for(spec.stream) != spec.config_hash
    said = verdict(found, "A replay has been started, as errors.replay.automatic says." if starts else "")
    if starts:
        tick.start.append(found)
    judged.config, judged.failed, judged.at = spec.config_hash, "", int(now)
    # Also of a replay that was started: if its run fails, somebody has to be told.
    judged.proposed = bool(found.helping)
    tick.sentences[spec.stream] = said.sentence
    told = checksum(f"{said.code}{said.sentence}")
    # What is proposed is told each time: a run that materializes the letters makes the check read as not evaluated.
    if told != judged.told or judged.proposed:
        judged.told = told
        tick.events.append(evaluation(said, dagster_names.table_key(settings, spec.dead_letter_table)))


def _waits(spec: StreamSpec, settings: Settings, under_way: Collection[str]) -> str:
    """Why nothing can be said yet; empty if it can."""
    if spec.stream in under_way:
        return "its letters are being replayed"
    actual = read_actual(stream_folder(settings, spec.stream).store, spec.stream)
    if actual.heartbeat is None or not (actual.driver_lives and actual.fresh):
        return ""
    if actual.heartbeat.generation == generation(spec, settings):
        return ""
    # It may still write letters of the former configuration, which would be left behind.
    return "its driver still runs the former configuration"


def _may_start(spec: StreamSpec, settings: Settings) -> bool:
    """Whether a replay may start by itself: not into a table that an operator wants left alone."""
    if not spec.errors.replay.automatic:
        return False
    return read_control(stream_folder(settings, spec.stream).store).mode == "running"


def look(spec: StreamSpec, settings: Settings) -> Proposal:
    """What a replay of the letters of earlier configurations would come to, by a sample; changes nothing.

    Raises:
        FrazilError: The catalog does not answer, or the tables are not fit for a replay.
    """
    from jobs.catalog import NoCatalogYet, quick_catalog

    nothing = Proposal(spec.stream, spec.config_hash, None)
    try:
        opened = quick_catalog(settings)
    except NoCatalogYet:
        return nothing
    with translate_errors(settings, spec.stream), opened as catalog:
        if not all(catalog.table_exists(name) for name in spec.target_names):
            return nothing
        letters = catalog.load_table(spec.dead_letter_table)
        # The sample depends on nothing else but on the columns of the stream's table.
        seen = (letters.metadata.current_snapshot_id, catalog.load_table(spec.table.name).metadata.current_schema_id)
        key = (str(letters.metadata.table_uuid), spec.stream)
        known = _LAST.get(key)
        if known is None or known[0] != (spec.config_hash, *seen):
            found = propose(spec, catalog, tally(letters, spec.stream, KNOWN_FILES))
            _LAST[key] = known = ((spec.config_hash, *seen), found)
        return known[1]


def judge_letters(deployment: Deployment, stream: str, checks: Sequence[str]) -> Sequence[CheckOutcome]:
    """What the checks say of a stream's letters, looked at now: what a check does that is executed from the UI."""
    from jobs.catalog import NoCatalogYet, find_table, quick_catalog

    spec, settings = deployment.stream(stream), deployment.settings()
    found: list[CheckOutcome] = []
    if LETTERS_WAITING in checks:
        dead = sink = None
        with contextlib.suppress(NoCatalogYet), translate_errors(settings, stream), quick_catalog(settings) as catalog:
            dead, sink = (find_table(catalog, name) for name in (spec.dead_letter_table, spec.table.name))
        if dead is None:
            found.append(CheckOutcome(LETTERS_WAITING, True, "There is no table of letters yet.", "none"))
        else:
            found.append(letters_waiting(spec, tally(dead, stream, KNOWN_FILES), totals_of(sink, stream).read))
    if REPLAY_WOULD_HELP in checks:
        found.append(verdict(look(spec, settings)))
    return found
