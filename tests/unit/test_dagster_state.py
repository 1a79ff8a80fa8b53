"""An instance of Dagster that one test leaves behind is none of the next one's business."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.storage.defs_state import base
from dagster._core.storage.defs_state.base import DefsStateStorage

from tests.helpers.dagster_state import own_dagster_state


def leave_one_late(home: Path) -> dg.DagsterInstance:
    """Enter two instances and leave the outer one first; returns the inner one, which is still to be left."""
    outer, inner = (dg.DagsterInstance.local_temp(str(home)) for _ in range(2))
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    return inner


def leave(instance: dg.DagsterInstance) -> None:
    gc.collect()
    instance.__exit__(None, None, None)


def test_module_state_breaks_a_load_where_contexts_do_not_end_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_current_storage", ContextVar("_current_storage", default=None))
    leave(leave_one_late(tmp_path))
    assert DefsStateStorage.get() is not None
    with pytest.raises(dg.DagsterInvariantViolationError, match="undefined DagsterInstance weakref"):
        DefinitionsLoadContext.get()


def test_the_same_test_goes_on_after_it(tmp_path: Path) -> None:
    with dg.instance_for_test() as mine:
        leave(leave_one_late(tmp_path))
        assert DefsStateStorage.get() is mine.defs_state_storage
        DefinitionsLoadContext.get()
    assert DefsStateStorage.get() is None


def test_an_instance_is_entered_in_its_thread_and_left_in_any(tmp_path: Path) -> None:
    with own_dagster_state(), ThreadPoolExecutor(1) as other, dg.DagsterInstance.local_temp(str(tmp_path)) as mine:
        assert other.submit(DefsStateStorage.get).result() is None
        assert DefsStateStorage.get() is mine.defs_state_storage
        other.submit(mine.__exit__, None, None, None).result()
        assert DefsStateStorage.get() is None


def test_the_next_test_finds_none_of_it(tmp_path: Path) -> None:
    with own_dagster_state():
        late = leave_one_late(tmp_path)
    with own_dagster_state():
        assert DefsStateStorage.get() is None
        leave(late)
        assert DefsStateStorage.get() is None
        DefinitionsLoadContext.get()
