"""Manifest of a driver's pod, from the settings and the order. Pure functions.

It is a pod, not a job: the supervisor restarts a driver with a new attempt, so nothing else may restart it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jobs.base.errors import FrazilError
from jobs.config.services.drivers import DriversSettings, KubernetesSettings
from jobs.config.settings.settings import SETTINGS_FILE
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE, driver_id
from jobs.streaming.supervision.launchers.driver_identity import (
    HANDLE_VARIABLE,
    KEEPER_OFF,
    LAUNCHER_VARIABLE,
)
from jobs.streaming.supervision.launchers.launcher import DriverOrder

CONTAINER = "frazil"
MANAGED_BY = "frazil"
# Used in `spark.driver.host: ${env:FRAZIL_POD_IP}` if executors are pods, too.
_ADDRESS = {"name": "FRAZIL_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
_LONGEST_NAME = 63
_LONGEST_STREAM = 40
# Fields that identify the pod; an overlay must not change them.
_FIXED = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("spec", "restartPolicy"),
)


def pod_name(label: str, attempt: int, nonce: str) -> str:
    """Unique name of a pod, which shows people its driver.

    Args:
        label: The stream's id, or `group:NAME`.
        attempt: Number of the launch.
        nonce: Lower-case hexadecimal digits, unique to this launch.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:_LONGEST_STREAM].strip("-")
    return f"frazil-{readable}-{attempt}-{nonce}"[:_LONGEST_NAME]


def pod_manifest(drivers: DriversSettings, chosen: KubernetesSettings, order: DriverOrder, home: str) -> dict[str, Any]:
    """The manifest of a driver's pod.

    Args:
        drivers: Block of the settings; `chosen` is its part.
        order: Driver to start; its launch has the pod's name.
        home: The deployment's folder in the pod.

    Raises:
        FrazilError: The overlay changes fields that identify the pod.
    """
    launch = order.launch
    name = launch.handle.rpartition("/")[2]
    kind, _, called = order.label.rpartition(":")
    environment = {
        **drivers.environment,
        **KEEPER_OFF,
        "FRAZIL_HOME": home,
        LAUNCHER_VARIABLE: "kubernetes",
        HANDLE_VARIABLE: launch.handle,
        DRIVER_VARIABLE: driver_id(order.label, launch.attempt),
    }
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": chosen.image,
        "command": list(chosen.command),
        "args": ["-m", order.module, *order.arguments_at(home)],
        "workingDir": home,
        "env": [*({"name": key, "value": value} for key, value in environment.items()), _ADDRESS],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if chosen.env_from:
        container["envFrom"] = [{"secretRef": {"name": each}} for each in chosen.env_from]
    if chosen.resources:
        container["resources"] = chosen.resources
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(chosen.termination_grace.total_seconds()),
        "containers": [container],
    }
    if chosen.service_account is not None:
        spec["serviceAccountName"] = chosen.service_account
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": chosen.namespace,
            "labels": {
                "app.kubernetes.io/name": "frazil",
                "app.kubernetes.io/component": "driver",
                "app.kubernetes.io/managed-by": MANAGED_BY,
                f"frazil/{kind or 'stream'}": called.rstrip("-_"),
                "frazil/attempt": str(launch.attempt),
            },
            "annotations": {"frazil/generation": launch.generation},
        },
        "spec": spec,
    }
    laid = overlaid(manifest, chosen.pod)
    for path in _FIXED:
        if _at(laid, path) != _at(manifest, path):
            raise FrazilError(
                f"drivers.kubernetes.pod must not change {'.'.join(path)}, by which a driver's pod is found and kept.",
                fix=f"take it out of drivers.kubernetes.pod in {SETTINGS_FILE}",
            )
    return laid


def overlaid(base: Any, over: Any) -> Any:
    """A part of a manifest with an overlay: mappings are merged by key, lists of named things by name.

    A list whose members have no names, such as `tolerations`, replaces the one below it.
    """
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: overlaid(base[key], value) if key in base else value for key, value in over.items()}
    if isinstance(base, list) and isinstance(over, list) and _named(base) and _named(over):
        names = {each["name"]: each for each in base}
        for each in over:
            names[each["name"]] = overlaid(names[each["name"]], each) if each["name"] in names else each
        return list(names.values())
    return over


def _named(members: list[Any]) -> bool:
    return all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in members)


def _at(manifest: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    for key in path:
        manifest = manifest[key]
    return manifest
