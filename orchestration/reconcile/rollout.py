"""A changed file is judged before a driver is ended for it: what could not run is held back, and the check says why."""

from __future__ import annotations

from jobs.errors import FrazilError
from jobs.spec.settings import Settings
from jobs.state.paths import stream_folder
from jobs.supervise.launches import read_launch
from jobs.supervise.wanted import find_wanted
from orchestration.reconcile.desired import Files, Wanted, wanted
from orchestration.reconcile.lookups import Lookups
from resources.deployment import Deployment


def judged_rollout(each: Wanted, files: Files, settings: Settings, deployment: Deployment, lookups: Lookups) -> Wanted:
    """What is wanted of a stream, with its file taken for invalid if its table cannot hold what it declares now.

    Asks the catalog only where a file differs from what was launched. Until that has answered nothing is rolled out,
    and a driver that dies meanwhile is started as it was.
    """
    desired, spec = each.desired, each.spec
    if desired.file != "valid" or spec is None or not desired.continuous or each.control_problem:
        return each
    stream = desired.stream
    folder = stream_folder(settings, stream).root
    launch = read_launch(folder)
    if launch is None or launch.generation == desired.generation:
        return each
    try:
        refused = lookups.refusal(spec, lambda: find_wanted(deployment.streams_folder, folder, stream).file)
    except FrazilError as problem:
        why = f"its file has changed, and it is not known whether its table can hold it: {problem.message}"
        return wanted(stream, files, settings, deployment, why)
    return each if refused is None else wanted(stream, files, settings, deployment, "; ".join(refused.problems))
