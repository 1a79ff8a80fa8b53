"""Documents of streams that move from a folder to a store that machines share, and back, while nothing runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from jobs.spec.settings import load_settings
from jobs.state.document_copy import documents_of
from jobs.state.lease import Lease
from jobs.state.store import StateStore
from jobs.state.stream_folder import state_store
from jobs.supervise.control_request import ControlRequest, read_control, write_control
from jobs.supervise.heartbeat import read_heartbeat
from jobs.supervise.launches import Launch, read_launch, write_launch
from orchestration.cli.main import main
from tests.helpers.services import new_state
from tests.unit.orchestration.deployments import deployment_in

pytestmark = pytest.mark.integration
OF_A_MACHINE = (
    "keeper.json",
    "control.lock",
    "logs/driver.log",
    "checkpoints/a/metadata",
    "logs/a.json",
    ".seen-a.json",
)
DOCUMENTS = {
    "streams/payments/pending-00000003.json": b'{"v":1}',
    "streams/payments/replay/pending-00000001.json": b"{}",
    "streams/payments/replay/letters-00000001-00000000.parquet": b"PAR1\x00\xff",
    "streams/payments/configurations/a-b.yaml": b"stream: payments",
    "streams/payments/epochs/00000003.json": b"{}",
    "streams/payments/checks/rows/00000000000001-abc.json": b"{}",
    "streams/orders/published.json": b"{}",
    "groups/small/launch.json": b"{}",
    "tables/0191-uuid/maintained.json": b"{}",
}


class Moving:
    """A deployment of one machine, and settings beside its own that name a store."""

    def __init__(self, home: Path, state: dict[str, object]) -> None:
        self.home = deployment_in(home, "payments")
        self.file, self.next = home / "frazil.yaml", home / "frazil.next.yaml"
        self.file.write_text(yaml.safe_dump({"state": str(home / "old")}))
        self.next.write_text(yaml.safe_dump({"state": {**state, "folder": str(home / "new")}}))
        self.old, self.new = self.store(self.file), self.store(self.next)
        for key, content in DOCUMENTS.items():
            self.old.put(key, content)
        for name in OF_A_MACHINE:
            self.old.put(f"streams/payments/{name}", b"{}")
        payments = self.old.below("streams/payments")
        write_launch(payments, Launch(4, "g", "payments.yaml", 0, time.time()), "stream: payments")
        write_control(payments, ControlRequest("stopped", 4, "stop", "it moves", "ann", time.time()), ControlRequest())
        self.lease = Lease(payments, "payments", 30.0)
        self.lease.acquire(above=2)
        self.lease.release()

    def store(self, file: Path) -> StateStore:
        return state_store(load_settings(file, home=self.home))

    def copy(self, settings: Path | None = None, to: Path | None = None) -> Result:
        own = ["--home", str(self.home), "--settings", str(settings or self.file)]
        result = CliRunner().invoke(main, [*own, "state", "copy", "--to", str(to or self.next)])
        assert "Traceback" not in result.output
        return result


@pytest.fixture(params=["objects", "database"])
def moving(request: pytest.FixtureRequest, tmp_path: Path) -> Moving:
    return Moving(tmp_path, new_state(request).model_dump(mode="json", exclude_none=True))


def test_a_deployment_moves_to_a_store_and_back(moving: Moving, tmp_path: Path) -> None:
    result = moving.copy()
    assert result.exit_code == 0, result.output
    assert "12 documents (" in result.stdout and "1 leases were left" in result.stdout
    written = {*DOCUMENTS, *(f"streams/payments/{name}" for name in ("launch.json", "launched.yaml", "control.json"))}
    assert set(documents_of(moving.new)) == set(documents_of(moving.old)) == written
    assert {key: moving.new.get(key) for key in DOCUMENTS} == DOCUMENTS
    payments = moving.new.below("streams/payments")
    assert payments.keys("lease-*.json") == payments.keys("keeper.json") == []
    launch = read_launch(payments)
    assert launch is not None and launch.attempt == 4
    assert (read_control(payments).mode, read_control(payments).by) == ("stopped", "ann")
    assert read_heartbeat(payments) is None
    # Once more is no harm, and neither is one that was cut off.
    moving.new.delete("tables/0191-uuid/maintained.json")
    assert moving.copy().exit_code == 0
    assert moving.new.get("tables/0191-uuid/maintained.json") == b"{}"

    back = tmp_path / "back.yaml"
    back.write_text(yaml.safe_dump({"state": str(tmp_path / "third")}))
    assert moving.copy(moving.next, back).exit_code == 0
    assert set(documents_of(moving.store(back))) == written
    result = moving.copy(moving.file, moving.file)
    assert "names the state that is in effect" in result.stderr
