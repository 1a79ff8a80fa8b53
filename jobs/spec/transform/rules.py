"""Rules of a stream's YAML file: what is expected of every row before it lands."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from jobs.spec.base import Location, SpecModel
from jobs.transform.chain import Chain, StepProblem
from jobs.transform.columns import Columns
from jobs.transform.rule import Rule


class RowRule(SpecModel):
    """One rule.

    Args:
        name: What dead letters and counts call it.
        expect: A SQL expression that has to be true of a row.
        severity: ``dead_letter`` sets rows aside that break it; ``warn`` lets them land, and counts them.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
    expect: Annotated[str, Field(min_length=1)]
    severity: Literal["dead_letter", "warn"] = "dead_letter"

    def transform(self) -> Rule:
        """The rule as a step."""
        return Rule(self.name, self.expect, self.severity == "warn")


def rules_of(rules: tuple[RowRule, ...]) -> Chain:
    """The rules as a chain."""
    return Chain(tuple(rule.transform() for rule in rules))


def rule_problems(rules: tuple[RowRule, ...], rows: Columns) -> list[tuple[Location, str]]:
    """Returns what is wrong with a rule, with its place in the file.

    Args:
        rows: The columns behind the transforms.
    """
    problems: list[tuple[Location, str]] = []
    names: set[str] = set()
    for number, rule in enumerate(rules):
        if rule.name in names:
            problems.append((("rules", number, "name"), f"is '{rule.name}', as that of another rule"))
        names.add(rule.name)
        try:
            Chain((rule.transform(),)).output(rows)
        except StepProblem as problem:
            problems.append((("rules", number, *problem.place), problem.message))
    return problems


def hashed_rules(_: Any, rules: tuple[RowRule, ...]) -> Any:
    """What of the rules changes rows: those that only warn do not."""
    return [[each.name, each.expect] for each in rules if each.severity == "dead_letter"]
