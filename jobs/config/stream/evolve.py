"""Blocks `evolve` and `publish` of a stream's file: schema evolution of its table, and write-audit-publish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from jobs.config.contract.contract import Contract
from jobs.config.documents.base import (
    ChangesRows,
    Problem,
    Problems,
    SpecModel,
)
from jobs.config.documents.units import Duration
from jobs.config.stream.table import Table
from jobs.config.values.decode import Decode
from jobs.config.values.fields import BranchName, PositiveInt
from jobs.config.values.targets import MAIN_BRANCH
from jobs.config.values.value_format import SchemaSource
from jobs.records.schema.needs import (
    NO_EVOLUTION,
    Answer,
    Clash,
    EvolutionPolicy,
)

_DEFAULT: dict[SchemaSource, Answer] = {"registry": "auto", "infer": "auto", "table": "ignore"}


class EvolveLimits(SpecModel):
    """How far a table may grow by itself.

    Args:
        columns: Most columns of the table, nested ones counted.
        new_columns_per_hour: Most columns that are added within an hour.
        depth: Deepest level of a new column; 1 is the table's top. At most 24.
    """

    columns: PositiveInt = NO_EVOLUTION.columns
    new_columns_per_hour: PositiveInt = NO_EVOLUTION.new_columns_per_hour
    depth: Annotated[PositiveInt, Field(le=24)] = NO_EVOLUTION.depth


class Evolve(SpecModel):
    """What becomes of changes that records need of the table.

    ``auto`` makes them, ``propose`` writes them down and sets the records aside, ``ignore`` leaves the table as it is,
    ``fail`` stops the stream. Without a word a registry's schemas and inferred ones are followed, a table's are not.

    Args:
        add: What happens when the table lacks a column. Without it, ``auto`` with ``decode.schema: registry`` or
            ``infer``, else ``ignore``.
        widen: What happens when a type cannot hold a value and Iceberg can promote it. Without it, ``auto`` with
            ``decode.schema: registry`` or ``infer``, else ``ignore``.
        relax: What happens when records lack a required column. Without it, ``auto`` with ``decode.schema: registry``
            or ``infer``, else ``ignore``.
        clash: What happens to a value that no change fits: a dead letter, or text in a column beside it (``shadow``).
        limits: How far the table may grow.
    """

    example = "{add: propose}"

    add: Annotated[Answer | None, ChangesRows(unless=None)] = None
    widen: Annotated[Answer | None, ChangesRows(unless=None)] = None
    relax: Annotated[Answer | None, ChangesRows(unless=None)] = None
    clash: Annotated[Clash, ChangesRows(unless="dead_letter")] = "dead_letter"
    limits: EvolveLimits = EvolveLimits()

    def policy(self, decode: Decode) -> EvolutionPolicy:
        """Return the policy of a stream with this `decode` block."""
        if decode.schema_source == "declared":
            return NO_EVOLUTION
        default = _DEFAULT[decode.schema_source]
        # Kept fields need no columns of their own.
        add = "ignore" if decode.unknown_fields == "keep" else default
        return EvolutionPolicy(
            self.add or add, self.widen or default, self.relax or default, self.clash, **self.limits.model_dump()
        )


def evolve_problems(evolve: Evolve, decode: Decode, stream: str) -> Iterator[Problem]:
    """Yields the problems of the block, given the origin of the stream's columns."""
    if decode.schema_source == "declared":
        if evolve != Evolve():
            problem = (
                "is for columns that are from a registry, a table or the records; these are declared in decode.schema: "
                f"change them there, then `frazil schema apply {stream}` alters the table"
            )
            yield ("evolve",), problem
        return
    if decode.unknown_fields != "ignore" and evolve.policy(decode).add != "ignore":
        problem = f"has to be ignore where decode.unknown_fields is {decode.unknown_fields}"
        yield ("evolve", "add"), problem
    if evolve.clash == "shadow" and decode.format != "json":
        problem = f"can be shadow for JSON only, not for values of the format {decode.format}"
        yield ("evolve", "clash"), problem


INGEST = "ingest"


class Publish(SpecModel):
    """Write-audit-publish between the stream's branch and main.

    Args:
        gate: What judges the unpublished snapshots. A critical expectation that fails quarantines them.
        every: Time between publications, at least ``1m``. Without it, on demand.
        branch: Branch that rows land on.
    """

    example = "{gate: contract, every: 10m}"

    gate: Literal["contract"]
    every: Duration | None = None
    branch: Annotated[BranchName, ChangesRows(place=("table", "branch"))] = INGEST

    def _problems(self) -> Problems:
        if self.every is not None and self.every < timedelta(minutes=1):
            yield ("every",), "must be at least 1m"
        if self.branch == MAIN_BRANCH:
            yield ("branch",), f"must be another branch than {MAIN_BRANCH}, where rows are published to"


def publish_problems(publish: Publish | None, contract: Contract | None, table: Table) -> Iterator[Problem]:
    """Yields the problems of the block, given the rest of the file."""
    if publish is None:
        return
    if contract is None or not any(each.severity == "critical" for each in contract.expectations):
        said = "needs a critical expectation of the contract about the rows: without one nothing is ever quarantined"
        yield ("publish", "gate"), said
    if table.branch not in (MAIN_BRANCH, publish.branch):
        yield ("table", "branch"), f"goes without publish, which has its own branch: {publish.branch}"


def gated_policy(policy: EvolutionPolicy, evolve: Evolve) -> EvolutionPolicy:
    """Return the policy of a WAP stream: branches share the schema, so main would show a wider type before its rows.

    By default a wider type is proposed. Columns are added, and made optional, as in other streams.
    """
    return replace(policy, widen="propose") if evolve.widen is None and policy.widen == "auto" else policy
