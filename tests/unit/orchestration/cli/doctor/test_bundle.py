"""The bundle of `frazil doctor`: what is in it, and secrets planted everywhere that are in none of its files."""

from __future__ import annotations

import base64
import json
import stat
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from orchestration.cli.local.doctor.bundle import REDACTED, Redaction
from orchestration.cli.main import main
from tests.helpers.secret_places import in_files
from tests.unit.orchestration.deployments import deployment_in

SECRETS = {
    "catalog": 'pa"ss/wörd of the catalog',
    "mounted": "mounted+secret==",
    "kafka": "kafka-password-1",
    "in_uri": "written-in-the-uri",
    "comment": "left-in-a-comment",
    "log_pair": "said-in-a-log",
    "log_bearer": "eyJhbGciOiJIUzI1NiJ9.abc.def",
    "log_key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "record": "4111111111111111",
    "environment": "value-of-a-variable",
    "literal_conf": "literal-token-of-spark",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment with a secret in every place that the bundle looks at."""
    monkeypatch.setenv("CATALOG_TOKEN", SECRETS["catalog"])
    monkeypatch.setenv("KAFKA_PASSWORD", SECRETS["kafka"])
    monkeypatch.setenv("FRAZIL_OF_SOMEBODY", SECRETS["environment"])
    mounted = tmp_path / "mounted"
    mounted.write_text(SECRETS["mounted"] + "\n")
    home = deployment_in(tmp_path / "home", "payments")
    (home / "frazil.yaml").write_text(
        f"""# {SECRETS["comment"]}
kafka:
  bootstrap_servers: 127.0.0.1:1
  security: {{protocol: SASL_SSL, mechanism: PLAIN, user: me, password: '${{env:KAFKA_PASSWORD}}'}}
catalog:
  properties:
    type: sql
    uri: postgresql+psycopg://127.0.0.1:1/lake?user=me&sslpassword={SECRETS["in_uri"]}
    s3.secret-access-key: ${{file:{mounted}}}
    s3.session-token: ${{env:CATALOG_TOKEN}}
"""
    )
    (home / "streams" / "broken.yaml").write_text(f"stream: [\n# {SECRETS['comment']}\n")
    (home / "streams" / "odd.yaml").write_text(f"stream: odd\nsasl_password: {SECRETS['literal_conf']}\n")
    state = home / ".frazil" / "state"
    (state / "errors").mkdir(parents=True)
    spoken = "\n".join(
        [
            f"Traceback: {SECRETS['catalog']} in {quote(SECRETS['catalog'], safe='')}",
            json.dumps({"why": SECRETS["catalog"]}),
            f"Authorization: Basic {base64.b64encode(SECRETS['kafka'].encode()).decode()}",
            f"token {SECRETS['mounted']} was refused",
            f"s3.secret-access-key={SECRETS['log_pair']} and more",
            f"GET /v1 bearer {SECRETS['log_bearer']}",
            f"postgresql://me:{SECRETS['log_pair']}@db/lake",
            f"-----BEGIN PRIVATE KEY-----\n{SECRETS['log_key']}\n-----END PRIVATE KEY-----",
            "the line that a maintainer needs",
        ]
    )
    (state / "errors" / "20261130T101010Z-1.txt").write_text(spoken)
    logs = state / "streams" / "payments" / "logs"
    logs.mkdir(parents=True)
    (logs / "driver.log").write_text("\n".join(["too early", *["x"] * 500, *spoken.splitlines()]))
    (state / "streams" / "payments" / "control.json").write_text(
        json.dumps({"mode": "stopped", "at": 1.5, "reason": f"card {SECRETS['record']}", "of": {"password": "p" * 9}})
    )
    dagster = home / ".frazil" / "dagster"
    dagster.mkdir()
    (dagster / "dagster.yaml").write_text(f"elsewhere: postgresql://me:{SECRETS['log_pair']}@db/dagster\n")
    (dagster / "daemon.log").write_text(spoken)
    (home / ".frazil" / "broker").mkdir()
    (home / ".frazil" / "broker" / "broker.out").write_text(spoken)
    return home


def unpacked_bundle(home: Path, target: Path) -> Path:
    file = target / "bundle.tar.gz"
    shown = CliRunner().invoke(main, ["--home", str(home), "doctor", "--bundle", str(file)])
    assert f"wrote {file}" in shown.stderr, shown.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not in_files(SECRETS, _written(target / "output", shown.output))
    folder = target / "unpacked"
    with tarfile.open(file) as archive:
        archive.extractall(folder, filter="data")
    return folder / "frazil-doctor"


def _written(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "output").write_text(text)
    return folder


def test_no_file_of_the_bundle_holds_a_secret(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    folder = unpacked_bundle(home, target)
    assert not in_files(SECRETS, folder)
    # Without a place to look at, nothing would be found: the deployment itself holds most of them.
    held = {name for names in in_files(SECRETS, home).values() for name in names}
    assert held >= {"in_uri", "comment", "log_pair", "log_bearer", "log_key", "record", "literal_conf"}
    encoded = base64.b64encode(SECRETS["kafka"].encode())
    assert not any(encoded in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_bundle_has_what_a_maintainer_needs(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    folder = unpacked_bundle(home, target)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    logs = {"logs/streams/payments/logs/driver.log", "logs/dagster/daemon.log", "logs/broker/broker.out"}
    assert names == logs | {
        "findings.json",
        "packages.txt",
        "environment.txt",
        "settings.yaml",
        "state.json",
        "errors/20261130T101010Z-1.txt",
        "streams/payments.yaml",
        "streams/broken.yaml",
        "streams/odd.yaml",
        "dagster/dagster.yaml",
    }
    for name in ("errors/20261130T101010Z-1.txt", *logs):
        assert "the line that a maintainer needs" in (folder / name).read_text()
    assert "too early" not in (folder / "logs/streams/payments/logs/driver.log").read_text()
    settings = (folder / "settings.yaml").read_text()
    assert "password: ${env:KAFKA_PASSWORD}" in settings
    assert "bootstrap_servers: 127.0.0.1:1" in settings
    assert "orders.payments" in (folder / "streams/payments.yaml").read_text()
    assert "it is no YAML at line" in (folder / "streams/broken.yaml").read_text()
    assert "FRAZIL_OF_SOMEBODY\n" in (folder / "environment.txt").read_text()
    facts = json.loads((folder / "findings.json").read_text())
    assert {"java", "python", "kafka"} <= {each["subject"] for each in facts["findings"]}
    control = json.loads((folder / "state.json").read_text())["summaries"]["streams/payments/control.json"]
    assert (control["fields"]["mode"], control["fields"]["at"]) == ("stopped", 1.5)
    assert control["fields"]["reason"] == f"({5 + len(SECRETS['record'])} characters)"


def test_settings_that_cannot_be_read_are_redacted_all_the_same(home: Path, tmp_path: Path) -> None:
    text = (home / "frazil.yaml").read_text()
    (home / "frazil.yaml").write_text(f"{text}nonsense: 1\n")
    target = tmp_path / "target"
    target.mkdir()
    folder = unpacked_bundle(home, target)
    assert not in_files(SECRETS, folder)
    assert "nonsense: 1" in (folder / "settings.yaml").read_text()


def test_nothing_is_written_over(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "there.tar.gz"
    file.write_text("mine")
    shown = CliRunner().invoke(main, ["--home", str(home), "doctor", "--bundle", str(file)])
    assert shown.exit_code == 1
    assert "nothing is written over" in shown.output
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("password: hunter2", f"password: {REDACTED}"),
        ("password: ${env:P}", "password: ${env:P}"),
        ('{"token": "abc", "n": 1}', f'{{"token": {REDACTED}, "n": 1}}'),
        ("sasl.jaas.config=org.Plain required x;", f"sasl.jaas.config={REDACTED}"),
        ("s3.access-key-id=AKIA1", "s3.access-key-id=AKIA1"),
        ("http://u:p@h/x http://h/y", f"http://{REDACTED}@h/x http://h/y"),
        ("postgresql+psycopg://u:p/q@h/x", f"postgresql+psycopg://{REDACTED}@h/x"),
        ("http://h:80/y and s3://b/c", "http://h:80/y and s3://b/c"),
        ("GET /c?sv=2020&sig=AbC%3D", f"GET /c?sv=2020&sig={REDACTED}"),
        ("GET /c?X-Amz-Signature=AbC", f"GET /c?X-Amz-Signature={REDACTED}"),
        ("pwd=abc", f"pwd={REDACTED}"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_d", f"got {REDACTED}"),
        ("post https://hooks.slack.com/services/T0/B0/x1", f"post https://hooks.slack.com/{REDACTED}"),
        ("partition key: 4", "partition key: 4"),
        ("a batch of 12 records", "a batch of 12 records"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(line: str, clean: str) -> None:
    assert Redaction(None, [], []).clean(line) == clean
