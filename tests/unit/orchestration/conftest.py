from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in
from tests.unit.orchestration.maintain_deployment import Tables
from tests.unit.orchestration.reconcile.supervised_deployment import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment.at(deployment_in(tmp_path, "payments"))


@pytest.fixture
def settings(deployment: Deployment) -> Settings:
    return deployment.prepared_settings()


@pytest.fixture
def spec(deployment: Deployment) -> StreamSpec:
    return deployment.stream("payments")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def orders(world: World) -> World:
    world.write("orders")
    return world


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    made = Tables(tmp_path)
    yield made
    made.close()
