"""Which tests `make test` leaves out, and how the files of a run are divided over its processes."""

from __future__ import annotations

import ast
import json
import os
from collections import Counter

import pytest
from hypothesis.internal.conjecture import providers

from tests.helpers.fixed_parts import REAL_PARTS, SECONDS_FILE, divide_files, longest_file
from tests.helpers.tiers import ROOT, is_rest_file, rest_groups


def test_each_group_has_a_reason_and_each_entry_exists_once() -> None:
    groups = rest_groups().values()
    assert all(group.reason.endswith(".") for group in groups)
    assert all(group.files or group.tests for group in groups)
    files = [file for group in groups for file in group.files]
    tests = [test for group in groups for test in group.tests]
    assert [entry for entry, count in Counter([*files, *tests]).items() if count > 1] == []
    assert [file for file in files if not (ROOT / file).is_file()] == []
    # An entry for a single test of a file that is left out whole says nothing.
    assert [test for test in tests if is_rest_file(test.split("::")[0])] == []


def test_single_tests_of_the_list_exist() -> None:
    tests = [test for group in rest_groups().values() for test in group.tests]
    missing = []
    for test in tests:
        file, name = test.split("::", 1)
        nodes = ast.walk(ast.parse((ROOT / file).read_text()))
        functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if name.split("::")[-1] not in functions:
            missing.append(test)
    assert missing == []


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_files_are_divided_evenly_and_each_time_alike(parts: int) -> None:
    seconds = {f"tests/unit/test_{n}.py": float(n % 17) for n in range(200)}
    part_of = divide_files(seconds, seconds, parts)
    assert part_of == divide_files(reversed(seconds), seconds, parts)
    totals = [sum(seconds[file] for file, part in part_of.items() if part == n) for n in range(parts)]
    assert max(totals) - min(totals) <= max(seconds.values())
    assert set(part_of) == set(seconds)


def test_an_unlisted_file_counts_as_well() -> None:
    assert set(divide_files(["a", "b", "c"], {}, 3).values()) == {0, 1, 2}


def test_the_longest_file_is_handed_out_first() -> None:
    left, handed_out = {"b", "d", "a", "c"}, []
    while left:
        handed_out.append(longest_file(left, {"a": 2.0, "b": 30.0, "c": 2.0}))
        left.remove(handed_out[-1])
    assert handed_out == ["b", "a", "c", "d"]


def test_each_file_with_real_parts_has_its_seconds() -> None:
    """A file without an entry counts as one second. A dozen of them in one process double the run's time."""
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / REAL_PARTS).rglob("test_*.py"))]
    listed = json.loads(SECONDS_FILE.read_text())
    missing = " ".join(file for file in files if file not in listed)
    assert not missing, f"record them: .venv/bin/python -m pytest --record-seconds {missing}"


@pytest.mark.skipif("FRAZIL_EXPLORE" in os.environ, reason="a search draws the constants of the project as well")
def test_drawn_input_does_not_depend_on_the_modules_that_are_imported() -> None:
    assert len(providers._get_local_constants()) == 0  # pyright: ignore[reportPrivateUsage]
