"""Single-message transforms and predicates by the names and the properties that they have in Kafka Connect."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.conditional import (
    Condition,
    Conditional,
    Filter,
    HasHeader,
    IsTombstone,
    Not,
    TopicMatches,
)
from jobs.records.transforms.smt.cast import CAST
from jobs.records.transforms.smt.former_names import present_class
from jobs.records.transforms.smt.java import java_pattern
from jobs.records.transforms.smt.json_to_map import JSON_TO_MAP
from jobs.records.transforms.smt.keys import HEADER_TO_VALUE, KEYS, of_key
from jobs.records.transforms.smt.known import InOrder, Known, Properties
from jobs.records.transforms.smt.mongo import MONGO
from jobs.records.transforms.smt.new_record_state import NEW_RECORD_STATE
from jobs.records.transforms.smt.outbox import OUTBOX
from jobs.records.transforms.smt.records import FIELDS, RECORDS
from jobs.records.transforms.smt.sink import CHANGES, SINK
from jobs.records.transforms.smt.timestamp_converter import TIMESTAMP_CONVERTER
from jobs.records.transforms.transform import Applied, Rows, Transform

KNOWN: Mapping[str, Known] = {
    each.type: each
    for each in (
        CAST,
        *FIELDS,
        *RECORDS,
        TIMESTAMP_CONVERTER,
        NEW_RECORD_STATE,
        OUTBOX,
        *SINK,
        *CHANGES,
        JSON_TO_MAP,
        MONGO,
        HEADER_TO_VALUE,
        *KEYS,
    )
}
"""Supported transforms by class."""
_DEBEZIUM = "io.debezium.transforms."
REFUSED: Mapping[str, str] = {
    f"{_DEBEZIUM}Filter": (
        "its condition is a program in Groovy; write the condition as an SQL expression of a step, such as "
        "where: \"op <> 'd'\" for value.op != 'd'"
    ),
    f"{_DEBEZIUM}ContentBasedRouter": (
        'its topic.expression is a program in Groovy; write an SQL expression, such as route: {by: "case when '
        "region = 'eu' then 'eu' else 'rest' end\", tables: [{match: eu, table: orders.eu}, …]}"
    ),
}
"""Why a class is refused, and what to write instead."""


def known_smt(type_: str) -> Known:
    """Return the definition of a class.

    Args:
        type_: Its name in full, also a former one, or without the package, as `Flatten$Value`.

    Raises:
        TransformProblem: It is unknown, or refused, with what to write instead.
    """
    found = _by_name(present_class(type_), KNOWN)
    if found is not None:
        return KNOWN[found]
    if refused := _by_name(type_, REFUSED):
        raise TransformProblem(f"{refused.rpartition('.')[2]}: {REFUSED[refused]}", ("type",))
    folded = {name.casefold(): name for each in (*KNOWN, *REFUSED) for name in (each, each.rpartition(".")[2])}
    near = difflib.get_close_matches(type_.casefold(), folded, n=1, cutoff=0.6)
    there = ", ".join(each.name for each in KNOWN.values() if not of_key(each.name))
    hint = f"did you mean '{folded[near[0]]}'?" if near else f"there are {there}"
    raise TransformProblem(f"there is no transform '{type_}'; {hint}", ("type",))


def _by_name(type_: str, known: Mapping[str, object]) -> str | None:
    if type_ in known:
        return type_
    return next((each for each in known if each.rpartition(".")[2] == type_), None)


_PACKAGE = "org.apache.kafka.connect.transforms.predicates."
_PROPERTIES = {"TopicNameMatches": ("pattern",), "HasHeaderKey": ("name",), "RecordIsTombstone": ()}


def predicate(block: Mapping[str, str]) -> Condition:
    """Return the condition of a predicate.

    Args:
        block: Its `type`, in full or by the short name, and its properties.

    Raises:
        TransformProblem: Type or a property is unknown; placed below `predicate`.
    """
    kind = block.get("type", "").removeprefix(_PACKAGE)
    if kind not in _PROPERTIES:
        near = difflib.get_close_matches(kind, _PROPERTIES, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(_PROPERTIES)}"
        raise TransformProblem(f"there is no predicate '{block.get('type', '')}'; {hint}", ("predicate", "type"))
    try:
        given = {key: each for key, each in block.items() if key != "type"}
        properties = Properties(given, kind, _PROPERTIES[kind])
        if kind == "RecordIsTombstone":
            return IsTombstone()
        if kind == "HasHeaderKey":
            return HasHeader(properties.needed("name"))
        # In Java's patterns classes such as \w are ASCII.
        return TopicMatches(f"(?a:{java_pattern(properties.needed('pattern'), 'pattern').pattern})")
    except TransformProblem as problem:
        raise TransformProblem(problem.message, ("predicate", *problem.place)) from None


@dataclass(frozen=True)
class Smt(Transform):
    """Take a transform of Connect. A row fails if Connect would change its values silently, unless the step is lenient.

    Attributes:
        type: Its class, in full or by its short name, such as `Flatten$Value`.
        properties: Properties by Connect's names, as texts.
        lenient: Whether values are changed as Connect changes them.
    """

    type: str
    properties: tuple[tuple[str, str], ...] = ()
    lenient: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name in dead letters."""
        return f"smt.{self.known.name}"

    @cached_property
    def known(self) -> Known:
        """Return the definition of the class.

        Raises:
            TransformProblem: The class is unknown or not supported.
        """
        return known_smt(self.type)

    @property
    def asks(self) -> frozenset[str]:
        """Return the record's parts that the class may need."""
        known = self.known
        asked = not known.asked_with or not dict(self.properties).keys().isdisjoint(known.asked_with)
        return known.asks if asked else frozenset()

    @property
    def adds(self) -> frozenset[str] | None:
        """Return the names of the columns that it adds, if the class keeps the others; else None."""
        known = self.known
        if not known.leaves:
            return None
        properties = Properties(dict(self.properties), known.name, known.properties)
        return InOrder(known.steps(properties, Columns(()), self.lenient)).adds

    def output(self, columns: Columns) -> Columns:
        """Return the columns that Connect's class gives."""
        return self._steps(columns).output(columns)

    def apply(self, rows: Rows) -> Applied:
        """Convert the rows as Connect's class does."""
        return self._steps(rows.columns).apply(rows)

    def _steps(self, columns: Columns) -> InOrder:
        if columns.text not in self._made:
            known = self.known
            properties = Properties(dict(self.properties), known.name, known.properties)
            self._made[columns.text] = InOrder(known.steps(properties, columns, self.lenient))
        return self._made[columns.text]

    @cached_property
    def _made(self) -> dict[str, InOrder]:
        """Return the cache of steps by the columns before them, which are the same for every block."""
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {"type": self.type, "properties": self.properties, "lenient": self.lenient}


def smt_step(smt: Smt, of: Mapping[str, str] | None = None, *, negate: bool = False) -> Transform:
    """Return a transform with its predicate.

    Args:
        smt: The transform.
        of: The predicate's `type` and properties; None to transform every record.
        negate: Whether records are transformed for which the predicate does not hold.

    Raises:
        TransformProblem: Class, predicate or a property is unknown, or a property is missing.
    """
    known = smt.known
    Properties(dict(smt.properties), known.name, known.properties)
    # A class that only adds columns needs none to be made. Streams ask for its columns before they know any.
    _ = smt.adds
    if of is None:
        if negate:
            raise TransformProblem("negate needs a predicate", ("negate",))
        return smt
    asked = predicate(of)
    condition = Not(asked) if negate else asked
    return Filter(condition) if known.name == "Filter" else Conditional(smt, condition)
