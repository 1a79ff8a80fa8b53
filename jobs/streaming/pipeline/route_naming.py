"""Dynamic tables named by values: the table of a value, whether it gets a new one, or why it gets none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from jobs.config.stream.models import StreamSpec
from jobs.config.stream.route import Route
from jobs.config.stream.stream_targets import LateTables
from jobs.config.values.targets import (
    LONGEST,
    SAFE,
    named_table,
    value_of_table,
)

NO_TABLE = "a table of the route takes"
UNSAFE = f"can be part of a table's name: 1 to {LONGEST} letters without accents, digits and _"
FULL = "has a table: there are as many as route.limit allows"
DECIDED = "has a table; that was decided when the batch landed in the main table"
_MOST_KNOWN = 100_000


@dataclass(frozen=True, slots=True)
class NamingState:
    """The driver's decisions about values without a table.

    Attributes:
        taken: Names that no value may use, among them the main table and the dead letters.
        refused: Reason by value why it gets no table, as a condition for values that get one.
        closed: The same for every value without a table; None while they may get one.
        late: Tables of late rows, if each table has its own: no value may name one.
    """

    taken: Collection[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    closed: str | None = None
    late: LateTables | None = None


def is_full(spec: StreamSpec) -> bool:
    """Whether a stream's route has the most tables that it may have."""
    return spec.route is None or len({*spec.route.table_names, *spec.named_tables}) >= spec.route.limit


def naming_state(spec: StreamSpec, refused: Mapping[str, str], *, decided: bool) -> NamingState | None:
    """Decisions about values without a table, for the tasks of a batch; None without dynamic tables.

    Args:
        spec: The stream with its dynamic tables.
        refused: Reason by value why it gets no table.
        decided: Whether the coordinator has the batch, so that values without a table then got none.
    """
    if spec.route is None or spec.route.to is None:
        return None
    closed = FULL if is_full(spec) else DECIDED if decided else None
    taken = (spec.table.name, spec.dead_letter_table, *([spec.late_table] if spec.late_table else []))
    return NamingState(taken, dict(refused), closed, late if (late := spec.late_tables) and late.route else None)


class Named(NamedTuple):
    """Table of a value.

    Attributes:
        table: Name of the table; None without one.
        refused: Reason why it gets none; None with a table, and for a value that waits for one.
    """

    table: str | None
    refused: str | None


class Naming:
    """Dynamic tables by value.

    Args:
        route: Route with the rule for names.
        tables: Names of the stream's existing tables.
        state: Decisions about other values.
    """

    def __init__(self, route: Route, tables: Collection[str], state: NamingState) -> None:
        if route.to is None:
            raise TypeError("no table of this route is named by a value")
        self._to: str = route.to
        self._state: NamingState = state
        reserved = {*route.table_names, *state.taken}
        self._tables: dict[str, str] = {
            value: name
            for name in tables
            if name not in reserved and self._whose_late(name) is None and (value := value_of_table(route.to, name))
        }
        self._lower: dict[str, str] = {name.lower(): name for name in [*self._tables.values(), *reserved]}
        self._known: dict[str, Named] = {}

    def of(self, value: str | None) -> Named:
        """Table of a value; neither table nor reason if it is to get one."""
        if value is None:
            return Named(None, NO_TABLE)
        if (known := self._known.get(value)) is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[value] = self._decided(value)
        return known

    def _decided(self, value: str) -> Named:
        if (table := self._tables.get(value)) is not None:
            return Named(table, None)
        if SAFE.fullmatch(value) is None:
            return Named(None, UNSAFE)
        name = named_table(self._to, value)
        if (other := self._whose_late(name)) is not None:
            return Named(None, f"names a table of its own: {name} is for the late rows of {other}")
        if (other := self._lower.get(name.lower())) is not None:
            # A catalog that folds names would give both the same table.
            return Named(None, f"names a table of its own: {other} has that name but for upper and lower case")
        return Named(None, self._state.refused.get(value, self._state.closed))

    def _whose_late(self, table: str) -> str | None:
        """The table whose late rows go to this table, or would apart from upper and lower case."""
        return self._state.late.clash(table) if self._state.late else None
