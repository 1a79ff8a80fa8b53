"""What records need of their table, and which of it a stream's table becomes by itself."""

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
        change: `add`: the column is not there; `widen`: it has a type that does not hold the records'; `relax`: it is
            required, and records have none or null.
        path: Of the column.
        type: Of the records' field, of `add` and `widen`; ids in it mean nothing.
        row: A record of the block that needs it.
        former: Of `add`: a column that the record lacks, and that may be the same under its former name.
    """

    change: Change
    path: Path
    type: IcebergType | None = None
    row: int = 0
    former: Path | None = None

    def at(self, row: int) -> Need:
        """The need of another record."""
        return replace(self, row=row)


class Coordinates(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class RecordNeed(NamedTuple):
    """A change that a record needs, and where the record is.

    Attributes:
        change: As of `Need`; so are `path`, `type` and `former`.
        at: The first record with this need.
    """

    change: Change
    path: Path
    type: IcebergType | None
    at: Coordinates
    former: Path | None = None


def column_name(path: Path) -> str:
    """The dotted name of a column, as Iceberg has it."""
    return ".".join(path)


Answer: TypeAlias = Literal["auto", "propose", "ignore", "fail"]
"""What becomes of a change: it is made; it is written down for somebody to decide; nothing; the stream stops."""

Clash: TypeAlias = Literal["dead_letter", "shadow"]


@dataclass(frozen=True, slots=True)
class EvolutionPolicy:
    """The policy of one stream, with its limits.

    Attributes:
        add: Of a column that the table lacks.
        widen: Of a type that does not hold the records' values, where Iceberg has a promotion that does.
        relax: Of a required column that records lack.
        clash: What becomes of a value that no change brings into its column: the record is a dead letter, or the value
            lands as text in a column beside it.
        columns: The most columns that a table grows to, nested ones counted.
        new_columns_per_hour: The most that are added within an hour.
        depth: How deep a column may be nested; 1 is the table's top.
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
        """Whether anything of what records need is looked at."""
        return (self.add, self.widen, self.relax, self.clash) != ("ignore", "ignore", "ignore", "dead_letter")

    @property
    def heals(self) -> bool:
        """Whether records that the columns refuse are looked at again."""
        return (self.widen, self.relax, self.clash) != ("ignore", "ignore", "dead_letter")

    @property
    def surveys(self) -> bool:
        """Whether records that need a change of their columns lead to it: nobody is asked, and nothing stops.

        Nor where a value may land as text beside its column: whether it does depends on each record.
        """
        if self.clash == "shadow" or not {self.add, self.widen, self.relax} <= {"auto", "ignore"}:
            return False
        return "auto" in (self.widen, self.relax)

    def answer(self, change: Change) -> Answer:
        """What becomes of one kind of change."""
        match change:
            case "add":
                return self.add
            case "widen":
                return self.widen
            case "relax":
                return self.relax

    @property
    def elsewhere(self) -> EvolutionPolicy:
        """The policy for who alters no table, such as a replay: what the driver would change is left as it is."""

        def of(answer: Answer) -> Answer:
            return "ignore" if answer == "ignore" else "propose"

        return replace(self, add=of(self.add), widen=of(self.widen), relax=of(self.relax))

    def as_options(self) -> dict[str, Any]:
        """What a decoder has to know, as its option `evolve`; nothing where it has to do nothing."""
        return {"evolve": EvolutionPolicy(self.add, self.widen, self.relax, self.clash)} if self.evolves else {}


NO_EVOLUTION = EvolutionPolicy()
