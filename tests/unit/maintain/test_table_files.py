"""Paths without their store, and names that Iceberg passes over."""

from __future__ import annotations

import pytest

from jobs.maintain.orphan_removal import store_of, without_store
from tests.unit.maintain.contexts import listed


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("file:///a/b", (("file", ""), "/a/b")),
        ("file:/a/b", (("file", ""), "/a/b")),
        ("/a/b", (("file", ""), "/a/b")),
        ("s3a://lake/a/b%20c", (("s3", "lake"), "/a/b%20c")),
        ("hdfs://host:8020/a", (("hdfs", "host:8020"), "/a")),
    ],
)
def test_paths_without_their_store(path: str, expected: tuple[tuple[str, str], str]) -> None:
    assert (store_of(path), without_store(path)) == expected


def test_hidden_names_are_those_that_iceberg_passes_over() -> None:
    assert [listed(path).hidden for path in ("a/_b", ".a/b", "_a/b", "_a=1/b", "a/b")] == [
        True,
        True,
        True,
        False,
        False,
    ]
