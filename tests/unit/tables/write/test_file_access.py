"""What a task gets of a table's FileIO: the way to its files, and no secret of the catalog."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from jobs.tables.write.file_access import seconds_left, store_properties
from jobs.tables.write.locations import state_under


def test_a_task_gets_the_way_to_the_files_and_nothing_of_the_catalog() -> None:
    given = {
        "type": "sql",
        "uri": "postgresql://me:hunter2@db/lake",
        "token": "hunter2",
        "credential": "me:hunter2",
        "auth.manager": threading.Lock(),
        "frazil.stamp.payments": "{}",
        "header.Authorization": "Bearer hunter2",
        "s3.endpoint": "http://s:9000",
        "s3.access-key-id": "k",
        "client.region": "eu",
        "gcs.project-id": "p",
        "adls.account-name": "a",
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    }
    found = store_properties(given)
    assert b"hunter2" not in pickle.dumps(found)
    assert sorted(found) == [
        *("adls.account-name", "client.region", "gcs.project-id", "py-io-impl", "s3.access-key-id", "s3.endpoint"),
    ]


@pytest.mark.parametrize(
    ("properties", "left"),
    [
        ({}, None),
        ({"s3.session-token": "x", "s3.access-key-id": "y"}, None),
        ({"s3.session-token-expires-at-ms": "160000"}, 60.0),
        ({"s3.session-token-expires-at-ms": 160000, "gcs.oauth2.token-expires-at": "130000"}, 30.0),
        ({"adls.sas-token-expires-at-ms.account.dfs.core.windows.net": "90000"}, 0.0),
        ({"s3.session-token-expires-at-ms": "soon"}, None),
    ],
)
def test_the_shortest_counts(properties: dict[str, object], left: float | None) -> None:
    assert seconds_left(properties, 100.0) == left


@pytest.mark.parametrize(
    ("location", "state", "under"),
    [
        ("file:///data/table", "/data/table/state", True),
        ("/data/table", "/data/table", True),
        ("file:///data/a%20b", "/data/a b/state", True),
        ("file:///data/table", "/data/table2", False),
        ("file:///data/table/state", "/data/table", False),
        ("s3://data/table", "/data/table/state", False),
    ],
)
def test_what_lies_under_a_location(location: str, state: str, under: bool) -> None:
    assert state_under(location, Path(state)) is under


def test_links_do_not_hide_where_the_state_is(tmp_path: Path) -> None:
    (tmp_path / "table" / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "table" / "state")
    assert state_under(f"file://{tmp_path}/table", tmp_path / "link" / "streams")
