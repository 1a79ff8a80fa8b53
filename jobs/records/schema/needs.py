"""Needs of records: the changes of their table, and which of them a stream makes by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from pyiceberg.types import IcebergType

Path: TypeAlias = tuple[str, ...]
"""Names from the table's top, as Iceberg names nested fields: `element` of a list, `key` and `value` of a map."""

Change: TypeAlias = Literal["add", "widen", "relax"]


@dataclass(frozen=True, slots=True)
class Need:
    """One change that records need.

    Attributes:
        change: `add`: the column does not exist; `widen`: its type does not hold the records' values; `relax`: it is
            required, and records lack it or have null.
        path: Path of the column.
        type: Type of the records' field, for `add` and `widen`; its ids are arbitrary.
        row: A record of the block that needs it.
        former: For `add`: a column that the record lacks, and that may be the same under its former name.
    """

    change: Change
    path: Path
    type: IcebergType | None = None
    row: int = 0
    former: Path | None = None

    def at(self, row: int) -> Need:
        """Return the same need of another record."""
        return replace(self, row=row)


class Coordinates(NamedTuple):
    """The coordinates of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class RecordNeed(NamedTuple):
    """A change that a record needs, with the record's coordinates.

    Attributes:
        change: As in `Need`; so are `path`, `type` and `former`.
        at: The first record with this need.
    """

    change: Change
    path: Path
    type: IcebergType | None
    at: Coordinates
    former: Path | None = None


def column_name(path: Path) -> str:
    """Return the dotted name of a column, as Iceberg has it."""
    return ".".join(path)


Answer: TypeAlias = Literal["auto", "propose", "ignore", "fail"]
"""The action for a change: make it; propose it for somebody to decide; ignore it; or stop the stream."""

Clash: TypeAlias = Literal["dead_letter", "shadow"]


@dataclass(frozen=True, slots=True)
class EvolutionPolicy:
    """The policy of one stream, with its limits.

    Attributes:
        add: The action for a column that the table lacks.
        widen: The action for a type that does not hold the records' values, if an Iceberg promotion helps.
        relax: The action for a required column that records lack.
        clash: The action for a value that no change brings into its column: the record becomes a dead letter, or the
            value lands as text in a column beside it.
        columns: Limit of columns of a table that grows, with nested ones.
        new_columns_per_hour: Limit of columns added within an hour.
        depth: Limit of a column's depth; 1 is the table's top.
    """

    add: Answer = "ignore"
    widen: Answer = "ignore"
    relax: Answer = "ignore"
    clash: Clash = "dead_letter"
    columns: int = 1_000
    new_columns_per_hour: int = 100
    depth: int = 10

    @property
    def evolves(self) -> bool:
        """Return whether any need of records matters."""
        return (self.add, self.widen, self.relax, self.clash) != ("ignore", "ignore", "ignore", "dead_letter")

    @property
    def heals(self) -> bool:
        """Return whether records that the columns refuse are looked at again."""
        return (self.widen, self.relax, self.clash) != ("ignore", "ignore", "dead_letter")

    @property
    def surveys(self) -> bool:
        """Return whether every change of columns that records need is made at once, without a question or a stop.

        If a value may land as text beside its column, the answer is no: each record has to be looked at for that.
        """
        if self.clash == "shadow" or not {self.add, self.widen, self.relax} <= {"auto", "ignore"}:
            return False
        return "auto" in (self.widen, self.relax)

    def answer(self, change: Change) -> Answer:
        """Return the action for one kind of change."""
        match change:
            case "add":
                return self.add
            case "widen":
                return self.widen
            case "relax":
                return self.relax

    @property
    def elsewhere(self) -> EvolutionPolicy:
        """Return the policy for a reader that alters no table, such as a replay: it only proposes changes."""

        def of(answer: Answer) -> Answer:
            return "ignore" if answer == "ignore" else "propose"

        return replace(self, add=of(self.add), widen=of(self.widen), relax=of(self.relax))

    def as_options(self) -> dict[str, Any]:
        """Return a decoder's option `evolve`; empty if the decoder has nothing to do for the policy."""
        return {"evolve": EvolutionPolicy(self.add, self.widen, self.relax, self.clash)} if self.evolves else {}


NO_EVOLUTION = EvolutionPolicy()
