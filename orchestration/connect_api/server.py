"""Server with Kafka Connect's REST interface: routes over the streams of a deployment."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret
from jobs.config.documents.validation import shown_path
from orchestration.connect_api.access import Access
from orchestration.connect_api.actions import Actions, ApiAction, Begin
from orchestration.connect_api.answers import error
from orchestration.connect_api.connector import CLASS, VERSION, Connector
from orchestration.connect_api.connectors import Connectors, UnknownConnector
from orchestration.connect_api.plugin import is_plugin, plugins, validated
from resources.deployment import Deployment

CONNECT_VERSION = "4.3.1"
"""Release of Kafka Connect whose REST interface the server follows."""

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
# A flat configuration; the largest stream's file is far smaller.
_LARGEST_BODY = 1_000_000


def connect_app(connectors: Connectors, begin: Begin, deployment: Deployment, token: Secret | None) -> Starlette:
    """ASGI application of the server.

    Args:
        connectors: The deployment's connectors.
        begin: Function that starts an action on a stream.
        deployment: The deployment, whose streams' folder is named in refusals.
        token: Reference to the token of requests; None if the server has no token.
    """
    return Starlette(
        routes=_Routes(connectors, Actions(begin, connectors.forget), deployment).routes(),
        middleware=[Middleware(Access, token=token), Middleware(_WithoutSlash)],
        exception_handlers={
            FrazilError: _frazil_error,
            HTTPException: _http_error,
            Exception: _unexpected_error,
        },
    )


async def _frazil_error(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, FrazilError)
    if isinstance(problem, UnknownConnector):
        return error(404, problem.message)
    return error(400, str(problem))


async def _unexpected_error(_: Request, problem: Exception) -> Response:
    return error(500, f"{type(problem).__name__}; the log of the server has it")


async def _http_error(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    said = problem.detail if problem.status_code in (400, 413) else f"HTTP {problem.status_code} {problem.detail}"
    return error(problem.status_code, said, headers=problem.headers)


class _WithoutSlash:
    """ASGI middleware that treats `/connectors/` as `/connectors`, like Connect."""

    def __init__(self, app: ASGIApp) -> None:
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)


class _Routes:
    """Endpoints of the server. Reads of files and requests to services run in threads."""

    def __init__(self, connectors: Connectors, actions: Actions, deployment: Deployment) -> None:
        self._connectors: Connectors = connectors
        self._actions: Actions = actions
        self._deployment: Deployment = deployment

    def routes(self) -> list[Route]:
        """All routes."""
        one, task = "/connectors/{name}", "/connectors/{name}/tasks/{number}"
        plugin = "/connector-plugins/{plugin}/config"
        table: list[tuple[str, str, Endpoint]] = [
            ("GET", "/", self.root),
            ("GET", "/health", self.health),
            ("GET", "/connectors", self.connector_list),
            ("POST", "/connectors", self.refuse_creation),
            ("GET", one, self.shown(Connector.info)),
            ("DELETE", one, self.refuse_deletion),
            ("GET", f"{one}/config", self.shown(lambda each: dict(each.config))),
            ("PUT", f"{one}/config", self.refuse_configuration),
            ("PATCH", f"{one}/config", self.refuse_configuration),
            ("GET", f"{one}/status", self.shown(Connector.status)),
            ("GET", f"{one}/tasks", self.shown(Connector.task_configs)),
            ("GET", f"{one}/topics", self.shown(lambda each: {each.name: {"topics": list(each.topics)}})),
            ("PUT", f"{one}/topics/reset", self.refuse_topics_reset),
            ("GET", f"{one}/offsets", self.offsets),
            ("PATCH", f"{one}/offsets", self.refuse_offsets),
            ("DELETE", f"{one}/offsets", self.refuse_offsets),
            ("PUT", f"{one}/pause", self.acting("pause", 202)),
            ("PUT", f"{one}/resume", self.acting("resume", 202)),
            ("PUT", f"{one}/stop", self.acting("stop", 204)),
            ("POST", f"{one}/restart", self.restart),
            ("GET", f"{task}/status", self.task_status),
            ("POST", f"{task}/restart", self.restart_task),
            ("GET", "/connector-plugins", self.plugins),
            ("GET", plugin, self.plugin_config),
            ("PUT", f"{plugin}/validate", self.validate),
            ("GET", "/admin/loggers", self.loggers),
        ]
        by_path: dict[str, dict[str, Endpoint]] = {}
        for method, path, endpoint in table:
            by_path.setdefault(path, {})[method] = endpoint
        return [Route(path, _by_method(endpoints), methods=[*endpoints]) for path, endpoints in by_path.items()]

    async def root(self, request: Request) -> Response:
        """Connect's release, frazil's version, and the Kafka cluster's id."""
        cluster = await run_in_threadpool(self._connectors.cluster_id)
        return JSONResponse(
            {"version": CONNECT_VERSION, "commit": f"frazil-{VERSION}", "kafka_cluster_id": cluster},
        )

    async def health(self, request: Request) -> Response:
        """Whether the streams can be read."""
        await run_in_threadpool(self._connectors.all)
        return JSONResponse(
            {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."}
        )

    async def connector_list(self, request: Request) -> Response:
        """Names of the streams; with `expand`, a document of each stream by name."""
        connectors = await run_in_threadpool(self._connectors.all)
        makers = {"status": Connector.status, "info": Connector.info}
        expand = [each for each in request.query_params.getlist("expand") if each in makers]
        if "expand" not in request.query_params:
            return JSONResponse([*connectors])
        return JSONResponse(
            {name: {part: makers[part](each) for part in expand} for name, each in connectors.items()},
        )

    def shown(self, make: Callable[[Connector], Any]) -> Endpoint:
        """An endpoint that shows a part of a connector."""

        async def endpoint(request: Request) -> Response:
            return JSONResponse(make(await self._one(request)))

        return endpoint

    async def task_status(self, request: Request) -> Response:
        """State of a stream's only task."""
        connector = await self._one(request)
        return JSONResponse(connector.task_status(_task_of(request, connector)))

    async def offsets(self, request: Request) -> Response:
        """Next offset of each topic and partition."""
        connector = await self._one(request)
        offsets = await run_in_threadpool(self._connectors.offsets, connector.name)
        entries = [
            {
                "partition": {"kafka_topic": topic, "kafka_partition": int(partition)},
                "offset": {"kafka_offset": offset},
            }
            for topic, partitions in sorted(offsets.items())
            for partition, offset in sorted(partitions.items(), key=lambda each: int(each[0]))
        ]
        return JSONResponse({"offsets": entries})

    def acting(self, action: ApiAction, status: int) -> Endpoint:
        """An endpoint that acts on a stream and answers nothing."""

        async def endpoint(request: Request) -> Response:
            connector = await self._one(request)
            await self._actions.ask(connector.name, action)
            return Response(status_code=status)

        return endpoint

    async def restart(self, request: Request) -> Response:
        """Restart a stream's driver. A stopped stream stays stopped, and `onlyFailed` spares a working driver."""
        include, only_failed = (_flag(request, each) for each in ("includeTasks", "onlyFailed"))
        connector = await self._one(request, now=True)
        chosen = connector.state != "STOPPED" and (not only_failed or connector.state == "FAILED")
        if chosen:
            await self._actions.ask(connector.name, "restart")
        if not include and not only_failed:
            return Response(status_code=204)
        return JSONResponse(connector.status("RESTARTING" if chosen else None), status_code=202)

    async def restart_task(self, request: Request) -> Response:
        """Restart the driver, which is the task."""
        connector = await self._one(request, now=True)
        _task_of(request, connector)
        await self._actions.ask(connector.name, "restart")
        return Response(status_code=204)

    async def plugins(self, request: Request) -> Response:
        """List of the only plugin."""
        return JSONResponse(plugins())

    async def plugin_config(self, request: Request) -> Response:
        """Empty list: the keys are documented in the reference of stream files."""
        _refuse_other_plugin(request)
        return JSONResponse([])

    async def validate(self, request: Request) -> Response:
        """Validation of a configuration: each key with its errors."""
        _refuse_other_plugin(request)
        config = await _config_of(request)
        if not is_plugin(given := config.get("connector.class", CLASS)):
            named = request.path_params["plugin"]
            return error(400, f"Included connector type {given} does not match request type {named}")
        return JSONResponse(await run_in_threadpool(validated, config, self._deployment.streams_folder))

    async def loggers(self, request: Request) -> Response:
        """Empty list of loggers: a driver's log level is set in the settings."""
        return JSONResponse({})

    async def refuse_creation(self, request: Request) -> Response:
        """Refuse to create a connector: streams are created by files."""
        folder = shown_path(self._deployment.streams_folder)
        return error(403, f"Streams are files: write one into {folder}, then run: frazil validate")

    async def refuse_configuration(self, request: Request) -> Response:
        """Refuse a new configuration: streams are changed in their files."""
        try:
            file = (await self._one(request)).file
        except UnknownConnector:
            return await self.refuse_creation(request)
        return error(
            403, f"The configuration is the file {shown_path(file)}: change it there; it takes effect by itself"
        )

    async def refuse_deletion(self, request: Request) -> Response:
        """Refuse to delete a connector: a stream is removed with its file."""
        connector = await self._one(request)
        said = f"The stream is the file {shown_path(connector.file)}"
        return error(403, f"{said}: run frazil stop {connector.name}, then remove the file. Its tables stay.")

    async def refuse_topics_reset(self, request: Request) -> Response:
        """Refuse to reset the topics, which follow from positions."""
        await self._one(request)
        return error(403, "Topic tracking reset is disabled.")

    async def refuse_offsets(self, request: Request) -> Response:
        """Refuse to change offsets: positions are stored in tables, and moving them needs a reason."""
        name = (await self._one(request)).name
        command = f"frazil stop {name}, then frazil reset-offsets {name} --to WHERE --reason TEXT"
        return error(403, f"Positions are in the tables and are moved with a reason: run {command}")

    async def _one(self, request: Request, *, now: bool = False) -> Connector:
        name: str = request.path_params["name"]
        return await run_in_threadpool(lambda: self._connectors.one(name, now=now))


def _by_method(endpoints: dict[str, Endpoint]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return endpoint


def _task_of(request: Request, connector: Connector) -> int:
    """Number of the task in a request's path.

    Raises:
        HTTPException: The task is no number (404).
        UnknownConnector: The connector has no such task.
    """
    number: str = request.path_params["number"]
    if not number.isdecimal():
        raise HTTPException(404, "Not Found")
    if int(number) not in connector.tasks:
        raise UnknownConnector(f"No status found for task {connector.name}-{number}", fix="frazil status")
    return int(number)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


def _refuse_other_plugin(request: Request) -> None:
    plugin: str = request.path_params["plugin"]
    if not is_plugin(plugin):
        raise HTTPException(404, f"Unknown plugin {plugin}; streams are {CLASS}")


async def _config_of(request: Request) -> dict[str, str]:
    """Flat configuration in the body of a request. Values that are no texts become JSON.

    Raises:
        HTTPException: The body is too large (413), or no JSON object (400).
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_BODY:
            raise HTTPException(413, f"A configuration has at most {_LARGEST_BODY:,} bytes")
    try:
        document = json.loads(body)
        # Half of a character, such as "\\ud800", could not be answered.
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body is no JSON") from None
    if not isinstance(document, dict):
        raise HTTPException(400, "The body is no JSON object")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in document.items()}
