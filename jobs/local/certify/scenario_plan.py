"""The plan of a certificate: scenarios, each a driver's start and the step at which it is killed.

Pure, and the same for the same seed.

A start that recovers from one kill arms the next, so a certificate costs one start per kill. Most scenarios let the new
driver commit first, so that the time to recover from the kill before can be told, and die with a later batch. *Early*
scenarios die while the driver opens the stream, before it has a Spark session: they cost a second or two, and the kill
before them is not timed. Where a step has several runs, at least one of them is followed by a start that commits.
"""

from __future__ import annotations

import difflib
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jobs.base.errors import FrazilError
from jobs.base.failpoints import STEPS as EVERY_STEP
from jobs.local.certify.shapes import SHAPES, SHAPES_OF_KINDS, Shape

Manner = Literal[
    "batch",
    "early",
    "moment",
    "early moment",
    "asleep",
    "schema",
    "tables",
    "stop",
    "roll",
    "keeper",
    "executor",
    "reset",
    "publish",
    "merge",
]  # fmt: skip

RANDOM = "random"
ASLEEP = "asleep"
MERGER_ASLEEP = "merger_asleep"
KEPT = "kept"
EXTRA = {
    RANDOM: "Killed at a random moment: while it starts, while it works on a batch, or in between.",
    KEPT: "Killed, and started again by its watchdog, which is killed itself then.",
    ASLEEP: "Suspended past its lease while another driver takes over; woken, it commits nothing and ends.",
    MERGER_ASLEEP: "A merge, suspended past its lease while another process merges; woken, it publishes nothing.",
}
# Failpoints where a driver is suspended: the second is harder, as it has just verified its lease.
SLEEPS_AT = ("before_commit", "after_lease_check")
# The same for merges: at the first only the catalog can refuse, at the second it still merges after it wakes up.
MERGER_SLEEPS_AT = ("mirror_before_publish", "mirror_before_merge", "mirror_after_merge")
# A kill there leaves a pending record that some target still lacks.
LEAVES_A_RECORD = (
    "before_commit",
    "after_lease_check",
    "inside_anchor_commit",
    "after_anchor_commit",
    "inside_dead_letters_commit",
)
# A kill there leaves a batch to its record; without dead letters other kills may leave nothing.
LEAVES_A_COMMIT = ("before_commit", "after_lease_check")
AFTER_A_COMMIT = "after_recovery_commit"
# Failpoints that only a driver with a pending record reaches.
NEEDS_A_RECORD = ("before_recovery", AFTER_A_COMMIT, "before_record_goes", "after_recovery")
COMMIT_KINDS = ("commit", "dead letters")
# Only tried by request: the killed executor belongs to somebody's cluster.
EXECUTORS = "executor"
# Replays, the dead-letter topic, maintenance, backfills, branches, checks, takeovers from a sink, plans, dropped and
# parked tables, those that follow the stream's own, quiet streams and tags are no part of a certificate: the project's
# own tests kill those.
NOT_HERE = (
    *("replay", "return", "outbox", "maintenance", "backfill", "offset backfill", "branch", "check"),
    *("sink takeover", "plan"),
    *("dropped tables", "parking", "event time", "tag", "opening", "followers", "group"),
)
# Also left out: discards, answers and rebases of published branches.
_HOLDS = ("inside_hold", "publish_after_hold")
_PUBLISHES = (
    *("publish_before_verdict", "publish_after_verdict", "publish_before_commit", "inside_publish"),
    *("publish_after_commit", *_HOLDS),
)
STEPS = {
    name: step
    for name, step in EVERY_STEP.items()
    if step.kind not in NOT_HERE and (step.kind != "publish" or name in _PUBLISHES)
}
# Failpoints that are passed once per target, or per stamp: the seed decides which time counts.
PASSES = {"inside_claim": 2, "after_reset_stamp": 3}
# The first batch makes what the driver before has left unmade, so that the recovery from that is seen.
_SECOND_BATCH = 2
# Each batch of the routed stream passes it twice; the first is of the batch that shows that the one before recovered.
_PASSES_BETWEEN_TABLES = (3, 4)
_LONGEST_START_SECONDS = 14.0
_LONGEST_WORK_SECONDS = 2.5
_MANNERS: dict[str, Manner] = {
    "take over": "early",
    "recovery": "early",
    "schema": "schema",
    "named tables": "tables",
    "stop": "stop",
    "roll": "roll",
    "keeper": "keeper",
    EXECUTORS: "executor",
    "reset": "reset",
    "publish": "publish",
    "mirror": "merge",
}
# These leave a driver behind for the next scenario.
LAUNCHING = frozenset({"roll", "keeper"})


@dataclass(frozen=True, slots=True)
class Scenario:
    """Planned scenario: a kill.

    Attributes:
        number: Number of the scenario, from 1.
        step: A name in `STEPS`, `random` or `asleep`.
        at: The armed failpoint; None for a random moment.
        passes: Number of the pass of the failpoint at which the process dies.
        delay: Random delay: seconds after the driver's start if early, otherwise after its first commit.
        asked_for: False for a kill that only leaves something to recover from.
        shape: Shape of the stream.
    """

    number: int
    step: str
    manner: Manner
    at: str | None
    passes: int = 1
    delay: float = 0.0
    asked_for: bool = True
    shape: Shape = "plain"

    @property
    def holds(self) -> bool:
        """Whether what is published there is judged unfit."""
        return self.step in _HOLDS

    @property
    def early(self) -> bool:
        """Whether the driver dies before it has committed anything of its own, or may."""
        return self.manner in ("early", "early moment")

    @property
    def arming(self) -> str:
        """The steps that its driver is armed with, as FRAZIL_STEPS; empty where no driver dies, or not at a step."""
        if self.manner in ("batch", "early", "schema", "tables", "stop", "executor", "merge"):
            return f"{self.at}=kill@{self.passes}"
        return f"{self.at}=stop@{self.passes}" if self.manner == "asleep" else ""


def select_steps(steps: str) -> tuple[str, ...]:
    """The steps that are meant by `all`, `commit`, a kind of steps, or names with commas between them.

    Raises:
        FrazilError: There is no such step.
    """
    kinds = {step.kind.replace(" ", "_") for step in STEPS.values()}
    names: dict[str, None] = {}
    for word in filter(None, (each.strip() for each in steps.split(","))):
        word = word.replace(" ", "_").replace("-", "_")
        if word == "all":
            found = [*(name for name, step in STEPS.items() if step.kind != EXECUTORS), *EXTRA]
        elif word == "commit":
            found = [name for name, step in STEPS.items() if step.kind in COMMIT_KINDS]
        elif word in kinds:
            found = [name for name, step in STEPS.items() if step.kind.replace(" ", "_") == word]
        elif word in STEPS or word in EXTRA:
            found = [word]
        else:
            known = ["all", *sorted(kinds), *STEPS, *EXTRA]
            close = difflib.get_close_matches(word, known, n=1)
            raise FrazilError(
                f"There is no step '{word}'.",
                fix=f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}",
            )
        names |= dict.fromkeys(found)
    if not names:
        raise FrazilError("No steps are named.", fix="frazil certify --steps all")
    return tuple(name for name in (*STEPS, *EXTRA) if name in names)


def plan_scenarios(steps: Sequence[str], runs: int, seed: int) -> list[Scenario]:
    """Plan the scenarios, in their order.

    Args:
        steps: Failpoints from `select_steps`.
        runs: Number of tries of each failpoint of the commit path, and of random moments; the others get a third.
    """
    rng = random.Random(f"{seed}/plan")
    scenarios = [scenario for step in steps for scenario in _scenarios_of(step, runs, rng)]
    late = [scenario for scenario in scenarios if not scenario.early and scenario.shape == "plain"]
    early = [scenario for scenario in scenarios if scenario.early]
    others = [scenario for scenario in scenarios if scenario.shape != "plain"]
    rng.shuffle(late)
    rng.shuffle(early)
    rng.shuffle(others)
    # Each of the other streams once, behind the one with one table.
    others.sort(key=lambda scenario: SHAPES.index(scenario.shape))
    # Scenarios with the fewest possible predecessors come first.
    early.sort(key=lambda scenario: (scenario.step != AFTER_A_COMMIT, scenario.step not in NEEDS_A_RECORD))
    order = [*_woven(late, early, rng), *others]
    return [replace(scenario, number=number) for number, scenario in enumerate(order, start=1)]


def _scenarios_of(step: str, runs: int, rng: random.Random) -> Iterable[Scenario]:
    seldom = max(1, runs // 3)
    if step == RANDOM:
        for run in range(runs + 1):
            manner: Manner = "early moment" if run % 2 else "moment"
            longest = _LONGEST_START_SECONDS if run % 2 else _LONGEST_WORK_SECONDS
            yield Scenario(0, step, manner, None, delay=round(rng.uniform(0.05, longest), 2))
    elif step == KEPT:
        for _ in range(seldom):
            yield Scenario(0, step, "keeper", None)
    elif step == ASLEEP:
        for run in range(seldom):
            # The second batch, so that the one before is known to have recovered.
            yield Scenario(0, step, "asleep", SLEEPS_AT[(run + 1) % len(SLEEPS_AT)], passes=2)
    elif step == MERGER_ASLEEP:
        for run in range(seldom):
            at = MERGER_SLEEPS_AT[run % len(MERGER_SLEEPS_AT)]
            yield Scenario(0, step, "asleep", at, passes=2, shape="mirrored")
    elif STEPS[step].kind == "route":
        for _ in range(runs):
            yield Scenario(0, step, "batch", step, passes=rng.choice(_PASSES_BETWEEN_TABLES), shape="routed")
    elif STEPS[step].kind in COMMIT_KINDS:
        for _ in range(runs):
            yield Scenario(0, step, "batch", step, passes=2)
    else:
        manner = _MANNERS[STEPS[step].kind]
        for _ in range(seldom):
            second = manner in ("tables", "executor", "merge")
            passes = _SECOND_BATCH if second else rng.randint(1, PASSES.get(step, 1))
            yield Scenario(0, step, manner, step, passes, shape=SHAPES_OF_KINDS.get(STEPS[step].kind, "plain"))


def _woven(late: list[Scenario], early: list[Scenario], rng: random.Random) -> list[Scenario]:
    """Put each early scenario behind a late one that can spare its time to recover.

    A scenario that needs a pending record follows a kill that leaves one, which is added if missing.
    """
    behind: dict[int, Scenario] = {}
    spare = Counter(scenario.step for scenario in late)
    for scenario in early:
        needs_record = scenario.step in NEEDS_A_RECORD
        leaving = LEAVES_A_COMMIT if scenario.step == AFTER_A_COMMIT else LEAVES_A_RECORD
        free = [
            index
            for index, each in enumerate(late)
            if index not in behind
            # A roll, or a watchdog, may start the next driver itself, which has to be one that works.
            and each.manner not in LAUNCHING
            and (each.step in leaving or not needs_record)
        ]
        best = [index for index in free if spare[late[index].step] > 1]
        if needs_record and not free:
            late.append(Scenario(0, rng.choice(leaving), "batch", None, passes=2, asked_for=False))
            late[-1] = replace(late[-1], at=late[-1].step)
            behind[len(late) - 1] = scenario
            continue
        if not (best or free):
            # Without a predecessor it comes first.
            behind[-1 - len(behind)] = scenario
            continue
        index = rng.choice(best or free)
        spare[late[index].step] -= 1
        behind[index] = scenario
    first = [scenario for index, scenario in behind.items() if index < 0]
    rest = [each for index, scenario in enumerate(late) for each in (scenario, behind.get(index)) if each is not None]
    return first + rest
