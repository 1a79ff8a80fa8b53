"""A deployment has one set of services: a second claimant is told, and what a killed one left is ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.errors import FrazilError
from jobs.system.processes import is_alive, start_time
from orchestration.cli.dev.services import ServicesLock

ROOT = Path(__file__).resolve().parents[5]


# Claims the services of a folder, notes a process of its own among them, says so, and waits.
CLAIMANT = textwrap.dedent("""
    import subprocess, sys, time
    from pathlib import Path
    from orchestration.cli.dev.services import ServicesLock
    claim = ServicesLock(Path(sys.argv[1]))
    claim.acquire()
    claim.record_url("http://127.0.0.1:3000")
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    claim.record_services({"daemon": left.pid})
    print(left.pid, flush=True)
    time.sleep(600)
""")


@pytest.fixture
def claimant(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen(
        [sys.executable, "-c", CLAIMANT, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        left = int(process.stdout.readline())
        yield process, left
        process.kill()
    if start_time(left):
        os.kill(left, signal.SIGKILL)


def test_a_second_claimant_is_told_who_runs_them(tmp_path: Path, claimant: tuple[subprocess.Popen[str], int]) -> None:
    process, left = claimant
    with pytest.raises(FrazilError) as caught:
        ServicesLock(tmp_path).acquire()
    assert re.fullmatch(
        rf"This deployment's services run already: process {process.pid}, since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, "
        r"Dagster at http://127.0.0.1:3000\.",
        caught.value.message,
    )
    assert caught.value.fix == (f"open http://127.0.0.1:3000; or end that one first, with Ctrl-C or kill {process.pid}")
    assert start_time(left), "a refused claim ends nothing"


def test_what_a_killed_claimant_left_is_ended_by_the_next(
    tmp_path: Path, claimant: tuple[subprocess.Popen[str], int]
) -> None:
    process, left = claimant
    started = start_time(left)
    process.kill()
    process.wait(300)
    assert is_alive(left, started)
    claim = ServicesLock(tmp_path)
    assert claim.acquire() == {"daemon": left}
    assert not is_alive(left, started)
    assert claim.acquire() == {}
    claim.release()
    again = ServicesLock(tmp_path)
    assert again.acquire() == {}
    again.release()


def test_a_stranger_with_the_pid_of_a_service_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        (tmp_path / "services.json").write_text(
            f'{{"pid": 1, "since": {time.time()}, "url": "", '
            f'"services": {{"daemon": {{"pid": {stranger.pid}, "started": "0"}}}}}}'
        )
        claim = ServicesLock(tmp_path)
        assert claim.acquire() == {}
        claim.release()
        assert stranger.poll() is None
        stranger.kill()


def test_a_claim_that_was_cut_off_or_is_of_another_version_is_no_obstacle(tmp_path: Path) -> None:
    for text in ("", "{", '{"pid": "x"}', "[]", '{"pid": 1, "since": 1.0, "more": {}}'):
        (tmp_path / "services.json").write_text(text)
        claim = ServicesLock(tmp_path)
        assert claim.acquire() == {}
        claim.release()
