"""Plan of a deployment: all its streams and settings, against what is live or against other files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from jobs.clients.state_store.stream_folder import state_store
from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import SETTINGS_FILE, Settings
from orchestration.deployment_plan.change import Change, DeploymentPlan, StreamPlan
from orchestration.deployment_plan.file_changes import settings_changes
from orchestration.deployment_plan.former_files import moved, read_former, read_settings_file
from orchestration.deployment_plan.live import LiveFacts
from orchestration.deployment_plan.stream_plan import live_settings_changes, plan_against, plan_stream
from orchestration.reconcile.stream_files import read_files, stream_ids
from orchestration.reconcile.supervisor_heartbeat import read_supervisor_heartbeat
from resources.deployment import Deployment


def make_plan(deployment: Deployment, streams: Sequence[str] = (), against: str | None = None) -> DeploymentPlan:
    """Plan the changes that a deployment's files make.

    Args:
        deployment: The deployment.
        streams: Ids of streams; empty for all streams and the settings.
        against: A folder or a Git revision with other files; None for the live deployment.

    Raises:
        FrazilError: A stream, the folder or the revision does not exist, or the settings are invalid.
    """
    settings = deployment.settings()
    if against is not None:
        return _against_files(deployment, settings, streams, against)
    files = read_files(deployment)
    known = stream_ids(files, settings)
    for stream in streams:
        if stream not in known:
            # Says what there is.
            deployment.stream(stream)
    chosen = [each for each in known if not streams or each in streams]
    planned = [each for each in chosen if each in files.specs or not files.errors_of(each, None, settings.home)]
    if files.absence:
        # A folder that cannot be read says of no stream that it is removed.
        planned = [each for each in planned if each in files.specs]
    facts = LiveFacts(settings, files, deployment.streams_folder)
    found = facts.look(planned)
    plans = [plan_stream(each, settings) for each in found]
    note = read_supervisor_heartbeat(state_store(settings))
    return DeploymentPlan(
        _now(),
        None,
        tuple(_shown(plans, streams)),
        tuple(live_settings_changes(found, plans)),
        problems=_problems(files.errors, streams),
        supervised=note is not None and not note.is_silent(time.time()),
    )


def _shown(plans: Sequence[StreamPlan], streams: Sequence[str]) -> list[StreamPlan]:
    """Plans without those of removed streams with nothing left to do, unless they are asked about."""
    return [
        each for each in plans if each.changes or each.unknown or each.stream in streams or each.status != "removed"
    ]


def _problems(errors: Sequence[SpecError], streams: Sequence[str]) -> tuple[str, ...]:
    """Problems of the files of the named streams, or of all streams if none is named."""
    asked = [each for each in errors if not streams or (each.stream or (each.path and each.path.stem)) in streams]
    return tuple(dict.fromkeys(problem for each in asked for problem in each.problems))


def _against_files(deployment: Deployment, settings: Settings, streams: Sequence[str], against: str) -> DeploymentPlan:
    former = read_former(deployment, against)
    specs, errors = deployment.streams()
    now = {each.stream: each for each in specs}
    for stream in streams:
        if stream not in now and stream not in former.specs:
            deployment.stream(stream)
    plans = plan_against(former.specs, now, settings, streams)
    # A stream whose file is bad on either side is not compared.
    bad = {each.stream for each in errors} | former.unread
    plans = [each for each in plans if each.stream not in bad]
    file = deployment.settings_file or deployment.home / SETTINGS_FILE
    changed: list[Change] = []
    if not streams:
        before = former.settings.model_dump(mode="json", by_alias=True)
        after = read_settings_file(file).model_dump(mode="json", by_alias=True)
        changed = settings_changes(moved(before, former.place, deployment.home), after)
    problems = (*_problems(errors, streams), *(f"{against}: {each}" for each in former.problems))
    return DeploymentPlan(_now(), against, tuple(plans), tuple(changed), problems)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
