"""Results of a certificate's scenarios, which its reports call trials, and their sums."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from jobs.local.certify.comparison import Comparison
from jobs.local.certify.scenario_plan import EXTRA, STEPS, Scenario


@dataclass(slots=True)
class ScenarioResult:
    """The result of one scenario.

    Attributes:
        attempt: Attempt of the killed driver, or of the killed action's driver.
        killed_at: Seconds since 1970; None if nothing was killed.
        seconds: Seconds from the kill to the next commit of a batch; None if the next driver was killed before one.
        replayed: Records of the killed batch that the next driver's tasks read again.
        from_record: Whether a pending record existed, from which the next driver commits.
        where: Activity of the driver at a random moment.
        problems: Problems, as sentences.
    """

    scenario: Scenario
    attempt: int = 0
    killed_at: float | None = None
    seconds: float | None = None
    replayed: int = 0
    from_record: bool = False
    where: str = ""
    problems: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """The result as JSON."""
        scenario = {key: value for key, value in asdict(self.scenario).items() if value not in ("", None)}
        rest = {name: getattr(self, name) for name in ("attempt", "killed_at", "replayed", "from_record", "where")}
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {**scenario, **rest, "seconds": seconds, "passed": not self.problems, "problems": list(self.problems)}


@dataclass(frozen=True, slots=True)
class StepRow:
    """The results of all scenarios of one step.

    Attributes:
        planned: Number of planned scenarios.
        kills: Number of scenarios that reached the failpoint, suspensions included.
        passed: Whether all scenarios passed; None if none of them reached the failpoint.
        median, worst: Seconds from the kill to the next commit.
        replayed: The most records that were read again after one kill.
    """

    step: str
    kind: str
    planned: int
    kills: int
    passed: bool | None
    median: float | None
    worst: float | None
    replayed: int


@dataclass(slots=True)
class CertificateResults:
    """The results of a whole certificate.

    Attributes:
        scenarios: Planned scenarios.
        results: Results of the begun scenarios, in order.
        final: The full comparison at the end of each of its streams, together; None if it never came to that.
        audit: Result of `frazil audit` at the end, a sentence for each stream; empty if it was not reached.
        problems: Problems of the whole, beside the scenarios' own.
        produced: Records in the topic.
        seconds: Seconds from the first record to the last comparison.
        mirror_snapshots: Number of main's snapshots of a mirror that were compared with its changes.
        mirror_problems: Problems of these snapshots.
    """

    scenarios: Sequence[Scenario]
    results: list[ScenarioResult] = field(default_factory=list)
    final: Comparison | None = None
    audit: str = ""
    problems: list[str] = field(default_factory=list)
    produced: int = 0
    seconds: float = 0.0
    mirror_snapshots: int = 0
    mirror_problems: int = 0

    @property
    def passed(self) -> bool:
        """Whether every scenario was run, and nothing is wrong."""
        return (
            self.final is not None
            and len(self.results) == len(self.scenarios)
            and not any(self.all_problems())
            and all(result.killed_at is not None for result in self.results)
        )

    def all_problems(self) -> Iterable[str]:
        """Everything that is wrong, as sentences."""
        for result in self.results:
            for problem in result.problems:
                yield f"trial {result.scenario.number} ({result.scenario.step}): {problem}"
        yield from self.problems

    def finished(self, found: Comparison, audit: str) -> None:
        """Add the results at the end of one of the streams.

        Args:
            found: The full comparison.
            audit: Sentence of the audit.
        """
        self.final = found if self.final is None else self.final + found
        self.audit = f"{self.audit} {audit}".strip()

    @property
    def recoveries(self) -> list[float]:
        """Seconds from each kill to the next commit, where no other kill came before it."""
        # A suspended driver is replaced when its lease expires, which shows nothing about a kill.
        return [each.seconds for each in self.results if each.seconds is not None and each.scenario.manner != "asleep"]

    def rows(self) -> list[StepRow]:
        """The table of steps, in the order of the protocol."""
        rows: list[StepRow] = []
        for name in (*STEPS, *EXTRA):
            planned = [scenario for scenario in self.scenarios if scenario.step == name]
            if not planned:
                continue
            results = [result for result in self.results if result.scenario.step == name]
            seconds = [result.seconds for result in results if result.seconds is not None]
            kills = sum(result.killed_at is not None for result in results)
            rows.append(
                StepRow(
                    name,
                    STEPS[name].kind if name in STEPS else "any",
                    len(planned),
                    kills,
                    all(not result.problems for result in results) if results else None,
                    statistics.median(seconds) if seconds else None,
                    max(seconds, default=None),
                    max((result.replayed for result in results), default=0),
                )
            )
        return rows

    def facts(self) -> dict[str, Any]:
        """The results as JSON."""
        seconds = self.recoveries
        records = asdict(self.final) if self.final else {}
        records.pop("problems", None)
        return {
            "passed": self.passed,
            "kills": sum(each.killed_at is not None and each.scenario.manner != "asleep" for each in self.results),
            "trials_planned": len(self.scenarios),
            "seconds": round(self.seconds, 1),
            "recovery_seconds": {
                "median": round(statistics.median(seconds), 3) if seconds else None,
                "worst": round(max(seconds), 3) if seconds else None,
                "measured": len(seconds),
            },
            "records": {"produced": self.produced, **records},
            "audit": self.audit,
            "mirror_snapshots": self.mirror_snapshots,
            "mirror_problems": self.mirror_problems,
            "problems": list(self.all_problems()),
            "steps": [asdict(row) for row in self.rows()],
            "trials": [result.facts() for result in self.results],
        }
