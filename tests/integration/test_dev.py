"""`frazil dev` with real services: one per deployment, which are back when they die, and ended by the next."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jobs.errors import FrazilError
from orchestration.graphql import Dagster
from orchestration.services_claim import Claim, read_claim
from tests.helpers.waiting import wait_for
from tests.integration.marked import Marked

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def claim(home: Path) -> Claim | None:
    return read_claim(home / ".frazil" / "dagster")


def up(home: Path, pid: int) -> bool:
    """Whether the services of this `frazil dev` answer, both noted."""
    noted = claim(home)
    if noted is None or noted.pid != pid or set(noted.services) != {"webserver", "daemon"}:
        return False
    try:
        return bool(Dagster(noted.url).ask("query { version }", 5.0))
    except (OSError, FrazilError):
        return False


def service(home: Path, name: str) -> int:
    noted = claim(home)
    assert noted is not None
    return noted.services[name].pid


def test_one_per_deployment_which_keeps_its_services_up(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "frazil.yaml").write_text("kafka: {bootstrap_servers: '127.0.0.1:1'}\n")
    with Marked(tmp_path, ["dev"]) as first:
        pid = first.process.pid
        wait_for(lambda: first.ended() or up(tmp_path, pid), "the first to be up")
        noted = claim(tmp_path)
        assert noted is not None

        status, output, errors = Marked(tmp_path, ["dev"]).finish()
        assert (status, output) == (1, "")
        assert f"Error: This deployment's services run already: process {pid}, since " in errors
        assert f"Dagster at {noted.url}." in errors
        assert up(tmp_path, pid), "the refused one ends nothing"

        for name in ("webserver", "daemon"):
            before = service(tmp_path, name)
            os.kill(before, signal.SIGKILL)
            wait_for(lambda name=name, before=before: service(tmp_path, name) != before, f"another {name}")
            wait_for(lambda: first.ended() or up(tmp_path, pid), f"the services after the end of the {name}")
            assert not first.ended()
        assert claim(tmp_path).url == noted.url  # type: ignore[union-attr]

        # Killed itself, it leaves its services to the next, which ends them and has some of its own.
        left = {name: service(tmp_path, name) for name in ("webserver", "daemon")}
        os.kill(pid, signal.SIGKILL)
        _, output, errors = first.finish(30)
        for name in ("webserver", "daemon"):
            assert errors.count(f"Dagster's {name} was ended by SIGKILL; it is started again in 1 s") == 1
    with Marked(tmp_path, ["dev"]) as second:
        wait_for(lambda: second.ended() or up(tmp_path, second.process.pid), "the next to be up")
        assert not set(left.values()) & set(first.processes())
        second.interrupt()
        status, _, errors = second.finish(60)
    assert status == 130
    assert "Ended what a killed `frazil dev` had left running: " in errors
    assert second.living() == []
    wait_for(lambda: first.living() == [], "the end of what the killed one had started")
