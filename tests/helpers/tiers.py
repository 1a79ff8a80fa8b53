"""Pytest plugin that marks with `rest` what `make test` leaves to `make test-rest`.

All of `tests/integration` is left out, and what `tests/rest.toml` lists: groups of files, or of single tests, each with
the reason. Everything else is run by `make test`, also a file that is new.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests/rest.toml"
REAL_PARTS = "tests/integration/"
# The expression by which `make test` leaves tests out.
WITHOUT_REST = "not rest"


@dataclass(frozen=True)
class RestGroup:
    """Tests that `make test` leaves out, and why.

    Args:
        reason: Sentence about what its tests check beyond `make test`.
        files: Paths of whole test files, from the root of the repository.
        tests: Node ids of single test functions, without parameters.
    """

    reason: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


def rest_groups() -> dict[str, RestGroup]:
    """Read `tests/rest.toml`; the keys are the names of the groups."""
    document = tomllib.loads(LIST.read_text())
    return {
        name: RestGroup(group["reason"], tuple(group.get("files", ())), tuple(group.get("tests", ())))
        for name, group in document.items()
    }


FILES = {file for group in rest_groups().values() for file in group.files}
TESTS = {test for group in rest_groups().values() for test in group.tests}


def is_rest_file(file: str) -> bool:
    """Return True if `make test` runs nothing of a test file; `file` is its path from the root."""
    return file.startswith(REAL_PARTS) or file in FILES


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of which nothing is run: all imports of a run take half a minute."""
    if not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT).as_posix() + ("/" if collection_path.is_dir() else "")
    return True if config.option.markexpr == WITHOUT_REST and is_rest_file(path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests before pytest chooses among them by their marks."""
    for item in items:
        test = item.nodeid.split("[", 1)[0]
        if is_rest_file(test.split("::", 1)[0]) or test in TESTS:
            item.add_marker("rest")
