"""`frazil manifest`: the pod of a driver, printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from orchestration.cli.main import main
from tests.unit.orchestration.deployments import STREAM
from tests.unit.streaming.supervision.launchers.orders import STATE

# What a pod and its container may have, of what frazil writes: a key that is mistyped would be refused by Kubernetes.
POD = {"restartPolicy", "terminationGracePeriodSeconds", "containers", "serviceAccountName"}
CONTAINER = {
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "env",
    "envFrom",
    "resources",
    "terminationMessagePolicy",
}


def printed(home: Path, drivers: dict[str, Any] | None, more: str = "") -> tuple[int, str]:
    (home / "streams").mkdir()
    (home / "streams" / "payments.yaml").write_text(STREAM.format(stream="payments", topic="payments.v1") + more)
    (home / "frazil.yaml").write_text(yaml.safe_dump({"state": STATE} | ({"drivers": drivers} if drivers else {})))
    result = CliRunner().invoke(main, ["--home", str(home), "manifest", "payments"])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("more", "module", "label"),
    [("", "jobs.streaming.driver.main", "stream"), ("group: small\n", "jobs.streaming.groups.main", "group")],
)
def test_the_pod_of_a_driver_is_printed(tmp_path: Path, more: str, module: str, label: str) -> None:
    own = {"image": "frazil:1", "env_from": ["frazil"], "service_account": "frazil", "resources": {"limits": {}}}
    status, text = printed(tmp_path, {"launcher": "kubernetes", "kubernetes": own}, more)
    assert status == 0, text
    pod = yaml.safe_load(text)
    assert f"frazil/{label}" in pod["metadata"]["labels"]
    assert pod["spec"].keys() == POD
    (container,) = pod["spec"]["containers"]
    assert container.keys() <= CONTAINER
    assert container["args"][:2] == ["-m", module]


def test_settings_without_kubernetes_print_none(tmp_path: Path) -> None:
    status, text = printed(tmp_path, None)
    assert status == 1
    assert "does not say how drivers would run in Kubernetes" in text
