"""`frazil connect-api`: Kafka Connect's REST interface over the deployment's streams, for scripts and Kafka UIs."""

from __future__ import annotations

import importlib.util
import logging
import queue
import socket
import threading
from concurrent.futures import Future
from pathlib import Path

import click

from jobs.base.errors import FrazilError
from jobs.base.system.ports import HOST
from jobs.base.system.threads import background_thread
from jobs.config.documents.secrets import Secret
from jobs.config.redaction import RedactingFormatter
from jobs.streaming.supervision.control.lifecycle import ActionResult
from orchestration.cli.common.recorded_runs import RunRecorder, open_recorder
from orchestration.cli.common.terminal import current_user
from orchestration.cli.streams.control import carry_out_control
from orchestration.connect_api.actions import ApiAction
from orchestration.jobs.control import ControlConfig, StreamAction, perform_control
from resources.deployment import Deployment

log = logging.getLogger(__name__)

PORT = 8083
"""Kafka Connect's own."""
REASON = "Connect API"
_TOGETHER = 8
_END_SECONDS = 5


class RecordedActions:
    """Actions on streams, each in a thread, with a run of Dagster for each.

    One thread keeps the runs, in order: Dagster's logging is one for the whole process. Threads end with the process,
    as if that was killed, which every action allows for.

    Args:
        deployment: On whose streams they act.
        by: Who is recorded.
    """

    def __init__(self, deployment: Deployment, by: str) -> None:
        self._deployment: Deployment = deployment
        self._by: str = by
        self._turns: threading.Semaphore = threading.Semaphore(_TOGETHER)
        self._asked: queue.SimpleQueue[tuple[ControlConfig, Future[ActionResult]]] = queue.SimpleQueue()

    def start(self) -> None:
        """Open Dagster's storage, so that the first action need not wait for it."""
        background_thread(self._record, "runs").start()

    def begin(self, stream: str, action: ApiAction) -> Future[ActionResult]:
        """Begin an action, and return what it will have come to."""
        config = ControlConfig(stream=stream, action=StreamAction(action), reason=REASON, by=self._by)
        outcome = Future[ActionResult]()
        background_thread(self._perform, stream, config, outcome).start()
        self._asked.put((config, outcome))
        return outcome

    def _perform(self, config: ControlConfig, outcome: Future[ActionResult]) -> None:
        with self._turns:
            try:
                outcome.set_result(perform_control(self._deployment, config))
            except BaseException as problem:
                outcome.set_exception(problem)

    def _record(self) -> None:
        with open_recorder(self._deployment) as ledger:
            while True:
                self._record_one(ledger, *self._asked.get())

    def _record_one(self, ledger: RunRecorder, config: ControlConfig, outcome: Future[ActionResult]) -> None:
        problem = None
        try:
            _, problem = carry_out_control(ledger, config, lambda _, __: outcome.result())
        except Exception:
            # The request's answer, or this server's log, has it.
            problem = ledger.problem
        if problem:
            log.warning("%s; so there is no run of this in Dagster", problem)


@click.command("connect-api")
@click.option("--host", default=HOST, show_default=True, help="Address to listen on. All but loopback need a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 for a free one.")
@click.option("--token-env", metavar="NAME", help="Environment variable with the token that requests have to give.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The same, from a file with one line, which may be replaced meanwhile.",
)
@click.option(
    "--tls-certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Serve HTTPS with this certificate (PEM).",
)
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its private key (PEM).")
@click.pass_obj
def connect_api(
    deployment: Deployment,
    host: str,
    port: int,
    token_env: str | None,
    token_file: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
) -> None:
    """Serve Kafka Connect's REST interface over the streams, until Ctrl-C.

    Scripts and Kafka UIs see every stream as a sink connector: state, offsets, configuration, pause, resume, stop and
    restart. Configurations are read only, since they are files. A request gives the token as `Authorization: Bearer`,
    or as the password of any user.
    """
    deployment.require()
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise FrazilError(f"The web server is not installed: {', '.join(missing)}.", fix="pip install 'frazil[ui]'")
    # Imported here: they are of an extra.
    import uvicorn

    from orchestration.connect_api.access import is_loopback
    from orchestration.connect_api.connectors import Connectors
    from orchestration.connect_api.server import connect_app

    token = _token(token_env, token_file)
    if token is None and not is_loopback(host):
        raise FrazilError(
            f"Every client that reaches {host} could stop the streams: an address other than loopback needs a token.",
            fix="export a token of at least 16 characters, and name its variable with --token-env",
        )
    if (tls_certificate is None) != (tls_key is None):
        raise FrazilError("A certificate and its key belong together.", fix="give both --tls-certificate and --tls-key")
    settings = deployment.settings()
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(settings, also=[token] if token is not None else []))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("orchestration").setLevel(logging.INFO)
    listening = _listen(host, port)
    address = _shown_address(host, listening.getsockname()[1])
    actions = RecordedActions(deployment, current_user())
    actions.start()
    app = connect_app(Connectors(deployment, address), actions.begin, deployment, token)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_END_SECONDS,
        ssl_certfile=tls_certificate,
        ssl_keyfile=tls_key,
    )
    scheme = "https" if tls_certificate is not None else "http"
    click.echo(f"Kafka Connect's REST interface is at {scheme}://{address}; Ctrl-C ends it.")
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _token(variable: str | None, file: Path | None) -> Secret | None:
    """Reference to the token, which was read once.

    Raises:
        FrazilError: It is missing, too short, or named twice.
    """
    if variable is not None and file is not None:
        raise FrazilError("The token is named twice.", fix="give --token-env or --token-file")
    if variable is None and file is None:
        return None
    try:
        token = Secret(f"${{env:{variable}}}" if file is None else f"${{file:{file.absolute()}}}")
    except ValueError:
        raise FrazilError(
            "The token's variable has a name of letters, digits and _; its file a path without braces.",
            fix="name the variable, not the token, with --token-env",
        ) from None
    # Imported here: it is of an extra.
    from orchestration.connect_api.access import read_token

    read_token(token)
    return token


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        FrazilError: The address cannot be listened on.
    """
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family, backlog=128)
    except OSError as problem:
        said = problem.strerror or str(problem)
        raise FrazilError(
            f"{_shown_address(host, port)} cannot be listened on: {said}.", fix="name another one with --port or --host"
        ) from None


def _shown_address(host: str, port: int) -> str:
    name = host.strip("[]")
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
