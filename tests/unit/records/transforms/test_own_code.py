"""Own code as a step: the example package, functions that misbehave, and what of a package is in the configuration."""

from __future__ import annotations

import pickle
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from jobs.config.steps.steps import Step, hashed_steps
from jobs.records.formats.interface.problems import ValueProblem, without_value
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.own_code import OwnCode, loaded, version_of
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import apply_stage
from jobs.streaming.pipeline.row_steps import TakeStep
from tests.unit.records.transforms.rows import applied, rows_of

EXAMPLE = Path(__file__).resolve().parents[4] / "examples/own_steps"
ROWS = rows_of(
    "id long not null, shop string, ref uuid",
    [{"id": 1, "shop": "S2", "ref": b"0" * 16}, {"id": 2, "shop": "S9"}, {"id": 3}, {"id": 4, "shop": "S1"}],
)
Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package on the path as an installer does: its code, and what it says of itself."""

    def put(name: str, code: str, version: str) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        _describe(tmp_path, name, version)

    monkeypatch.syspath_prepend(str(tmp_path))
    loaded.cache_clear()
    version_of.cache_clear()
    yield put
    for name in ("raising", "wrong", "refused", "away", "loose", "own_steps", "own_steps.shops"):
        sys.modules.pop(name, None)
    loaded.cache_clear()
    version_of.cache_clear()


def _describe(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "top_level.txt").write_text(f"{name}\n")


@pytest.fixture
def example(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnCode:
    """The step of the example package."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(str(EXAMPLE))
    _describe(tmp_path, "own_steps", project["version"])
    return OwnCode("own_steps.shops:with_city")


def test_the_example_adds_a_column_and_refuses_rows(example: OwnCode) -> None:
    assert example.output(ROWS.columns).text == "id long not null, shop string, ref uuid, city string"
    made = applied(pickle.loads(pickle.dumps(example)), ROWS)
    assert [(each["id"], each["city"]) for each in made.rows.batch.to_pylist()] == [
        (1, "Oslo"),
        (3, None),
        (4, "Lisbon"),
    ]
    (failure,) = made.failures
    assert (failure.row, failure.error_class) == (1, "own_code_refused")
    assert failure.message == "the function `own_steps.shops:with_city` refuses the row: there is no such shop"


def test_the_version_of_the_package_is_part_of_the_configuration(example: OwnCode) -> None:
    steps = (Step.model_validate({"python": example.function}), Step.model_validate("flatten"))
    assert hashed_steps(None, steps) == [
        [["python", "own_steps.shops:with_city"], ["version", "own_steps 1.2.0"]],
        [["flatten", []]],
    ]


RAISES = """
def step(rows):
    for shop in rows.column("shop").to_pylist():
        if shop == "S9":
            raise KeyError(shop)
    return rows
"""


def test_a_row_that_it_raises_for_becomes_a_dead_letter_that_names_it(install: Install) -> None:
    install("raising", RAISES, "0.1")
    step = OwnCode("raising:step")
    with pytest.raises(ValueProblem):
        step.apply(ROWS)
    take = TakeStep("transform[0].python", step, ROWS.columns, hide_values=False, last=True)
    records = pa.RecordBatch.from_pydict({"topic": ["t"] * 4, "partition": [0] * 4, "offset": list(range(4))})
    empty = np.zeros(0, np.int64)
    block = Block(records, ROWS.batch, np.arange(4, dtype=np.int64), [], empty, "t", {})
    made = apply_stage(take, block)
    assert made.rows.column("id").to_pylist() == [1, 3, 4]
    (failure,) = made.failures
    assert (failure.row, failure.stage, failure.error_class) == (1, "transform[0].python", "own_code_failed")
    assert failure.message == "the function `raising:step` raised KeyError: 'S9'"
    assert without_value(failure.message) == "the function `raising:step` raised KeyError"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return rows.slice(1) if rows.num_rows else rows", "gave another number of rows: 3 of 4"),
        ("return rows.drop_columns(['shop']) if rows.num_rows else rows", "gave other columns"),
        ("return rows, {7: 'x'} if rows.num_rows else {}", "refused a row that it was not given"),
        ("return rows if not rows.num_rows else 1", "raised TypeError"),
        (
            "import pyarrow as pa\n    t = pa.int32() if rows.num_rows else pa.int64()\n"
            "    return rows.append_column('x', pa.nulls(rows.num_rows, t))",
            "gave another type than for a batch without rows in the column x",
        ),
    ],
)
def test_a_function_that_does_not_keep_its_word_lands_nothing(install: Install, body: str, why: str) -> None:
    install("wrong", f"def step(rows):\n    {body}\n", "1")
    step = OwnCode("wrong:step")
    step.output(ROWS.columns)
    with pytest.raises(ValueProblem, match=f"the function `wrong:step` {why}"):
        step.apply(ROWS)


def test_what_is_away_is_no_records_fault(install: Install) -> None:
    install(
        "away", "def step(rows):\n    if rows.num_rows:\n        raise ConnectionError('x')\n    return rows\n", "1"
    )
    with pytest.raises(ConnectionError):
        OwnCode("away:step").apply(ROWS)


@pytest.mark.parametrize(
    ("code", "function", "why"),
    [
        ("", "absent.module:step", "cannot be imported here"),
        ("step = 1", "refused:step", "there is no function `step`"),
        ("1 / 0", "refused:step", "cannot be imported here .ZeroDivisionError"),
        ("def step(rows):\n    raise OSError('x')", "refused:step", "raises OSError for a batch without rows: x"),
        ("def step(rows):\n    return None", "refused:step", "it gives no pyarrow.RecordBatch"),
        (
            "import pyarrow as pa\ndef step(rows):\n    return rows.append_column('n', pa.array([], pa.uint8()))",
            "refused:step",
            "the column 'n' has the Arrow type uint8, which no row has",
        ),
    ],
)
def test_what_cannot_be_a_step_is_refused_when_the_spec_is_validated(
    install: Install, code: str, function: str, why: str
) -> None:
    install("refused", code, "1")
    with pytest.raises(TransformProblem, match=why):
        OwnCode(function).output(ROWS.columns)


def test_code_that_belongs_to_no_package_is_refused(install: Install, tmp_path: Path) -> None:
    (tmp_path / "loose.py").write_text("def step(rows):\n    return rows\n")
    with pytest.raises(TransformProblem, match="belongs to no installed package, so changes of"):
        OwnCode("loose:step").output(ROWS.columns)
