"""Seeing the drivers of a test to their end."""

from __future__ import annotations

from jobs.streaming.supervision.launchers import local_process
from tests.helpers.waiting import wait_for
from tests.unit.streaming.supervision.worlds import World


def end_all(world: World) -> None:
    """End every driver of a deployment and take notice of it, or Python complains of them when it exits."""
    world.end()

    def reaped() -> bool:
        local_process.reap_drivers()
        return not local_process._ours

    wait_for(reaped, "the drivers' end")
