"""Records with many faults, and those with values that clash: columns change where it helps, and only there."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.tables import schema_evolution
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from tests.helpers.evolving_stream import SINK, EvolvingStream

HELD: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"d": 123.5}, {"d": Decimal("123.50")}, []),
    ({"n": 2**40}, {"n": 2**40}, []),
    ({"s": {"a": 2**40}}, {"s": {"a": 2**40}}, []),
    ({"l": [1, 2**40]}, {"l": [1, 2**40]}, []),
    ({"d": 123.5, "n": "x"}, {"d": Decimal("123.50"), "n_text": '"x"'}, ["n_text"]),
    ({"n": "x", "d": 123.5, "new": 1}, {"d": Decimal("123.50"), "n_text": '"x"', "new": 1}, ["n_text", "new"]),
    ({"id": None, "n": "x"}, {"id": None, "n_text": '"x"'}, ["n_text"]),
    ({"n": 2**70}, {"n_text": str(2**70)}, ["n_text"]),
    ({"n": 2**70, "d": 123.5}, {"d": Decimal("123.50"), "n_text": str(2**70)}, ["n_text"]),
    ({"d": 123.456}, {"d_text": "123.456"}, ["d_text"]),
    ({"d": 1e37}, {"d_text": "1e+37"}, ["d_text"]),
]


@pytest.mark.parametrize("others", [[], [{"id": "b"}, {"id": "c", "n": 5, "d": 1.5}]], ids=["alone", "among others"])
@pytest.mark.parametrize(("record", "row", "new"), HELD, ids=str)
def test_a_value_that_a_promotion_holds_gets_no_column_of_text(
    home: Path, record: dict[str, Any], row: dict[str, Any], new: list[str], others: list[dict[str, Any]]
) -> None:
    columns = "id string not null, n int, d decimal(4,2), s struct<a int>, l list<int>"
    one = EvolvingStream(home, columns=columns, clash="shadow")
    one.land({"id": "a", **record}, *others)
    expected = {name: value for name, value in {"id": "a", **row}.items() if value is not None}
    assert one.letters == {} and one.rows[0] == expected
    assert sorted(set(one.columns) - {"id", "n", "d", "s", "l"}) == new
    assert "a_text" not in one.columns["s"]
    assert one.runs <= 3 and len(one.files) == len(list(one.table.scan().plan_files()))
    one.land({"id": "a", **record}, batch=1)
    assert (one.runs, one.rows[-1]) == (1, expected)


REFUSED_WIDENING: list[tuple[dict[str, Any], dict[str, Any] | None, list[str]]] = [
    ({"n": 2**40}, {"n_text": str(2**40)}, ["n_text"]),
    ({"n": 2**40, "d": 123.5}, {"n_text": str(2**40), "d": Decimal("123.50")}, ["n_text"]),
    ({"n": 2**40, "d": "x"}, {"n_text": str(2**40), "d_text": '"x"'}, ["d_text", "n_text"]),
    ({"n": 2**40, "n_text": "mine"}, None, ["n_text"]),
    ({"id": None, "n": "x"}, None, []),
    ({"id": None, "d": 123.5}, None, []),
]


@pytest.mark.parametrize(("record", "row", "new"), REFUSED_WIDENING, ids=str)
def test_a_value_whose_widening_is_refused_lands_as_text(
    home: Path, record: dict[str, Any], row: dict[str, Any] | None, new: list[str]
) -> None:
    """The column's type is a partition's, and `id` identifies rows."""
    one = EvolvingStream(home, columns="id string not null, n int, d decimal(4,2)", clash="shadow")
    with one.table.update_spec() as spec:
        spec.add_field("n", IdentityTransform())
    with one.table.update_schema() as schema:
        schema.set_identifier_fields("id")
    one.stream.targets[SINK].read()
    for batch in range(3):
        done = one.land({"id": "a", **record}, {"id": "b", "n": 1}, batch=batch)
        assert (done.counts.landed, done.counts.dead) == ((2, 0) if row else (1, 1))
        assert one.runs <= (5 if batch == 0 else 1), "what is refused is known from the batch before"
    assert sorted(set(one.columns) - {"id", "n", "d"}) == new
    if row:
        assert one.rows == [{"id": "a", **row}, {"id": "b", "n": 1}] * 3
    assert one.columns["n"] == "int" and len(one.history) <= schema_evolution.ROUNDS


def test_a_widening_that_is_refused_is_asked_anew_once_the_table_is_another_one(home: Path) -> None:
    one = EvolvingStream(home, clash="shadow")
    with one.table.update_spec() as spec:
        spec.add_field("n", IdentityTransform())
    one.stream.targets[SINK].read()
    one.land({"id": "a", "n": 2**40})
    assert one.rows == [{"id": "a", "n_text": str(2**40)}]
    with one.table.update_schema() as update:
        update.add_column("theirs", LongType())
    one.stream.targets[SINK].read()
    one.land({"id": "b", "n": 2**41}, batch=1)
    assert (one.runs, one.rows[-1]) == (2, {"id": "b", "n_text": str(2**41)})
    one.land({"id": "c", "n": 2**41}, batch=2)
    assert one.runs == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_second_run_makes_no_letter_of_what_has_landed_as_text(home: Path, known: bool) -> None:
    """Rows have landed and letters have not; who runs the batch again may not know what the table had refused."""
    one = EvolvingStream(home, clash="shadow")
    with one.table.update_spec() as spec:
        spec.add_field("n", IdentityTransform())
    one.stream.targets[SINK].read()
    commit = one.stream.commit

    def lost(target: Target, *given_: Any) -> ProposalOutcome:
        if target.name == one.spec.dead_letter_table:
            raise OSError("killed")
        return commit(target, *given_)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenStream, "commit", lambda self, *given_: lost(*given_))
        with pytest.raises(OSError, match="killed"):
            one.land({"id": "a", "n": 2**40}, b"{", {"id": "c"})
    one.stream.folder.store.delete(one.stream.folder.pending(1))
    landed = [{"id": "a", "n_text": str(2**40)}, {"id": "c"}]
    assert (one.letters, one.rows) == ({}, landed)
    if not known:
        one.stream.refused_by(SINK).changes.clear()
    before = set(one.stream.refused_by(SINK).changes)
    one.land(batch=1)
    assert (one.letters, one.rows) == ({1: "malformed_json"}, landed)
    assert one.runs == (1 if known else 2) and one.stream.refused_by(SINK).changes == before


def test_texts_have_the_limits_of_any_column(home: Path) -> None:
    one = EvolvingStream(home, clash="shadow", limits={"columns": 2})
    with one.table.update_spec() as spec:
        spec.add_field("n", IdentityTransform())
    one.stream.targets[SINK].read()
    for batch in range(2):
        one.land({"id": "a", "n": 2**40}, {"id": "b"}, {"id": "c", "n": "x"}, batch=batch)
        assert one.runs <= (4 if batch == 0 else 1)
    assert list(one.columns) == ["id", "n"]
    assert one.letters == {0: "out_of_range", 2: "wrong_type", 3: "out_of_range", 5: "wrong_type"}


MANY = ", ".join(f"r{n} int not null" for n in range(30))


@pytest.mark.parametrize("missing", [1, 8, 9, 30])
@pytest.mark.parametrize("survey", [True, False])
def test_a_record_that_lacks_many_required_columns_lands(home: Path, missing: int, survey: bool) -> None:
    one = EvolvingStream(home, columns=f"id string, s struct<{MANY}>, l list<struct<{MANY}>>, {MANY}")
    one.survey = survey
    whole = {f"r{n}": n for n in range(30)}
    some = {f"r{n}": n for n in range(missing, 30)} | {"r29": 2**40}
    one.land({"id": "a", **some}, {"id": "b", **whole, "s": some, "l": [whole, some]}, {"id": "c", **whole})
    assert one.letters == {} and [row["id"] for row in one.rows] == ["a", "b", "c"]
    assert {name: value for name, value in one.rows[0].items() if value != []} == {"id": "a", **some}
    assert {name: value for name, value in one.rows[1]["s"].items() if value is not None} == some
    relaxed = [not one.table.schema().find_field(f"r{n}").required for n in range(30)]
    assert relaxed == [n < missing and (n < 29 or missing < 30) for n in range(30)]
    assert one.table.schema().find_field("r29").field_type == LongType()
    assert one.runs <= 3


def test_a_record_that_lacks_many_required_columns_and_has_another_fault_changes_nothing(home: Path) -> None:
    one = EvolvingStream(home, columns=f"id string, {MANY}, last int")
    one.land({"id": "a", "last": "x"}, {"id": 5})
    assert one.letters == {0: "wrong_type", 1: "wrong_type"} and one.history == ()
    other = EvolvingStream(home / "text", columns=f"id string, {MANY}, last int", clash="shadow")
    other.land({"id": "a", "last": "x"})
    assert (other.letters, other.rows) == ({}, [{"id": "a", "last_text": '"x"'}])


PLAIN: dict[str, Any] = {"id": "a", "k": "b", "n": 1, "d": 1.5, "s": {"a": 1}}
CHANGES = st.sampled_from(
    [
        *({}, {"n": 2**40}, {"n": 2**70}, {"n": "x"}, {"d": 123.5}, {"d": 1234567.5}, {"d": 1.234}, {"d": True}),
        *({"k": None}, {"id": 5}, {"s": {}}, {"s": {"a": 2**40}}, {"s": {"b": [1]}}, {"s": 5}, {"new": 1}),
    ]
)
RECORDS = st.lists(st.tuples(CHANGES, CHANGES).map(lambda two: PLAIN | two[0] | two[1]), min_size=1, max_size=8)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RECORDS, min_size=1, max_size=2), st.booleans(), st.sampled_from(["auto", "ignore"]))
def test_each_column_of_text_has_one_and_each_other_value_lands_in_its_column(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Any]], partitioned: bool, widen: str
) -> None:
    columns = "id string not null, k string not null, n int, d decimal(4,2), s struct<a int>"
    one = EvolvingStream(tmp_path_factory.mktemp("deployment"), columns=columns, clash="shadow", widen=widen)
    if partitioned:
        with one.table.update_spec() as spec:
            spec.add_field("n", IdentityTransform())
        one.stream.targets[SINK].read()
    sent = [each for records in batches for each in records]
    for number, records in enumerate(batches):
        # Within a batch widenings may be refused anew behind each of its changes.
        assert one.land(*records, batch=number).counts.read == len(records) and one.runs <= 8
    # A required column has no text beside it.
    assert set(one.letters) == {at for at, record in enumerate(sent) if record["id"] == 5}
    rows, widens = one.rows, widen == "auto"
    landed = [record for record in sent if record["id"] != 5]
    for row, record in zip(rows, landed, strict=True):
        n, d = record["n"], record["d"]
        fits = isinstance(n, int) and n < (2**63 if widens and not partitioned else 2**31)
        assert row.get("n") == (n if fits else None) and ("n_text" in row) is not fits
        fits = d is not True and d != 1.234 and (widens or d < 100)
        assert row.get("d") == (Decimal(str(d)) if fits else None) and ("d_text" in row) is not fits
    for name in ("n_text", "d_text", "s_text"):
        assert (name in one.columns) is any(name in row for row in rows)
    within = [row["s"] for row in rows if "s" in row]
    assert ("a_text" in one.columns["s"]) is any(each.get("a_text") for each in within)
    # What was refused before the last change of the table is asked anew, once.
    one.land(*sent[:3], batch=len(batches))
    one.land(*sent[:3], batch=len(batches) + 1)
    assert one.runs == 1
