"""`frazil watch`: what a look shows within 80 columns, and looks one after another on terminals and pipes."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from jobs.base.errors import FrazilError
from orchestration.cli.main import main
from orchestration.cli.streams.status.report import StatusReport, status_report
from orchestration.cli.streams.status.stream_status import StreamStatus
from orchestration.cli.streams.status.watch import rendered
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.deployments import deployment_in

LONG = "a_stream_with_a_name_that_leaves_no_room_for_figures"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return deployment_in(tmp_path, "payments", "refunds")


def shown(report: StatusReport | FrazilError) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(rendered(report, 2.0, 80))
    return out.getvalue().splitlines()


def command(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), *arguments]


def test_a_look_fits_80_columns(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments", LONG))
    (tmp_path / "streams" / "bad.yaml").write_text("stream: bad\nnonsense: 1\n" + f"# {'x' * 200}\n")
    report = status_report(deployment, deployment.settings(), ())
    failed: StreamStatus = report.statuses[0]
    failed.state, failed.fix = "failed", "frazil start " + LONG
    failed.tables.rows, failed.tables.dead, failed.unknown = 1_234_567_890, 12_345, {}
    lines = shown(report)
    assert " 1,234,567,890 12,345" in lines[2]
    assert all(len(line) <= 80 for line in lines), lines
    assert lines[0].endswith("every 2 s, Ctrl-C ends")
    assert lines[1].split()[:4] == ["stream", "state", "lag", "rec/s"] and lines[1].rstrip().endswith("dead")
    assert lines[3].startswith("payments  ")
    assert lines[2].startswith("a_stream_with") and "…" in lines[2] and " failed " in lines[2]
    assert "nonsense: unknown key" in " ".join("".join(lines).split())
    assert shown(FrazilError("the state store\ndoes not answer"))[1] == "! the state store does not answer"


def test_a_block_for_each_look_where_nobody_watches(home: Path) -> None:
    with subprocess.Popen(command(home, "status", "--watch", "0.1"), stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            blocks = 0
            for line in watching.stdout:
                assert len(line) <= 81
                blocks += line.startswith("stream ")
                if blocks == 3:
                    break
            os.kill(watching.pid, signal.SIGINT)
            assert watching.wait(100) == 130
        finally:
            watching.kill()


def test_a_line_of_json_for_each_look(home: Path) -> None:
    watched = command(home, "watch", "refunds", "--every", "0.1", "--json")
    with subprocess.Popen(watched, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            looks = [json.loads(watching.stdout.readline()) for _ in range(2)]
        finally:
            watching.kill()
    assert [look["streams"][0]["stream"] for look in looks] == ["refunds", "refunds"]
    assert looks[0]["at"].endswith("Z")


def test_refreshed_in_place_on_a_terminal(home: Path) -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    watching = subprocess.Popen(
        command(home, "status", "--watch", "payments"), stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    received = bytearray()

    def refreshed() -> bool:
        received.extend(os.read(leader, 65536))
        # The cursor goes up over what was shown before.
        return b"\x1b[1A" in received and received.count(b"payments") >= 2

    try:
        wait_for(refreshed, "a second look in place")
        assert b"refunds" not in received
        os.kill(watching.pid, signal.SIGINT)
        assert watching.wait(100) == 130
    finally:
        watching.kill()
        watching.wait()
        os.close(leader)


def test_what_goes_on_and_what_ends_do_not_go_together(home: Path) -> None:
    for arguments, said in (
        (["status", "--watch", "--check"], "--check ends at once"),
        (["status", "--watch", "0"], "no time between two looks"),
        (["watch", "none"], "There is no stream 'none'"),
    ):
        result = CliRunner().invoke(main, ["--home", str(home), *arguments])
        assert result.exit_code == 1 and said in result.stderr
