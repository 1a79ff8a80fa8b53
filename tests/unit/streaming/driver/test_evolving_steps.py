"""Steps and rules of streams whose tables say which columns are decoded, over batches that evolve their table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from tests.helpers.evolving_stream import SINK, EvolvingStream, interrupted

STEPS: dict[str, Any] = {
    "transform": [
        {"compute": {"twice": "n * 2", "label": "concat(id, '!')"}},
        {"set": {"site": "eu"}},
        {"where": "n is null or n <> 13"},
        {"mask": {"columns": "card"}},
    ],
    "rules": [{"name": "positive", "expect": "n is null or n > 0"}],
}

COMPUTED = STEPS | {"transform": STEPS["transform"][:1]}


def test_steps_add_columns_and_choose_rows_of_columns_that_no_file_declares(home: Path) -> None:
    one = EvolvingStream(home, columns="id string, n int, card string", more=STEPS)
    assert one.columns == {
        "id": "string", "n": "int", "card": "string", "twice": "int", "label": "string", "site": "string",
    }  # fmt: skip
    done = one.land(
        {"id": "a", "n": 1, "card": "4111"}, {"id": "b", "n": 13}, {"id": "c", "n": -1}, {"id": "d", "colour": "red"}
    )
    assert one.rows == [
        {"id": "a", "n": 1, "card": "", "twice": 2, "label": "a!", "site": "eu"},
        {"id": "d", "colour": "red", "label": "d!", "site": "eu"},
    ]
    assert one.letters == {2: "rule_violated"}
    assert (done.counts.landed, done.counts.dead, done.counts.filtered) == (2, 1, 1)
    assert list(one.columns)[-1] == "colour"


def test_a_wider_column_widens_what_is_computed_of_it(home: Path) -> None:
    one = EvolvingStream(home, columns="id string not null, n int not null", more=COMPUTED)
    assert one.table.schema().find_field("twice").required
    one.land({"id": "a", "n": 1})
    one.land({"id": "b", "n": 2**40}, {"id": "c"}, {"n": 3}, batch=1)
    assert one.columns["n"] == one.columns["twice"] == "long"
    assert not one.table.schema().find_field("twice").required
    assert not one.table.schema().find_field("label").required
    assert one.rows == [
        {"id": "a", "n": 1, "twice": 2, "label": "a!"},
        {"id": "b", "n": 2**40, "twice": 2**41, "label": "b!"},
        {"id": "c", "label": "c!"},
        {"n": 3, "twice": 6},
    ]
    assert one.letters == {}
    told = [each for record in one.history for each in record.changes]
    assert "widen column twice to long" in told and "let column label be null" in told


def test_a_change_that_a_computed_column_cannot_follow_is_refused_and_the_others_are_made(home: Path) -> None:
    partitioned = COMPUTED | {"table": {"name": SINK, "partition_by": ["twice"]}}
    one = EvolvingStream(home, columns="id string, n int", more=partitioned)
    one.land({"id": "a", "n": 2, "new": "x"}, {"id": "b", "n": 2**40})
    assert one.columns == {"id": "string", "n": "int", "twice": "int", "label": "string", "new": "string"}
    assert one.rows == [{"id": "a", "n": 2, "twice": 4, "label": "a!", "new": "x"}]
    assert list(one.letters) == [1]
    # What is refused is not asked for again with every batch.
    one.land({"id": "c", "n": 2**41}, batch=1)
    assert one.runs == 1


def test_a_field_under_the_name_of_an_added_column_is_left_out(home: Path) -> None:
    one = EvolvingStream(home, columns="id string, n int", more=COMPUTED)
    one.land({"id": "a", "n": 1, "twice": "of the record"})
    assert one.rows == [{"id": "a", "n": 1, "twice": 2, "label": "a!"}]
    assert one.columns["twice"] == "int"


def test_fields_that_are_kept_pass_the_steps(home: Path) -> None:
    decode = {"unknown_fields": "keep"}
    one = EvolvingStream(home, columns="id string, n int", decode=decode, more=COMPUTED)
    one.land({"id": "a", "n": 1, "x": {"y": 1.50}})
    assert one.rows == [{"id": "a", "n": 1, "twice": 2, "label": "a!", "_extra": '{"x":{"y":1.5}}'}]


def test_a_new_table_with_a_column_that_a_step_would_add_is_refused(home: Path) -> None:
    with pytest.raises(FrazilError, match=r"transform: would take the place of the column 'twice' that is decoded"):
        EvolvingStream(home, columns="id string, n int, twice long", more=COMPUTED)


def test_a_mask_that_changes_a_type_is_refused_where_the_table_says_the_columns(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "k" * 32)
    EvolvingStream(home, columns="id string, n int")
    hashed = {"transform": [{"mask": {"columns": "n", "hash": "${env:KEY}"}}]}
    with pytest.raises(FrazilError, match="the column 'n' is int as it is decoded, and is string behind the steps"):
        EvolvingStream(home, epoch=2, decode={"schema": "table"}, more=hashed)


def test_a_table_that_lost_what_a_step_needs_stops_the_stream_and_names_the_step(home: Path) -> None:
    one = EvolvingStream(home, columns="id string, n int, m int", more={"transform": [{"compute": {"s": "n + m"}}]})
    one.land({"id": "a", "n": 1, "m": 2})
    with one.table.update_schema() as update:
        update.delete_column("m")
    one.stream.rows_table.refresh()
    with pytest.raises(FrazilError, match=r"transform\[0\].compute.s: .*m"):
        one.land({"id": "b", "n": 1, "m": 2}, batch=1)


def test_a_table_without_the_computed_column_gets_it_when_the_stream_opens(home: Path) -> None:
    EvolvingStream(home, columns="id string, n int").land({"id": "a", "n": 1})
    with pytest.raises(
        FrazilError, match=r"evolve\.add leaves it as it is: add column twice int; add column label"
    ) as no:
        EvolvingStream(home, epoch=2, more=COMPUTED, add="ignore")
    assert no.value.fix == "frazil schema apply payments"
    two = EvolvingStream(home, epoch=2, more=COMPUTED)
    two.log = [b"{}"]
    two.land({"id": "b", "n": 2}, batch=1)
    assert two.rows == [{"id": "a", "n": 1}, {"id": "b", "n": 2, "twice": 4, "label": "b!"}]
    assert [(each.by, each.changes) for each in two.history] == [
        ("streams/payments.yaml", ("add column twice int", "add column label string"))
    ]


def test_a_second_driver_decodes_what_the_first_one_made(home: Path) -> None:
    one = EvolvingStream(home, more=COMPUTED)
    one.land({"id": "a", "n": 2**40, "colour": "red"})
    two = EvolvingStream(home, epoch=2, more=COMPUTED)
    two.log = list(one.log)
    two.land({"id": "b", "n": 7, "colour": "blue"}, batch=1)
    assert two.rows[-1] == {"id": "b", "n": 7, "twice": 14, "label": "b!", "colour": "blue"}
    assert [each.name for each in two.spec.resolved_for(two.table.schema()).schema.fields] == ["id", "n", "colour"]
    assert isinstance(two.table.schema().find_field("twice").field_type, LongType)


def test_a_second_run_takes_the_steps_by_the_schema_of_the_first(home: Path) -> None:
    """The rows have landed and the letters have not, and the table is wider by then: the same records are letters."""
    options: dict[str, Any] = {"columns": "id string, n int", "more": COMPUTED, "add": "ignore", "widen": "ignore"}
    first = EvolvingStream(home / "as-ever", **options)
    records = [{"id": "a", "n": 1}, {"id": "b", "n": 2**40}, {"id": "c", "n": -1}]
    first.land(*records)
    one = interrupted(home / "interrupted", *records, **options)
    assert one.letters == {} and one.rows == first.rows == [{"id": "a", "n": 1, "twice": 2, "label": "a!"}]
    with one.table.update_schema() as schema:
        schema.update_column("n", LongType())
        schema.update_column("twice", LongType())
    one.stream.anchor.table = one.table
    one.land({"id": "d", "n": 2**41}, batch=1)
    assert one.letters == first.letters == {1: "out_of_range", 2: "rule_violated"}
    assert one.rows[1:] == [{"id": "d", "n": 2**41, "twice": 2**42, "label": "d!"}]


def test_letters_are_taken_through_the_steps_by_the_table_as_it_is(home: Path) -> None:
    one = EvolvingStream(home, columns="id string, n int", more=COMPUTED, widen="ignore")
    one.land({"id": "a", "n": 2**40}, {"id": "b", "n": -1})
    assert set(one.letters) == {0, 1}
    with one.table.update_schema() as schema:
        schema.update_column("n", LongType())
        schema.update_column("twice", LongType())
    result = replay(one.spec, one.settings, one.catalog, ReplayRequest())
    assert (result.replayed, result.failed_again) == (1, 1)
    assert one.rows == [{"id": "a", "n": 2**40, "twice": 2**41, "label": "a!"}]


def test_a_table_that_the_file_leaves_the_columns_to(home: Path) -> None:
    """Of `schema: table` the columns that steps add have to be in the table, and are not read from records."""
    EvolvingStream(home, columns="id string, n int, twice long, label string")
    one = EvolvingStream(home, epoch=2, decode={"schema": "table"}, more=COMPUTED)
    one.land({"id": "a", "n": 3, "twice": 99})
    assert one.rows == [{"id": "a", "n": 3, "twice": 6, "label": "a!"}]
    wrong = {"transform": [{"compute": {"n": "n * 100"}}]}
    with pytest.raises(FrazilError, match=r"transform\[0\].compute.n: .*no column 'n'"):
        EvolvingStream(home, epoch=3, decode={"schema": "table"}, more=wrong)
