from __future__ import annotations

from pathlib import Path

import pytest

from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment.at(deployment_in(tmp_path, "payments"))


@pytest.fixture
def settings(deployment: Deployment) -> Settings:
    return deployment.prepared_settings()


@pytest.fixture
def spec(deployment: Deployment) -> StreamSpec:
    return deployment.stream("payments")
