"""GraphQL client of Dagster: find an asset's job, launch a run of it, follow the run.

Its clients are imported when they are first needed: Dagster's own brings all of Dagster, which whoever starts the
services need not wait for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.errors import FrazilError

if TYPE_CHECKING:
    from gql.transport.requests import RequestsHTTPTransport

_TIMEOUT_SECONDS = 60
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")

_FIND = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { __typename ... on AssetNode {
    jobNames repository { name location { name } } } } }"""
_LOAD_ERRORS = """query { workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError {
    ... on PythonError { message } } } } } }"""
_STATUS = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status } ... on Error { message } } }"""


@dataclass(frozen=True, slots=True)
class AssetJob:
    """Where Dagster keeps an asset, as its API wants to be told."""

    location: str
    repository: str
    job: str


class DagsterClient:
    """A running webserver.

    Args:
        url: Its address, without a path.
    """

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
        """Where an asset is; None while nobody answers or the code location is still being loaded.

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
                raise FrazilError(f"Dagster does not tell of run {run_id[:8]}: {run['message']}")
            return run["status"]
        return None

    def _transport(self, seconds: int) -> RequestsHTTPTransport:
        from gql.transport.requests import RequestsHTTPTransport

        return RequestsHTTPTransport(f"{self._url}/graphql", timeout=seconds)
