"""A table's lock, and its loss."""

from __future__ import annotations

import pytest

from jobs.errors import FrazilError
from jobs.maintain.maintenance_history import table_store
from jobs.maintain.table_lock import table_lock
from tests.helpers.lake import NAME, Lake


def test_a_lock_that_was_lost_ends_it(lake: Lake) -> None:
    uuid = str(lake.table().metadata.table_uuid)
    with table_lock(lake.settings, NAME, uuid) as lock:
        store = table_store(lake.settings, uuid)
        for record in store.keys("lease-*.json"):
            store.put("lease-00000099.json", store.get(record) or b"")
            store.delete(record)
        with pytest.raises(FrazilError, match="the lock of its maintenance was lost"):
            lock.verify()
