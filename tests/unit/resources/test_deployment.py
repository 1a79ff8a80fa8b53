"""Where a deployment is, and what it says when something is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import SpecError
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import KafkaResource
from tests.unit.orchestration.deployments import deployment_in


def test_the_home_is_the_nearest_folder_upwards_with_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment_in(tmp_path / "one", "payments")
    below = tmp_path / "one" / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv("FRAZIL_HOME", raising=False)
    assert Deployment.here().home == tmp_path / "one"
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path))
    assert Deployment.here().home == tmp_path


def test_an_unknown_stream_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(FrazilError, match="There is no stream 'payment'") as caught:
        Deployment.at(deployment_in(tmp_path, "payments", "refunds")).stream("payment")
    assert caught.value.fix == "did you mean payments?"


def test_a_stream_is_found_beside_a_broken_file(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "streams" / "broken.yaml").write_text("stream: [\n")
    assert Deployment.at(home).stream("payments").stream == "payments"
    with pytest.raises(SpecError, match=r"broken\.yaml"):
        Deployment.at(home).stream("broken")


def test_the_embedded_catalog_gets_its_folder_only_when_it_is_to_be_used(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments"))
    deployment.settings()
    assert not deployment.embedded.exists()
    deployment.prepared_settings()
    assert deployment.embedded.is_dir()


def test_resources_hold_paths_only_and_read_at_run_time(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    paths = DeploymentResource.of(Deployment.at(home))
    assert paths.stream("payments").table.name == "orders.payments"
    with pytest.raises(FrazilError, match="The local broker is not running"):
        KafkaResource(deployment=paths).log()
