"""Batches that evolve their table: real tables and tasks, each change one commit, and every record in one place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from jobs.base.errors import FrazilError
from jobs.records.schema.name_matching import NAME_MAPPING as PROPERTY
from jobs.streaming.driver.context import column_refusals
from jobs.streaming.driver.context.column_refusals import field_place
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.tables.schema_proposals import forget_proposal, proposals
from jobs.streaming.task import needs as task_needs
from jobs.tables.commit.protocol.pending_record import Pending, PendingTarget
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import FencedError, SchemaChangeError
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import need
from tests.helpers.evolving_stream import SINK, EvolvingStream


def test_a_new_field_is_a_column_in_the_batch_that_brings_it(home: Path) -> None:
    one = EvolvingStream(home)
    done = one.land({"id": "a"}, {"id": "b", "colour": "red", "size": 3}, {"id": "c", "size": 2.5})
    assert one.columns == {"id": "string", "n": "int", "colour": "string", "size": "double"}
    assert one.rows == [{"id": "a"}, {"id": "b", "colour": "red", "size": 3.0}, {"id": "c", "size": 2.5}]
    assert (one.runs, done.counts.landed, done.counts.dead, done.unknown_fields) == (2, 3, 0, {})
    # Nothing that was written for the schema before is left, and the next batch costs what it always did.
    assert len(one.files) == len(list(one.table.scan().plan_files()))
    one.land({"id": "d", "colour": "blue"}, batch=1)
    assert one.runs == 1
    (record,) = one.history
    assert record.changes == ("add column colour string", "add column size double")
    assert (record.stream, record.epoch, record.batch, record.example) == ("payments", 1, 0, ("payments", 0, 1))
    assert record.schema == one.table.metadata.current_schema_id
    assert record.added == 2


def test_types_widen_and_columns_take_null(home: Path) -> None:
    one = EvolvingStream(home, columns="id string not null, n int, d decimal(4,2), f float, s struct<m int not null>")
    one.land(
        {"id": "a", "n": 1, "d": 1.25, "s": {"m": 1}},
        {"id": "b", "n": 2**40, "d": 12345.5, "f": 1e300, "s": {}},
        {"n": 5, "s": {"m": 2**33, "new": [True]}},
    )
    assert one.columns["n"] == "long" and one.columns["d"] == "decimal(7, 2)" and one.columns["f"] == "double"
    assert not one.table.schema().find_field("id").required
    assert [row.get("n") for row in one.rows] == [1, 2**40, 5]
    assert one.rows[2]["s"] == {"m": 2**33, "new": [True]}
    assert one.letters == {}
    # What the last record's nested field needs shows once the other need of it is met, at the latest.
    assert one.runs <= 4


def test_what_no_change_cures_changes_nothing(home: Path) -> None:
    """A record that would be a dead letter anyway alters no table: neither its new field nor the cure of one fault."""
    one = EvolvingStream(home)
    one.land({"id": "a"}, {"id": 5, "n": 2**40, "new": 1}, {"id": "c", "n": 1.5, "other": 1})
    assert one.columns == {"id": "string", "n": "int"}
    assert one.letters == {1: "wrong_type", 2: "wrong_type"}
    assert one.runs == 1 and one.history == ()


@pytest.mark.parametrize(
    "refused",
    [
        {"k0": 0, "k1": 1, "k2": 2, "z": 1},
        {"z": 1, "N": 5, "n": 1},
        {"z": 1, "x": {"p": 1, "P": 2}},
        {"x": {"p": 1, "P": 2}},
        {"s": {"z": 1, "A": 2, "a": 1}},
    ],
    ids=str,
)
def test_a_record_with_a_field_that_gets_no_column_alters_nothing(home: Path, refused: dict[str, Any]) -> None:
    """Neither its other new fields, nor room in a limit, nor a name are its own: the next record has all of them."""
    one = EvolvingStream(home, columns="id string, n int, s struct<a int>", limits={"new_columns_per_hour": 2})
    one.land({"id": "a", **refused}, {"id": "b", "new": 1})
    assert list(one.columns) == ["id", "n", "s", "new"] and "z" not in one.columns["s"]
    assert one.letters == {0: "schema_change_refused"} and one.rows == [{"id": "b", "new": 1}]


@pytest.mark.parametrize("field", ["at_day", "AT_DAY", "_file", "_spec_id", "_1x"])
def test_a_field_whose_name_no_table_can_have_is_a_dead_letter(home: Path, field: str) -> None:
    table = {"name": SINK, "partition_by": ["day(at)"]}
    one = EvolvingStream(home, columns="id string, at timestamptz, `1x` int", more={"table": table})
    one.land({"id": "a", "1x": 1, field: 1}, {"id": "b", "1x": 2})
    assert list(one.columns) == ["id", "at", "1x"] and one.rows == [{"id": "b", "1x": 2}]
    (letter,) = one.catalog.load_table(one.spec.dead_letter_table).scan().to_arrow().to_pylist()
    assert letter["error_class"] == "schema_change_refused"
    assert "such records land with decode.unknown_fields: keep, which puts the field into _extra" in letter["message"]
    kept = EvolvingStream(
        home / "kept", columns="id string, at timestamptz", more={"table": table}, decode={"unknown_fields": "keep"}
    )
    kept.land({"id": "a", field: 1})
    assert kept.rows == [{"id": "a", "_extra": f'{{"{field}":1}}'}]


def test_a_record_that_fails_behind_its_value_alters_nothing(home: Path) -> None:
    """Whether a key, a rule or a filter takes it out; another record with the same field lands with it."""
    more = {"rules": [{"name": "small", "expect": "n < 10"}], "transform": [{"where": "id <> 'hidden'"}]}
    one = EvolvingStream(home, more=more, decode={"key": {"format": "json", "schema": "k int not null"}})
    one.keys = dict.fromkeys(range(1, 5), b'{"k": 1}')
    one.land(
        {"id": "without key", "a": 1},
        {"id": "large", "n": 11, "b": 1, "c": 1},
        {"id": "hidden", "d": 1},
        {"id": "lands", "n": 1, "c": 1},
    )
    assert [name for name in one.columns if name not in ("id", "n", "k")] == ["c"]
    assert one.letters == {0: "null_in_required", 1: "rule_violated"}
    assert one.rows == [{"id": "lands", "n": 1, "k": 1, "c": 1}]


def test_null_and_empty_say_nothing_and_stay_counted(home: Path) -> None:
    one = EvolvingStream(home)
    done = one.land({"id": "a", "x": None}, {"id": "b", "x": [], "y": {}})
    assert one.columns == {"id": "string", "n": "int"}
    assert {path: field.records for path, field in done.unknown_fields.items()} == {"$.x": 2, "$.y": 1}
    one.land({"id": "c", "x": [1]}, {"id": "d", "x": None}, batch=1)
    assert one.columns["x"] == "list<long>"
    assert one.rows[2] == {"id": "c", "x": [1]}


def test_of_two_types_the_first_record_decides_and_the_others_are_dead_letters(home: Path) -> None:
    one = EvolvingStream(home)
    one.land({"id": "a", "x": 1}, {"id": "b", "x": "text"}, {"id": "c", "x": 2})
    assert one.columns["x"] == "long"
    assert one.letters == {1: "wrong_type"}


def test_a_name_that_differs_by_case_is_never_a_second_column(home: Path) -> None:
    one = EvolvingStream(home)
    one.land({"id": "a", "N": 5, "n": 1}, {"id": "b", "N": 5}, {"id": "c"})
    assert one.columns == {"id": "string", "n": "int"}
    assert one.letters == {0: "schema_change_refused", 1: "key_case"}
    one.land({"id": "d", "N": 6, "n": 1}, batch=1)
    assert one.runs == 1, "what is refused is known from the batch before"
    assert one.letters[3] == "schema_change_refused"


def test_limits_leave_records_as_dead_letters(home: Path) -> None:
    one = EvolvingStream(home, limits={"new_columns_per_hour": 2})
    one.land(*[{"id": str(n), f"k{n}": n} for n in range(4)])
    assert list(one.columns) == ["id", "n", "k0", "k1"]
    assert one.letters == {2: "schema_change_refused", 3: "schema_change_refused"}
    one.land({"id": "e", "k9": 1}, {"id": "f", "k1": 7}, batch=1)
    assert one.letters[4] == "schema_change_refused"
    assert one.rows[-1] == {"id": "f", "k1": 7}


@pytest.mark.parametrize(
    "field",
    [{"x": {"y": {"z": 1}}}, {"x": {"y": [{"z": 1}]}}, {"x": {'q"': 1}}, {"s": {"y": {"z": 1}}}, {"s": {'q"': 1}}],
    ids=str,
)
def test_a_new_field_none_of_whose_parts_can_be_a_column_is_no_field_that_is_left_out(
    home: Path, field: dict[str, Any]
) -> None:
    one = EvolvingStream(home, columns="id string, s struct<a int>", limits={"depth": 2})
    one.land({"id": "a", **field}, {"id": "b"})
    assert one.letters == {0: "schema_change_refused"} and one.rows == [{"id": "b"}]


def test_a_new_field_of_a_long_name_is_a_column(home: Path) -> None:
    one = EvolvingStream(home, columns="id string, s struct<a int>")
    one.land({"id": "a", "k" * 70: 1, "s": {"l" * 70: 2}})
    assert one.rows == [{"id": "a", "k" * 70: 1, "s": {"a": None, "l" * 70: 2}}]


def test_a_refused_field_within_a_column_of_a_long_name_fails_its_record(home: Path) -> None:
    long = "k" * 70
    one = EvolvingStream(home, columns=f"id string, {long} struct<a int>", limits={"columns": 3})
    one.land({"id": "a", long: {"b": 1}}, {"id": "b", long: {"a": 1}})
    assert one.letters == {0: "schema_change_refused"}


def test_two_fields_of_one_dotted_name_do_not_hold_up_the_stream(home: Path) -> None:
    one = EvolvingStream(home)
    one.land({"id": "a", "x": {"y": 1}}, {"id": "b", "x.y": 2})
    assert one.rows == [{"id": "a", "x": {"y": 1}}] and one.letters == {1: "schema_change_refused"}


def test_keys_that_are_data_do_not_hold_up_the_stream(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record has a field that no other has: beyond so many nobody looks at each of them."""
    monkeypatch.setattr(column_refusals, "MOST_REFUSED", 5)
    monkeypatch.setattr(task_needs, "MOST", 10)
    one = EvolvingStream(home, columns="id string, m struct<a int>", limits={"new_columns_per_hour": 2})
    done = one.land(*[{"id": str(n), "m": {f"k{n}": n}} for n in range(500)], {"id": "last", "m": {"a": 1}})
    assert (done.counts.landed, done.counts.dead, one.runs) == (3, 498, 2)
    assert set(one.letters.values()) == {"schema_change_refused"}
    assert len(one.stream.refused[SINK].fields) == 6
    one.land({"id": "next", "m": {"another": 1}}, batch=1)
    assert one.runs == 1 and one.letters[501] == "schema_change_refused"


def test_a_proposed_change_is_written_down_and_its_records_wait_as_dead_letters(home: Path) -> None:
    one = EvolvingStream(home, add="propose", widen="propose")
    done = one.land({"id": "a"}, {"id": "b", "new": 1}, {"id": "c", "n": 2**40}, {"id": "d", "new": None})
    assert one.columns == {"id": "string", "n": "int"}
    assert one.letters == {1: "schema_change_proposed", 2: "schema_change_proposed"}
    assert (one.runs, done.counts.landed) == (1, 2)
    store = one.stream.folder.store
    first, second = sorted(proposals(store, one.table.schema()), key=lambda each: each.says)
    assert (first.says, str(first.at)) == ("add column new long", "payments-0@1")
    assert first.command == f"frazil schema apply payments --proposal {first.digest}"
    assert second.says == "widen column n to long"
    one.land({"id": "e", "new": 2}, batch=1)
    assert len(proposals(store)) == 2, "the same change is proposed once"
    with one.table.update_schema() as update:
        update.add_column("new", LongType())
    assert [each.says for each in proposals(store, one.table.schema())] == ["widen column n to long"]
    forget_proposal(store, second.digest)
    one.land({"id": "f", "new": 3}, batch=2)
    assert one.rows[-1] == {"id": "f", "new": 3}


def test_proposals_have_an_end(home: Path) -> None:
    one = EvolvingStream(home, add="propose", limits={"new_columns_per_hour": 3})
    for batch in range(4):
        one.land(*[{"id": "a", f"k{batch}{n}": n} for n in range(2)], {"id": "b"}, batch=batch)
    assert len(proposals(one.stream.folder.store)) == 3
    assert list(one.letters.values()).count("schema_change_proposed") == 3
    assert list(one.letters.values()).count("schema_change_refused") == 5
    assert len(one.rows) == 4


def test_fail_stops_the_stream_and_leaves_nothing(home: Path) -> None:
    one = EvolvingStream(home, add="fail")
    with pytest.raises(SchemaChangeError, match=r"record at payments-0@1 needs .*: add column new long; evolve.add is"):
        one.land({"id": "a"}, {"id": "b", "new": 1})
    assert one.rows == [] and one.files == [] and one.letters == {}


def test_ignored_fields_are_left_out_and_counted(home: Path) -> None:
    one = EvolvingStream(home, add="ignore", widen="ignore")
    done = one.land({"id": "a", "new": 1}, {"id": "b", "n": 2**40})
    assert one.rows == [{"id": "a"}]
    assert one.letters == {1: "out_of_range"}
    assert {path: field.records for path, field in done.unknown_fields.items()} == {"$.new": 1}


def test_a_table_is_left_alone_unless_its_stream_says_otherwise(home: Path) -> None:
    one = EvolvingStream(home, decode={"schema": "infer"})
    assert one.spec.evolution.add == "auto"
    other = EvolvingStream(home, "other", decode={"schema": "table"})
    assert not other.spec.evolution.evolves
    other.land({"id": "a", "new": 1})
    assert other.columns == {"id": "string", "n": "int"}


def test_a_driver_that_was_taken_over_cannot_alter_the_table(home: Path) -> None:
    one = EvolvingStream(home)
    one.between = lambda: _take_over(one)
    with pytest.raises(FencedError):
        one.land({"id": "a", "new": 1})
    assert one.columns == {"id": "string", "n": "int"}
    assert one.files == [], "its files are nobody's"


def _take_over(one: EvolvingStream) -> None:
    at = {one.at: 0}
    other = Target(one.catalog, SINK, one.spec.stream)
    other.claim(9, lambda newest: Stamp(one.spec.stream, "claim", -1, 9, "c", start=at, position=at), again=True)


@pytest.mark.parametrize("theirs", [{"x": 7}, {"y": 7}, {"x": 7.5}, {"x": "text"}], ids=str)
def test_two_streams_evolve_one_table_at_the_same_moment(home: Path, theirs: dict[str, Any]) -> None:
    one, other = EvolvingStream(home), EvolvingStream(home, "refunds")
    met: list[int] = []

    def meanwhile() -> None:
        if not met:
            met.append(1)
            other.land({"id": "o", **theirs})

    one.between = meanwhile
    one.land({"id": "a", "x": 5}, {"id": "b"})
    assert other.rows == [{"id": "o", **theirs}]
    if theirs == {"x": "text"}:
        # The table has it as text by now, so the number has no column.
        assert (one.rows, one.letters) == ([{"id": "b"}], {0: "wrong_type"})
    else:
        assert one.rows == [{"id": "a", "x": 5}, {"id": "b"}]
    assert list(one.columns) == ["id", "n", *(["y", "x"] if "y" in theirs else ["x"])]
    assert len(one.history) == (2 if "y" in theirs else 1)
    # The other's driver has an old schema in mind, and goes on.
    other.land({"id": "p"}, batch=1)
    assert other.rows[-1] == {"id": "p"}


def test_somebody_who_alters_the_table_without_end_is_waited_for(home: Path) -> None:
    """What others change between two runs of the tasks is no round of ours."""
    one = EvolvingStream(home)
    times: list[int] = []

    def meanwhile() -> None:
        if len(times) < 6:
            times.append(1)
            with one.table.update_schema() as update:
                update.add_column(f"theirs{len(times)}", StringType())

    one.between = meanwhile
    one.land({"id": "a", "theirs1": "x", "theirs6": "y", "mine": 1})
    assert one.rows == [{"id": "a", "theirs1": "x", "theirs6": "y", "mine": 1}]


def test_files_of_the_schema_before_land_from_a_pending_record(home: Path) -> None:
    """A driver died between record and commit; its successor's first act is that commit, whoever altered the table."""
    one = EvolvingStream(home)
    one.log += [b'{"id":"a"}']
    ranges = {one.at: OffsetRange(0, 1)}
    needs = {name: need(ranges, one.stream.positions[name]) for name in one.stream.targets}
    seen = one.stream.targets[SINK].seen()
    frame: Any = None
    results = one.runner._run_tasks(frame, 0, ranges, needs, survey=False)
    stamp = Stamp("payments", "batch", 0, 1, one.spec.config_hash, start={one.at: 0}, position={one.at: 1})
    planned = PendingTarget({one.at: 0}, stamp, tuple(results.files[SINK]), seen)
    encoded = Pending(ranges, {SINK: planned}).encode({SINK: one.table.metadata})
    other = EvolvingStream(home, "refunds")
    other.land({"id": "o", "m": {"k": [{"deep": 2**40}]}, "n": 2**40})
    target = one.stream.targets[SINK]
    target.read()
    decoded = Pending.decode(encoded, {SINK: target.table.metadata})
    assert one.stream.commit(target, decoded.targets[SINK], decoded.batch) is ProposalOutcome.LANDED
    assert one.rows == [{"id": "a"}]


def test_the_place_of_a_field_in_records() -> None:
    inner = StructType(NestedField(7, "x", LongType(), required=False))
    schema = Schema(
        NestedField(1, "l", ListType(2, inner, element_required=False), required=False),
        NestedField(3, "m", MapType(4, StringType(), 5, StructType(), value_required=False), required=False),
    )
    assert field_place(schema, ("l", "element", "new")) == "$.l[].new"
    assert field_place(schema, ("m", "value", "element")) == "$.m{}.element"
    assert field_place(schema, ("new",)) == "$.new"


def test_what_no_column_takes_is_kept_and_the_column_comes_with_the_first_record_that_needs_it(home: Path) -> None:
    """A table that was made before the stream kept anything gets the column from the driver."""
    EvolvingStream(home)
    one = EvolvingStream(home, "later", decode={"schema": "table", "unknown_fields": "keep"})
    assert one.columns == {"id": "string", "n": "int"}
    one.land({"id": "a", "n": 1}, {"id": "b", "x": 1.50, "_extra": [None, {"z": "ü"}]})
    assert one.columns == {"id": "string", "n": "int", "_extra": "string"}
    assert one.rows == [{"id": "a", "n": 1}, {"id": "b", "_extra": '{"_extra":[null,{"z":"ü"}],"x":1.5}'}]
    done = one.land(b'{"y":{"b":1e2,"a":1.10},"id":"c"}', batch=1)
    assert (one.runs, done.unknown_fields) == (1, {})
    assert one.rows[-1] == {"id": "c", "_extra": '{"y":{"a":1.10,"b":1e2}}'}


def test_a_record_of_which_nothing_can_be_kept_is_a_dead_letter(home: Path) -> None:
    EvolvingStream(home)
    one = EvolvingStream(home, "later", decode={"schema": "table", "unknown_fields": "keep"}, limits={"columns": 2})
    one.land({"id": "a", "n": 1}, {"id": "b", "x": 1}, {"id": "c"})
    assert one.columns == {"id": "string", "n": "int"}
    assert one.rows == [{"id": "a", "n": 1}, {"id": "c"}] and one.letters == {1: "schema_change_refused"}


def test_a_new_table_of_a_stream_that_keeps_has_the_column(home: Path) -> None:
    one = EvolvingStream(home, decode={"unknown_fields": "keep"}, columns="id string, items list<struct<k int>>")
    assert one.columns["_extra"] == "string"
    one.land({"id": "a", "items": [{"k": 1}, {"k": 2, "more": None}]}, {"id": "b"}, {"id": "c", "items": [{"k": 1.5}]})
    assert one.rows[0]["_extra"] == '{"items":[null,{"more":null}]}'
    assert "_extra" not in one.rows[1]
    assert one.letters == {2: "wrong_type"} and one.runs == 1


def test_a_value_that_clashes_lands_as_text_beside_its_column(home: Path) -> None:
    one = EvolvingStream(home, columns="id string, n int, s struct<a int>, l list<int>", clash="shadow")
    done = one.land(
        {"id": "a", "n": 1},
        b'{"id":"b","n": "many","s":{"a":1.50},"l":[1,"x"],"new":true}',
        {"id": "c", "n": 2**40},
        {"id": "d", "n": [2**70]},
        b"{",
    )
    assert done.counts.landed == 4 and one.letters == {4: "malformed_json"}
    assert one.columns["n"] == "long" and one.columns["n_text"] == "string" and one.columns["new"] == "boolean"
    assert one.rows == [
        {"id": "a", "n": 1},
        {"id": "b", "n_text": '"many"', "s": {"a": None, "a_text": "1.50"}, "l_text": '[1,"x"]', "new": True},
        {"id": "c", "n": 2**40},
        {"id": "d", "n_text": f"[{2**70}]"},
    ]
    one.land({"id": "e", "n": "few"}, batch=1)
    assert (one.runs, one.rows[-1]) == (1, {"id": "e", "n_text": '"few"'})


def test_a_record_that_has_a_member_where_its_text_would_go_is_a_dead_letter(home: Path) -> None:
    one = EvolvingStream(home, columns="id string not null, n int, n_text string, d date, d_text int", clash="shadow")
    one.land({"id": "a", "n": "x", "n_text": "mine"}, {"id": 5}, {"id": "c", "d": "x"}, {"id": "d", "n": "x"})
    assert one.letters == {0: "wrong_type", 1: "wrong_type", 2: "bad_date"}
    assert one.rows == [{"id": "d", "n_text": '"x"'}]


def test_a_name_mapping_knows_the_new_columns(home: Path) -> None:
    """As PyIceberg's own change of the same columns leaves it."""
    one = EvolvingStream(home, columns="id string, s struct<a int>, l list<struct<x int>>")
    mapping = one.table.schema().name_mapping.model_dump_json()
    with one.table.transaction() as change:
        change.set_properties({PROPERTY: mapping})
    twin = one.catalog.create_table("orders.twin", one.table.schema(), properties={PROPERTY: mapping})
    one.land({"id": "a", "x": 1, "s": {"b": "t"}, "l": [{"y": {"z": 1}}]})
    with twin.update_schema() as update:
        update.add_column("x", LongType())
        update.add_column(("s", "b"), StringType())
        update.add_column(("l", "element", "y"), StructType(NestedField(1, "z", LongType(), required=False)))
    found, expected = (each.name_mapping() for each in (one.table, twin))
    assert found is not None and expected is not None

    def named(fields: Any) -> list[Any]:
        return sorted((sorted(each.names), named(each.fields)) for each in fields)

    assert named(found.root) == named(expected.root)
    schema = one.table.schema()
    assert {each.field_id for each in found.root if "x" in each.names} == {schema.find_field("x").field_id}


def interrupted(home: Path, **options: Any) -> EvolvingStream:
    """A stream whose rows of a batch have landed, and whose letters have not: they have to be made anew."""
    one = EvolvingStream(home, **options)
    commit = one.stream.commit

    def lost(target: Target, *given: Any) -> ProposalOutcome:
        if target.name == one.spec.dead_letter_table:
            raise OSError("killed")
        return commit(target, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenStream, "commit", lambda self, *given: lost(*given))
        with pytest.raises(OSError, match="killed"):
            one.land({"id": "a", "x": 1}, {"id": "b"}, {"id": "c", "n": 2**40}, {"id": 1})
    one.stream.folder.store.delete(one.stream.folder.pending(1))
    return one


@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"decode": {"schema": "table", "unknown_fields": "fail"}},
        {"decode": {"schema": "table"}, "add": "propose", "widen": "propose"},
        {"add": "auto", "widen": "ignore", "limits": {"columns": 2}},
    ],
)
def test_a_second_run_decides_by_the_schema_of_the_first(home: Path, options: dict[str, Any], more: int) -> None:
    """The table takes by then what it did not; records that come after the batch are decided on by what it is now."""
    first = EvolvingStream(home / "as-ever", **options)
    first.land({"id": "a", "x": 1}, {"id": "b"}, {"id": "c", "n": 2**40}, {"id": 1})
    one = interrupted(home / "interrupted", **options)
    assert one.letters == {} and one.rows == first.rows == [{"id": "b"}]
    with one.table.update_schema() as schema:
        schema.add_column("x", LongType())
        schema.update_column("n", LongType())
    schemas = len(one.table.metadata.schemas)
    one.stream.anchor.table = one.table
    after = [{"id": "d", "x": 1}, {"id": "e", "n": 2**40}][:more]
    one.land(*after, batch=1)
    assert one.letters == first.letters and set(one.letters) == {0, 2, 3}
    assert one.rows == [{"id": "b"}, *after]
    assert len(one.table.metadata.schemas) == schemas
    assert one.land({"id": "f", "x": 2}, batch=2).counts.landed == 1


def test_a_second_run_after_a_stamp_without_its_schema_tells_what_it_cannot_mend(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A release before named no schema in its stamps."""
    one = interrupted(home, decode={"schema": "table", "unknown_fields": "fail"})
    anchor = one.stream.anchor
    assert anchor.newest is not None and anchor.newest.schema_id is not None
    anchor.newest = replace(anchor.newest, schema_id=None)
    with one.table.update_schema() as schema:
        schema.add_column("x", LongType())
    anchor.table = one.table
    one.land(batch=1)
    assert set(one.letters) == {2, 3}
    assert [each for each in caplog.messages if "3 were to become dead letters, and 2 do now" in each]


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("m", MapType(100, LongType(), 101, StringType(), value_required=False), "a map's key cannot be 'long'"),
        ("ID", StringType(), "differs from 'id' only by case"),
        ('q"', StringType(), "has a quotation mark"),
    ],
)
def test_a_column_of_others_that_json_does_not_fill_is_named(home: Path, name: str, kind: Any, why: str) -> None:
    one = EvolvingStream(home)
    with one.table.update_schema(case_sensitive=True) as update:
        update.add_column(name, kind)
    with pytest.raises(FrazilError, match=f"{name} .*{why}") as refused:
        EvolvingStream(home, epoch=2)
    assert "decode.schema" in (refused.value.fix or "")
    # Declared columns leave it alone.
    other = EvolvingStream(home, "other", decode={"schema": "id string, n int"})
    other.land({"id": "a"})
    assert other.rows == [{"id": "a"}]
