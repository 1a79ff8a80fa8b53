"""Dry runs: what a command says that it would do, and that nothing has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.control_request import ControlRequest, read_control, write_control
from orchestration.cli.main import main
from tests.helpers.real_stream import SINK, RealStream
from tests.helpers.routed_stream import ROUTE, RoutedStream
from tests.helpers.stream_history import ROW
from tests.unit.orchestration.deployments import deployment_in

DELETES = "orders.deletes"
PARK: dict[str, Any] = {**ROUTE, "on_table_error": "park"}


def frazil(home: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("action", "would"),
    [
        ("start", "would run by its file"),
        ("stop", "would end after its batch, and start no more"),
        ("pause", "would keep its driver, and read nothing"),
        ("resume", "would go on"),
        ("restart", "would end after its batch, and start again"),
        ("flush", "would land at once all records in its topics"),
    ],
)
def test_actions_on_streams(tmp_path: Path, action: str, would: str) -> None:
    home = deployment_in(tmp_path, "payments")
    folder = home / ".frazil" / "state" / "streams" / "payments"
    write_control(LocalStore(folder), ControlRequest("paused", action="pause", reason="the migration", by="ann@desk"))
    before = files(home)
    said = frazil(home, action, "payments", "--dry-run")
    assert (said.exit_code, said.stdout) == (
        0,
        f"payments {would}. It has no driver; its desired state is paused. Nothing was changed.\n",
    )
    (plan,) = json.loads(frazil(home, action, "payments", "--dry-run", "--json").stdout)["actions"]
    assert (plan["action"], plan["done"], plan["mode"], plan["driver"]) == (action, False, "paused", None)
    assert files(home) == before
    assert read_control(LocalStore(folder)).mode == "paused"
    assert "There is no stream 'paiments'" in frazil(home, action, "paiments", "--dry-run").stderr


def test_a_run_without_brokers_says_so(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    for arguments in (["payments"], ["--all"]):
        said = frazil(home, "run", *arguments, "--dry-run")
        assert said.exit_code == 1
        assert "The local broker is not running." in said.stderr
    assert not (home / ".frazil").exists()


@pytest.fixture
def parked(tmp_path: Path) -> RoutedStream:
    """A stream that has parked a table which was dropped."""
    made = RoutedStream(tmp_path / "home", PARK)
    made.land({"id": "a", "type": "DEL", "n": 1})
    made.catalog.drop_table(DELETES)
    after = RoutedStream(made.home, PARK, epoch=20)
    after.log = list(made.log)
    after.land({"id": "b", "type": "DEL", "n": 2}, batch=0)
    return after


def test_an_answer_is_looked_at_first(parked: RoutedStream) -> None:
    answer = "accept", "payments", "--unpark", DELETES
    before = parked.catalog.load_table(SINK).metadata
    shown = frazil(parked.home, *answer, "--dry-run")
    assert (shown.exit_code, shown.stdout) == (
        0,
        "payments: the answer fits its stop.\nNothing was changed.\n  Next: the same without --dry-run\n",
    )
    facts = json.loads(frazil(parked.home, *answer, "--dry-run", "--json").stdout)
    assert facts == {"stream": "payments", "done": False, "tables": [], "lost": []}
    refused = frazil(parked.home, *answer, "--reason", "wanted")
    assert refused.exit_code == 2
    assert f"accept payments --unpark {DELETES} --reason wanted --yes\n" in refused.stderr
    wrong = frazil(parked.home, "accept", "payments", "--unpark", "orders.changes", "--dry-run")
    assert wrong.exit_code == 1 and "orders.changes" in wrong.stderr
    assert parked.catalog.load_table(SINK).metadata == before
    done = frazil(parked.home, *answer, "--reason", "wanted", "--yes", "--json")
    facts = json.loads(done.stdout)
    assert (facts["done"], {each["table"] for each in facts["tables"]}) == (True, {SINK, DELETES})


def test_an_answer_to_a_rollback_names_the_ranges(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    stream.land([ROW, ROW])
    first = stream.table().current_snapshot()
    assert first is not None
    stream.land([ROW])
    with stream.table().manage_snapshots() as change:
        change.rollback_to_snapshot(first.snapshot_id)
    before = stream.table().metadata
    shown = frazil(stream.home, "accept", "payments", "--rollback", "keep", "--dry-run").stdout
    assert shown.startswith(f"To be recorded on {SINK}.\n") or f"To be recorded on {SINK}" in shown
    assert "no longer in the table" in shown and "Nothing was changed." in shown
    facts = json.loads(frazil(stream.home, "accept", "payments", "--rollback", "keep", "--dry-run", "--json").stdout)
    (own,) = [each for each in facts["tables"] if each["table"] == SINK]
    assert [(each["start"], each["end"]) for each in own["removed"]] == [(2, 3)]
    assert stream.table().metadata == before


def test_a_tag(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    stream.land([ROW])
    before = stream.table().metadata
    head = stream.table().current_snapshot()
    assert head is not None
    said = frazil(stream.home, "tag", "payments", "month", "--dry-run").stdout
    assert said == f"{SINK}: snapshot {head.snapshot_id} would be tagged month. Nothing was changed.\n"
    missing = frazil(stream.home, "tag", "payments", "month", "--delete", "--dry-run")
    assert missing.exit_code == 1 and "has no tag month" in missing.stderr
    assert stream.table().metadata == before
    frazil(stream.home, "tag", "payments", "month")
    gone = frazil(stream.home, "tag", "payments", "month", "--delete", "--dry-run", "--json")
    facts = json.loads(gone.stdout)
    assert (facts["deleted"], facts["snapshot_id"]) == (False, head.snapshot_id)
    assert "month" in stream.table().metadata.refs
