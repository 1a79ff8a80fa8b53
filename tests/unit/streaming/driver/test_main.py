"""The driver's process, as it is started from outside."""

from __future__ import annotations

import subprocess
import sys

import pytest

NAMES = {
    "jobs.streaming.driver.main": "jobs.streaming.driver.main",
    "jobs.stream.main": "jobs.streaming.driver.main",
    "jobs.runtime.driver": "jobs.streaming.driver.main",
    "jobs.group.main": "jobs.streaming.groups.main",
    "jobs.mirror.main": "jobs.mirrors.main",
}


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_by_its_name_and_by_the_former_ones(name: str) -> None:
    said = subprocess.run([sys.executable, "-m", name], capture_output=True, text=True, check=False, timeout=300)
    assert said.returncode == 2
    assert f"usage: python -m {NAMES[name]}" in said.stderr


@pytest.mark.parametrize(
    "name", ["jobs.supervise.keeper_process", "jobs.supervise.launchers.submitted_driver", "jobs.spark.worker_daemon"]
)
def test_what_a_running_driver_of_an_earlier_release_starts_is_found(name: str) -> None:
    command = [sys.executable, "-m", name]
    said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300)
    assert b"No module named" not in said.stderr


def test_images_of_earlier_releases_are_built_by_a_former_name() -> None:
    command = [sys.executable, "-m", "jobs.install.artifacts", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert "--write-checksums" in said.stdout
