"""Keys in Spark: the same outcome as by pandas against a real table, and no key comes to this process."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest

from jobs.config.contract.contract import Expectation
from jobs.quality.contracts import unique_keys as module
from jobs.quality.contracts.earlier_rows import EarlierRows
from jobs.quality.contracts.evaluation import EvaluationContext, evaluate
from jobs.quality.contracts.outcome import MOST_SAMPLES, ExpectationOutcome
from jobs.quality.incremental_scan.arrow_rows import small_table
from jobs.quality.incremental_scan.increment import added_files
from jobs.quality.incremental_scan.row_selection import RowSelection, whole_table
from jobs.quality.incremental_scan.spark_rows import spark_frame
from jobs.tables.dead_letter_table.masking import MARK
from tests.helpers.check_world import no_spark
from tests.helpers.landed_table import BEGIN, COORDINATES, LandedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

KINDS = "name string, day date, price decimal(12,2), u uuid, at timestamptz, wall timestamp, ratio double, raw binary"
# Each type once.
KEYS = [("name", "day", "price"), ("u", "at", "wall", "ratio", "raw")]


def values(numbers: list[int | None]) -> dict[str, Any]:
    """A row for each number, with a key made of it in each column; None has no key."""
    some = [each or 0 for each in numbers]

    def where(made: list[Any]) -> list[Any]:
        return [None if number is None else each for number, each in zip(numbers, made, strict=True)]

    return {
        "id": numbers,
        "name": where([f"n{n}" for n in some]),
        "day": where([19_000 + n for n in some]),
        "price": where([Decimal(n) / 4 for n in some]),
        "u": where([n.to_bytes(16, "big") for n in some]),
        "at": where([BEGIN + timedelta(hours=7 * n) for n in some]),
        "wall": where([(BEGIN + timedelta(hours=7 * n)).replace(tzinfo=None) for n in some]),
        # Zero is zero on either side, and what is no number is no key.
        "ratio": [float("nan") if n is None else -0.0 if n == 0 and k % 2 else n / 8 for k, n in enumerate(numbers)],
        "raw": where([n.to_bytes(3, "little") for n in some]),
    }


class KeyWorld:
    """A table of two commits, of which the second is checked."""

    def __init__(self, home: Path, spark: SparkSession, before: list[int | None], new: list[int | None]) -> None:
        self.landed: LandedTable = LandedTable(home, schema=f"id long, {KINDS}")
        self.spark: SparkSession = spark
        self.landed.land((0, 0, len(before)), **values(before))
        snapshot = self.landed.land((0, len(before), len(before) + len(new)), **values(new))
        found = self.landed.table.metadata.snapshot_by_id(snapshot)
        assert found is not None
        files = tuple(added_files(found, self.landed.table.io))
        self.new: RowSelection = RowSelection(self.landed.table, None, files)
        self.everything: RowSelection = whole_table(self.landed.table, COORDINATES, None)

    def outcome(self, engine: str, columns: tuple[str, ...], **more: Any) -> ExpectationOutcome:
        wanted = {*columns, *COORDINATES}
        rows: pa.Table | DataFrame
        if engine == "pandas":
            rows = small_table(self.new, wanted)
            earlier = EarlierRows(self.everything, rows, no_spark, self.landed.settings)
        else:
            rows = spark_frame(self.new, wanted, self.spark, self.landed.settings)
            earlier = EarlierRows(self.everything, rows, lambda: self.spark, self.landed.settings)
        context = EvaluationContext(coordinates=COORDINATES, earlier_keys=earlier.keys, **more)
        (found,) = evaluate(rows, [expectation(columns)], context)
        return found


def expectation(columns: tuple[str, ...]) -> Expectation:
    return Expectation.model_validate({"frazil_keys_to_be_unique": {"columns": list(columns)}})


def told(found: ExpectationOutcome) -> dict[str, Any]:
    """An outcome to be compared: Spark lists rows in any order, and shows a zero below zero as the table has it."""
    samples = sorted((each.coordinates["_kafka_offset"], each.value.replace("-0.0", "0.0")) for each in found.samples)
    return {**dataclasses.asdict(found), "samples": samples}


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Hands out no more rows than samples."""
    from pyspark.sql.classic.dataframe import DataFrame as Frame

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("all keys would have come to this process")

    to_arrow = Frame.toArrow

    def a_few(self: Frame) -> pa.Table:
        found = to_arrow(self)
        assert found.num_rows <= MOST_SAMPLES, "more than samples came to this process"
        return found

    monkeypatch.setattr(Frame, "toArrow", a_few)
    for name in ("toPandas", "toLocalIterator"):
        monkeypatch.setattr(Frame, name, refused)
    return spark.newSession()


@pytest.mark.parametrize(("most_broadcast", "keys"), [(0, KEYS[:1]), (module.MOST_BROADCAST, KEYS)])
def test_the_same_outcome_for_keys_of_every_type(
    tmp_path: Path,
    session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    most_broadcast: int,
    keys: list[tuple[str, ...]],
) -> None:
    monkeypatch.setattr(module, "MOST_BROADCAST", most_broadcast)
    # Of the new keys 3 and 0 are there already, 41 comes twice; two rows have none.
    world = KeyWorld(tmp_path / "home", session, [3, None, 17, 0, 5], [40, 3, 41, 0, None, 41, 42, None])
    for columns in keys:
        mine, other = (world.outcome(engine, columns) for engine in ("pandas", "spark"))
        assert mine.problem is None and told(other) == told(mine), columns
        assert (mine.passed, mine.elements, mine.unexpected) == (False, 6, 4), columns
        assert mine.observed == "1 keys more than once, 2 that earlier rows have", columns
        assert [offset for offset, _ in told(mine)["samples"]] == [6, 7, 8, 10], columns
    assert not session.sparkContext._jsc.getPersistentRDDs(), "nothing of it stays in memory"  # pyright: ignore


def test_of_many_bad_rows_a_few_are_shown_and_what_is_masked_in_none(tmp_path: Path, session: SparkSession) -> None:
    numbers: list[int | None] = list(range(300))
    world = KeyWorld(tmp_path / "home", session, numbers, [*numbers, *numbers[:100]])
    bounds: list[Any] = []
    real = EarlierRows.table_keys

    def seen(self: EarlierRows, columns: tuple[str, ...], given: Any) -> DataFrame:
        bounds.append(given)
        return real(self, columns, given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(EarlierRows, "table_keys", seen)
        found = world.outcome("spark", ("name",), masked=(("name",),))
        shown = world.outcome("spark", ("name",))
    assert (found.elements, found.unexpected, len(found.samples)) == (400, 400, 5)
    assert {each.value for each in found.samples} == {MARK}
    # Nothing that is masked stands in a plan of Spark's.
    assert bounds == [{}, {"name": ("n0", "n99")}]
    assert (shown.unexpected, shown.observed) == (400, "100 keys more than once, 300 that earlier rows have")


def test_a_table_that_spark_has_no_type_for_is_read_file_by_file(tmp_path: Path, session: SparkSession) -> None:
    landed = LandedTable(tmp_path / "home", schema="id long, noon time")
    landed.land((0, 0, 3), id=[1, 2, 3], noon=[None, None, None])
    landed.land((0, 3, 5), id=[2, 9], noon=[None, None])
    new = whole_table(landed.table, COORDINATES, None, where="_kafka_offset >= 3")
    rows = session.createDataFrame(small_table(new, {"id", *COORDINATES}))
    everything = whole_table(landed.table, COORDINATES, None)
    earlier = EarlierRows(everything, rows, lambda: session, landed.settings)
    context = EvaluationContext(coordinates=COORDINATES, earlier_keys=earlier.keys)
    (found,) = evaluate(rows, [expectation(("id",))], context)
    assert (found.problem, found.passed, found.elements, found.unexpected) == (None, False, 2, 1)
    assert [each.value for each in found.samples] == ["2"]
