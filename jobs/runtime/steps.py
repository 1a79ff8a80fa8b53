"""Named points of the commit protocol at which a test can kill or stop the process, to prove what holds there.

They cost a look at an empty dictionary when `FRAZIL_STEPS` is not set. `FRAZIL_STEPS='after_anchor_commit=kill'` sends
SIGKILL to the process the first time it comes there, `=stop` sends SIGSTOP, and `@3` after the action waits for the
third time.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

from jobs.errors import FrazilError

STEPS: dict[str, str] = {
    "before_claim": "Nothing of this driver is in any table; the one before may still commit.",
    "after_claims": "No driver of an older epoch can commit any more; no record has moved.",
    "after_tasks": "Data files exist and are referenced nowhere; the batch runs again.",
    "before_commit": "The pending record is durable and no target has the batch; a restart commits it from the record.",
    "after_lease_check": "This driver believes that it holds the lease; if it does not, the tables refuse its commit.",
    "after_anchor_commit": "The table has the batch, the dead letters do not; a restart commits them from the record.",
    "after_commits": "All targets have the batch and the pending record still stands; a restart finds nothing to do.",
    "before_spark_notes": "All targets have the batch and Spark has not noted it; it is never read again.",
}


@dataclass(slots=True)
class _Armed:
    signal: signal.Signals
    passes_left: int


_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def _armed(text: str) -> dict[str, _Armed]:
    armed: dict[str, _Armed] = {}
    for part in filter(None, text.split(",")):
        name, _, action = part.partition("=")
        action, _, count = action.partition("@")
        if name not in STEPS or action not in _SIGNALS:
            known = ", ".join(STEPS)
            raise FrazilError(f"FRAZIL_STEPS: {part!r} is not STEP=kill or STEP=stop, with STEP one of {known}")
        armed[name] = _Armed(_SIGNALS[action], int(count or 1))
    return armed


_ARMED = _armed(os.environ.get("FRAZIL_STEPS", ""))


def step(name: str) -> None:
    """Pass the named point; what must hold there is in `STEPS`."""
    if not _ARMED:
        return
    armed = _ARMED.get(name)
    if armed is None:
        return
    armed.passes_left -= 1
    if armed.passes_left == 0:
        print(f"step {name}: {armed.signal.name}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), armed.signal)
