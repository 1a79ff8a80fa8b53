"""Parts that a certificate has not tried, as sentences: nobody is to believe that it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.certify.scenario_plan import EXECUTORS, EXTRA, NOT_HERE, STEPS, Scenario
from jobs.spark.master import is_local, master_of
from jobs.spec.settings import Settings


def not_tried(settings: Settings, scenarios: Sequence[Scenario]) -> list[str]:
    """What a certificate leaves out, beside faults that are no kills.

    Args:
        settings: Its drivers'.
        scenarios: As planned.
    """
    return list(_not_tried(settings, {scenario.step for scenario in scenarios}))


def _not_tried(settings: Settings, tried: set[str]) -> Iterator[str]:
    left = [name for name in (*STEPS, *EXTRA) if name not in tried and not _of_executors(name)]
    if left:
        yield f"steps that were not asked for: {', '.join(left)}"
    yield f"steps of other kinds, at which the project's own tests kill: {', '.join(NOT_HERE)}"
    if is_local(master_of(settings)):
        yield "executors of a cluster: the drivers ran their tasks on their own machine"
        return
    if not any(_of_executors(name) for name in tried):
        yield "executors: none was killed; --steps all,executor kills one, of the certificate's own application"
    yield "workers and the master of the cluster, which are not the certificate's"
    yield "another machine that takes over: all drivers were started on this one"


def _of_executors(step: str) -> bool:
    return step in STEPS and STEPS[step].kind == EXECUTORS


def refused_steps(settings: Settings, scenarios: Sequence[Scenario]) -> list[str]:
    """The steps that were asked for and that these settings have no process for."""
    if not is_local(master_of(settings)):
        return []
    return list(dict.fromkeys(each.step for each in scenarios if _of_executors(each.step)))
