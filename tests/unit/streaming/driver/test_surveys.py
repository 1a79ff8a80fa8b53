"""The first run of a batch's tasks as a survey: what lands is what exact runs alone would have landed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType

from jobs.records.formats.json import evolving
from jobs.records.schema.needs import Coordinates, RecordNeed
from jobs.streaming.driver.batch.tasks import slice_plan
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.driver.tables import schema_evolution
from jobs.streaming.driver.tables.schema_runs import SchemaRuns
from jobs.streaming.task.run import run_split
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.target_positions import need
from tests.helpers.evolving_stream import SINK, EvolvingStream, block

COLUMNS = "id string not null, n int, d decimal(4,2), s struct<a int not null>"
PLAIN: dict[str, Any] = {"id": "a", "n": 1, "d": 1.5, "s": {"a": 1}}


def test_a_batch_all_of_whose_records_need_a_change_runs_twice_and_the_next_one_once(home: Path) -> None:
    one = EvolvingStream(home, columns=COLUMNS)
    done = one.land(*[PLAIN | {"n": 2**40 + number, "id": None} for number in range(3_000)])
    assert (one.runs, one.surveys, done.counts.landed, done.counts.dead) == (2, 1, 3_000, 0)
    assert [row["n"] for row in one.rows] == [2**40 + number for number in range(3_000)]
    assert len(one.files) == len(list(one.table.scan().plan_files())), "nothing else was written, or is left"
    (record,) = one.history
    assert record.changes == ("widen column n to long", "let column id be null")
    assert record.example == ("payments", 0, 0)
    done = one.land(PLAIN | {"n": 2**41}, batch=1)
    assert (one.runs, done.counts.landed) == (1, 1)


def test_a_task_that_leaves_records_undecided_tells_their_needs_alone_and_leaves_no_file(home: Path) -> None:
    one = EvolvingStream(home, columns=COLUMNS)
    ranges = {one.at: OffsetRange(0, 600)}
    needs = {name: need(ranges, one.stream.positions[name]) for name in one.stream.targets}
    rows = [b'{"id":"a","n":1,"s":{"a":1}}'] * 300
    blocks = [
        block(one.at, rows, 0),
        block(one.at, [b'{"id":"b","n":1099511627776}', b"{", None], 300),
        block(one.at, [b'{"n":1,"new":1}', b'{"id":1}'], 303),
    ]
    told = run_split(slice_plan(one.stream, 0, ranges, needs, survey=True), blocks)
    assert [each.kind for each in told] == ["undecided", "need", "need", "need"]
    assert [each.kind for each in run_split(slice_plan(one.stream, 0, ranges, needs, survey=True), blocks[:1])] == [
        "file",
        "tally",
    ]
    kinds = [each.kind for each in run_split(slice_plan(one.stream, 0, ranges, needs), blocks)]
    assert kinds == ["file", "file", "tally", "need", "need", "need"]


def test_nothing_is_counted_or_committed_of_what_is_undecided() -> None:
    with pytest.raises(AssertionError, match="undecided"):
        TaskResults({}, [], undecided=True).counts()


def test_a_change_that_is_refused_leaves_the_letters_of_exact_runs_and_is_surveyed_once(home: Path) -> None:
    """The column's type is a partition's, and the other column identifies rows: neither change is made."""
    letters: list[dict[int, str]] = []
    for surveyed in (True, False):
        one = EvolvingStream(home / str(surveyed), columns="id string not null, n int, m int")
        with one.table.update_spec() as spec:
            spec.add_field("n", IdentityTransform())
        with one.table.update_schema() as schema:
            schema.set_identifier_fields("id")
        one.survey = surveyed
        one.stream.targets[SINK].read()
        refused = [{"id": "a", "n": 2**40}, {"n": 1}]
        done = one.land(*refused * 600, {"id": "b", "n": 5})
        assert (one.runs, one.surveys, done.counts.read) == (1 + surveyed, 1, 1_201)
        assert (done.counts.dead, done.counts.landed, one.rows) == (1_200, 1, [{"id": "b", "n": 5}])
        done = one.land(*refused * 600, batch=1)
        assert (one.runs, one.surveys, done.counts.dead) == (1, 1, 1_200), "what is refused is known from then on"
        # The next need that can be met is met by exact runs.
        one.land({"id": "c", "m": 2**40}, *refused, batch=2)
        assert (one.runs, one.surveys - 1, one.columns["m"], one.columns["n"]) == (2, 0, "long", "int")
        letters.append(one.letters)
    assert letters[0] == letters[1] and set(letters[0].values()) == {"out_of_range", "missing_field"}


def test_a_survey_that_leads_to_no_change_is_the_last_one_for_an_hour(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever made it so: here records say again and again that they need what the table has."""
    one = EvolvingStream(home, columns=COLUMNS)
    evolution, runs = SchemaRuns(one.stream), list[bool]()
    again = RecordNeed("widen", ("n",), IntegerType(), Coordinates("payments", 0, 0))

    def tasks(surveys: bool) -> TaskResults:
        runs.append(surveys)
        return TaskResults({name: [] for name in one.stream.targets}, [], {SINK: (again,)}, undecided=surveys)

    assert not evolution.run(tasks, 0)[1].undecided and runs == [True, False]
    assert not evolution.run(tasks, 1)[1].undecided and runs == [True, False, False]
    later = time.monotonic() + 3_700
    monkeypatch.setattr(schema_evolution.time, "monotonic", lambda: later)
    evolution.run(tasks, 2)
    assert runs[3:] == [True, False]
    with one.table.update_schema() as update:
        update.add_column("theirs", LongType())
    one.stream.targets[SINK].read()
    evolution.run(tasks, 3)
    assert runs[5:] == [True, False]


@pytest.mark.parametrize(
    "evolve",
    [{"widen": "propose"}, {"relax": "fail"}, {"add": "propose"}, {"add": "fail"}, {"clash": "shadow"}],
    ids=str,
)
def test_what_somebody_decides_about_or_stops_for_is_not_surveyed(home: Path, evolve: dict[str, Any]) -> None:
    one = EvolvingStream(home, columns=COLUMNS, **evolve)
    one.land(PLAIN)
    assert one.surveys == 0


def test_a_survey_takes_none_of_the_rounds_of_a_batch(home: Path) -> None:
    """Each run finds one further need; as many are met behind the survey as without one."""
    one = EvolvingStream(home, columns=COLUMNS)
    evolution, runs = SchemaRuns(one.stream), list[bool]()

    def tasks(surveys: bool) -> TaskResults:
        runs.append(surveys)
        met = RecordNeed("widen", ("n",), LongType(), Coordinates("payments", 0, 0))
        name = f"x{min(len(runs), schema_evolution.ROUNDS + 1)}"
        more = RecordNeed("add", (name,), LongType(), Coordinates("payments", 0, len(runs)))
        return TaskResults({name: [] for name in one.stream.targets}, [], {SINK: (met, more)}, undecided=surveys)

    evolution.run(tasks, 0)
    assert runs == [True, *[False] * (schema_evolution.ROUNDS + 1)]
    assert list(one.columns)[4:] == [f"x{number}" for number in range(1, schema_evolution.ROUNDS + 2)]


def test_keys_that_are_data_beside_a_change_that_is_made(home: Path) -> None:
    one = EvolvingStream(home, columns=COLUMNS, limits={"new_columns_per_hour": 2})
    one.land(*[PLAIN | {"n": 2**40, f"k{number}": 1} for number in range(20)])
    assert list(one.columns) == ["id", "n", "d", "s", "k0", "k1"] and one.columns["n"] == "long"
    assert sorted(one.letters) == list(range(2, 20)) and set(one.letters.values()) == {"schema_change_refused"}


CHANGES = st.sampled_from(
    [
        *({}, {}, {}, {"n": 2**40}, {"n": 2**70}, {"n": "x"}, {"d": 123.5}, {"d": 1234567.5}, {"d": 1.234}),
        *({"id": None}, {"id": 5}, {"s": {}}, {"s": {"a": 2**40}}, {"new": 1}, {"new": 1.5}, {"s": {"a": 1, "b": [1]}}),
    ]
)
RECORDS = st.lists(st.tuples(CHANGES, CHANGES).map(lambda two: PLAIN | two[0] | two[1]), min_size=1, max_size=14)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(RECORDS, min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
@example([[PLAIN, PLAIN, PLAIN | {"n": 2**70}, PLAIN | {"n": 2**40, "id": None}]], 1, 1, False)
def test_batches_land_as_by_exact_runs_alone(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[Any]],
    sample: int,
    limit: int,
    partitioned: bool,
) -> None:
    def landed(surveyed: bool) -> list[Any]:
        limits = {"new_columns_per_hour": limit}
        one = EvolvingStream(tmp_path_factory.mktemp("deployment"), columns=COLUMNS, limits=limits)
        if partitioned:
            with one.table.update_spec() as spec:
                spec.add_field("n", IdentityTransform())
            one.stream.targets[SINK].read()
        one.survey = surveyed
        found: list[Any] = []
        for number, records in enumerate(batches):
            done = one.land(*records, batch=number)
            found.append((done.counts, done.reasons, one.rows, one.letters, str(one.table.schema())))
            assert done.counts.read == len(records) == done.counts.landed + done.counts.dead
            assert one.runs <= schema_evolution.ROUNDS + 1 + surveyed
        # A survey may find in one run what exact runs find one after the other.
        return [*found, sorted((record.batch, change) for record in one.history for change in record.changes)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evolving, "_SAMPLE", sample)
        patch.setattr(evolving, "_MANY", 2 * sample)
        assert landed(surveyed=True) == landed(surveyed=False)
