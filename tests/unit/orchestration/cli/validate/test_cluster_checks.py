"""What `frazil validate` says of a cluster of Spark."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.spec.settings import load_settings
from jobs.system.ports import free_ports
from orchestration.cli.validate.service_checks import check_cluster

S3 = {"name": "lake", "properties": {"type": "rest", "uri": "https://c", "warehouse": "s3://lake/w"}}
KAFKA = {"bootstrap_servers": "k:9092"}
BOUND = {"spark.driver.host": "10.1.2.3", "spark.driver.bindAddress": "0.0.0.0"}


@pytest.fixture
def master() -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"spark://127.0.0.1:{listening.getsockname()[1]}"


def told(home: Path, master: str, conf: dict[str, str] | None = None, **more: Any) -> list[tuple[str, str]]:
    document = {"kafka": KAFKA, "catalog": S3, "spark": {"master": master, "conf": conf or {}}} | more
    (home / "frazil.yaml").write_text(yaml.safe_dump({key: value for key, value in document.items() if value}))
    return [(each.verdict, each.sentence) for each in check_cluster(load_settings(None, home=home))]


def test_of_a_local_master_nothing_is_said(tmp_path: Path) -> None:
    assert told(tmp_path, "local[2]", kafka=None, catalog=None) == []


def test_one_that_answers_and_one_that_is_away(tmp_path: Path, master: str) -> None:
    assert told(tmp_path, master) == [("ok", f"the master {master} answers")]
    (port,) = free_ports(1)
    assert told(tmp_path, f"spark://127.0.0.1:{port}") == [
        ("unchecked", f"Spark's master does not answer at 127.0.0.1:{port}: Connection refused.")
    ]
    assert told(tmp_path, "spark://one:x")[0][0] == "wrong"
    assert told(tmp_path, "yarn", BOUND) == [("unchecked", "whether yarn answers was not asked")]


def test_a_driver_that_executors_do_not_find_and_a_broker_neither(tmp_path: Path) -> None:
    assert told(tmp_path, "yarn", kafka=None)[1:] == [
        ("wrong", "spark.conf: executors of yarn would look for the driver at 127.0.0.1, which is their own machine"),
        ("wrong", "the local broker listens on 127.0.0.1, where tasks on yarn do not find it"),
    ]


def test_a_warehouse_in_a_folder(tmp_path: Path, master: str) -> None:
    ((_, _), (verdict, sentence)) = told(tmp_path, master, catalog=None)
    assert verdict == "unchecked"
    assert sentence.startswith(
        f"the warehouse file://{tmp_path}/.frazil/warehouse is a folder, and tasks run on {master}"
    )


def test_secrets_that_travel_in_the_clear(tmp_path: Path, master: str) -> None:
    secret = {"name": "lake", "properties": S3["properties"] | {"token": "${env:TOKEN}"}}
    ((_, _), (verdict, sentence)) = told(tmp_path, master, catalog=secret)
    assert (verdict, "holds secrets" in sentence) == ("unchecked", True)
    assert len(told(tmp_path, master, {"spark.network.crypto.enabled": "true"}, catalog=secret)) == 1
    # A source's is no driver's.
    sources = {"shop": {"url": "postgresql://reader@db/shop", "properties": {"password": "${env:TOKEN}"}}}
    assert len(told(tmp_path, master, sources=sources)) == 1
