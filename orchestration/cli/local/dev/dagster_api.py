"""Dagster of a deployment as commands ask it: an asset's job, a run of it, why a run failed, and ending runs.

Its clients are imported when they are first needed: Dagster's own brings all of Dagster, which whoever starts the
services need not wait for.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.base.errors import FrazilError
from jobs.base.system.deadline import within

if TYPE_CHECKING:
    import dagster as dg
    from gql.transport.requests import RequestsHTTPTransport


_TIMEOUT_SECONDS = 60
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")

_FIND = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { __typename ... on AssetNode {
    jobNames repository { name location { name } } } } }"""
_LOAD_ERRORS = """query { workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError {
    ... on PythonError { message } } } } } }"""
_STATUS = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status } ... on Error { message } } }"""
# Which code server a run was given to; Dagster's UI hides the tag.
_SERVER_TAG = ".dagster/grpc_info"
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class AssetJob:
    """The place of an asset in Dagster, as its API needs it."""

    location: str
    repository: str
    job: str


class DagsterClient:
    """A running webserver."""

    def __init__(self, url: str) -> None:
        self._url: str = url

    def ask(self, query: str, seconds: int = _TIMEOUT_SECONDS, **variables: Any) -> dict[str, Any]:
        """The data that answers a query.

        Raises:
            ConnectionError: Nobody answers within `seconds`, or somebody who is not Dagster.
            FrazilError: The query is refused.
        """
        from gql import Client, gql
        from gql.transport.exceptions import TransportError, TransportQueryError

        request = gql(query)
        request.variable_values = variables
        try:
            return Client(transport=self._transport(seconds)).execute(request)
        except TransportQueryError as problem:
            said = (each["message"] if isinstance(each, dict) else str(each) for each in problem.errors or [problem])
            raise FrazilError(f"Dagster at {self._url} refused a query: {'; '.join(said)}") from None
        except TransportError as problem:
            raise ConnectionError(f"Dagster does not answer at {self._url}: {problem}") from None

    def find(self, key: Sequence[str]) -> AssetJob | None:
        """The place of an asset; None while nobody answers or the code location is still being loaded.

        Raises:
            FrazilError: A code location cannot be loaded, or Dagster refuses to tell.
        """
        with contextlib.suppress(ConnectionError):
            node = self.ask(_FIND, key={"path": list(key)})["assetNodeOrError"]
            if node["__typename"] == "AssetNode" and node["jobNames"]:
                repository = node["repository"]
                implicit = [name for name in node["jobNames"] if name.startswith("__")]
                return AssetJob(repository["location"]["name"], repository["name"], (implicit or node["jobNames"])[0])
            for entry in self.ask(_LOAD_ERRORS)["workspaceOrError"].get("locationEntries", ()):
                message = (entry["locationOrLoadError"] or {}).get("message")
                if message:
                    raise FrazilError(f"Dagster could not load the code location: {message}", fix="dg check defs")
        return None

    def launch(self, job: AssetJob, keys: Sequence[Sequence[str]]) -> str:
        """Launch a run that materializes assets of one job; returns its id.

        Raises:
            FrazilError: It is refused.
        """
        from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError

        client = DagsterGraphQLClient(self._url, transport=self._transport(_TIMEOUT_SECONDS))
        try:
            return client.submit_job_execution(
                job.job, job.location, job.repository, asset_selection=[list(key) for key in keys]
            )
        except DagsterGraphQLClientError as problem:
            raise FrazilError(f"Dagster refused the run: {'; '.join(map(str, problem.args))}") from None

    def status(self, run_id: str) -> str | None:
        """A run's status in Dagster's words, such as STARTED; None while nobody answers.

        Raises:
            FrazilError: Dagster refuses to tell: there is no such run, or none any more.
        """
        with contextlib.suppress(ConnectionError):
            run = self.ask(_STATUS, id=run_id)["runOrError"]
            if "message" in run:
                raise FrazilError(f"Dagster does not report run {run_id[:8]}: {run['message']}")
            return run["status"]
        return None

    def _transport(self, seconds: int) -> RequestsHTTPTransport:
        from gql.transport.requests import RequestsHTTPTransport

        return RequestsHTTPTransport(f"{self._url}/graphql", timeout=seconds)


def why_failed(home: Path, run_id: str) -> str:
    """The error that a failed run has logged."""
    import dagster as dg

    with dg.DagsterInstance.from_config(str(home)) as instance:
        entries = instance.all_logs(run_id, of_type={dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE})
    words: list[str | None] = []
    for event in (entry.get_dagster_event() for entry in entries):
        step = event.step_failure_data if event.is_step_failure else None
        words.append(step.user_failure_data.description if step and step.user_failure_data else None)
        words.append(step.error.message if step and step.error else event.message)
    return next(filter(None, words), "it does not say why")


def end_runs(home: Path, sockets: Collection[str], since: float, deadline_seconds: float) -> None:
    """End runs that are under way, and wait until they have ended or the deadline has passed. Never raises.

    Runs of other code servers, as of a Dagster that shares the storage, are left alone.

    Args:
        sockets: Sockets of the code servers whose runs are ended.
        since: Runs that wait for a code server are meant if they were made after this; seconds since 1970.
        deadline_seconds: Time for all of it.
    """
    # Where all ends at once, storage and code servers may take their time.
    with contextlib.suppress(Exception):
        within(deadline_seconds, "Dagster", lambda: _end_runs(home, sockets, since, deadline_seconds))


def _end_runs(home: Path, sockets: Collection[str], since: float, deadline_seconds: float) -> None:
    import dagster as dg

    deadline = time.monotonic() + deadline_seconds
    asked: set[str] = set()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        while time.monotonic() < deadline and (runs := _runs_of(instance, sockets, since)):
            for run in runs:
                ends = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)
                if run.status in ends and run.run_id not in asked:
                    asked.add(run.run_id)
                    with contextlib.suppress(Exception):
                        instance.run_coordinator.cancel_run(run.run_id)
            time.sleep(_POLL_SECONDS)


def _runs_of(instance: dg.DagsterInstance, sockets: Collection[str], since: float) -> list[dg.DagsterRun]:
    import dagster as dg

    status = dg.DagsterRunStatus
    made = datetime.fromtimestamp(since, UTC)
    waiting = instance.get_runs(dg.RunsFilter(statuses=[status.QUEUED, status.NOT_STARTED], created_after=made))
    servers = [json.dumps({"host": "localhost", "socket": socket}, sort_keys=True) for socket in sorted(sockets)]
    if not servers:
        return list(waiting)
    begun = [status.STARTING, status.STARTED, status.CANCELING]
    return [*waiting, *instance.get_runs(dg.RunsFilter(statuses=begun, tags={_SERVER_TAG: servers}))]
