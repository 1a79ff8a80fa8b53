"""Drivers block of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.documents.validation import SpecError
from jobs.config.settings.generation import group_generation
from jobs.config.settings.settings import load_settings

STATE = {"store": "postgresql://frazil@db.internal/ops"}
PAGES = {"pages": ["http://spark.internal:8080"]}
POD = {"image": "frazil:1"}


def problem(folder: Path, drivers: Any, state: Any = STATE) -> str:
    (folder / "frazil.yaml").write_text(yaml.safe_dump({"drivers": drivers} | ({"state": state} if state else {})))
    with pytest.raises(SpecError) as problems:
        load_settings(None, home=folder)
    (sentence,) = problems.value.problems
    return sentence


@pytest.mark.parametrize(
    ("drivers", "said"),
    [
        ({"launcher": "spark_submit"}, "needs to know where the master's page is"),
        ({"launcher": "kubernetes"}, "needs to know the image"),
        ({"launcher": "yarn"}, "drivers.launcher"),
        ({"luancher": "local"}, "did you mean 'launcher'?"),
        ({"environment": {"STATE_PASSWORD": "x"}}, "must not be a secret"),
        ({"environment": {"A": "${env:B}"}}, "must not be a secret"),
        ({"home": "srv"}, "must be an absolute path"),
        ({"launcher": "kubernetes", "kubernetes": POD | {"namespace": "A_b"}}, "must be a name of Kubernetes"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, drivers: Any, said: str) -> None:
    sentence = problem(tmp_path, drivers)
    assert said in sentence
    assert "frazil.yaml:" in sentence


@pytest.mark.parametrize(
    "drivers", [{"launcher": "spark_submit", "spark_submit": PAGES}, {"launcher": "kubernetes", "kubernetes": POD}]
)
def test_drivers_elsewhere_need_a_state_that_they_can_reach(tmp_path: Path, drivers: Any) -> None:
    for state in (None, str(tmp_path / "state")):
        assert "write state: {store: s3://…}" in problem(tmp_path, drivers, state)


def generation(folder: Path, drivers: Any) -> str:
    settings = {"state": STATE} | ({"drivers": drivers} if drivers else {})
    (folder / "frazil.yaml").write_text(yaml.safe_dump(settings))
    return group_generation(load_settings(None, home=folder), "1")


def test_a_deployment_that_says_nothing_goes_on_as_it_was(tmp_path: Path) -> None:
    before = generation(tmp_path, None)
    assert generation(tmp_path, {"launcher": "local"}) == before
    submitted = generation(tmp_path, {"launcher": "spark_submit", "spark_submit": PAGES})
    assert submitted != before, "drivers move to where they are to run"
    other = {"pages": ["http://10.0.0.1:8080"], "timeout": "20s"}
    assert generation(tmp_path, {"launcher": "spark_submit", "spark_submit": other}) == submitted
    larger = PAGES | {"memory": "4g"}
    assert generation(tmp_path, {"launcher": "spark_submit", "spark_submit": larger}) != submitted


def test_the_deployments_folder_may_be_another_one_there(tmp_path: Path) -> None:
    drivers = {"launcher": "kubernetes", "kubernetes": POD, "home": "/srv/lake"}
    security = {"protocol": "SSL", "ca": "certs/ca.pem"}
    found: list[str] = []
    for name in ("here", "there"):
        (home := tmp_path / name).mkdir()
        document = {"state": STATE, "drivers": drivers, "kafka": {"bootstrap_servers": "k:9", "security": security}}
        (home / "frazil.yaml").write_text(yaml.safe_dump(document))
        found.append(group_generation(load_settings(None, home=home), "1"))
        document["kafka"]["security"] = security | {"ca": "certs/other.pem"}
        (home / "frazil.yaml").write_text(yaml.safe_dump(document))
        assert group_generation(load_settings(None, home=home), "1") != found[-1]
    assert found[0] == found[1], "a driver there is what is wanted here"
