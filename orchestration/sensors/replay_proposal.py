"""Whether a replay would help: letters of an earlier configuration, and what becomes of a few of them now."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from assets.dead_letters import REPLAY_WOULD_HELP
from assets.stream_checks import CheckOutcome
from jobs.deadletter.selection import Selection
from jobs.deadletter.tally import Tally
from jobs.replay.dry_run import dry_run
from jobs.replay.request import ReplayRequest
from jobs.spec.models import StreamSpec

SAMPLE = 200
LEAST_PER_REASON = 20
MOST_REASONS = 10
# Of the letters of a reason that were tried, so many have to succeed; a replay counts an attempt of the others.
GOOD_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of the sample of one reason.

    Attributes:
        waiting: Letters with this reason that an earlier configuration left.
        tried: Of them, in the sample.
        good: Of those, which would come back now.
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
    """What a replay of the letters of earlier configurations would come to.

    Attributes:
        config: The hash of the configuration that the sample was tried under.
        snapshot_id: Of the dead-letter table.
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


def propose(spec: StreamSpec, catalog: Catalog, counted: Tally) -> Proposal:
    """Try some of the letters of earlier configurations, the oldest of each reason; changes nothing.

    Args:
        counted: The stream's letters.

    Raises:
        FrazilError: The tables are not fit for a replay.
    """
    waiting = counted.of_other_configurations(spec.config_hash)
    first = Proposal(spec.stream, spec.config_hash, counted.snapshot_id)
    total, left, found = sum(waiting.values()), SAMPLE, []
    for reason, count in list(waiting.items())[:MOST_REASONS]:
        limit = min(left, count, max(LEAST_PER_REASON, SAMPLE * count // total))
        if limit <= 0:
            break
        left -= limit
        selected = Selection(reasons=(reason,), where=first.where, limit=limit)
        result = dry_run(spec, catalog, ReplayRequest(selected))
        # A letter whose row stands already lands nothing: no reason for a replay, and none against it.
        found.append(Tried(reason, count, result.replayed + result.failed, result.replayed))
    return Proposal(spec.stream, spec.config_hash, counted.snapshot_id, tuple(found))


def verdict(proposal: Proposal, started: str = "") -> CheckOutcome:
    """What the check says of a proposal.

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
            REPLAY_WOULD_HELP, True, "No letter of an earlier configuration waits.", "none", figures=figures
        )
    if not helping:
        sentence = (
            f"{figures['letters_of_earlier_configurations']:,} letters of earlier configurations wait; of {tried:,} "
            f"that were tried {good:,} would come back now: {_told(others)}."
        )
        return CheckOutcome(REPLAY_WOULD_HELP, True, sentence, "no", figures=figures)
    figures |= {"letters_that_may_come_back": sum(each.waiting for each in helping), "command": proposal.command}
    sentence = f"The configuration has changed since, and letters would come back now: {_told(helping)}."
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
