"""Publish block of a stream's YAML file: rows land on a branch, and become part of main when they are fit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import model_validator

from jobs.schema.evolution_policy import EvolutionPolicy
from jobs.spec.base import Location, SpecModel, problems_at
from jobs.spec.config_hash import ChangesRows
from jobs.spec.contract import Contract
from jobs.spec.evolve import Evolve
from jobs.spec.fields import BranchName
from jobs.spec.main_branch import MAIN_BRANCH
from jobs.spec.table import Table
from jobs.spec.units import Duration

INGEST = "ingest"


class Publish(SpecModel):
    """What stands between the stream's branch and main.

    Args:
        gate: By what an interval is judged: the expectations of the contract; a critical one that fails holds it.
        every: How often what has landed is judged and published; without it when somebody asks for it.
        branch: The branch that rows land on.
    """

    gate: Literal["contract"]
    every: Duration | None = None
    branch: Annotated[BranchName, ChangesRows(place=("table", "branch"))] = INGEST

    @model_validator(mode="after")
    def _sound(self) -> Publish:
        if self.every is not None and self.every < timedelta(minutes=1):
            raise problems_at([(("every",), "must be at least 1m")])
        if self.branch == MAIN_BRANCH:
            raise problems_at(
                [(("branch",), f"must be another branch than {MAIN_BRANCH}, where rows are published to")]
            )
        return self


def publish_problems(publish: Publish | None, contract: Contract | None, table: Table) -> list[tuple[Location, str]]:
    """Returns what is wrong with the block, given the rest of the file."""
    if publish is None:
        return []
    problems: list[tuple[Location, str]] = []
    if contract is None or not any(each.severity == "critical" for each in contract.expectations):
        said = "is the contract's, which needs a critical expectation about the rows: without one nothing is ever held"
        problems.append((("publish", "gate"), said))
    if table.branch not in (MAIN_BRANCH, publish.branch):
        problems.append((("table", "branch"), f"goes without publish, which has its own branch: {publish.branch}"))
    return problems


def gated_policy(policy: EvolutionPolicy, evolve: Evolve) -> EvolutionPolicy:
    """The policy of a gated stream: a schema is the table's, so a wider type would show in main before its rows do.

    Without a word in the file it is proposed; columns are added, and made optional, as without a gate.
    """
    return replace(policy, widen="propose") if evolve.widen is None and policy.widen == "auto" else policy
