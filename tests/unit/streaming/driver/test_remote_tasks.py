"""What the tasks of a stream need of the driver's machine: no less, and nothing that is the driver's alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.base.system.carried import NOTHING, carry
from jobs.clients.kafka.consumer import MonitoredConsumer, ReadError, consumer_options
from jobs.clients.registry.client import RegistryClient
from jobs.clients.registry.connection import registry_connection
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.batch.remote_tasks import carried_settings, refuse_unseen, task_secrets
from tests.helpers.tls import CLIENT_PASSWORD, make_tls


def spec(folder: Path, **more: Any) -> StreamSpec:
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "id string not null, card string"},
        "table": {"name": "a.b"},
        **more,
    }
    (file := folder / "payments.yaml").write_text(yaml.safe_dump(document))
    return load_stream(file)


def settings(folder: Path, **more: Any) -> Settings:
    (folder / "frazil.yaml").write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": "a:9092"}, **more}))
    return load_settings(None, home=folder)


MASKED = [{"mask": {"columns": ["card"], "hash": "${env:CARD_KEY}"}}]


def test_the_key_of_a_mask_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARD_KEY", "k")
    assert carried_settings(spec(tmp_path, transform=MASKED), settings(tmp_path), {}).variables == {"CARD_KEY": "k"}
    monkeypatch.delenv("CARD_KEY")
    with pytest.raises(FrazilError, match="CARD_KEY"):
        carried_settings(spec(tmp_path, transform=MASKED), settings(tmp_path), {})


def test_a_mask_under_a_condition_is_found_and_the_letters_topic_is_the_driver_s(tmp_path: Path) -> None:
    conditional = [{"mask": MASKED[0]["mask"], "when": "id = 'x'"}]
    security = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "me", "password": "${env:LETTERS}"}
    errors = {
        "dead_letters": {"topic": {"name": "letters", "kafka": {"bootstrap_servers": "b:9092", "security": security}}}
    }
    found = task_secrets(spec(tmp_path, transform=conditional, errors=errors))
    assert [name for secret in found for name in secret.names] == ["CARD_KEY"]


def test_files_of_kafka_and_the_registry_go_along(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key", "rca"):
        (tmp_path / f"{name}.pem").write_text(name)
    security = {"protocol": "SSL", "ca": "ca.pem", "certificate": "cert.pem", "key": "key.pem"}
    security = {key: str(tmp_path / value) if "pem" in value else value for key, value in security.items()}
    registry = {"url": "https://r:8081", "tls": {"ca": str(tmp_path / "rca.pem")}}
    made = settings(tmp_path, kafka={"bootstrap_servers": "a:9092", "security": security}, registry=registry)
    reader = consumer_options(made.kafka, "payments")
    carried = carried_settings(spec(tmp_path), made, reader)
    assert {Path(path).name: content for path, content in carried.files.items()} == {
        "ca.pem": b"ca",
        "cert.pem": b"cert",
        "key.pem": b"key",
        "rca.pem": b"rca",
    }
    (tmp_path / "rca.pem").unlink()
    with pytest.raises(FrazilError, match=r"registry.tls.ca: cannot read .*rca.pem: No such file"):
        carried_settings(spec(tmp_path), made, reader)
    (tmp_path / "rca.pem").write_text("rca")
    folder = {"ssl.ca.location": str(tmp_path), "ssl.key.location": str(tmp_path / "other.pem")}
    with pytest.raises(FrazilError, match=r"Kafka's option ssl.key.location: cannot read .*other.pem: No such file"):
        carried_settings(spec(tmp_path), made, folder)


def test_clients_take_certificates_that_a_task_brought_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing lies at their paths, Kafka's client and the registry's read them from memory."""
    monkeypatch.setenv("CLIENT_PASSWORD", CLIENT_PASSWORD)
    tls = make_tls(tmp_path / "driver")
    security = {"protocol": "SSL", "ca": str(tls.ca), "certificate": str(tls.client)}
    security["key_password"] = "${env:CLIENT_PASSWORD}"
    registry = {"url": "https://127.0.0.1:1", "tls": {key: security[key] for key in security if key != "protocol"}}
    made = settings(tmp_path, kafka={"bootstrap_servers": "127.0.0.1:1", "security": security}, registry=registry)
    assert made.registry is not None
    reader, connection = consumer_options(made.kafka, "payments"), registry_connection(made.registry)
    carried = carried_settings(spec(tmp_path), made, reader)
    (tmp_path / "driver").rename(tmp_path / "elsewhere")
    with pytest.raises(ReadError, match="does not take its options"):
        MonitoredConsumer(reader)
    with pytest.raises(FrazilError):
        RegistryClient(connection)
    carry(carried)
    try:
        MonitoredConsumer(reader).consumer.close()
        RegistryClient(connection).close()
    finally:
        carry(NOTHING)


def test_a_key_in_a_mounted_file_goes_along(tmp_path: Path) -> None:
    (mounted := tmp_path / "key").write_text("k\n")
    transform = [{"mask": {"columns": ["card"], "hash": f"${{file:{mounted}}}"}}]
    carried = carried_settings(spec(tmp_path, transform=transform), settings(tmp_path), {})
    mounted.unlink()
    carry(carried)
    try:
        assert [secret.reveal() for secret in task_secrets(spec(tmp_path, transform=transform))] == ["k"]
    finally:
        carry(NOTHING)


def file(path: str, size: int = 3) -> Any:
    return SimpleNamespace(file_path=path, file_size_in_bytes=size)


def test_those_of_a_folder_that_is_not_shared_are_refused(tmp_path: Path) -> None:
    (there := tmp_path / "a b.parquet").write_bytes(b"abc")
    refuse_unseen([file(str(there)), file(there.as_uri()), file("s3://lake/a.parquet")], "spark://one:7077")
    for each in (file(f"{tmp_path}/gone.parquet"), file(str(there), 4)):
        with pytest.raises(FrazilError, match=r"on spark://one:7077 wrote .*Nothing of the batch is committed"):
            refuse_unseen([each], "spark://one:7077")
