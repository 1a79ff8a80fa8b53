"""Dagster keeps in module state what belongs to one instance or one load; each test gets that state anew."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_STATES = "dagster._core.storage.defs_state.base"
_LOADS = "dagster._core.definitions.definitions_load_context"


class EnteredStorages:
    """Stands in for Dagster's context variable: whose storage of definitions' state a load asks, the last entered.

    An instance that is entered puts its storage there, and one that is left puts back what was there before. Contexts
    that Dagster leaves to the garbage collector end in any order, and so put back the storage of an instance that is
    gone; the next load of definitions then fails. Here each takes away what it put there, and nothing else.
    """

    def __init__(self) -> None:
        self._entered: dict[object, tuple[int, Any]] = {}

    def set(self, storage: Any) -> object:
        token = object()
        self._entered[token] = (threading.get_ident(), storage)
        return token

    def get(self) -> Any:
        """The storage that this thread entered last and has not left; None where there is none."""
        here = threading.get_ident()
        return next((storage for thread, storage in reversed(self._entered.values()) if thread == here), None)

    def reset(self, token: object) -> None:
        self._entered.pop(token, None)


@contextmanager
def own_dagster_state() -> Iterator[None]:
    """Give the block a Dagster that no instance is entered in and that loads nothing, where Dagster was imported.

    What was entered outside the block and is left inside it, or the other way round, changes nothing in it.
    """
    with pytest.MonkeyPatch.context() as patch:
        if states := sys.modules.get(_STATES):
            patch.setattr(states, "_current_storage", EnteredStorages())
        if loads := sys.modules.get(_LOADS):
            patch.setattr(loads.DefinitionsLoadContext, "_instance", None)
        yield
