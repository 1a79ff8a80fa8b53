"""Dagster's GraphQL API, as far as the demo needs it: launch a run of assets, follow it, end it."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.errors import FrazilError

_TIMEOUT_SECONDS = 20.0
_WAITING = ("QUEUED", "NOT_STARTED")
_UNDER_WAY = ("STARTING", "STARTED", "CANCELING")
# Which code server a run was given to; Dagster hides the tag, and finds runs by it all the same.
_SERVER_TAG = ".dagster/grpc_info"
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")

_FIND = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { __typename ... on AssetNode {
    jobNames repository { name location { name } } } } }"""
_LOAD_ERRORS = """query { workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError {
    ... on PythonError { message } } } } } }"""
_LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) { __typename
    ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } } } }"""
_STATUS = """query($id: ID!) { runOrError(runId: $id) { __typename ... on Run { status } } }"""
_WHY = """query($id: ID!) { logsForRun(runId: $id, limit: 1000) { ... on EventConnection { events { __typename
    ... on ExecutionStepFailureEvent { failureMetadata { description } error { message } }
    ... on RunFailureEvent { message } } } } }"""
_RUNS = "%s: runsOrError(filter: $%s) { ... on Runs { results { runId creationTime } } }"
_TERMINATE = """mutation($ids: [String!]!) { terminateRuns(runIds: $ids, terminatePolicy: SAFE_TERMINATE) {
    ... on TerminateRunsResult { terminateRunResults { __typename } } } }"""


@dataclass(frozen=True, slots=True)
class AssetJob:
    """Where Dagster keeps an asset, as its API wants to be told."""

    location: str
    repository: str
    job: str


class Dagster:
    """A running webserver.

    Args:
        url: Its address, without a path.
    """

    def __init__(self, url: str) -> None:
        self._endpoint: str = f"{url}/graphql"

    def ask(self, query: str, seconds: float = _TIMEOUT_SECONDS, **variables: Any) -> dict[str, Any]:
        """The data that answers a query.

        Raises:
            TimeoutError: It does not answer within `seconds`.
            OSError: Nobody answers, or somebody who is not Dagster.
            FrazilError: The query is refused.
        """
        request = urllib.request.Request(
            self._endpoint,
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as problem:
            raise FrazilError(f"Dagster refused a question: {problem.read()[:500].decode(errors='replace')}") from None
        except urllib.error.URLError as problem:
            raise (problem.reason if isinstance(problem.reason, OSError) else problem) from None
        except (http.client.HTTPException, ValueError):
            raise ConnectionError(f"What answers at {self._endpoint} is not Dagster") from None
        if answer.get("errors"):
            raise FrazilError(f"Dagster refused a question: {answer['errors'][0]['message']}")
        return answer["data"]

    def find(self, key: Sequence[str]) -> AssetJob | None:
        """Where an asset is; None while nobody answers or the code location is still being loaded.

        Raises:
            FrazilError: A code location cannot be loaded.
        """
        try:
            node = self.ask(_FIND, key={"path": list(key)})["assetNodeOrError"]
            if node["__typename"] == "AssetNode" and node["jobNames"]:
                repository = node["repository"]
                implicit = [name for name in node["jobNames"] if name.startswith("__")]
                return AssetJob(repository["location"]["name"], repository["name"], (implicit or node["jobNames"])[0])
            for entry in self.ask(_LOAD_ERRORS)["workspaceOrError"].get("locationEntries", ()):
                message = (entry["locationOrLoadError"] or {}).get("message")
                if message:
                    raise FrazilError(f"Dagster could not load the code location: {message}", fix="dg check defs")
        except OSError:
            pass
        return None

    def launch(self, job: AssetJob, keys: Sequence[Sequence[str]]) -> str:
        """Launch a run that materializes assets of one job; returns its id.

        Raises:
            FrazilError: It is refused.
        """
        selector = {
            "repositoryLocationName": job.location,
            "repositoryName": job.repository,
            "pipelineName": job.job,
            "assetSelection": [{"path": list(key)} for key in keys],
        }
        answer = self.ask(_LAUNCH, params={"selector": selector, "mode": "default"})["launchPipelineExecution"]
        if answer["__typename"] != "LaunchRunSuccess":
            reasons = [answer.get("message"), *(error["message"] for error in answer.get("errors", ()))]
            raise FrazilError(f"Dagster refused the run: {'; '.join(filter(None, reasons)) or answer['__typename']}")
        return answer["run"]["runId"]

    def status(self, run_id: str) -> str:
        """A run's status in Dagster's words, such as STARTED."""
        return self.ask(_STATUS, id=run_id)["runOrError"].get("status", "NOT_STARTED")

    def why_failed(self, run_id: str) -> str:
        """What a failed run says for itself."""
        events = self.ask(_WHY, id=run_id)["logsForRun"].get("events", ())
        words: list[str] = []
        for event in events:
            described = (event.get("failureMetadata") or {}).get("description")
            words.append(described or (event.get("error") or {}).get("message") or event.get("message") or "")
        return next(filter(None, words), "it does not say why")

    def terminate_runs(self, deadline_seconds: float, sockets: Collection[str], since: float) -> None:
        """End runs that are under way, and wait until they have ended or the deadline has passed. Never raises.

        Runs of other code servers, as of a Dagster that shares the storage, are left alone.

        Args:
            sockets: Of the code servers whose runs are meant.
            since: Runs that wait for a code server are meant if they were made after this; seconds since 1970.
        """
        deadline = time.monotonic() + deadline_seconds
        asked: set[str] = set()
        with contextlib.suppress(OSError, FrazilError, KeyError, ValueError):
            while (left := deadline - time.monotonic()) > 0:
                # Where all ends at once, an answer may take its time.
                with contextlib.suppress(TimeoutError):
                    runs = self._runs_of(sockets, since, left)
                    if not runs:
                        return
                    if runs - asked:
                        self.ask(_TERMINATE, left, ids=sorted(runs - asked))
                        asked |= runs
                time.sleep(0.2)

    def _runs_of(self, sockets: Collection[str], since: float, seconds: float) -> set[str]:
        filters: dict[str, Any] = {"waiting": {"statuses": list(_WAITING)}}
        for number, socket in enumerate(sorted(sockets)):
            tag = {"key": _SERVER_TAG, "value": json.dumps({"host": "localhost", "socket": socket}, sort_keys=True)}
            filters[f"server{number}"] = {"statuses": list(_UNDER_WAY), "tags": [tag]}
        variables = ", ".join(f"${name}: RunsFilter!" for name in filters)
        answers = self.ask(
            f"query({variables}) {{ {' '.join(_RUNS % (name, name) for name in filters)} }}", seconds, **filters
        )
        found = {name: answer.get("results", ()) for name, answer in answers.items()}
        waiting = [run for run in found.pop("waiting") if run["creationTime"] >= since]
        return {run["runId"] for run in [*waiting, *(run for runs in found.values() for run in runs)]}
