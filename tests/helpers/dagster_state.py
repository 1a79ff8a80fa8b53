"""Dagster keeps in module state what belongs to one instance or one load; each test gets that state anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import pytest

_STATES = "dagster._core.storage.defs_state.base"
_LOADS = "dagster._core.definitions.definitions_load_context"


@contextmanager
def own_dagster_state() -> Iterator[None]:
    """Give the block a Dagster that no instance is entered in and that loads nothing, where Dagster was imported.

    An instance that is entered puts its storage of definitions' state into a context variable, from where each load of
    definitions takes it; one that is left puts back what was there before. Contexts that are left late, by the garbage
    collector, put back the storage of an instance that is gone, and the next load fails. So the block has a variable of
    its own: what is left late finds that its token is of another one, and Dagster then sets none.
    """
    with pytest.MonkeyPatch.context() as patch:
        if states := sys.modules.get(_STATES):
            patch.setattr(states, "_current_storage", ContextVar("_current_storage", default=None))
        if loads := sys.modules.get(_LOADS):
            patch.setattr(loads.DefinitionsLoadContext, "_instance", None)
        yield
