"""Writing down what was tried on a table, and how it fared."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from jobs.maintain.compact import LOST
from jobs.maintain.history import Maintained, read_maintained, table_store, write_maintained
from jobs.maintain.results import StepResult
from jobs.maintain.work import Work

log = logging.getLogger(__name__)


def note(work: Work, found: Sequence[StepResult]) -> None:
    """Write down what was tried; a note that cannot be written costs a step that is done again."""
    store = table_store(work.settings, work.uuid)
    now = work.now()
    noted = read_maintained(store).seen(now)
    if noted.born is None and work.born is not None:
        noted = replace(noted, born=work.born)
    for result in found:
        noted = _with(noted, result, now)
    try:
        write_maintained(store, noted)
    except OSError as problem:
        log.warning("what was done to table %s could not be noted: %s", work.name, problem)


def _with(noted: Maintained, result: StepResult, now: datetime) -> Maintained:
    step = result.step
    if LOST in result.detail and not result.done:
        # Neither done nor a failure after which it would wait.
        return noted
    spec_id = step.partition.spec_id if step.partition else None
    if result.error:
        return noted.failed(step.action, now, result.error, spec_id=spec_id, scope=step.scope)
    return noted.done(
        step.action,
        now,
        spec_id=spec_id,
        scope=step.scope,
        sort_order=str(step.detail.get("sort_order", "")),
        files_before=result.files_before,
        files_after=result.files_after,
        size=result.bytes,
        seconds=result.seconds,
    )
