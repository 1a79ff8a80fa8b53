"""Parts of a story on real tables: a driver that is killed, and the audit at the end."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.proof.audit.ledger_fill import fill_ledger
from tests.helpers.lane_stream import LaneStream
from tests.helpers.routed_stream import RoutedStream

AnyStream = RoutedStream | LaneStream


class Killed(BaseException):
    """The driver's process was killed here."""


def killed(*_: Any, **__: Any) -> Any:
    """Replacement of a function, at which the driver is killed."""
    raise Killed


def killed_at(monkeypatch: pytest.MonkeyPatch, modules: Any, name: str, nth: int = 1) -> None:
    """Let a driver be killed at a step of one module, or of several, when it comes to it for the nth time."""
    met: list[str] = []

    def met_step(step: str) -> None:
        met.extend([step] if step == name else [])
        if len(met) == nth:
            met.append("")
            raise Killed

    for module in modules if isinstance(modules, tuple) else (modules,):
        monkeypatch.setattr(module, "step", met_step)


def forget_records(one: AnyStream) -> None:
    """The pending records are lost."""
    for each in one.stream.folder.pending_records():
        one.stream.folder.store.delete(each)


def audited(one: AnyStream, *, gone: str | None = None) -> StreamAudit:
    """Assert that the stream adds up, but for records of one table that is gone; returns the audit."""
    fill_ledger(one.catalog, one.settings, [one.spec])
    found = audit(one.stream.spec.model_copy(), one.settings, one.catalog, full=True)
    problems = [each for each in found.problems if not (each.kind == "not_counted" and each.table == gone)]
    assert not problems and not found.pending, (problems, found.pending)
    return found
