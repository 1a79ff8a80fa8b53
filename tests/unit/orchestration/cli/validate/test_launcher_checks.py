"""What `frazil validate` says of a launcher that starts drivers elsewhere."""

from __future__ import annotations

from pathlib import Path

from orchestration.cli.stream_files.validate.service_checks import check_launcher
from tests.helpers.fake_kubernetes import fake_kubernetes
from tests.unit.streaming.supervision.launchers.orders import settings_with


def test_a_launcher_is_asked_and_what_is_of_this_machine_alone_is_told(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    with fake_kubernetes() as served:
        own = {"image": "frazil:1", "api": served.address, "token_file": str(tmp_path / "token"), "timeout": "1s"}
        settings = settings_with(tmp_path, {"launcher": "kubernetes", "kubernetes": own})
        asked, broker, warehouse = check_launcher(settings)
        assert (asked.verdict, asked.sentence) == ("ok", "Kubernetes answers, and shows the pods of default")
        assert (broker.verdict, warehouse.verdict) == ("wrong", "unchecked")
        served.token = "another"
        assert next(iter(check_launcher(settings))).verdict == "unchecked"


def test_of_processes_of_this_machine_nothing_is_said(tmp_path: Path) -> None:
    assert list(check_launcher(settings_with(tmp_path, {"launcher": "local"}))) == []
