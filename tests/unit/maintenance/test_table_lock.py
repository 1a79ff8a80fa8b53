"""A table's lock, and its loss."""

from __future__ import annotations

import threading

import pytest

from jobs.base.errors import FrazilError
from jobs.maintenance.measure.maintenance_history import table_store
from jobs.maintenance.run.table_lock import TableBusyError, table_lock
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


def test_one_that_is_held_is_waited_for(lake: Lake) -> None:
    uuid = str(lake.table().metadata.table_uuid)
    released = threading.Event()

    def hold() -> None:
        with table_lock(lake.settings, NAME, uuid):
            taken.set()
            released.wait(30)

    taken = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(120)
    with pytest.raises(TableBusyError, match="is being maintained"), table_lock(lake.settings, NAME, uuid):
        pass
    releasing = threading.Timer(0.3, released.set)
    releasing.start()
    with table_lock(lake.settings, NAME, uuid, 30):
        assert released.is_set()
    holder.join()
    releasing.join()
