"""Single-message transform: a step by the name and the properties that it has in Kafka Connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from jobs.transform.columns import Columns, TransformProblem
from jobs.transform.condition import Not
from jobs.transform.conditional import Conditional
from jobs.transform.filter import Filter
from jobs.transform.smt.catalogue import known_smt
from jobs.transform.smt.in_order import InOrder
from jobs.transform.smt.known import Known
from jobs.transform.smt.predicates import predicate
from jobs.transform.smt.properties import Properties
from jobs.transform.transform import Applied, Rows, Transform


@dataclass(frozen=True)
class Smt(Transform):
    """A transform of Connect. What Connect changes in silence makes the row fail, unless it is lenient.

    Attributes:
        type: Its class, in full or by its short name, such as `Flatten$Value`.
        properties: By Connect's names, each with its text.
        lenient: Whether values are changed as Connect changes them.
    """

    type: str
    properties: tuple[tuple[str, str], ...] = ()
    lenient: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """As dead letters have it."""
        return f"smt.{self.known.name}"

    @cached_property
    def known(self) -> Known:
        """What there is to know of the class.

        Raises:
            TransformProblem: There is none of this name, or it is not supported.
        """
        return known_smt(self.type)

    @property
    def asks(self) -> frozenset[str]:
        """What the class may ask of a record."""
        known = self.known
        asked = not known.asked_with or not dict(self.properties).keys().isdisjoint(known.asked_with)
        return known.asks if asked else frozenset()

    @property
    def adds(self) -> frozenset[str] | None:
        """The names of the columns that it adds, of a class that leaves the others."""
        known = self.known
        if not known.leaves:
            return None
        properties = Properties(dict(self.properties), known.name, known.properties)
        return InOrder(known.steps(properties, Columns(()), self.lenient)).adds

    def output(self, columns: Columns) -> Columns:
        """Those that Connect's class gives."""
        return self._steps(columns).output(columns)

    def apply(self, rows: Rows) -> Applied:
        """What Connect's class makes of the values."""
        return self._steps(rows.columns).apply(rows)

    def _steps(self, columns: Columns) -> InOrder:
        if columns.text not in self._made:
            known = self.known
            properties = Properties(dict(self.properties), known.name, known.properties)
            self._made[columns.text] = InOrder(known.steps(properties, columns, self.lenient))
        return self._made[columns.text]

    @cached_property
    def _made(self) -> dict[str, InOrder]:
        """The steps by the columns before them, which are the same for every block."""
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {"type": self.type, "properties": self.properties, "lenient": self.lenient}


def smt_step(smt: Smt, of: Mapping[str, str] | None = None, *, negate: bool = False) -> Transform:
    """A transform with its predicate.

    Args:
        smt: The transform.
        of: The predicate's `type` and properties; None: every record is transformed.
        negate: Whether those are for which the predicate does not hold.

    Raises:
        TransformProblem: Class, predicate or a property is unknown.
    """
    known = smt.known
    if of is None:
        if negate:
            raise TransformProblem("negate needs a predicate", ("negate",))
        return smt
    asked = predicate(of)
    condition = Not(asked) if negate else asked
    return Filter(condition) if known.name == "Filter" else Conditional(smt, condition)
