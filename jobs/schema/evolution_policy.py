"""Evolution policy: what becomes of each kind of change that records need of a table's schema."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from jobs.schema.needs import Change

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
