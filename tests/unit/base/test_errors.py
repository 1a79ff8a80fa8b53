"""The one line of an error that a person is shown."""

from __future__ import annotations

import pytest

from jobs.base.errors import first_line


@pytest.mark.parametrize(
    ("said", "otherwise", "line"),
    [
        (ValueError("no such table"), None, "no such table"),
        (ValueError("\n  no such table \n[SQL: SELECT 1]"), None, "no such table"),
        (ValueError(" \n "), None, "ValueError"),
        (ValueError(), "no reason given", "no reason given"),
        ("\nall of it\n\tat org.apache", None, "all of it"),
        ("", "nothing", "nothing"),
    ],
)
def test_first_line(said: BaseException | str, otherwise: str | None, line: str) -> None:
    assert first_line(said, otherwise) == line
