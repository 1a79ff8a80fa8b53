"""Service-discovery files of drivers: what they say, who may read them, and when they go."""

from __future__ import annotations

import json
import socket
import stat
import time
from pathlib import Path

import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings, load_settings
from jobs.streaming.driver.process.metrics import MetricsServer
from jobs.streaming.supervision.documents.launches import Launch, write_launch
from jobs.streaming.supervision.documents.scrape_target import announced, target_file, withdraw
from tests.unit.streaming.supervision.worlds import WHY, World


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.embedded(tmp_path)


def in_folder(home: Path, folder: Path) -> Settings:
    (home / "frazil.yaml").write_text(f"metrics: {{folder: {folder}}}\n")
    return load_settings(None, home=home)


def test_a_driver_is_found_while_it_runs(settings: Settings) -> None:
    file = settings.state / "metrics" / "payments.json"
    with MetricsServer(lambda: ()) as server, announced(settings, "payments", server.url):
        (entry,) = json.loads(file.read_text())
        assert entry["labels"] == {"driver": "payments"}
        (target,) = entry["targets"]
        assert f"http://{target}/metrics" == server.url
        assert [path.name for path in file.parent.iterdir()] == ["payments.json"], "nothing is left beside it"
    assert list(file.parent.iterdir()) == []


def test_a_group_has_a_file_that_no_stream_can_have(settings: Settings) -> None:
    assert target_file(settings, "group:small").name == "group.small.json"


def test_two_deployments_that_share_a_folder_have_files_of_their_own(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("blue", "green")]
    for home in homes:
        home.mkdir()
    blue, green = (in_folder(home, tmp_path / "targets") for home in homes)
    with announced(blue, "payments", "http://127.0.0.1:1/metrics"):
        with announced(green, "payments", "http://127.0.0.1:2/metrics"):
            found = [json.loads(path.read_text())[0]["targets"] for path in (tmp_path / "targets").glob("*.json")]
            assert sorted(found) == [["127.0.0.1:1"], ["127.0.0.1:2"]]
        assert target_file(blue, "payments").exists()
    (tmp_path / "link").symlink_to(homes[0])
    again = load_settings(None, home=tmp_path / "link")
    assert target_file(again, "payments") == target_file(blue, "payments"), "whatever way leads to the deployment"


def test_only_a_folder_of_the_settings_is_open_to_others(settings: Settings, tmp_path: Path) -> None:
    open_folder = tmp_path / "seen" / "targets"
    for of, expected in ((settings, 0o600), (in_folder(tmp_path, open_folder), 0o644)):
        with announced(of, "payments", "http://127.0.0.1:1/metrics"):
            assert stat.S_IMODE(target_file(of, "payments").stat().st_mode) == expected
    assert stat.S_IMODE(open_folder.stat().st_mode) & 0o055 == 0o055


def test_the_file_of_a_successor_stays(settings: Settings) -> None:
    with announced(settings, "payments", "http://127.0.0.1:1/metrics"):
        successor = announced(settings, "payments", "http://127.0.0.1:2/metrics")
        successor.__enter__()
    assert json.loads(target_file(settings, "payments").read_text())[0]["targets"] == ["127.0.0.1:2"]
    successor.__exit__(None, None, None)
    assert not target_file(settings, "payments").exists()


def test_a_folder_that_cannot_be_written_stops_no_driver(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_text("")
    with announced(in_folder(tmp_path, tmp_path / "taken"), "payments", "http://127.0.0.1:1/metrics"):
        pass
    assert "Prometheus does not find this driver" in caplog.text


def test_only_a_file_that_nobody_answers_for_is_withdrawn(settings: Settings) -> None:
    file = target_file(settings, "payments")
    withdraw(settings, "payments")
    alive = socket.create_server(("127.0.0.1", 0))
    with alive, announced(settings, "payments", f"http://127.0.0.1:{alive.getsockname()[1]}/metrics"):
        withdraw(settings, "payments")
        assert file.exists()
        left = file.read_bytes()
    file.write_bytes(left)
    withdraw(settings, "payments")
    assert not file.exists()
    file.write_text("{")
    withdraw(settings, "payments")
    assert file.exists(), "nobody knows whose it is"


def test_stopping_a_stream_removes_what_its_killed_driver_left(tmp_path: Path, settings: Settings) -> None:
    world, file = World(tmp_path), target_file(settings, "payments")
    file.parent.mkdir(parents=True)
    file.write_text('[{"targets": ["127.0.0.1:1"], "labels": {"driver": "payments"}}]')
    world.control().stop(*WHY)
    assert not file.exists()


def test_stopping_a_stream_removes_what_the_killed_driver_of_its_group_left(tmp_path: Path, settings: Settings) -> None:
    world, file = World(tmp_path), target_file(settings, "group:small")
    file.parent.mkdir(parents=True)
    file.write_text('[{"targets": ["127.0.0.1:1"], "labels": {"driver": "group:small"}}]')
    launch = Launch(1, "a", "payments.yaml", 0, time.time(), group="small")
    write_launch(LocalStore(stream_folder(settings, "payments").root), launch, "stream: payments")
    world.control().stop(*WHY)
    assert not file.exists()
