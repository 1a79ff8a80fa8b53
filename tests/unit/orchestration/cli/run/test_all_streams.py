"""`frazil run --all`: each stream gets its turn, whatever became of those before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.state_store.local_store import LocalStore
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from orchestration.cli.streams.run.command import NotLanded, land_all
from resources.deployment import Deployment
from tests.unit.orchestration.cli.test_main import frazil
from tests.unit.orchestration.deployments import deployment_in


def facts(read: int, landed: int, dead: int = 0) -> dict[str, Any]:
    records = {"read": read, "landed": landed, "dead": dead, "tombstones": read - landed - dead}
    return {"stream": "x", "records": records, "lag": 0, "whole": {"seconds": 1.5}}


ANSWERS: dict[str, Any] = {
    "a_good": facts(10, 9, 1),
    "b_refused": FrazilError("stream b_refused: topic b does not exist.", fix="create the topic"),
    "c_bug": ValueError("a bug"),
    "d_stopped": NotLanded("stream d_stopped is stopped by ann.", fix="frazil resume d_stopped"),
    "e_dead": facts(100, 0, 100),
    "f_quiet": facts(0, 0),
}


def land(order: list[str]) -> Any:
    def one(spec: StreamSpec) -> dict[str, Any]:
        order.append(spec.stream)
        answer = ANSWERS[spec.stream]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return one


def test_one_that_fails_stops_none_and_the_status_says_that_one_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = deployment_in(tmp_path, *ANSWERS)
    (home / "streams" / "z_broken.yaml").write_text("stream: z_broken\nsourc: {}\n")
    order: list[str] = []
    with pytest.raises(SystemExit) as ended:
        land_all(Deployment.at(home), land(order), as_json=False)
    assert ended.value.code == 1
    assert order == list(ANSWERS)
    said = capsys.readouterr()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in said.out.splitlines()[1:]}
    assert rows == {
        "a_good": "landed 10 9 1 0 0 1.5",
        "b_refused": "failed – – – – – –",
        "c_bug": "failed – – – – – –",
        "d_stopped": "skipped – – – – – –",
        "e_dead": "failed 100 0 100 0 0 1.5",
        "f_quiet": "nothing new 0 0 0 0 0 1.5",
        "z_broken.yaml": "failed – – – – – –",
    }
    assert "Error: stream b_refused: topic b does not exist.\n  Next: create the topic\n" in said.err
    assert "Error: stream c_bug failed with an error that frazil does not know: ValueError: a bug" in said.err
    assert "skipped: stream d_stopped is stopped by ann.\n" in said.err
    assert "not one of 100 records landed" in said.err
    assert "sourc: unknown key" in said.err
    assert "Traceback" not in said.err


def test_skipped_ones_and_quiet_ones_are_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = deployment_in(tmp_path, "a_good", "d_stopped", "f_quiet")
    land_all(Deployment.at(home), land([]), as_json=True)
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["stream"], run["result"]) for run in runs] == [
        ("a_good", "landed"),
        ("d_stopped", "skipped"),
        ("f_quiet", "nothing new"),
    ]
    assert runs[0]["facts"]["records"]["landed"] == 9
    assert (runs[1]["error"], runs[1]["next"]) == ("stream d_stopped is stopped by ann.", "frazil resume d_stopped")


def test_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    order: list[str] = []

    def interrupted(spec: StreamSpec) -> dict[str, Any]:
        order.append(spec.stream)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        land_all(Deployment.at(deployment_in(tmp_path, "a_good", "f_quiet")), interrupted, as_json=False)
    assert order == ["a_good"]


def test_the_command_wants_a_stream_or_all(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "a", "b")
    for arguments in ([], ["a", "--all"]):
        result = frazil(home, "run", *arguments)
        assert result.exit_code == 1
        assert "Next: frazil run --all" in result.stderr
    write_control(LocalStore(home / ".frazil" / "state" / "streams" / "b"), ControlRequest("stopped", by="ann"))
    result = frazil(home, "run", "--all")
    assert result.exit_code == 1
    assert "Error: The local broker is not running.\n  Next: frazil up\n" in result.stderr
    assert "skipped: stream b is stopped by ann.\n" in result.stderr
