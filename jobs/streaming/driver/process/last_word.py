"""Last heartbeat of a driver's stream: how its run ended, in a sentence without secrets."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from jobs.base.errors import FrazilError, StreamStopped
from jobs.clients.state_store.lease import LeaseHeldError
from jobs.streaming.supervision.documents.control_request import ControlReader
from jobs.streaming.supervision.documents.heartbeat import LastError, State
from jobs.tables.commit.stamp.errors import FencedError, ToleranceError

if TYPE_CHECKING:
    from jobs.streaming.driver.process.runner import StreamRunner

log = logging.getLogger(__name__)


def run_to_last_word(
    make: Callable[[], StreamRunner], control: ControlReader, redact: Callable[[str], str]
) -> tuple[State, LastError | None]:
    """Run a stream until it ends.

    Args:
        make: Makes the stream's runner; its errors are reported as well.

    Returns:
        Final state, and the error.
    """
    try:
        runner = make()
        runner.run()
    except (FencedError, LeaseHeldError) as problem:
        log.warning("%s", problem)
        return "fenced", _last_error(problem, "error", redact)
    except StreamStopped as problem:
        log.error("%s", problem)
        return "failed", _last_error(problem, "operator", redact)
    except FrazilError as problem:
        log.error("%s", problem)
        return "failed", _last_error(problem, "error", redact)
    except Exception as problem:
        trace = redact(traceback.format_exc())
        log.error("an unexpected error:\n%s", trace)
        message = redact(f"{type(problem).__name__}: {problem}")
        return "failed", LastError(message, "error", time.time(), "read the driver's log", trace)
    if runner.finished:
        return "finished", None
    return ("terminated" if control.signalled else "stopped"), None


def _last_error(problem: FrazilError, kind: Literal["operator", "error"], redact: Callable[[str], str]) -> LastError:
    given = redact(problem.message), kind, time.time(), redact(problem.fix) if problem.fix else None
    if isinstance(problem, ToleranceError):
        return LastError(*given, question=False, failed=problem.failed, read=problem.read)
    return LastError(*given, question=isinstance(problem, StreamStopped))
