"""Late rows of streams whose columns no file declares, on real tables: they follow the timely ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchPropertyException, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.opening import opening, takeover
from jobs.streaming.driver.tables import lane_tables
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.errors import TargetRecreatedError
from jobs.tables.dead_letter_table.selection import Selection
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log, document
from tests.helpers.stories import Killed, forget_records, killed

TOPICS: dict[str, Any] = {
    "by": "topic",
    "tables": [{"match": "a", "table": "lake.a", "partition_by": ["day(at)"]}, {"match": "b", "table": "lake.b"}],
    "to": "lake.of_{value}",
}
VALUES: dict[str, Any] = {
    "by": "type",
    "tables": [{"match": "INS", "table": "lake.changes", "columns": {"drop": ["n"]}}],
    "to": "lake.of_{value}",
}
DECODE: dict[str, Any] = {"value": {"format": "json", "infer": {"times": True}}, "schema": "infer"}
LATE: dict[str, Any] = {"column": "at", "grace": "10m", "late": "table"}
Opened = Callable[..., LaneStream]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    known: Log = {}

    def make(
        route: dict[str, Any], epoch: int = 1, event_time: dict[str, Any] = LATE, first: Log | None = None, **more: Any
    ) -> LaneStream:
        known.update(first or {})
        more = {"decode": DECODE, "event_time": event_time, **more}
        return LaneStream(tmp_path / "home", route, known, monkeypatch, epoch, **more)

    return make


def at(hour: int, minute: int = 0) -> str:
    return f"2026-03-01T{hour:02d}:{minute:02d}:00Z"


def offsets(one: LaneStream) -> dict[str, list[tuple[str, int]]]:
    return {name: [(topic, offset) for topic, _, offset in places] for name, places in one.placed().items()}


def audited(one: LaneStream) -> None:
    fill_ledger(one.catalog, one.settings, [one.spec])
    found = audit(one.stream.spec, one.settings, one.catalog, full=True)
    assert not found.problems and not found.pending, (found.problems, found.pending)
    # A second configuration of these tests is not kept, so that only what is of the first can be judged.
    assert found.route is None or found.route.judged


def begun(opened: Opened, route: dict[str, Any], *documents: Any, **more: Any) -> LaneStream:
    """A stream of one topic whose first records are there before it opens, landed."""
    log: Log = {}
    LaneStream.produce(_Producer(log), "events", *documents)  # pyright: ignore[reportArgumentType]
    one = opened(route, first=log, **more)
    one.land()
    return one


class _Producer:
    def __init__(self, log: Log) -> None:
        self.log: Log = log


FIRST: list[dict[str, Any]] = [{"id": 1, "type": "INS", "n": 1, "at": at(12)}, {"id": 2, "type": "new", "at": at(12)}]


@pytest.mark.parametrize("route", [{}, VALUES], ids=["alone", "routed"])
def test_late_rows_have_the_columns_of_the_own_table_and_follow_it(opened: Opened, route: dict[str, Any]) -> None:
    one, late = begun(opened, route, *FIRST), f"{OWN}_late"
    assert one.columns(late) == one.columns(OWN) == {"id": "long", "type": "string", "n": "long", "at": "timestamptz"}
    # Records that are late bring a column, and the one of a timely one is there as well.
    one.produce("events", {"id": 3, "type": "INS", "at": at(11), "more": "x"}, {"id": 4, "type": "INS", "at": at(13)})
    one.produce("events", {"id": 5, "type": "unheard", "at": at(1), "n": 7})
    one.land(1)
    assert one.columns(late) == one.columns(OWN) and one.columns(late)["more"] == "string"
    timely = [("events", 0), ("events", 3)]
    placed = {late: [("events", 2), ("events", 4)]}
    placed |= (
        {"lake.changes": timely, "lake.of_new": [("events", 1)]} if route else {OWN: sorted([*timely, ("events", 1)])}
    )
    assert offsets(one) == placed
    # The route was not asked of late rows, and a table has them whole.
    rows = {each["id"]: each for each in one.catalog.load_table(late).scan().to_arrow().to_pylist()}
    assert (rows[3]["more"], rows[5]["n"]) == ("x", 7)
    audited(one)
    after = opened(route, epoch=2)
    after.produce("events", {"id": 6, "type": "INS", "at": at(1), "last": 1})
    after.land()
    assert after.columns(late)["last"] == "long" and offsets(after)[late] == [("events", n) for n in (2, 4, 5)]
    audited(after)


def test_what_late_rows_cannot_take_their_own_table_does_not_get(opened: Opened) -> None:
    late = {"table": "lake.behind", "partition_by": ["n"]}
    one = begun(opened, {}, *({**each, "n": 1} for each in FIRST), event_time=LATE | {"late": late})
    one.produce("events", {"id": 3, "n": 1.5, "at": at(13)}, {"id": 4, "n": 2, "at": at(11)})
    one.land(1)
    assert one.columns("lake.behind") == one.columns(OWN) and one.columns(OWN)["n"] == "long"
    assert list(one.letters()) == [("events", 2)]
    assert offsets(one)["lake.behind"] == [("events", 3)]
    audited(one)


def test_each_table_with_columns_of_its_own_has_one_for_its_late_rows(opened: Opened) -> None:
    one = opened(TOPICS)
    for topic, column in (("a", "x"), ("b", "y"), ("c", "z")):
        one.produce(topic, {"id": 1, column: 1, "at": at(12)})
    one.land()
    names = ["lake.a", "lake.b", "lake.of_c"]
    assert set(one.stream.targets) == {OWN, DEAD, *names, *(f"{name}_late" for name in names)}
    for topic in ("a", "b", "c"):
        one.produce(topic, {"id": 2, "at": at(11), f"late_{topic}": 1}, {"id": 3, "at": at(13)}, {"id": 4})
    one.produce("d", {"id": 1, "at": at(11)})
    one.land(1)
    placed = offsets(one)
    assert placed == {
        **{f"lake.{name}": [(topic, n) for n in (0, 2, 3)] for name, topic in (("a", "a"), ("b", "b"), ("of_c", "c"))},
        **{f"lake.{name}_late": [(topic, 1)] for name, topic in (("a", "a"), ("b", "b"), ("of_c", "c"))},
        # The first batch of a topic's records is judged as any other.
        "lake.of_d_late": [("d", 0)],
    }
    for name, column in (("lake.a", "x"), ("lake.b", "y"), ("lake.of_c", "z")):
        assert one.columns(f"{name}_late") == one.columns(name)
        assert column in one.columns(name) and f"late_{name[-1]}" in one.columns(name)
    assert [len(one.catalog.load_table(f"{name}_late").spec().fields) for name in names] == [1, 0, 0]
    newest = history(one.catalog.load_table(OWN).metadata, "shop").newest
    assert newest is not None and newest.event_time is not None
    assert (newest.event_time.batch.late_records, newest.event_time.batch.aside) == (4, 4)
    audited(one)
    after = opened(TOPICS, epoch=2)
    after.produce("b", {"id": 5, "at": at(1), "w": 1})
    after.land()
    assert after.columns("lake.b_late") == after.columns("lake.b") and "w" in after.columns("lake.b")
    assert offsets(after)["lake.b_late"] == [("b", 1), ("b", 4)]
    audited(after)


def test_late_rows_of_a_table_are_partitioned_as_the_file_says_of_them(opened: Opened) -> None:
    late = {"table": "{table}_behind", "partition_by": ["id"], "properties": {"x": "y"}}
    one = opened(TOPICS, event_time=LATE | {"late": late})
    one.produce("a", {"id": 1, "at": at(12)})
    one.produce("c", {"at": at(12)})
    one.land()
    behind = one.catalog.load_table("lake.a_behind")
    assert [each.name for each in behind.spec().fields] == ["id"] and behind.properties["x"] == "y"
    # A table whose late rows would have no such column is not made.
    assert "event_time.late.partition_by" in one.letters()["c", 0]
    audited(one)


def test_a_topic_that_is_called_as_a_table_of_late_rows_has_none(opened: Opened) -> None:
    one = opened(TOPICS)
    one.produce("c_late", {"id": 1, "at": at(12)})
    one.produce("C_LATE", {"id": 1, "at": at(12)})
    one.produce("c", {"id": 1, "at": at(12)})
    one.land()
    said = one.letters()
    assert "lake.of_c_late is for the late rows of lake.of_c" in said["c_late", 0]
    assert set(said) == {("c_late", 0), ("C_LATE", 0)}
    assert offsets(one)["lake.of_c"] == [("c", 0)]
    audited(one)


def other_table(catalog: Catalog, name: str) -> None:
    catalog.create_namespace_if_not_exists("lake")
    catalog.create_table(name, Schema(NestedField(1, "id", LongType(), required=False)))


def test_a_table_of_somebody_else_gets_no_late_rows(opened: Opened) -> None:
    one = opened(TOPICS)
    other_table(one.catalog, "lake.of_c_late")
    one.produce("c", {"id": 1, "at": at(12)})
    one.produce("a", {"id": 1, "at": at(12)})
    one.land()
    assert "lake.of_c_late would have the late rows of lake.of_c, and it exists" in one.letters()["c", 0]
    assert offsets(one)["lake.a"] == [("a", 0)] and not len(one.catalog.load_table("lake.of_c_late").scan().to_arrow())
    audited(one)


def test_a_table_of_another_topic_gets_no_late_rows(opened: Opened) -> None:
    one = opened(TOPICS, event_time=LATE | {"late": "land"})
    one.produce("c", {"id": 1, "at": at(12)})
    one.produce("c_late", {"id": 1, "at": at(12)})
    one.land()
    assert set(offsets(one)) == {"lake.of_c", "lake.of_c_late"}
    with pytest.raises(
        FrazilError, match=r"(?s)lake\.of_c_late would have the late rows of lake\.of_c, .* another name"
    ):
        opened(TOPICS, epoch=2)
    other = opened(TOPICS, epoch=2, event_time=LATE | {"late": {"table": "{table}__behind"}})
    other.produce("c_late", {"id": 2, "at": at(1)})
    other.produce("c", {"id": 2, "at": at(1)})
    other.land()
    placed = offsets(other)
    assert placed["lake.of_c_late__behind"] == [("c_late", 1)] and placed["lake.of_c__behind"] == [("c", 1)]
    audited(other)


@pytest.mark.parametrize("timely_is_there", [True, False])
def test_a_table_of_another_topic_gets_no_late_rows_of_one_that_the_file_names(
    opened: Opened, timely_is_there: bool
) -> None:
    route = {"by": "topic", "tables": [{"match": "c", "table": "lake.of_c"}], "to": "lake.of_{value}"}
    one = opened(route, event_time=LATE | {"late": "land"})
    one.produce("c_late", {"id": 1, "at": at(12)})
    if timely_is_there:
        one.produce("c", {"id": 1, "at": at(12)})
    one.land()

    def on() -> None:
        after = opened(route, epoch=2)
        after.produce("c", {"id": 2, "at": at(1), "more": 1})
        after.land(1)

    with pytest.raises(
        FrazilError, match=r"lake\.of_c_late would have the late rows of lake\.of_c, .* not created for"
    ):
        on()
    assert set(one.columns("lake.of_c_late")) == {"id", "at"} and offsets(one)["lake.of_c_late"] == [("c_late", 0)]


@pytest.mark.parametrize("there", ["view", "format"])
def test_what_is_no_iceberg_table_gets_no_late_rows(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    one = opened(TOPICS)
    catalog = one.stream.anchor.catalog
    create, load = catalog.create_table, catalog.load_table

    def refuse_create(identifier: Any, *arguments: Any, **more: Any) -> Any:
        if there == "view" and "_late" in str(identifier):
            raise TableAlreadyExistsError("View with same name already exists")
        return create(identifier, *arguments, **more)

    def refuse_load(identifier: Any) -> Any:
        if there == "format" and "_late" in str(identifier):
            raise NoSuchPropertyException("Property table_type missing, could not determine type")
        return load(identifier)

    monkeypatch.setattr(catalog, "create_table", refuse_create)
    monkeypatch.setattr(catalog, "load_table", refuse_load)
    one.produce("c", {"id": 1, "at": at(12)})
    one.land()
    told = r"{0}_late would have the late rows of {0}, and it exists and is no Iceberg table"
    assert told.format("lake.of_c") in one.letters()["c", 0]
    # The file names this one.
    one.produce("a", {"id": 1, "at": at(12)})
    with pytest.raises(FrazilError, match=told.format("lake.a")):
        one.land(1)


def test_a_replay_lands_no_record_that_has_landed_as_a_late_row_since(opened: Opened) -> None:
    one = opened(TOPICS, decode=DECODE | {"unknown_fields": "fail"}, evolve={"add": "ignore"})
    one.produce("a", {"id": 1, "at": at(12)})
    one.land()
    one.produce("a", {"id": 2, "at": at(11)}, {"id": 3, "at": at(13)})
    one.land(1)
    one.produce("a", {"id": 4, "at": at(11), "more": 1}, {"id": 5, "at": at(13)})
    one.land(2)
    before = {"lake.a": [("a", 0), ("a", 2), ("a", 4)], "lake.a_late": [("a", 1)], DEAD: [("a", 3)]}
    assert offsets(one) == before
    # As a reset leaves it: the stream itself has landed the record among the late rows, and its letter is there still.
    late = one.catalog.load_table("lake.a_late")
    rows = late.scan().to_arrow()
    place = rows.schema.get_field_index("_kafka_offset")
    stamps = one.catalog.load_table(DEAD).scan().to_arrow().column("timestamp")
    rows = rows.set_column(place, rows.schema.field(place), pa.array([3], rows.schema.field(place).type))
    place = rows.schema.get_field_index("_kafka_timestamp")
    late.append(rows.set_column(place, rows.schema.field(place), stamps.cast(rows.schema.field(place).type)))
    with one.catalog.load_table("lake.a").update_schema() as update:
        update.add_column("more", LongType())
    after = opened(TOPICS, 2, decode=DECODE | {"unknown_fields": "fail"}, evolve={"add": "ignore"})
    done = replay(after.stream.spec, after.settings, after.catalog, ReplayRequest())
    assert (done.replayed, done.standing, done.failed_again) == (0, 1, 0)
    assert offsets(after) == before | {"lake.a_late": [("a", 1), ("a", 3)]}


@pytest.mark.parametrize(
    ("killed_at", "recorded"),
    [("lake.a", False), ("lake.a_late", True), ("lake.a_late", False), ("lake.of_c_late", False), (DEAD, False)],
)
def test_a_second_run_decides_the_same(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, killed_at: str, recorded: bool
) -> None:
    one = opened(TOPICS)
    for topic in ("a", "c"):
        one.produce(topic, {"id": 1, "at": at(12)})
    one.land()
    for topic in ("a", "c"):
        one.produce(topic, {"id": 2, "at": at(11), "more": topic}, {"id": 3, "at": at(15)}, {"id": [], "at": at(15)})

    monkeypatch.setattr(one.stream.targets[killed_at], "land", killed)
    with pytest.raises(Killed):
        one.land(1)
    if not recorded:
        forget_records(one)
    if killed_at == "lake.a_late":
        # Somebody drops a column meanwhile that the rows of the batch have.
        with one.catalog.load_table(killed_at).update_schema() as change:
            change.delete_column("more")
    after = opened(TOPICS, epoch=2)
    for topic in ("a", "c"):
        # Late by what came in the batch that was completed.
        after.produce(topic, {"id": 4, "at": at(14)})
    after.land()
    placed = offsets(after)
    assert [placed[name] for name in ("lake.a", "lake.of_c")] == [[("a", 0), ("a", 2)], [("c", 0), ("c", 2)]]
    assert [placed[f"{name}_late"] for name in ("lake.a", "lake.of_c")] == [[("a", 1), ("a", 4)], [("c", 1), ("c", 4)]]
    assert set(after.letters()) == {("a", 3), ("c", 3)}
    audited(after)


def test_a_driver_killed_while_it_makes_tables_leaves_what_the_next_one_takes(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened(TOPICS)
    one.produce("c", {"id": 1, "at": at(12)})

    with monkeypatch.context() as patched:
        patched.setattr(lane_tables, "ensure_late_lane", killed)
        with pytest.raises(Killed):
            one.land()
    assert one.catalog.table_exists("lake.of_c") and not one.catalog.table_exists("lake.of_c_late")
    after = opened(TOPICS, epoch=2)
    after.land()
    assert offsets(after) == {"lake.of_c": [("c", 0)]} and after.catalog.table_exists("lake.of_c_late")
    audited(after)


def test_late_rows_that_their_table_cannot_take_stop_the_stream_and_it_is_named(opened: Opened) -> None:
    one = opened(TOPICS)
    one.produce("a", {"id": 1, "at": at(12)})
    one.land()
    with one.catalog.load_table("lake.a_late").update_schema(allow_incompatible_changes=True) as change:
        change.add_column("must", LongType(), required=True, default_value=1)
    for target in one.stream.targets.values():
        target.read()
    one.produce("a", {"id": 2, "at": at(11)})
    with pytest.raises(FrazilError, match=r"table lake\.a_late cannot take the columns of table lake\.a"):
        one.land(1)


def test_replayed_letters_are_not_judged_and_land_in_the_table_of_their_topic(opened: Opened) -> None:
    one = opened(TOPICS, event_time=LATE | {"late": "dead_letter"})
    for topic in ("a", "c"):
        one.produce(topic, {"id": 1, "at": at(12)})
    one.land()
    for topic in ("a", "c"):
        one.produce(topic, {"id": 2, "at": at(11)})
    one.land(1)
    after = opened(TOPICS, epoch=2)
    done = replay(after.stream.spec, after.settings, after.catalog, ReplayRequest(Selection(reasons=("late",))))
    assert done is not None
    placed = offsets(after)
    assert placed["lake.a"] == [("a", 0), ("a", 1)] and placed["lake.of_c"] == [("c", 0), ("c", 1)]
    assert not {"lake.a_late", "lake.of_c_late"} & set(placed)
    audited(after)


def test_a_table_that_was_dropped_is_begun_anew_beside_its_late_rows(opened: Opened) -> None:
    route = TOPICS | {"recreate": True}
    one = opened(route)
    one.produce("c", {"id": 1, "at": at(12)})
    one.land()
    one.produce("c", {"id": 2, "at": at(11)})
    one.land(1)
    one.catalog.drop_table("lake.of_c")
    after = opened(route, epoch=2)
    after.produce("c", {"id": 3, "at": at(13)}, {"id": 4, "at": at(10)})
    after.land()
    placed = offsets(after)
    assert placed == {"lake.of_c": [("c", 2)], "lake.of_c_late": [("c", 1), ("c", 3)]}
    audited(after)


def test_a_table_of_late_rows_that_was_dropped_is_begun_anew_once_that_is_accepted(opened: Opened) -> None:
    one = opened(TOPICS)
    one.produce("a", {"id": 1, "at": at(12)})
    one.land()
    one.catalog.drop_table("lake.a_late")
    with pytest.raises(TargetRecreatedError, match=r"lake\.a_late"):
        opening._targets(one.stream.spec, one.settings, one.catalog, {}, lambda: NewColumns(Schema()))
    spec = StreamSpec.model_validate(document(TOPICS, decode=DECODE, event_time=LATE))
    given = Answer(recreated_table="lake.a_late")
    record_answer(spec, one.settings, lambda: None, given, "ada")  # pyright: ignore[reportArgumentType]
    after = opened(TOPICS, epoch=3)
    after.produce("a", {"id": 2, "at": at(11)})
    after.land()
    assert offsets(after) == {"lake.a": [("a", 0)], "lake.a_late": [("a", 1)]}
    audited(after)


def test_late_rows_of_branches_chosen_columns_steps_and_the_own_table(opened: Opened) -> None:
    tables = [
        {"match": "a", "table": OWN},
        {"match": "b", "table": "lake.b", "branch": "ingest", "columns": {"drop": ["secret"]}},
    ]
    more: dict[str, Any] = {"transform": [{"rename": {"id": "key"}}]}
    log: Log = {}
    for topic in "ab":
        LaneStream.produce(_Producer(log), topic, {"id": 1, "secret": 1, "at": at(12)})  # pyright: ignore[reportArgumentType]
    one = opened({"by": "topic", "tables": tables}, first=log, **more)
    one.land()
    for topic in "ab":
        one.produce(topic, {"id": 2, "secret": 2, "new": topic, "at": at(11)}, {"id": 3, "at": at(13)})
    one.land(1)
    assert offsets(one) == {
        OWN: [("a", 0), ("a", 2)],
        f"{OWN}_late": [("a", 1)],
        "lake.b": [("b", 0), ("b", 2)],
        "lake.b_late": [("b", 1)],
    }
    kept = {"key": "long", "at": "timestamptz", "new": "string"}
    assert one.columns("lake.b_late") == kept and one.columns(f"{OWN}_late") == one.columns(OWN)
    assert one.columns(OWN) == kept | {"secret": "long"}
    # On main, whatever the branch of the timely ones.
    rows = one.catalog.load_table("lake.b_late").scan().to_arrow().to_pylist()
    assert [(each["key"], each["new"]) for each in rows] == [(2, "b")]
    assert not len(one.catalog.load_table("lake.b").scan().to_arrow())
    audited(one)
    after = opened({"by": "topic", "tables": tables}, epoch=2, **more)
    after.produce("b", {"id": 4, "more": {"x": 1}, "at": at(1)})
    after.land()
    assert after.columns("lake.b_late") == kept | {"more": "struct<x long>"}
    audited(after)


def test_a_table_that_a_former_driver_has_made_meanwhile_gets_one_for_its_late_rows(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = opened(TOPICS, event_time=LATE | {"late": "land"})
    former.produce("a", {"id": 1, "at": at(12)})
    former.land()
    claim = takeover.claim

    def after_a_batch(*given: Any) -> None:
        former.produce("c", {"id": 1, "at": at(12)})
        former.land(1)
        monkeypatch.setattr(takeover, "claim", claim)
        claim(*given)

    monkeypatch.setattr(takeover, "claim", after_a_batch)
    with pytest.raises(takeover.MovedMeanwhileError):
        opened(TOPICS, epoch=2)
    # As `opening.opened` does, the tables are read again.
    after = opened(TOPICS, epoch=2)
    assert {"lake.of_c", "lake.of_c_late"} <= set(after.stream.targets)
    after.produce("c", {"id": 2, "at": at(11)}, {"id": 3, "at": at(13)})
    after.land()
    assert offsets(after) == {"lake.a": [("a", 0)], "lake.of_c": [("c", 0), ("c", 2)], "lake.of_c_late": [("c", 1)]}
    audited(after)
