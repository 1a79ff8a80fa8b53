"""Kubernetes as far as a launcher speaks with it: an HTTP server that keeps pods, with faults on demand.

It is no Kubernetes: it checks of a manifest only what every pod has to have. It starts nothing, unless a test wants a
pod's container to be a process of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.helpers.http_service import QuietHandler, serving_http


@dataclass
class FakeKubernetes:
    """State of the server, which tests read and change.

    Attributes:
        address: Address of the server.
        token: Token that clients have to send.
        pods: The pods by namespace and name.
        faults: Statuses of the next requests' responses, each with whether the request is carried out all the same.
        requests: Method, path and status of each request, in order.
        graces: Seconds that each removed pod was given to end.
        deaf: Whether pods ignore requests to end.
        given: Environment of containers that are processes of this machine; None if containers are not started.
    """

    address: str = ""
    token: str = "first"
    pods: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    faults: list[tuple[int, bool]] = field(default_factory=list)
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    graces: list[int] = field(default_factory=list)
    deaf: bool = False
    given: dict[str, str] | None = None
    processes: dict[tuple[str, str], subprocess.Popen[bytes]] = field(default_factory=dict)
    ending: dict[tuple[str, str], float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def pod(self) -> dict[str, Any]:
        """The only pod."""
        (found,) = self.pods.values()
        return found

    def becomes(self, phase: str, **status: Any) -> None:
        """The only pod is in another phase."""
        self.pod()["status"] = {"phase": phase} | status

    def handle(self, method: str, url: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Carry a request out; returns the status and the document of the answer."""
        self._look_at_processes()
        parts = urlsplit(url)
        _, api, version, _, namespace, kind, *rest = parts.path.split("/")
        assert (api, version, kind) == ("api", "v1", "pods")
        if method == "POST":
            return self._create(namespace, body)
        if not rest:
            wanted = dict(each.split("=") for each in parse_qs(parts.query)["labelSelector"][0].split(","))
            items = [pod for pod in self.pods.values() if wanted.items() <= pod["metadata"]["labels"].items()]
            return 200, {"kind": "PodList", "items": items}
        key = (namespace, rest[0])
        if key not in self.pods:
            return 404, failure(404, f'pods "{rest[0]}" not found')
        if method == "DELETE":
            assert body["kind"] == "DeleteOptions"
            self.graces.append(body["gracePeriodSeconds"])
            if (process := self.processes.get(key)) is not None and process.poll() is None:
                process.terminate()
                self.ending.setdefault(key, time.monotonic() + body["gracePeriodSeconds"])
                return 200, self.pods[key]
            return 200, self.pods[key] if self.deaf else self.pods.pop(key)
        return 200, self.pods[key]

    def _create(self, namespace: str, pod: Any) -> tuple[int, dict[str, Any]]:
        name = pod["metadata"]["name"]
        containers = pod["spec"]["containers"]
        if not containers or any(not each.get("image") for each in containers):
            return 422, failure(422, f'Pod "{name}" is invalid: spec.containers[0].image: Required value')
        if (namespace, name) in self.pods:
            return 409, failure(409, f'pods "{name}" already exists') | {"reason": "AlreadyExists"}
        created = {"creationTimestamp": f"2026-11-26T10:00:{len(self.requests):02d}Z"}
        self.pods[namespace, name] = pod | {"metadata": pod["metadata"] | created, "status": {"phase": "Pending"}}
        if self.given is not None:
            (container,) = containers
            env = {each["name"]: each["value"] for each in container["env"] if "value" in each}
            command = [*container["command"], *container["args"]]
            process = subprocess.Popen(command, env=self.given | env, stdin=subprocess.DEVNULL, start_new_session=True)
            self.processes[namespace, name] = process
        return 201, self.pods[namespace, name]

    def _look_at_processes(self) -> None:
        """Pods are as their processes are, and go once these have ended that were to be removed."""
        for key, process in self.processes.items():
            code = process.poll()
            if code is None and time.monotonic() > self.ending.get(key, float("inf")):
                process.kill()
                code = process.wait()
            if key not in self.pods:
                continue
            if code is not None and key in self.ending:
                del self.pods[key]
            elif code is None:
                self.pods[key]["status"] = {"phase": "Running"}
            else:
                status = code if code >= 0 else 128 - code
                over = {"terminated": {"reason": "Error" if code else "Completed", "exitCode": status}}
                phase = "Failed" if code else "Succeeded"
                self.pods[key]["status"] = {"phase": phase, "containerStatuses": [{"state": over}]}

    def end(self) -> None:
        """End what containers are processes."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def failure(status: int, message: str) -> dict[str, Any]:
    """A failure as Kubernetes describes it."""
    return {"kind": "Status", "status": "Failure", "message": message, "code": status}


@contextlib.contextmanager
def fake_kubernetes() -> Iterator[FakeKubernetes]:
    """Serve one until the end."""
    state = FakeKubernetes()

    class Handler(QuietHandler):
        def answer(self) -> None:
            raw = self.body()
            body = json.loads(raw) if raw else None
            with state.lock:
                status, carried_out = state.faults.pop(0) if state.faults else (0, True)
                document: dict[str, Any] = failure(status, "a fault of the test")
                if self.headers.get("Authorization") != f"Bearer {state.token}":
                    status, document = 401, failure(401, "Unauthorized")
                elif carried_out:
                    done, result = state.handle(self.command, self.path, body)
                    status, document = (status, document) if status else (done, result)
                state.requests.append((self.command, self.path, status))
            if status == 599:
                # The connection ends without an answer.
                self.close_connection = True
                return
            self.say(status, document)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

    try:
        with serving_http(Handler) as port:
            state.address = f"http://127.0.0.1:{port}"
            yield state
    finally:
        state.end()
