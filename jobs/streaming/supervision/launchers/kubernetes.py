"""Launcher of drivers as Kubernetes pods, each started exactly once."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs.base.errors import FrazilError
from jobs.config.services.drivers import KubernetesSettings
from jobs.config.services.launcher_name import LauncherName
from jobs.config.settings.settings import SETTINGS_FILE, Settings
from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.documents.waiting import wait_until
from jobs.streaming.supervision.launchers.kubernetes_api import (
    KubernetesApi,
    KubernetesAwayError,
    KubernetesRefusedError,
)
from jobs.streaming.supervision.launchers.launcher import DriverOrder, Look, NotLaunchedError
from jobs.streaming.supervision.launchers.pod_manifest import MANAGED_BY, pod_manifest, pod_name

# After a pod's grace its node kills it, and then reports that.
_SAID_SECONDS = 30.0
# Time that an action waits for the removal, longer than the report takes.
_GONE_SECONDS = 120.0
# Number of finished pods of a stream that are kept for their logs.
_KEPT_PODS = 2


@dataclass(frozen=True, slots=True)
class KubernetesPods:
    """Creates, reads and deletes pods of drivers.

    Args:
        settings: Settings of the deployment, with `drivers.kubernetes`.
    """

    settings: Settings

    @property
    def name(self) -> LauncherName:
        """Name in the settings."""
        return "kubernetes"

    @property
    def _chosen(self) -> KubernetesSettings:
        chosen = self.settings.drivers.kubernetes
        if chosen is None:
            raise FrazilError(
                f"A driver was started in a pod, and {SETTINGS_FILE} does not say any more where Kubernetes is.",
                fix=f"write drivers.kubernetes into {SETTINGS_FILE} again, until that driver has ended",
            )
        return chosen

    def check(self) -> str:
        """List the pods of drivers, as a check; see `Launcher`."""
        namespace = self._chosen.namespace
        KubernetesApi(self._chosen, namespace).ended(f"app.kubernetes.io/managed-by={MANAGED_BY}")
        return f"Kubernetes answers, and shows the pods of {namespace}"

    def handle(self, label: str, attempt: int) -> str:
        """Namespace and name of the new pod."""
        return f"{self._chosen.namespace}/{pod_name(label, attempt, secrets.token_hex(3))}"

    def manifest(self, order: DriverOrder) -> dict[str, Any]:
        """Manifest of the new pod."""
        home = self.settings.drivers.home or str(self.settings.home)
        return pod_manifest(self.settings.drivers, self._chosen, order, home)

    def start(self, order: DriverOrder) -> LaunchedProcess:
        """Create a pod; see `Launcher`."""
        launch, manifest = order.launch, self.manifest(order)
        api, _ = self._found(launch.handle)
        with contextlib.suppress(FrazilError):
            # A user without permission to list pods can still start drivers.
            self._tidy(api, manifest["metadata"]["labels"])
        try:
            api.create(manifest)
        except KubernetesRefusedError as problem:
            raise NotLaunchedError(f"The driver of stream {order.label}: {problem.message}", fix=problem.fix) from None
        who = (launch.attempt, launch.generation, 0, "", "", "", time.time())
        return LaunchedProcess(*who, launcher=self.name, handle=launch.handle)

    def look(self, process: LaunchedProcess) -> Look:
        """State of a pod; see `Launcher`."""
        if not process.handle:
            return Look("ended", process.problem)
        try:
            api, name = self._found(process.handle)
            pod = api.read(name)
        except FrazilError as problem:
            away = isinstance(problem, KubernetesAwayError)
            return Look("unknown", problem.message.rstrip("."), away=away)
        return look_at(pod, time.time())

    def end(self, process: LaunchedProcess, label: str, seconds: float) -> bool:
        """Delete a pod, which first asks its driver to end; see `Launcher`."""
        if not process.handle:
            return True
        api, name = self._found(process.handle)
        # Never 0: that would delete the pod's record while the pod may still run.
        api.delete(name, max(1, int(seconds)))
        asked = time.monotonic()
        if not wait_until(lambda: self.look(process).life == "ended", seconds + _GONE_SECONDS, 0.5):
            raise FrazilError(
                f"stream {label}: pod {process.handle} was asked to end, and it is unknown whether it has: "
                f"{self.look(process).reason or 'it runs'}.",
                fix=f"kubectl -n {api.namespace} describe pod {name}; if its node is lost for good, delete the node",
            )
        return time.monotonic() - asked < seconds

    def _found(self, handle: str) -> tuple[KubernetesApi, str]:
        namespace, _, name = handle.rpartition("/")
        return KubernetesApi(self._chosen, namespace), name

    def _tidy(self, api: KubernetesApi, labels: Mapping[str, str]) -> None:
        """Delete the stream's finished pods, except the newest."""
        ours = {key: value for key, value in labels.items() if key != "frazil/attempt"}
        over = api.ended(",".join(f"{key}={value}" for key, value in ours.items()))
        for pod in over[: -_KEPT_PODS or None]:
            api.delete(pod["metadata"]["name"], 1)


def look_at(pod: Mapping[str, Any] | None, now: float) -> Look:
    """State of the driver in a pod; None: the pod does not exist.

    Args:
        pod: The pod, as Kubernetes returns it.
        now: Present time, seconds since 1970.
    """
    if pod is None:
        return Look("ended", "there is no such pod")
    status, place = pod.get("status", {}), str(pod.get("spec", {}).get("nodeName") or "")
    phase = status.get("phase", "Pending")
    if phase in ("Succeeded", "Failed"):
        return Look("ended", _why_ended(status) or f"the pod has {phase.lower()}", place)
    if phase == "Unknown":
        return Look("unknown", f"node {place} does not say how the pod is", place)
    if (until := pod.get("metadata", {}).get("deletionTimestamp")) and now > _seconds(until) + _SAID_SECONDS:
        # Its node would have reported the end. If the node is lost, its last report stays, usually that the pod runs.
        return Look("unknown", f"the pod should have ended at {until}, and node {place} does not confirm it", place)
    if phase == "Pending":
        return Look("alive", _why_pending(status) or "the pod waits to be started", place)
    return Look("alive", "", place)


def _seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp()


def _why_ended(status: Mapping[str, Any]) -> str:
    if reason := status.get("reason"):
        # Message of the whole pod: it was evicted, or its node was lost.
        return _sentence(reason, status.get("message"))
    for container in status.get("containerStatuses", ()):
        over = (container.get("state") or {}).get("terminated")
        if over is not None:
            words = f"{over.get('reason', 'ended')}, exit status {over.get('exitCode', '?')}"
            lines = str(over.get("message") or "").strip().splitlines()
            return _sentence(words, lines[-1] if lines else None)
    return ""


def _why_pending(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses", ()):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting is not None and waiting.get("reason"):
            return _sentence(waiting["reason"], waiting.get("message"))
    for condition in status.get("conditions", ()):
        if condition.get("status") == "False" and condition.get("reason"):
            return _sentence(condition["reason"], condition.get("message"))
    return ""


def _sentence(reason: Any, message: Any) -> str:
    return f"{reason} ({str(message).strip().rstrip('.')})" if message else str(reason)
