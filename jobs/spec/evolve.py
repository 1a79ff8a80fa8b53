"""Evolve block of a stream's YAML file: which changes of its table's schema the stream makes by itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from jobs.schema.evolution_policy import NO_EVOLUTION, Answer, Clash, EvolutionPolicy
from jobs.spec.base import Location, SpecModel
from jobs.spec.config_hash import ChangesRows
from jobs.spec.decode import Decode
from jobs.spec.fields import PositiveInt
from jobs.spec.value_format import SchemaSource

_DEFAULT: dict[SchemaSource, Answer] = {"registry": "auto", "infer": "auto", "table": "ignore"}


class EvolveLimits(SpecModel):
    """How far a table may grow by itself.

    Args:
        columns: The most columns that the table grows to, nested ones counted.
        new_columns_per_hour: The most that are added within an hour.
        depth: How deep a new column may be nested; 1 is the table's top.
    """

    columns: PositiveInt = NO_EVOLUTION.columns
    new_columns_per_hour: PositiveInt = NO_EVOLUTION.new_columns_per_hour
    depth: Annotated[PositiveInt, Field(le=24)] = NO_EVOLUTION.depth


class Evolve(SpecModel):
    """What becomes of changes that records need of the table.

    ``auto`` makes them, ``propose`` writes them down and sets the records aside, ``ignore`` leaves the table as it is,
    ``fail`` stops the stream. Without a word a registry's schemas and inferred ones are followed, a table's are not.

    Args:
        add: Of columns that the table lacks.
        widen: Of types that do not hold the records' values, where Iceberg has a promotion that does.
        relax: Of required columns that records lack.
        clash: What becomes of a value that no change brings into its column.
        limits: How far the table may grow.
    """

    add: Annotated[Answer | None, ChangesRows(unless=None)] = None
    widen: Annotated[Answer | None, ChangesRows(unless=None)] = None
    relax: Annotated[Answer | None, ChangesRows(unless=None)] = None
    clash: Annotated[Clash, ChangesRows(unless="dead_letter")] = "dead_letter"
    limits: EvolveLimits = EvolveLimits()

    def policy(self, decode: Decode) -> EvolutionPolicy:
        """The policy of a stream whose values are decoded so."""
        if decode.schema_source == "declared":
            return NO_EVOLUTION
        default = _DEFAULT[decode.schema_source]
        # What is kept needs no column of its own.
        add = "ignore" if decode.unknown_fields == "keep" else default
        return EvolutionPolicy(
            self.add or add, self.widen or default, self.relax or default, self.clash, **self.limits.model_dump()
        )


def evolve_problems(evolve: Evolve, decode: Decode, stream: str) -> list[tuple[Location, str]]:
    """Returns what is wrong with the block, given where the stream's columns are from."""
    problems: list[tuple[Location, str]] = []
    if decode.schema_source == "declared":
        if evolve != Evolve():
            problem = (
                "is for columns that are from a registry, a table or the records; these are declared in decode.schema: "
                f"change them there, then `frazil schema apply {stream}` alters the table"
            )
            problems.append((("evolve",), problem))
        return problems
    if decode.unknown_fields != "ignore" and evolve.policy(decode).add != "ignore":
        problem = f"has to be ignore where decode.unknown_fields is {decode.unknown_fields}"
        problems.append((("evolve", "add"), problem))
    if evolve.clash == "shadow" and decode.format != "json":
        problem = f"can be shadow for JSON only, not for values of the format {decode.format}"
        problems.append((("evolve", "clash"), problem))
    return problems
