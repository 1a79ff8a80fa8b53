from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs.base.errors import FrazilError
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import load_settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.route import Route
from jobs.config.values.targets import may_name_same_table
from tests.helpers.problem_places import without_columns

ROUTE: dict[str, Any] = {
    "by": "type",
    "tables": [
        {"match": "INS|UPD", "table": "ev.changes", "partition_by": ["bucket(4, id)"], "properties": {"b": 2}},
        {"match": ["DEL", "UPD"], "table": "ev.deletes"},
        {"match": "X", "table": "ev.deletes"},
    ],
}
DOCUMENT: dict[str, Any] = {
    "stream": "events",
    "source": {"topics": ["events"]},
    "decode": {"value": "json", "schema": "id string, type string, n int, at timestamp, p struct<k: string>"},
    "table": {"name": "ev.other", "partition_by": ["day(at)"], "properties": {"a": 1}},
}


def spec(route: dict[str, Any] | None = None, **more: Any) -> StreamSpec:
    return StreamSpec.model_validate({**DOCUMENT, **more, "route": {**ROUTE, **(route or {})}})


def refused(tmp_path: Path, route: dict[str, Any] | None = None, **more: Any) -> str:
    """What `frazil validate` says of a file with this route."""
    file = tmp_path / "streams" / "events.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump({**DOCUMENT, **more, "route": {**ROUTE, **(route or {})}}))
    with pytest.raises(FrazilError) as error:
        load_stream(file)
    return str(error.value)


def test_targets_are_the_streams_own_table_its_dead_letters_and_each_table_once() -> None:
    own, letters, changes, deletes = spec().targets
    assert (own.name, own.coordinator, letters.role) == ("ev.other", True, "dead_letters")
    assert [each.name for each in (changes, deletes)] == ["ev.changes", "ev.deletes"]
    assert not changes.coordinator and changes.role == "rows" and changes.coordinates == own.coordinates
    assert [str(each) for each in changes.partition_by] == ["bucket(4, id)"]
    assert [str(each) for each in deletes.partition_by] == ["day(at)"], "as the stream's main table"
    assert dict(changes.properties) == {"a": "1", "b": "2"} and dict(deletes.properties) == {"a": "1"}
    assert [each.name for each in spec({"unmatched": {"table": "ev.rest"}}).targets][-1] == "ev.rest"


@pytest.mark.parametrize(
    ("value", "tables"),
    [
        ("INS", ("ev.changes",)),
        ("UPD", ("ev.changes", "ev.deletes")),
        ("X", ("ev.deletes",)),
        ("INSERT", ()),
        ("ins", ()),
        ("", ()),
        (None, ()),
    ],
)
def test_whole_values_are_matched(value: str | None, tables: tuple[str, ...]) -> None:
    assert Route.model_validate(ROUTE).destinations(value) == tables
    rest = Route.model_validate({**ROUTE, "unmatched": {"table": "ev.rest"}})
    assert rest.destinations(value) == (tables or ("ev.rest",))


@given(st.text(max_size=6), st.lists(st.text(max_size=3), min_size=1, max_size=3))
def test_a_list_is_of_exact_values(value: str, values: list[str]) -> None:
    route = Route.model_validate({"by": "type", "tables": [{"match": values, "table": "a.b"}]})
    assert bool(route.destinations(value)) == (value in values)


def test_what_says_where_rows_go_changes_the_configuration_and_what_tables_are_like_does_not() -> None:
    plain, known = StreamSpec.model_validate(DOCUMENT), spec().config_hash
    assert known != plain.config_hash == StreamSpec.model_validate({**DOCUMENT, "route": None}).config_hash
    first, *others = ROUTE["tables"]
    assert spec({"tables": [{**first, "properties": {"c": 3}}, *others], "limit": 9}).config_hash == known
    assert spec({"unmatched": "dead_letter"}).config_hash == known
    unmatched = ({"unmatched": each} for each in ({"table": "ev.other"}, "drop", "fail"))
    changes = ({"by": "topic"}, *unmatched, {"tables": [first]})
    others = {spec(change).config_hash for change in (*changes, {"by": "header:type"}, {"by": "upper(type)"})}
    assert known not in others and len(others) == 7


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ({"by": "typ"}, "route.by: no column 'typ' in decode.schema; did you mean 'type'?"),
        ({"by": "p.q"}, "no column 'p.q' in decode.schema; known: k"),
        ({"by": "at"}, "cannot be a column of type timestamp"),
        ({"by": "p"}, "cannot be a column of type struct"),
        ({"by": "header:"}, "must be a column such as type"),
        ({"by": "column:a b"}, "is not a path of keys"),
        ({"by": "a b"}, "route.by: the expression is wrong at column 3"),
        ({"by": "upper(typ)"}, "the expression is wrong at column 7: there is no column 'typ'; did you mean type?"),
        ({"by": "uper(type)"}, "there is no function 'uper'"),
        ({"by": "n * 1.5"}, "cannot be an expression of type decimal"),
        ({"by": "now()"}, "cannot be an expression of type timestamptz"),
        ({"unmatched": "dropp"}, "must be dead_letter, drop, fail or {table: namespace.name}; found 'dropp'"),
        ({"unmatched": {"table": "ev.other_dead"}}, "write dead_letter"),
        ({"unmatched": {}}, "route.unmatched.table: is required and missing"),
        ({"limit": 1}, "2 tables are more than route.limit, which is 1"),
        ({"tables": []}, "route.tables"),
        ({"tables": [{"match": "(", "table": "a.b"}]}, "is no regular expression"),
        ({"tables": [{"match": 3, "table": "a.b"}]}, "must be a regular expression of whole values"),
        ({"tables": [{"match": "a", "table": "a.b", "partition_by": ["day(n)"]}]}, "tables[0].partition_by[0]"),
        ({"tables": [{"match": "a", "table": "a.b", "sort_by": ["nn"]}]}, "tables[0].sort_by[0]"),
        ({"tables": [{"match": "a", "table": "ev.other", "properties": {"a": 2}}]}, "belongs into the block table"),
        ({"tables": [{"match": "a", "table": "ev.other_dead"}]}, "is the table of the stream's dead letters"),
        ({"to": "ev.all"}, "must have {value} once, in the table's own name, such as events.{value}; found 'ev.all'"),
        ({"to": "{value}.all"}, "must have {value} once"),
        ({"to": "ev.{value}_{value}"}, "must have {value} once"),
        ({"to": "{value}"}, "must be namespace.table"),
        ({"to": "ev.a b{value}"}, "must be namespace.table"),
        ({"tables": []}, "must name a table at least, or `to` say how tables are named by values"),
    ],
)
def test_a_route_that_cannot_be_is_refused_with_its_place(tmp_path: Path, route: dict[str, Any], said: str) -> None:
    assert said in refused(tmp_path, route)


def test_settings_of_one_table_in_two_entries_are_refused(tmp_path: Path) -> None:
    twice = [{"match": each, "table": "a.b", "properties": {"p": each}} for each in ("x", "y")]
    assert "is set for a.b in an earlier entry" in refused(tmp_path, {"tables": twice})


@pytest.mark.parametrize("schema", ["infer", "table"])
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"by": "lower(type"}, "route.by: the expression is wrong at"),
    ],
)
def test_what_does_not_go_with_columns_that_no_file_declares_is_refused(
    tmp_path: Path, schema: str, more: dict[str, Any], said: str
) -> None:
    assert said in refused(tmp_path, more, decode={"value": "json", "schema": schema})


def test_publish_does_not_go_with_a_route_over_columns_that_no_file_declares(tmp_path: Path) -> None:
    more = {"decode": {"value": "json", "schema": "infer"}, "publish": {"gate": "contract", "branch": "ingest"}}
    assert "publish: is for a stream with one table of rows" in refused(tmp_path, **more)


@pytest.mark.parametrize(
    ("by", "column", "expression"),
    [
        ("type", ("type",), None),
        (" p.k ", ("p", "k"), None),
        ("column:type", ("type",), None),
        ("`type`", ("type",), None),
        ("topic", None, None),
        ("header:x-y", None, "header('x-y')"),
        ("header:o'k", None, "header('o''k')"),
        ("sql:type", None, "type"),
        ("sql: _topic", None, "_topic"),
        ("upper(type)", None, "upper(type)"),
        ("n + 1", None, "n + 1"),
        ("cast(at as date)", None, "cast(at as date)"),
        ("n > 3", None, "n > 3"),
    ],
)
def test_a_column_a_header_or_an_expression_decides(
    by: str, column: tuple[str, ...] | None, expression: str | None
) -> None:
    route = spec({"by": by}).route
    assert route is not None and (route.column, route.expression) == (column, expression)
    assert Route.model_validate(route.model_dump(mode="json")) == route
    assert route.asks == ({"headers"} if by.startswith("header:") else frozenset())


def test_where_an_expression_is_wrong_is_told_by_line(tmp_path: Path) -> None:
    said = refused(tmp_path, {"by": "upper(typ)"})
    lines = (tmp_path / "streams" / "events.yaml").read_text().splitlines()
    number = next(at for at, line in enumerate(lines, 1) if line.strip() == "by: upper(typ)")
    assert f"events.yaml:{number}: route.by: the expression is wrong at column 7" in without_columns(said)


def test_a_column_may_be_called_topic() -> None:
    schema = {"value": "json", "schema": "topic string"}
    table = {"name": "ev.other"}
    tables = [{"match": "a", "table": "a.b"}]
    assert spec({"by": "column:topic", "tables": tables}, decode=schema, table=table).route.column == ("topic",)  # pyright: ignore[reportOptionalMemberAccess]
    assert spec({"by": "topic", "tables": tables}, decode=schema, table=table).route.column is None  # pyright: ignore[reportOptionalMemberAccess]


NAMED = {"tables": [], "to": "ev.t_{value}"}


def test_tables_that_values_name_are_targets_once_they_are_known() -> None:
    one = spec(NAMED)
    assert one.target_names == ("ev.other", "ev.other_dead") and one.named_tables == ()
    names = ["ev.t_a", "ev.t_B_1", "ev.t_", "ev.t_a-b", "ev.u_a", "ev.other", "t_a", "ev.t_a"]
    known = one.with_named_tables(names)
    assert known.named_tables == ("ev.t_a", "ev.t_B_1"), "others are none that a value names"
    assert known.target_names == ("ev.other", "ev.other_dead", "ev.t_a", "ev.t_B_1")
    more = known.with_named_tables(["ev.t_c", "ev.t_a"])
    assert more.named_tables == ("ev.t_a", "ev.t_B_1", "ev.t_c") and one.named_tables == ()
    assert [str(each) for each in more.targets[-1].partition_by] == ["day(at)"], "as the stream's main table"
    assert more.config_hash == one.config_hash, "which tables there are changes no row"


def test_what_the_file_names_is_none_that_a_value_has_named() -> None:
    route = {"tables": [{"match": "x", "table": "ev.t_x"}], "to": "ev.t_{value}", "unmatched": {"table": "ev.t_rest"}}
    known = spec(route).with_named_tables(["ev.t_x", "ev.t_rest", "ev.t_y"])
    assert known.named_tables == ("ev.t_y",)
    assert known.target_names == ("ev.other", "ev.other_dead", "ev.t_x", "ev.t_rest", "ev.t_y")


def test_without_a_name_for_tables_no_value_names_one() -> None:
    assert spec().with_named_tables(["ev.changes", "ev.more"]).named_tables == ()
    assert StreamSpec.model_validate(DOCUMENT).with_named_tables(["ev.more"]).named_tables == ()


def test_the_name_of_tables_and_how_many_there_may_be_change_rows() -> None:
    one = spec(NAMED)
    assert one.config_hash != spec({**NAMED, "to": "ev.{value}"}).config_hash
    assert one.config_hash != spec({**NAMED, "limit": 7}).config_hash
    assert spec().config_hash == spec({"limit": 7}).config_hash, "where the file names them all, it decides nothing"


def test_names_of_tables_lie_where_the_catalog_puts_them(tmp_path: Path) -> None:
    table = {"name": "ev.other", "location": "s3://bucket/other"}
    assert "is the location of one table, and route.to names many" in refused(tmp_path, NAMED, table=table)


def test_tables_are_written_on_the_branch_of_the_stream_s_own_unless_their_entry_names_one(tmp_path: Path) -> None:
    plain, branch = spec(), {"table": {"name": "ev.other", "branch": "ingest"}}
    one = spec(**branch)
    assert [each.branch for each in one.targets] == ["ingest", "main", "ingest", "ingest"]
    assert [one.branch_of(each) for each in one.target_names] == [each.branch for each in one.targets]
    first, *others = ROUTE["tables"]
    own = {"tables": [{**first, "branch": "main"}, {**others[0], "branch": "side"}, others[1]]}
    two = spec(own, **branch)
    assert [each.branch for each in two.targets] == ["ingest", "main", "main", "side"]
    alone = spec(own)
    assert [each.branch for each in alone.targets] == ["main", "main", "main", "side"]
    hashes = {each.config_hash for each in (plain, one, two, alone)}
    assert len(hashes) == 4, "another branch is another configuration"
    named = spec({**NAMED, "to": "ev.t_{value}"}, **branch).with_named_tables(["ev.t_a"])
    assert named.branch_of("ev.t_a") == "ingest" == named.targets[-1].branch
    assert named.branch_of(named.dead_letter_table) == named.branch_of("ev.of_nobody") == "main"
    told = refused(tmp_path, {"tables": [{"match": "a", "table": "ev.other", "branch": "b"}]})
    assert "route.tables[0].branch: belongs into the block table" in told


def test_publish_beside_a_route_is_refused_with_what_goes(tmp_path: Path) -> None:
    contract = {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]}
    told = refused(tmp_path, contract=contract, publish={"gate": "contract"})
    assert "publish: is for a stream with one table of rows" in told and "table.branch goes" in told


OWN = "orders.payments"
A, B = {"match": "a", "table": "orders.a"}, {"match": "b", "table": "orders.b"}
PARKED, STOPS = {"on_table_error": "park"}, {"on_table_error": "stop"}


def parking_spec(route: dict[str, Any], **more: Any) -> StreamSpec:
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "id string, type string, at timestamptz"},
        "table": {"name": OWN},
    }
    return StreamSpec.model_validate({**document, "route": {"by": "type", **route}, **more})


@pytest.mark.parametrize(
    ("route", "parked"),
    [
        ({"tables": [A, B]}, set[str]()),
        ({"tables": [A, B], **PARKED}, {"orders.a", "orders.b"}),
        ({"tables": [A, {**B, **STOPS}], **PARKED}, {"orders.a"}),
        ({"tables": [A, {**B, **PARKED}]}, {"orders.b"}),
        ({"tables": [{**A, **PARKED}, {"match": "c", "table": "orders.a"}, B]}, {"orders.a"}),
        ({"tables": [A, {"match": "b", "table": OWN}], **PARKED}, {"orders.a"}),
        ({"tables": [A], "unmatched": {"table": "orders.rest"}, **PARKED}, {"orders.a", "orders.rest"}),
        ({"tables": [A], "to": "events.{value}", **PARKED}, {"orders.a", "events.x"}),
    ],
)
def test_an_entry_counts_for_its_table_and_else_the_route(route: dict[str, Any], parked: set[str]) -> None:
    made = parking_spec(route).with_named_tables(["events.x"])
    assert {name for name in made.target_names if made.parks(name)} == parked
    assert not made.parks("orders.unknown")


def test_a_table_of_late_rows_is_no_table_of_the_route() -> None:
    late = {"column": "at", "grace": "1h", "late": {"table": "orders.late"}}
    made = parking_spec({"tables": [A], **PARKED}, event_time=late)
    assert {name for name in made.target_names if made.parks(name)} == {"orders.a"}


@pytest.mark.parametrize(
    ("route", "more", "why"),
    [
        ({"tables": [{"match": "b", "table": OWN, **PARKED}]}, {}, "is the stream's main table"),
        (
            {"tables": [{**A, **PARKED}, {"match": "c", "table": "orders.a", **STOPS}]},
            {},
            "is stop, and an earlier entry has park for orders.a",
        ),
        (
            {"tables": [A], **PARKED},
            {"errors": {"dead_letters": {"mask": {"columns": ["id"]}}}},
            "cannot be park beside errors.dead_letters.mask",
        ),
        (
            {"tables": [{**A, **PARKED}]},
            {"table": {"name": OWN, "kafka_columns": False}},
            "cannot be park without the columns of topic, partition, offset and timestamp",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(route: dict[str, Any], more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        parking_spec(route, **more)


def test_no_row_is_another_one_for_it_and_drivers_are_started_anew_for_it_alone(tmp_path: Path) -> None:
    plain, said = parking_spec({"tables": [A, B]}), parking_spec({"tables": [A, {**B, **STOPS}], **STOPS})
    parked, but = parking_spec({"tables": [A, B], **PARKED}), parking_spec({"tables": [A, {**B, **STOPS}], **PARKED})
    assert len({each.config_hash for each in (plain, said, parked, but)}) == 1
    (tmp_path / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
    settings = load_settings(None, home=tmp_path)
    generations = [generation(each, settings) for each in (plain, said, parked, but)]
    assert generations[0] == generations[1] and len(set(generations)) == 3


@pytest.mark.parametrize(
    ("to", "other", "same"),
    [
        ("lake.{value}", "lake.{value}", True),
        ("lake.{value}", "lake.{value}_new", True),
        ("lake.a_{value}", "lake.{value}_b", True),
        ("lake.a_{value}", "lake.b_{value}", False),
        ("lake.{value}_a", "lake.{value}_b", False),
        ("lake.{value}", "pond.{value}", False),
        ("lake.{value}", "lake.sub.{value}", False),
    ],
)
def test_patterns_that_can_name_one_table(to: str, other: str, same: bool) -> None:
    assert may_name_same_table(to, other) is may_name_same_table(other, to) is same
