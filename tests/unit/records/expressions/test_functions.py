"""The closed list of functions, and which of Arrow's kernels stand behind it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.records.expressions.expression import compile_expression
from jobs.records.expressions.functions import (
    AGGREGATES,
    CONDITIONALS,
    FUNCTIONS,
    GROUPS,
    MEANT,
    OUTSIDE,
    VOLATILE,
)
from jobs.records.expressions.parser import asks_batch_time
from tests.helpers.expression_rows import SCHEMA

ROOT = Path(__file__).resolve().parents[4]
KERNELS = Path(__file__).with_name("arrow_kernels.txt")
UNUSABLE = ("random",)


def used_kernels() -> set[str]:
    """The kernels of Arrow that the room calls, by its source."""
    found: set[str] = set()
    for path in (ROOT / "jobs/records/expressions").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pc":
                found.add(node.attr.rstrip("_"))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "_" in node.value:
                found.add(node.value)
    return found


def kernels() -> list[str]:
    """Those of Arrow, in a process where nobody has added one."""
    program = "import pyarrow.compute as pc; print(*pc.list_functions())"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return sorted(ran.stdout.split())


def test_every_kernel_of_arrow_is_known_and_marked() -> None:
    """Made anew from PyArrow: an upgrade shows what is new. To accept it, write what the failure shows to the file."""
    known, used = kernels(), used_kernels()
    made = "".join(f"{'used' if name in used else '-':5}{name}\n" for name in known)
    assert KERNELS.read_text() == made
    assert not used & set(UNUSABLE)


def test_every_function_is_in_the_documentation_and_no_other() -> None:
    page = (ROOT / "docs/reference/expressions.md").read_text()
    listed = [line for line in page.splitlines() if line.startswith("| `")]
    known = {each.form: each.meaning for group in GROUPS.values() for each in group} | dict(CONDITIONALS)
    assert listed == [f"| `{form}` | {meaning} |" for form, meaning in known.items()]


@pytest.mark.parametrize("name", sorted(AGGREGATES | VOLATILE | OUTSIDE))
def test_what_no_expression_may_do_has_no_function(name: str) -> None:
    assert name not in FUNCTIONS
    with pytest.raises(ValueError, match=r"sees one|another value each time|reaches out of the row"):
        compile_expression(f"{name}(i)", SCHEMA.fields)


def test_what_is_suggested_is_there() -> None:
    known = {*FUNCTIONS, *(each.partition("(")[0] for each in CONDITIONALS), "try_cast"}
    assert set(MEANT.values()) <= known
    assert not set(MEANT) & known


@pytest.mark.parametrize(
    "text",
    [
        "now()",
        "NOW ( )",
        "current_timestamp",
        "Current_Date",
        "current_date()",
        "date_diff('day', at, now()) > 3",
        "case when a > 1 then b else cast(now() as date) end",
        "case when current_date > d then 1 end",
        "coalesce(at, date_trunc('hour', now()))",
        "at between d and current_timestamp",
        "a in (1, 2) or not (at < now() - interval '1 day')",
        "now()::date",
    ],
)
def test_what_asks_for_the_time_of_the_batch(text: str) -> None:
    assert asks_batch_time(text)


@pytest.mark.parametrize(
    "text",
    ["now", "a = 'now()'", '"current_date"', "`current_timestamp`", "p.now", "nowhere(1)", "now( +", "known() > 1", ""],
)
def test_names_and_texts_that_only_look_like_it_do_not(text: str) -> None:
    assert not asks_batch_time(text)
