"""What a deployment writes is for its own user alone, under a umask that lets everybody read."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.base.system import private_files
from jobs.base.system.locks import exclusive
from jobs.base.system.private_files import keep_private, private_folder
from jobs.clients.spark.log import spark_log_option
from jobs.clients.spark.scratch import process_folder
from jobs.clients.state_store.durable_files import create_durably, write_durably
from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.streaming.driver.process.logs import (
    FILE_BYTES,
    FILES,
    cap_output,
    driver_log,
    driver_output,
    spark_log,
    start_logging,
)
from orchestration.cli.common.dagster_instance import make_instance
from orchestration.cli.local.dev.child_process import Child, end_children
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat, write_supervisor_heartbeat
from resources.deployment import Deployment
from tests.helpers.modes import open_to_others
from tests.unit.streaming.supervision.worlds import WHY, World


@pytest.fixture(autouse=True)
def _everybody_may_read() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_small_files_and_the_folders_made_for_them(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "streams" / "payments"
    write_durably(folder / "pending-00000001.json", b"{}")
    LocalStore(folder).put("heartbeat.json", b"{}", durable=False)
    assert create_durably(folder / "lease-00000001.json", b"{}")
    with exclusive(folder / "lock", deadline_seconds=1.0):
        pass
    assert open_to_others(tmp_path / "state") == []
    write_durably(tmp_path / "reports" / "certificate.md", b"# x", shared=True)
    assert (mode(tmp_path / "reports"), mode(tmp_path / "reports" / "certificate.md")) == (0o755, 0o644), "for others"


def test_what_a_file_was_before_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat.json"
    path.write_bytes(b"old")
    write_durably(path, b"new")
    assert mode(path) == 0o600


def test_what_a_launch_its_driver_and_its_lease_leave(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.control().start(*WHY)
    try:
        world.control().pause(*WHY)
        settings = Settings.embedded(tmp_path)
        Lease(LocalStore(world.folder()), "payments", 30.0).read()
        write_supervisor_heartbeat(LocalStore(settings.state), SupervisorHeartbeat(0.0, "here", 1))
        names = {path.name for path in world.folder().rglob("*") if path.is_file()}
        assert {"control.json", "launch.json", "launched.yaml", "process.json", "heartbeat.json", "driver.out"} <= names
        assert any(name.startswith("lease-") for name in names)
        assert open_to_others(tmp_path / ".frazil") == []
    finally:
        world.control().stop(*WHY)


def test_logs_and_where_spark_keeps_its_own(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    folder = stream_folder(settings, "payments").root
    handler = start_logging(folder, settings)
    try:
        logging.getLogger("jobs").warning("said")
        handler.doRollover()  # type: ignore[attr-defined]
        logging.getLogger("jobs").warning("said again")
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    spark_log_option(spark_log(settings.state / "streams" / "payments"), FILE_BYTES, FILES)
    assert "filePermissions = rw-------" in (folder / "logs" / "log4j2.properties").read_text()
    driver_output(folder).write_bytes(b"x\n" * 100)
    driver_output(folder).chmod(0o600)
    assert cap_output(driver_output(folder), 50)
    process_folder(settings.state / "spark" / "local")
    assert len(list(driver_log(folder).parent.glob("driver.log*"))) == 2
    assert open_to_others(settings.state) == []


def test_dagsters_home_and_the_output_of_what_runs_there(tmp_path: Path) -> None:
    home = tmp_path / ".frazil" / "dagster"
    make_instance(home)
    child = Child("x", [sys.executable, "-c", "print(1)"], log=home / "logs" / "x.log", env={}, cwd=tmp_path)
    end_children([child])
    assert [mode(each) for each in (home, home / "logs", home / "logs" / "x.log")] == [0o700, 0o700, 0o600]


def test_a_deployment_of_an_earlier_version_is_closed_when_it_is_next_looked_at(tmp_path: Path) -> None:
    state, warehouse = tmp_path / ".frazil" / "state", tmp_path / ".frazil" / "warehouse"
    for path in (
        state / "streams" / "payments" / "pending-00000001.json",
        state / "streams" / "payments" / "logs" / "driver.log",
        tmp_path / ".frazil" / "dagster" / "history" / "runs.db",
        tmp_path / ".frazil" / "broker" / "data" / "payments-0" / "00000000000000000000.log",
        warehouse / "orders" / "payments" / "data" / "one.parquet",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    program = state / "streams" / "payments" / "program"
    program.write_bytes(b"")
    program.chmod(0o755)
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("not ours")
    (state / "link").symlink_to(elsewhere)
    Deployment(tmp_path).settings()
    for name in ("state", "broker", "dagster"):
        assert open_to_others(tmp_path / ".frazil" / name) == []
    assert mode(program) == 0o700
    assert mode(elsewhere) == 0o644, "what a link points to is somebody else's"
    # Tables are for other engines too: their modes are the operator's.
    assert (mode(warehouse), mode(warehouse / "orders" / "payments" / "data" / "one.parquet")) == (0o755, 0o644)


def test_a_walk_that_was_interrupted_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state" / "streams").mkdir(parents=True)
    (tmp_path / "state" / "streams" / "one.json").write_text("{}")
    own = private_files._close_all

    def killed(folder: Path) -> None:
        own(folder / "streams")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(private_files, "_close_all", killed)
        with pytest.raises(KeyboardInterrupt):
            keep_private(tmp_path / "state")
    assert mode(tmp_path / "state") == 0o755
    keep_private(tmp_path / "state")
    assert open_to_others(tmp_path / "state") == []


def test_folders_that_are_there_stay_as_they_are_and_others_files_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    private_folder(shared / "state" / "streams")
    assert (mode(shared), mode(shared / "state")) == (0o755, 0o700)
    monkeypatch.setattr(private_files.os, "geteuid", lambda: os.getuid() + 1)
    keep_private(shared, tmp_path / "nowhere")
    assert mode(shared) == 0o755
    (shared / "file").write_text("")
    with pytest.raises(FileExistsError):
        private_folder(shared / "file")
