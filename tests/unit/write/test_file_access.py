"""What a task gets of a table's FileIO: the way to its files, and no secret of the catalog."""

from __future__ import annotations

import pickle
import threading

from jobs.write.file_access import store_properties


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
