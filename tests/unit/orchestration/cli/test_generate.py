"""Options of `frazil generate`: shares, and brokers that are not on this machine."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from orchestration.cli.generate.command import Share, is_loopback
from orchestration.cli.main import main
from tests.unit.orchestration.deployments import deployment_in


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.5", 0.5), ("0", 0.0), ("100%", 1.0), (" 2 %", 0.02)])
def test_a_share_may_be_per_cent(text: str, share: float) -> None:
    assert Share().convert(text, None, None) == share


@pytest.mark.parametrize("text", ["x", "101%", "-1", "2", "nan%", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Share().convert(text, None, None)


@pytest.mark.parametrize(
    ("servers", "local"),
    [
        ("127.0.0.1:9092", True),
        ("localhost:9092,127.3.2.1:1", True),
        ("[::1]:9092", True),
        ("broker:9092", False),
        ("127.0.0.1:9092,10.0.0.1:9092", False),
        ("localhost.evil.example:9092", False),
        ("0.0.0.0:9092", False),
    ],
)
def test_brokers_on_this_machine(servers: str, local: bool) -> None:
    assert is_loopback(servers) == local


def test_brokers_elsewhere_need_a_word(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'broker.example:9092'}\n")
    said = CliRunner().invoke(main, ["--home", str(home), "generate", "payments", "--count", "1"])
    assert said.exit_code == 1
    assert "broker.example:9092 are not on this machine" in said.stderr
    assert "--yes" in said.stderr
