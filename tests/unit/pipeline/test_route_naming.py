"""Tables named by values: which table each value has, by what there is and what the driver has decided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.pipeline.block import Block
from jobs.pipeline.pipeline import stream_pipeline
from jobs.pipeline.route import Destinations
from jobs.pipeline.route_naming import FULL, NO_TABLE, UNSAFE, Named, Naming, NamingState
from jobs.spec.models import StreamSpec
from jobs.spec.route import Route
from tests.unit.pipeline.blocks import records_of

ROUTE = Route.model_validate({"by": "type", "to": "ev.{value}", "tables": [{"match": "s", "table": "ev.static"}]})
STATE = NamingState(("ev.own", "ev.own_dead"), {"theirs": "names a table of this stream"})
KINDS = ["a", None, "b", "s", "c", "a", "not safe", "c", "A"]


@pytest.mark.parametrize(
    ("value", "table", "refused"),
    [
        ("a", "ev.a", None),
        ("b", None, None),
        (None, None, NO_TABLE),
        ("", None, UNSAFE),
        ("a.b", None, UNSAFE),
        ("a-b", None, UNSAFE),
        ("a\n", None, UNSAFE),
        ("é", None, UNSAFE),
        ("x" * 101, None, UNSAFE),
        ("x" * 100, None, None),
        ("A", None, "names a table of its own: ev.a has that name but for upper and lower case"),
        ("own", None, "names a table of its own: ev.own has that name but for upper and lower case"),
        ("OWN_dead", None, "names a table of its own: ev.own_dead has that name but for upper and lower case"),
        ("Static", None, "names a table of its own: ev.static has that name but for upper and lower case"),
        ("theirs", None, "names a table of this stream"),
    ],
)
def test_each_value_has_its_table_or_a_reason_or_waits(
    value: str | None, table: str | None, refused: str | None
) -> None:
    naming = Naming(ROUTE, ["ev.own", "ev.own_dead", "ev.static", "ev.a", "other.b"], STATE)
    assert naming.of(value) == Named(table, refused) == naming.of(value)


def test_once_no_value_gets_a_table_those_that_have_one_keep_it() -> None:
    naming = Naming(ROUTE, ["ev.a"], NamingState(closed=FULL))
    assert naming.of("a") == Named("ev.a", None) and naming.of("b") == Named(None, FULL)


def block(unmatched: Any = "dead_letter", closed: str | None = None, failing: str = "") -> Block:
    route = {"by": "type", "to": "ev.{value}", "tables": [{"match": "s", "table": "ev.static"}], "unmatched": unmatched}
    spec = StreamSpec.model_validate(
        {
            "stream": "events",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "type string"},
            "table": {"name": "ev.own"},
            "route": route,
        }
    ).with_named_tables(["ev.a"])
    assert spec.route is not None

    def fit(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    fits = dict.fromkeys(spec.target_names, fit)
    texts = [b"{}" if kind is None else b'{"type": "%s"}' % kind.encode() for kind in KINDS]
    pipeline = stream_pipeline(
        spec.resolved.decoder,
        spec.table.name,
        fit,
        columns=spec.record_columns,
        routed=(Destinations(spec.table.name, spec.route), fits, NamingState(("ev.own", "ev.own_dead"), closed=closed)),
        hide_values=False,
    )
    return pipeline.run(records_of(list[bytes | None](texts)))


def places(found: Block) -> dict[str, list[int]]:
    return {name: each.positions.tolist() for name, each in found.routed.items()}


def waiting(found: Block) -> dict[str, list[int]]:
    return {value: np.sort(rows).tolist() for value, rows in found.unnamed.items()}


def test_records_of_new_values_wait_and_are_neither_rows_nor_failures() -> None:
    found = block()
    assert places(found) == {"ev.static": [3], "ev.a": [0, 5]}
    assert waiting(found) == {"b": [2], "c": [4, 7]}
    assert [each.row for each in found.failures] == [1, 6, 8]
    assert found.positions.tolist() == [0, 3, 5]
    assert [each.message for each in found.failures] == [
        f"needs a value that {NO_TABLE}, found null",
        f"needs a value that {UNSAFE}, found 'not safe'",
        "needs a value that names a table of its own: ev.a has that name but for upper and lower case, found 'A'",
    ]


@pytest.mark.parametrize("closed", [None, FULL])
def test_what_has_no_table_is_dropped_or_goes_to_the_table_of_the_unmatched(closed: str | None) -> None:
    new = [2, 4, 7]
    without = [1, 6, 8, *(new if closed else [])]
    dropped = block("drop", closed)
    assert dropped.filtered.tolist() == sorted(without) and not dropped.failures
    other = block({"table": "ev.rest"}, closed)
    assert places(other) == {"ev.static": [3], "ev.a": [0, 5], "ev.rest": sorted(without)}
    assert not other.failures and bool(waiting(other)) == (closed is None)


def test_waiting_records_are_told_also_of_parts_of_a_block() -> None:
    found = block()
    first, second = found.part(0, 1), found.part(1, 3)
    assert not first.unnamed
    joined = found.replaced_by([first, second])
    assert not joined.unnamed, "a part is looked at anew"
    again = found.with_rows(found.rows)
    assert waiting(again) == waiting(found)
