"""Replay proposal: whether a replay would help, by a sample of the dead letters that an earlier configuration left."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

from assets.dead_letters import KNOWN_FILES, LETTERS_WAITING, REPLAY_WOULD_HELP, letters_waiting
from assets.stream_checks import CheckOutcome, totals_of
from jobs.clients.catalog.catalog import NoCatalogYet, find_table
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import dry_run
from jobs.records.formats.interface.writer_schema import SchemaLookup
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.streaming.driver.context.writer_schemas import schema_lookup
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.dead_letter_table.tally import DeadLetterTally, tally_dead_letters
from resources.deployment import Deployment

SAMPLE = 200
LEAST_PER_REASON = 20
MOST_REASONS = 10
# A replay is proposed if this share of the tried letters of a reason succeeds; it counts an attempt of the others.
GOOD_SHARE = 0.5
# By table and stream, what was found and what it was found for: letters that nobody touched need not be tried again.
_LAST: dict[tuple[str, str], tuple[tuple[object, ...], Proposal]] = {}


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of the sample of one reason, for a proposal to replay.

    Attributes:
        waiting: Letters with this reason that an earlier configuration left.
        tried: Number of letters in the sample.
        good: Number of tried letters that would come back now.
    """

    reason: str
    waiting: int
    tried: int
    good: int

    @property
    def helps(self) -> bool:
        """Whether a replay is worth an attempt."""
        return self.tried > 0 and self.good / self.tried >= GOOD_SHARE


@dataclass(frozen=True, slots=True)
class Proposal:
    """Expected result of a replay of the letters of earlier configurations.

    Attributes:
        config: The hash of the configuration that the sample was tried under.
        snapshot_id: Snapshot of the dead-letter table.
        reasons: The most frequent first; empty if no such letter waits.
    """

    stream: str
    config: str
    snapshot_id: int | None
    reasons: tuple[Tried, ...] = ()

    @property
    def helping(self) -> tuple[Tried, ...]:
        """The reasons that are worth a replay."""
        return tuple(each for each in self.reasons if each.helps)

    @property
    def where(self) -> str:
        """Letters of other configurations than the present one: those it made itself would fail again."""
        return f"config_hash != '{self.config}' or config_hash is null"

    @property
    def command(self) -> str:
        """The replay, as a person would run it."""
        reasons = "".join(f" --reason {shlex.quote(each.reason)}" for each in self.helping)
        return f'frazil replay {self.stream}{reasons} --where "{self.where}"'


def propose_replay(
    spec: StreamSpec, catalog: Catalog, counted: DeadLetterTally, schemas: SchemaLookup | None = None
) -> Proposal:
    """Try some of the letters of earlier configurations, the oldest of each reason; changes nothing.

    Args:
        schemas: Finds the writer schemas of records that name theirs.

    Raises:
        FrazilError: The tables are not fit for a replay.
    """
    if spec.route is not None and not spec.kafka_columns.locate_rows_of(spec.kafka_columns.added_to(Schema())):
        # A replay by a route looks for each record in its tables.
        return Proposal(spec.stream, spec.config_hash, counted.snapshot_id)
    waiting = counted.of_other_configurations(spec.config_hash)
    first = Proposal(spec.stream, spec.config_hash, counted.snapshot_id)
    total, left, found = sum(waiting.values()), SAMPLE, []
    for reason, count in list(waiting.items())[:MOST_REASONS]:
        limit = min(left, count, max(LEAST_PER_REASON, SAMPLE * count // total))
        if limit <= 0:
            break
        left -= limit
        selected = Selection(reasons=(reason,), where=first.where, limit=limit)
        result = dry_run(spec, catalog, ReplayRequest(selected), schemas=schemas)
        # A letter whose row stands already lands nothing: no reason for a replay, and none against it.
        found.append(Tried(reason, count, result.replayed + result.failed, result.replayed))
    return Proposal(spec.stream, spec.config_hash, counted.snapshot_id, tuple(found))


def proposal_outcome(proposal: Proposal, started: str = "") -> CheckOutcome:
    """The check's result for a proposal.

    Args:
        started: Why nobody has to do anything, such as that the replay was started.
    """
    helping, others = proposal.helping, [each for each in proposal.reasons if not each.helps]
    tried, good = (sum(getattr(each, what) for each in proposal.reasons) for what in ("tried", "good"))
    figures: dict[str, float | int | str] = {
        "letters_of_earlier_configurations": sum(each.waiting for each in proposal.reasons),
        "sample": tried,
        "sample_would_come_back": good,
        "config_hash": proposal.config,
    }
    if not proposal.reasons:
        return CheckOutcome(
            REPLAY_WOULD_HELP, True, "No dead letter of an earlier configuration waits.", "none", figures=figures
        )
    if not helping:
        sentence = (
            f"{figures['letters_of_earlier_configurations']:,} dead letters of earlier configurations wait; of "
            f"{tried:,} that were tried {good:,} would come back now: {_told(others)}."
        )
        return CheckOutcome(REPLAY_WOULD_HELP, True, sentence, "no", figures=figures)
    figures |= {"letters_that_may_come_back": sum(each.waiting for each in helping), "command": proposal.command}
    sentence = f"The configuration has changed since, and dead letters would come back now: {_told(helping)}."
    if others:
        sentence += f" Others would still fail: {_told(others)}."
    if started:
        return CheckOutcome(REPLAY_WOULD_HELP, True, f"{sentence} {started}", "started", figures=figures)
    return CheckOutcome(
        REPLAY_WOULD_HELP, False, f"{sentence} Next: {proposal.command}", "proposed", warn=True, figures=figures
    )


def _told(reasons: list[Tried] | tuple[Tried, ...]) -> str:
    parts = [f"{each.waiting:,} {each.reason} ({each.good} of {each.tried} tried)" for each in reasons[:5]]
    if len(reasons) > 5:
        parts.append(f"and {len(reasons) - 5} more reasons")
    return ", ".join(parts)


def find_proposal(spec: StreamSpec, settings: Settings, catalog: Callable[[], Catalog]) -> Proposal:
    """Estimate, by a sample, what a replay of letters of earlier configurations brings back; changes nothing.

    Raises:
        FrazilError: The catalog does not answer, or the tables are not fit for a replay.
    """
    nothing = Proposal(spec.stream, spec.config_hash, None)
    try:
        connection = catalog()
    except NoCatalogYet:
        return nothing
    with translate_errors(settings, spec.stream), connection as opened:
        spec = with_named_tables(spec, opened) if spec.own_columns else spec
        parked = parked_tables(spec, opened)
        if not all(opened.table_exists(name) for name in spec.target_names if name not in parked):
            return nothing
        letters = opened.load_table(spec.dead_letter_table)
        # The sample depends on nothing else but on the columns of the stream's table, or of each where they differ, and
        # on which tables are parked.
        names = [each.name for each in spec.targets if each.role == "rows"] if spec.own_columns else [spec.table.name]
        ids = [opened.load_table(name).metadata.current_schema_id for name in names if name not in parked]
        seen = (letters.metadata.current_snapshot_id, *ids, *sorted(parked))
        key = (str(letters.metadata.table_uuid), spec.stream)
        known = _LAST.get(key)
        if known is None or known[0] != (spec.config_hash, *seen):
            counted = tally_dead_letters(letters, spec.stream, KNOWN_FILES)
            found = propose_replay(spec, opened, counted, schema_lookup(spec, settings))
            _LAST[key] = known = ((spec.config_hash, *seen), found)
        return known[1]


def evaluate_dead_letters(
    deployment: Deployment, stream: str, catalog: Callable[[], Catalog], checks: Sequence[str]
) -> Sequence[CheckOutcome]:
    """Outcomes of the checks of a stream's dead letters, evaluated now for a run from the UI."""
    spec, settings = deployment.stream(stream), deployment.settings()
    found: list[CheckOutcome] = []
    if LETTERS_WAITING in checks:
        dead = sink = None
        with contextlib.suppress(NoCatalogYet), translate_errors(settings, stream), catalog() as opened:
            dead, sink = (find_table(opened, name) for name in (spec.dead_letter_table, spec.table.name))
        if dead is None:
            found.append(CheckOutcome(LETTERS_WAITING, True, "There is no dead-letter table yet.", "none"))
        else:
            found.append(
                letters_waiting(spec, tally_dead_letters(dead, stream, KNOWN_FILES), totals_of(sink, stream).read)
            )
    if REPLAY_WOULD_HELP in checks:
        found.append(proposal_outcome(find_proposal(spec, settings, catalog)))
    return found
