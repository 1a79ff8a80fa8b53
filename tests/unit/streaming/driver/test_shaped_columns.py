"""Steps that change columns which no file declares: the decoded columns are kept with the table, which follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import load_settings
from jobs.config.stream.shaped_table import evolving_schema
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.quality.schema_checks.alteration import (
    alter_table,
    file_alteration,
    proposed_alteration,
    renaming_alteration,
)
from jobs.records.schema.decoded_columns import decoded_columns
from jobs.records.schema.difference import parse_rename
from jobs.records.schema.schema_change import SchemaChange
from jobs.streaming.driver.tables import row_table
from jobs.streaming.driver.tables.schema_proposals import proposals
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.opening_columns import columns_operation
from jobs.tables.commit.stamp.errors import HeadMovedError
from tests.helpers.evolving_stream import SINK, EvolvingStream, interrupted

UNWRAP: dict[str, Any] = {"smt": {"type": "ExtractNewRecordState", "add.fields": "op"}}
STEPS: dict[str, Any] = {
    "transform": [UNWRAP, {"rename": {"n": "number"}}, {"compute": {"twice": "number * 2"}}, {"drop": "secret"}]
}
ROW = "struct<id: string, n: int, secret: string>"
EVENTS = f"before {ROW}, after {ROW}, op string"


def created(**row: Any) -> dict[str, Any]:
    return {"op": "c", "before": None, "after": row}


def test_a_table_is_made_of_what_the_steps_make_and_follows_the_decoded_columns(home: Path) -> None:
    one = EvolvingStream(home, columns=EVENTS, more=STEPS)
    assert one.columns == {"id": "string", "number": "int", "__op": "string", "twice": "int"}
    one.land(created(id="a", n=1, secret="x"))
    one.land(created(id="b", n=2**40), created(id="c", n=3, colour="red"), batch=1)
    assert one.columns == {
        "id": "string", "number": "long", "__op": "string", "twice": "long", "colour": "string",
    }  # fmt: skip
    assert one.rows == [
        {"id": "a", "number": 1, "twice": 2, "__op": "c"},
        {"id": "b", "number": 2**40, "twice": 2**41, "__op": "c"},
        {"id": "c", "number": 3, "twice": 6, "__op": "c", "colour": "red"},
    ]
    assert one.letters == {}
    kept = decoded_columns(one.table.properties, "payments")
    assert kept is not None
    assert kept.rows.find_field("after.colour").field_type.is_primitive
    told = [each for record in one.history for each in record.changes]
    assert "add column colour string" in told
    assert "decoded columns: add column after.colour string" in told


def test_a_change_that_a_step_or_the_table_cannot_take_is_refused_and_all_others_are_made(home: Path) -> None:
    """`number` partitions the table, so it keeps its type; a second field `__op` would be a second column."""
    more = STEPS | {"table": {"name": SINK, "partition_by": ["number"]}}
    one = EvolvingStream(home, columns=EVENTS, more=more)
    one.land(created(id="a", n=1, colour="red"), created(id="b", n=2**40), created(id="c", n=2, __op="x"), created(n=7))
    assert one.columns == {"id": "string", "number": "int", "__op": "string", "twice": "int", "colour": "string"}
    assert sorted(one.letters) == [1, 2]
    reasons = one.catalog.load_table(one.spec.dead_letter_table).scan().to_arrow().column("message").to_pylist()
    assert any("there would be two columns '__op'" in each for each in reasons), reasons
    runs = one.runs
    one.land(created(id="d", n=2**41), batch=1)
    assert (runs > 1, one.runs) == (True, 1), "what is refused is not asked for with every batch"


def test_a_field_that_the_steps_drop_changes_the_decoded_columns_alone(home: Path) -> None:
    one = EvolvingStream(home, columns="id string, n int", more={"transform": [{"keep": ["id"]}]})
    before = one.table.metadata.current_schema_id
    one.land({"id": "a", "n": 1, "new": True})
    assert (one.rows, one.columns) == ([{"id": "a"}], {"id": "string"})
    assert one.table.metadata.current_schema_id == before
    kept = decoded_columns(one.table.properties, "payments")
    assert kept is not None
    assert kept.rows.column_names == ["id", "n", "new"]
    one.land({"id": "b", "new": False}, batch=1)
    assert one.runs == 1


@pytest.mark.parametrize(
    ("columns", "added", "step"),
    [
        ("id string, n int", {"number": "int"}, {"rename": {"n": "number"}}),
        ("id string, n int", {}, {"drop": "n"}),
        ("id string, p struct<a: int>", {"p_a": "int"}, "flatten"),
    ],
)
def test_a_step_that_is_added_later_begins_with_the_columns_as_they_are(
    home: Path, columns: str, added: dict[str, str], step: Any
) -> None:
    first = EvolvingStream(home, columns=columns)
    first.land({"id": "a"})
    had = first.columns
    two = EvolvingStream(home, epoch=2, more={"transform": [step]})
    two.log = list(first.log)
    two.land({"id": "b", "n": 3, "p": {"a": 4}, "new": 1}, batch=1)
    assert had | added | {"new": "long"} == {k: v for k, v in two.columns.items() if k in had | added | {"new": 0}}
    assert two.letters == {}
    assert two.rows[0] == {"id": "a"}
    assert two.rows[1].items() >= {"id": "b", "new": 1, **{k: 3 for k in added if k == "number"}}.items()
    assert "n" not in two.rows[1] or step == "flatten"


def test_a_driver_killed_after_the_opening_change_leaves_the_column_to_the_next_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = EvolvingStream(home, columns=EVENTS, more=STEPS)
    first.land(created(id="a", n=5))
    more = {"transform": [*STEPS["transform"], {"compute": {"thrice": "number * 3"}}]}

    def killed(name: str) -> None:
        assert name == "after_opening_change"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(row_table, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            EvolvingStream(home, epoch=2, more=more)
    assert first.columns["thrice"] == "int"
    before = len(first.table.metadata.schemas)
    two = EvolvingStream(home, epoch=2, more=more)
    two.log = list(first.log)
    two.land(created(id="b", n=6), batch=1)
    assert len(two.table.metadata.schemas) == before
    assert [(each["twice"], each.get("thrice")) for each in two.rows] == [(10, None), (12, 18)]


def test_a_required_column_that_the_steps_make_no_more_stops_the_stream_before_it_opens(home: Path) -> None:
    EvolvingStream(home, columns="id string, n int not null").land({"id": "a", "n": 1})
    with pytest.raises(FrazilError, match=r"n: int of the table is not among the fields, which requires it") as no:
        EvolvingStream(home, epoch=2, more={"transform": [{"drop": "n"}]})
    assert no.value.fix == "frazil schema apply payments, or correct streams/payments.yaml"


def test_a_chain_that_changed_is_followed_and_what_is_gone_is_null(home: Path) -> None:
    first = EvolvingStream(home, columns=EVENTS, more=STEPS)
    first.land(created(id="a", n=1))
    other = {"transform": [UNWRAP, {"rename": {"n": "amount"}}, {"cast": {"amount": "string"}}]}
    two = EvolvingStream(home, epoch=2, columns="wrong int", more=other)
    two.log = list(first.log)
    two.land(created(id="b", n=2**40), batch=1)
    assert two.rows == [
        {"id": "a", "number": 1, "twice": 2, "__op": "c"},
        {"id": "b", "amount": str(2**40), "__op": "c"},
    ]
    assert two.columns["number"] == "int"


def test_an_empty_table_is_made_anew_for_other_steps(home: Path) -> None:
    EvolvingStream(home, columns=EVENTS, more=STEPS)
    two = EvolvingStream(home, epoch=2, columns="wrong int", more={"transform": [UNWRAP]})
    assert two.columns == {"id": "string", "n": "int", "secret": "string", "__op": "string"}


def test_a_table_that_others_have_made_gets_what_the_steps_make_of_the_first_columns(home: Path) -> None:
    """As of a sink of Kafka Connect: it has the rows' columns, and nobody has said what they were made of."""
    other = EvolvingStream(home, name="others", columns="id string, n long, secret string, __op string")
    other.land({"id": "z", "n": 1})
    one = EvolvingStream(home, epoch=2, columns=EVENTS, more={"transform": [UNWRAP]})
    assert one.columns == other.columns
    one.land(created(id="a", n=2**40, colour="red"))
    assert one.rows == [{"id": "a", "n": 2**40, "__op": "c", "colour": "red"}]


def test_a_table_that_has_lost_the_decoded_columns_stops_the_stream(home: Path) -> None:
    one = EvolvingStream(home, columns=EVENTS, more=STEPS)
    one.land(created(id="a", n=1))
    with one.table.transaction() as change:
        change.remove_properties("frazil.decoded.payments")
    with pytest.raises(FrazilError, match=r"has lost its property frazil\.decoded\.payments"):
        EvolvingStream(home, epoch=2, columns=EVENTS, more=STEPS)


def test_what_no_table_can_have_may_be_decoded_and_gets_another_name(home: Path) -> None:
    table = {"name": SINK, "partition_by": ["bucket(4, id)"]}
    steps = {"transform": [{"rename": {"_pos": "position"}}], "table": table}
    one = EvolvingStream(home, columns="id string, _pos int", more=steps)
    one.land({"id": "a", "_pos": 1}, {"id": "b", "_file": "f"}, {"id": "c", "id_bucket": 1}, {"id": "d", "_pos": 2**40})
    assert one.columns == {"id": "string", "position": "long"}
    assert one.letters == {1: "schema_change_refused", 2: "schema_change_refused"}
    assert [each["position"] for each in one.rows] == [1, 2**40]


def test_a_column_that_the_steps_make_no_more_can_be_renamed(home: Path) -> None:
    one = EvolvingStream(home, columns=EVENTS, more=STEPS)
    one.land(created(id="a", n=1))
    renames = [parse_rename("number=former")]
    with pytest.raises(FrazilError, match="those that its steps make") as told:
        renaming_alteration(one.spec, one.table.metadata, renames)
    assert told.value.fix == "name the column with rename in the transform of streams/payments.yaml first"
    steps = [UNWRAP, {"rename": {"n": "count"}}, {"compute": {"twice": "count * 2"}}, {"drop": "secret"}]
    spec = EvolvingStream(home / "other", columns=EVENTS, more={"transform": steps}).spec
    given = (one.table.metadata.current_schema_id, "me@here")
    alter_table(one.catalog, spec, lambda now: renaming_alteration(spec, now, renames), *given)
    assert one.columns == {"id": "string", "former": "int", "__op": "string", "twice": "int"}


def test_a_second_run_decodes_by_the_columns_of_the_first(home: Path) -> None:
    """The rows have landed and the letters have not, and more columns are decoded by then: the same are letters."""
    steps = {"transform": [UNWRAP, {"cast": {"n": "string"}}], "rules": [{"name": "r", "expect": "n <> '-1'"}]}
    options: dict[str, Any] = {"columns": EVENTS, "more": steps, "widen": "ignore"}
    first = EvolvingStream(home / "as-ever", **options)
    records = [created(id="a", n=1), created(id="b", n=2**40), created(id="c", n=-1)]
    first.land(*records)
    one = interrupted(home / "interrupted", *records, **options)
    assert one.letters == {} and one.rows == first.rows == [{"id": "a", "n": "1", "__op": "c"}]
    # The table's schema has not changed with this.
    wider = SchemaChange("widen", ("after", "n"), LongType())
    before = one.table.metadata
    operation = columns_operation(one.spec, before, (wider,), by="somebody")
    commit_once(one.table, operation, summary={}, properties={})
    assert one.table.metadata.current_schema_id == before.current_schema_id
    one.stream.anchor.table = one.table
    one.land(created(id="d", n=2**41), batch=1)
    assert one.letters == first.letters == {1: "out_of_range", 2: "rule_violated"}
    assert one.rows[1:] == [{"id": "d", "n": str(2**41), "__op": "c"}]


def test_letters_are_taken_through_the_steps_by_the_decoded_columns(home: Path) -> None:
    options: dict[str, Any] = {"columns": EVENTS, "more": STEPS}
    one = EvolvingStream(home, **options, widen="propose")
    one.land(created(id="a", n=2**40))
    assert one.letters == {0: "schema_change_proposed"}
    (proposal,) = proposals(one.stream.folder.store, evolving_schema(one.spec, one.table.metadata))
    assert proposal.says == "widen column after.n to long"
    decided = proposed_alteration(one.spec, one.table.metadata, [proposal.as_change])
    assert decided.sentences == [
        "widen column number to long", "widen column twice to long", "decoded columns: widen column after.n to long",
    ]  # fmt: skip
    seen = one.table.metadata.current_schema_id
    alter_table(one.catalog, one.spec, lambda now: proposed_alteration(one.spec, now, [proposal.as_change]), seen, "me")
    assert proposals(one.stream.folder.store, evolving_schema(one.spec, one.table.metadata)) == []
    result = replay(one.spec, one.settings, one.catalog, ReplayRequest())
    assert (result.replayed, result.failed_again) == (1, 0)
    assert one.rows == [{"id": "a", "number": 2**40, "twice": 2**41, "__op": "c"}]


def test_the_file_is_applied_where_it_does_not_go_by_itself(home: Path) -> None:
    EvolvingStream(home, columns="id string, n int not null").land({"id": "a", "n": 1})
    steps = {"transform": [{"rename": {"n": "m"}}]}
    with pytest.raises(FrazilError, match="which requires it"):
        EvolvingStream(home, epoch=2, more=steps)
    spec = EvolvingStream(home / "b", more=steps).spec
    catalog = connect_catalog(load_settings(None, home=home))
    metadata = catalog.load_table(SINK).metadata
    assert file_alteration(spec, metadata).sentences == ["add column m int", "let column n be null"]
    alter_table(catalog, spec, lambda now: file_alteration(spec, now), metadata.current_schema_id, "me")
    two = EvolvingStream(home, epoch=2, more=steps)
    two.log = [b"{}"]
    two.land({"id": "b", "n": 2}, batch=1)
    assert two.rows == [{"id": "a", "n": 1}, {"id": "b", "m": 2}]


def test_what_is_kept_has_to_pass_the_steps(home: Path) -> None:
    decode = {"unknown_fields": "keep"}
    with pytest.raises(FrazilError, match="is keep, and behind the steps there is no text column _extra"):
        EvolvingStream(home, columns=EVENTS, decode=decode, more=STEPS)
    one = EvolvingStream(home / "b", columns="id string, n int", decode=decode, more={"transform": [{"drop": "n"}]})
    one.land({"id": "a", "n": 1, "x": {"y": 1.50}})
    assert one.rows == [{"id": "a", "_extra": '{"x":{"y":1.5}}'}]


RECORDS = [
    created(id="a", n=1, secret="s"),
    {"op": "u", "before": {"id": "a", "n": 1}, "after": {"id": "a", "n": 2}},
    {"op": "d", "before": {"id": "a", "n": 2}, "after": None},
    created(id="b", n=2**40, more={"x": [1, 2]}),
    created(id=7),
    created(n=None),
]


@pytest.mark.parametrize(
    "steps",
    [
        [UNWRAP, {"rename": {"n": "number"}}, {"compute": {"twice": "number * 2"}}, {"drop": "secret"}],
        [{"smt": {"type": "ExtractNewRecordState", "delete.tombstone.handling.mode": "rewrite"}}, "flatten"],
        ["flatten", {"where": "op <> 'd'"}, {"drop": ["before_secret", "after_secret"]}],
        [{"extract": {"column": "after", "keep": "op"}}, {"hoist": {"into": "row", "columns": ["id", "n"]}}],
        [
            UNWRAP,
            {"compute": {"id": "concat(id, '-x')"}},
            {"split": {"column": "id", "by": "-", "into": ["id0", "id1"], "rest": True}},
        ],
    ],
)
def test_rows_are_those_of_a_file_that_declares_the_columns(home: Path, steps: list[Any]) -> None:
    row = "struct<id: string, n: long, secret: string, more: struct<x: list<long>>>"
    declared = EvolvingStream(
        home / "declared", decode={"schema": f"before {row}, after {row}, op string"}, more={"transform": steps}
    )
    inferred = EvolvingStream(home / "inferred", columns=EVENTS, more={"transform": steps})
    for number, record in enumerate(RECORDS):
        declared.land(record, batch=number)
        inferred.land(record, batch=number)
    assert inferred.rows == declared.rows
    assert inferred.letters == declared.letters


def test_of_two_who_change_the_decoded_columns_alone_one_finds_another_head(home: Path) -> None:
    one = EvolvingStream(home, columns="id string, n int", more={"transform": [{"keep": ["id"]}]})
    one.land({"id": "a"})
    first, second = one.table, one.table
    operations = [
        columns_operation(one.spec, first.metadata, (SchemaChange("add", (name,), LongType()),), by="somebody")
        for name in ("x", "y")
    ]
    assert all(each.schema == first.schema() for each in operations)
    assert commit_once(first, operations[0], summary={}, properties={}) == first.metadata.current_schema_id
    with pytest.raises(HeadMovedError):
        commit_once(second, operations[1], summary={}, properties={})
    kept = decoded_columns(one.table.properties, "payments")
    assert kept is not None
    assert kept.rows.column_names == ["id", "n", "x"]
    one.land({"id": "b", "z": 1}, batch=1)
    assert one.rows == [{"id": "a"}, {"id": "b"}]


@pytest.mark.parametrize(
    ("columns", "steps", "row"),
    [
        ("id string, n int", [{"rename": {"n": "raw"}}, {"compute": {"n": "raw * 100"}}], {"raw": 2, "n": 200}),
        ("id string, n int", [{"rename": {"n": "m"}}, {"set": {"site": "eu"}}], {"m": 2, "site": "eu"}),
        ("id string not null, n int, note string", [{"drop": "n"}, {"compute": {"note": "id"}}], {"note": "b"}),
    ],
)
def test_a_name_that_a_step_gives_may_be_a_column_that_is_decoded(
    home: Path, columns: str, steps: list[Any], row: dict[str, Any]
) -> None:
    EvolvingStream(home, columns=columns).land({"id": "a", "n": 1, "note": "x"})
    two = EvolvingStream(home, epoch=2, more={"transform": steps})
    two.log = [b"{}"]
    two.land({"id": "b", "n": 2}, batch=1)
    assert two.letters == {}
    assert two.rows[-1] == {"id": "b"} | row
    kept = decoded_columns(two.table.properties, "payments")
    assert kept is not None
    assert set(kept.rows.column_names) >= {each.split()[0] for each in columns.split(", ")}


def test_a_table_that_somebody_altered_stays_refused_at_the_next_start(home: Path) -> None:
    steps = {"transform": [{"rename": {"n": "total"}}]}
    one = EvolvingStream(home, columns="id string, n int", more=steps)
    one.land({"id": "a", "n": 1})
    with one.table.update_schema() as change:
        change.rename_column("total", "sum")
    with pytest.raises(FrazilError, match=r"somebody has altered it: add column total int") as no:
        EvolvingStream(home, epoch=2, more=steps)
    assert no.value.fix == "frazil schema apply payments, or correct streams/payments.yaml"


def test_a_key_is_as_wide_as_somebody_has_made_it_in_the_table(tmp_path: Path) -> None:
    """Records never widen a key; the letter says how it is done."""
    events = "before struct<id: int>, after struct<id: int>, op string, ts_ms long, source struct<connector: string>"
    key = {"format": "json", "schema": "infer", "into": "_change_key"}
    how: dict[str, Any] = {"columns": events, "key": "id int", "decode": {"key": key}, "more": {"changes": "debezium"}}
    wide = {"op": "c", "after": {"id": 2**40}, "source": {"connector": "x"}}
    one = EvolvingStream(tmp_path, **how)
    one.keys = {0: b'{"id": 1099511627776}'}
    one.land(wide)
    letters = one.catalog.load_table(one.spec.dead_letter_table).scan().to_arrow().to_pylist()
    assert [(each["error_class"], each["stage"]) for each in letters] == [("out_of_range", "decode_key")]
    assert "widen _change_key.id and _change_old_key.id by ALTER TABLE, start the stream again" in letters[0]["message"]
    with one.table.update_schema() as change:
        change.update_column("_change_key.id", LongType()).update_column("_change_old_key.id", LongType())
    two = EvolvingStream(tmp_path, epoch=2, **how)
    two.log, two.keys = list(one.log), {1: b'{"id": 1099511627776}'}
    two.land(wide, batch=1)
    assert [each["_change_key"] for each in two.rows] == [{"id": 2**40}]
