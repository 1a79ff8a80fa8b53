"""`frazil logs` on drivers that only beat: on this machine, in groups, elsewhere, followed over a restart."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.driver.process.logs import driver_log, driver_output
from jobs.streaming.supervision.documents.heartbeat import write_heartbeat
from jobs.streaming.supervision.documents.launches import LaunchedProcess, write_launched_process
from orchestration.cli.main import main
from orchestration.cli.streams.logs.command import commands_elsewhere
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.reconcile.supervised_deployment import World

LINES = [f"2026-01-31T08:00:{second:02d}.000Z INFO jobs.driver: batch {second}" for second in range(60)]
POD = LaunchedProcess(3, "g", 0, "", "", "", 1.0, launcher="kubernetes", handle="lake/frazil-payments-3-abc")
HERE = LaunchedProcess(3, "g", 17, "1", "boot", socket.gethostname(), 1.0)


def frazil(home: Path, *arguments: str, expect: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), "logs", *arguments])
    assert result.exit_code == expect, result.output
    assert "Traceback" not in result.output
    return result


def log_of(home: Path, folder: str = "streams/payments") -> Path:
    path = driver_log(home / ".frazil" / "state" / folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def home(world: World) -> Path:
    world.write("payments")
    return world.deployment.home


def test_newest_lines_with_those_of_the_watchdog(home: Path) -> None:
    log = log_of(home)
    log.write_text("\n".join(LINES) + "\n")
    log.with_name("driver.out").write_text("2026-01-31T08:00:58Z watchdog of attempt 1: it is started again\n")
    printed = frazil(home, "payments", "--lines", "3").stdout.splitlines()
    assert printed == [LINES[58], "2026-01-31T08:00:58Z watchdog of attempt 1: it is started again", LINES[59]]
    assert len(frazil(home, "payments").stdout.splitlines()) == 50
    facts = json.loads(frazil(home, "payments", "-n", "1", "--json").stdout)
    assert facts["stream"] == "payments" and facts["lines"][0]["message"] == "batch 59"
    assert facts["files"] == [str(log), str(log.with_name("driver.out"))]


def test_secrets_and_control_characters_are_not_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_KEY", "s3cr3t-key")
    (home / "frazil.yaml").write_text(
        "catalog: {properties: {type: rest, uri: 'http://127.0.0.1:1', token: '${env:STORE_KEY}'}}\n"
    )
    log_of(home).with_name("driver.out").write_text("the JVM prints s3cr3t-key\x1b[31m\n")
    assert frazil(home, "payments").stdout == "the JVM prints ${env:STORE_KEY}\\x1b[31m\n"


def test_without_a_log(home: Path) -> None:
    assert "no driver of it has run on this machine" in frazil(home, "payments", expect=1).stderr
    assert "frazil start payments" in frazil(home, "payments", expect=1).stderr
    assert "There is no stream 'paiments'" in frazil(home, "paiments", expect=1).stderr


def test_a_stream_whose_file_is_wrong_has_its_log(home: Path) -> None:
    log_of(home).write_text(f"{LINES[0]}\n")
    (home / "streams" / "payments.yaml").write_text("stream: payments\nnonsense: 1\n")
    assert frazil(home, "payments").stdout == f"{LINES[0]}\n"


def test_a_stream_of_a_group_with_the_groups_watchdog(home: Path, world: World) -> None:
    log_of(home).write_text(f"{LINES[0]}\n{LINES[2]}\n")
    log_of(home, "groups/card").write_text(f"{LINES[1]} of another stream\n")
    keeper = "2026-01-31T08:00:01Z watchdog of attempt 4: it is started again"
    driver_output(home / ".frazil/state/groups/card").write_text(f"{keeper}\n")
    store = LocalStore(world.folder("payments"))
    write_launched_process(store, msgspec.structs.replace(HERE, group="card"))
    assert frazil(home, "payments").stdout.splitlines() == [LINES[0], keeper, LINES[2]]


def test_commands_for_drivers_elsewhere(world: World, home: Path) -> None:
    log = Path("/lake/driver.log")
    beat = msgspec.structs.replace(world.drive("payments"), attempt=3, host="node-7", log="/srv/lake/my log/driver.log")
    ssh = "ssh node-7 'tail -n 9 -F '\"'\"'/srv/lake/my log/driver.log'\"'\"''"
    assert commands_elsewhere(POD, None, log, 9, follow=False) == {
        "log": "kubectl -n lake exec frazil-payments-3-abc -- tail -n 9 /lake/driver.log",
        "output": "kubectl -n lake logs --tail=9 frazil-payments-3-abc",
    }
    assert commands_elsewhere(POD, beat, log, 9, follow=True) == {
        "log": "kubectl -n lake exec frazil-payments-3-abc -- tail -n 9 -F '/srv/lake/my log/driver.log'",
        "output": "kubectl -n lake logs --tail=9 -f frazil-payments-3-abc",
    }
    submitted = msgspec.structs.replace(POD, launcher="spark_submit", handle="driver-1")
    assert commands_elsewhere(submitted, None, log, 9, follow=False) == {"log": "tail -n 9 /lake/driver.log"}
    assert commands_elsewhere(submitted, beat, log, 9, follow=True) == {"log": ssh}
    there = msgspec.structs.replace(HERE, host="node-7")
    assert commands_elsewhere(there, beat, log, 9, follow=True) == {"log": ssh}
    older = msgspec.structs.replace(beat, attempt=2)
    assert commands_elsewhere(HERE, older, log, 9, follow=False) == {}
    assert commands_elsewhere(HERE, None, log, 9, follow=False) == commands_elsewhere(None, beat, log, 9, follow=True)


def test_a_driver_in_a_pod(home: Path, world: World) -> None:
    store = LocalStore(world.folder("payments"))
    write_launched_process(store, POD)
    write_heartbeat(store, msgspec.structs.replace(world.drive("payments"), attempt=3, log="/srv/lake/driver.log"))
    result = frazil(home, "payments", "--lines", "5", "--json")
    assert json.loads(result.stdout)["commands"]["log"].endswith("-- tail -n 5 /srv/lake/driver.log")
    result = frazil(home, "payments", "--lines", "5")
    assert result.stdout.splitlines()[1] == "kubectl -n lake logs --tail=5 frazil-payments-3-abc"
    assert "does not run on this machine" in result.stderr


def test_followed_over_a_restart_until_ctrl_c(home: Path, tmp_path: Path) -> None:
    log, printed = log_of(home), tmp_path / "printed"
    log.write_text(f"{LINES[0]}\n")
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "logs", "payments", "-f"]
    with printed.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE) as following:
        try:
            wait_for(lambda: printed.read_text() == f"{LINES[0]}\n", "the first line")
            log.rename(log.with_name("driver.log.1"))
            log.write_text(f"{LINES[1]}\n")
            wait_for(lambda: printed.read_text().endswith(f"{LINES[1]}\n"), "the line after the rotation")
            with log.open("a") as another:
                another.write(f"{LINES[2]}\n")
            wait_for(lambda: printed.read_text().endswith(f"{LINES[2]}\n"), "the line of another driver")
            began = time.monotonic()
            os.kill(following.pid, signal.SIGINT)
            assert following.wait(100) == 130 and time.monotonic() - began < 100
        finally:
            following.kill()
    assert printed.read_text().splitlines() == LINES[:3]
