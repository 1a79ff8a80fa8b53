"""Kubernetes client for pods: creates, reads and deletes them by HTTPS, as a pod's own service account.

It makes its few calls with an installed library: the official client would add forty megabytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from jobs.base.errors import FrazilError
from jobs.config.services.drivers import KubernetesSettings
from jobs.config.settings.settings import SETTINGS_FILE

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAUSE_SECONDS = 0.5
# Statuses to retry: a pod's name belongs to one launch, so the retry shows whether the first request worked.
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})


class KubernetesRefusedError(FrazilError):
    """Kubernetes refused a request.

    Safe: The request was not carried out.
    Next: correct the rights or the settings that the message names
    """


class KubernetesAwayError(FrazilError):
    """Kubernetes does not answer, so the outcome of a request is unknown.

    Safe: No second driver is started.
    Next: check `drivers.kubernetes.api` and the token file; then `frazil status`
    """


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """Pods of one namespace.

    Args:
        settings: Address of Kubernetes, and credentials.
        namespace: Namespace of the pods.
    """

    settings: KubernetesSettings
    namespace: str

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Create a pod with a name of this launch only; an existing pod of that name comes from a repeated request.

        Raises:
            KubernetesRefusedError: The pod was not created.
            KubernetesAwayError: The outcome is unknown.
        """
        self._ask("POST", "", dict(manifest), also=(409,))

    def read(self, name: str) -> dict[str, Any] | None:
        """A pod as it is; None if it does not exist.

        Raises:
            KubernetesRefusedError, KubernetesAwayError: The state is unknown.
        """
        return self._ask("GET", f"/{name}", None, also=(404,))

    def delete(self, name: str, grace_seconds: int) -> None:
        """Delete a pod, which may take some seconds to end until it is killed. A missing pod has ended.

        Raises:
            KubernetesRefusedError, KubernetesAwayError: The outcome is unknown.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_seconds}
        self._ask("DELETE", f"/{name}", body, also=(404,))

    def ended(self, selector: str) -> list[dict[str, Any]]:
        """Finished pods with these labels, oldest first.

        Raises:
            KubernetesRefusedError, KubernetesAwayError: The state is unknown.
        """
        found = self._ask("GET", f"?labelSelector={requests.utils.quote(selector)}", None) or {}
        over = [pod for pod in found.get("items", ()) if pod.get("status", {}).get("phase") in ("Succeeded", "Failed")]
        return sorted(over, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, *, also: tuple[int, ...] = ()
    ) -> dict[str, Any] | None:
        """Response to a request; None if its status is one of those in `also`."""
        deadline = time.monotonic() + self.settings.timeout.total_seconds()
        url = f"{self._address}/api/v1/namespaces/{self.namespace}/pods{path}"
        new_token = False
        while True:
            left = deadline - time.monotonic()
            try:
                answer = requests.request(
                    method,
                    url,
                    json=body,
                    headers={"Authorization": f"Bearer {self._token()}", "Accept": "application/json"},
                    verify=self._authorities,
                    timeout=max(left, 1.0),
                    allow_redirects=False,
                )
            except requests.RequestException as problem:
                said = f"Kubernetes does not answer at {self._address} ({type(problem).__name__})"
            else:
                there = answer.status_code != 409 or _document(answer).get("reason") == "AlreadyExists"
                if answer.status_code in also and there:
                    return None
                if answer.ok:
                    return _document(answer)
                said = f"Kubernetes at {self._address} answers {answer.status_code}: {_message(answer)}"
                if answer.status_code == 401 and not new_token:
                    # The token's file is replaced before the token expires, perhaps just now.
                    new_token = True
                    continue
                if answer.status_code not in _AGAIN:
                    raise KubernetesRefusedError(said, fix=_remedy(answer.status_code, self.namespace))
            if time.monotonic() + _PAUSE_SECONDS >= deadline:
                raise KubernetesAwayError(said, fix=f"see that drivers.kubernetes.api in {SETTINGS_FILE} is right")
            time.sleep(_PAUSE_SECONDS)

    @property
    def _address(self) -> str:
        if self.settings.api is not None:
            return self.settings.api
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise KubernetesAwayError(
                "drivers.launcher is kubernetes, and this process runs in no pod that would know where Kubernetes is.",
                fix=f"run this in the cluster, or write drivers.kubernetes.api into {SETTINGS_FILE}",
            )
        return f"https://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def _authorities(self) -> str | bool:
        file = self.settings.ca_file or _ACCOUNT / "ca.crt"
        return str(file) if self.settings.ca_file is not None or file.exists() else True

    def _token(self) -> str:
        file = self.settings.token_file or _ACCOUNT / "token"
        try:
            return file.read_text(encoding="utf-8").strip()
        except OSError as problem:
            raise KubernetesAwayError(
                f"The token by which Kubernetes is asked cannot be read: {file}: {problem.strerror}.",
                fix=f"run this in a pod with a service account, or write drivers.kubernetes.token_file into "
                f"{SETTINGS_FILE}",
            ) from None


def _document(answer: requests.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _message(answer: requests.Response) -> str:
    return str(_document(answer).get("message") or answer.reason or "no reason")[:500]


def _remedy(status: int, namespace: str) -> str:
    if status in (401, 403):
        return f"let the service account of this process get, list, create and delete pods in {namespace}"
    return f"correct drivers.kubernetes in {SETTINGS_FILE}; frazil manifest STREAM prints the pod"
