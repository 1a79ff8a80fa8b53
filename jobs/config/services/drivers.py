"""Drivers block of the settings: the launcher of drivers and its settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from jobs.config.documents.base import (
    LocalPath,
    Location,
    Problem,
    SpecModel,
)
from jobs.config.documents.secrets import literal_secret_problem, looks_secret
from jobs.config.documents.units import Duration
from jobs.config.services.launcher_name import LOCAL, LauncherName

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Keys that only concern how a launcher is reached and observed.
_REACHED = {"pages", "timeout", "api", "token_file", "ca_file"}
_MEMORY = re.compile(r"[1-9][0-9]*[kmgtKMGT]")


def _matching(pattern: re.Pattern[str], message: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(message)
        return value

    return AfterValidator(check)


def _http_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", value):
        raise ValueError("must be http://HOST:PORT or https://HOST:PORT")
    return value.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]
AbsolutePath = Annotated[str, _matching(re.compile(r"/\S*"), "must be an absolute path where drivers run")]
KubernetesName = Annotated[str, _matching(_NAME, "must be a name of Kubernetes: lower-case letters, digits, - and .")]


class SparkSubmitSettings(SpecModel):
    """Drivers on the workers of a standalone cluster of Spark, where its master finds a place.

    Args:
        master: Master as ``spark://HOST:PORT``. Without it, ``spark.master``.
        pages: Web pages of the masters, which list drivers as JSON.
        memory: Memory that a worker reserves for a driver and all its processes.
        cores: Cores that a worker reserves for a driver.
        python: Interpreter with frazil on the workers. Without it, the path of this one.
        timeout: Timeout of a submission or its end.
    """

    example = "{pages: ['http://spark.internal:8080']}"

    master: Annotated[str, _matching(re.compile(r"spark://\S+"), "must be spark://HOST:PORT")] | None = None
    pages: list[HttpUrl] = Field(min_length=1)
    memory: Annotated[str, _matching(_MEMORY, "must be a size, such as 2g")] = "2g"
    cores: Annotated[int, Field(strict=True, ge=1, le=1024)] = 1
    python: AbsolutePath | None = None
    timeout: Duration = timedelta(seconds=240)


class KubernetesSettings(SpecModel):
    """Drivers in pods of their own.

    Args:
        image: Image with frazil and Java; see `examples/kubernetes/Dockerfile`.
        namespace: Namespace of the pods.
        service_account: Service account of the pods. It starts executors where these are pods as well.
        env_from: Secrets whose keys become environment variables of the driver.
        resources: Resources of the container, as Kubernetes names them.
        termination_grace: Time that a driver has to finish its batch when its pod ends.
        command: Command before ``-m MODULE``: an init and Python.
        pod: Part of a pod manifest that is laid over frazil's, such as volumes or tolerations.
        api: URL of Kubernetes' API. Without it, the address that pods get.
        token_file: File of the token for the API. Without it, the pod's.
        ca_file: File of the API's authorities. Without it, the pod's.
        timeout: Timeout of a request to the API.
    """

    example = "{image: 'registry.example/frazil:0.1.0', env_from: [frazil], command: [python]}"

    image: Annotated[str, AfterValidator(str.strip), Field(min_length=1)]
    namespace: KubernetesName = "default"
    service_account: KubernetesName | None = None
    env_from: list[KubernetesName] = Field(default_factory=list)
    resources: dict[str, Any] = Field(default_factory=dict)
    termination_grace: Duration = timedelta(seconds=120)
    command: list[str] = Field(default=["tini", "--", "python"], min_length=1)
    pod: dict[str, Any] = Field(default_factory=dict)
    api: HttpUrl | None = None
    token_file: LocalPath | None = None
    ca_file: LocalPath | None = None
    timeout: Duration = timedelta(seconds=10)


class DriversSettings(SpecModel):
    """What starts drivers.

    Args:
        launcher: ``local`` starts a process on the machine of the command or run; the others start drivers elsewhere.
        home: Folder of the deployment where drivers run. Without it, the path on this machine.
        environment: Environment variables of drivers. No secrets.
        spark_submit: Settings of ``launcher: spark_submit``.
        kubernetes: Settings of ``launcher: kubernetes``.
    """

    launcher: LauncherName = LOCAL
    home: AbsolutePath | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    spark_submit: SparkSubmitSettings | None = None
    kubernetes: KubernetesSettings | None = None

    def _problems(self) -> Iterator[Problem]:
        if self.launcher == "spark_submit" and self.spark_submit is None:
            example = "spark_submit: {pages: ['http://spark.internal:8080']}"
            yield ("launcher",), f"needs to know where the master's page is; write {example} beside it"
        if self.launcher == "kubernetes" and self.kubernetes is None:
            yield ("launcher",), "needs to know the image; write kubernetes: {image: …} beside it"
        for name, value in self.environment.items():
            at: Location = ("environment", name)
            if not _VARIABLE.fullmatch(name):
                yield at, "must be the name of an environment variable"
            elif "${" in value or looks_secret(name) or literal_secret_problem(name, value):
                yield at, "must not be a secret: give it to the machine or the pod where the driver runs"

    @property
    def remote(self) -> bool:
        """Whether drivers may run on another machine than the one that starts them."""
        return self.launcher != LOCAL

    def meaning(self) -> dict[str, Any]:
        """Return the keys for which a driver is restarted; how its launcher is reached may differ by machine."""
        chosen = self.spark_submit if self.launcher == "spark_submit" else self.kubernetes
        own = chosen.model_dump(mode="json", exclude=_REACHED) if chosen is not None else {}
        return {"launcher": self.launcher, "home": self.home, "environment": self.environment, "own": own}
