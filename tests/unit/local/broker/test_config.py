"""What the broker's settings file says, without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.local.broker.config import (
    BrokerError,
    Ports,
    choose_ports,
    format_storage,
    new_cluster_id,
    read_ports,
    server_properties,
)

PLAIN = Ports(plain=1001, controller=1002)


def as_dict(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


def test_everything_listens_on_loopback_only() -> None:
    properties = as_dict(server_properties(PLAIN, {}))
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:1001,CONTROLLER://127.0.0.1:1002"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:1002"


def test_further_properties_win() -> None:
    text = server_properties(PLAIN, {"log.retention.ms": "1000", "ssl.keystore.location": "/keys/kéy.pem"})
    properties = as_dict(text)
    assert properties["log.retention.ms"] == "1000"
    assert properties["ssl.keystore.location"] == "/keys/k\\u00e9y.pem"


def test_ports_are_read_back() -> None:
    assert read_ports(server_properties(PLAIN, {})) == PLAIN
    further = "PLAINTEXT://127.0.0.1:1001,SASL_SSL://127.0.0.1:3,CONTROLLER://127.0.0.1:1002"
    assert read_ports(server_properties(PLAIN, {"listeners": further})) == PLAIN
    assert read_ports("") is None


def test_each_listener_has_a_port_of_its_own() -> None:
    assert len(set(choose_ports().all())) == 2


def test_cluster_ids_have_kafkas_form() -> None:
    ids = {new_cluster_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_storage_with_topics_is_never_formatted(tmp_path: Path) -> None:
    (tmp_path / "data" / "payments-0").mkdir(parents=True)
    with pytest.raises(BrokerError) as caught:
        format_storage(tmp_path, "java", "")
    assert caught.value.message == (
        f"{tmp_path}/data holds 1 partitions (payments-0, …), but not meta.properties, which names their cluster"
    )
    assert (tmp_path / "data" / "payments-0").is_dir()
