"""`frazil init`: a new deployment that validates, made from a file of records; and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestration.cli.local import init as init_module
from orchestration.cli.main import main
from resources.deployment import Deployment

RECORDS = [
    {"id": "a1", "amount": 12.5, "at": "2026-11-30T10:00:00Z", "tags": ["x"]},
    {"id": "a2", "amount": 7.25, "at": "2026-11-30T10:01:00Z", "tags": []},
]


def records_file(folder: Path, text: str | None = None) -> Path:
    file = folder / "Orders 2026.jsonl"
    lines = "\n\n".join(json.dumps(record) for record in RECORDS) + "\n" if text is None else text
    file.write_text(lines)
    return file


def test_a_deployment_for_a_file_of_records_validates(tmp_path: Path) -> None:
    file, folder = records_file(tmp_path), tmp_path / "lake"
    shown = CliRunner().invoke(main, ["init", str(folder), "--records", str(file), "--times"])
    assert shown.exit_code == 0, shown.output
    assert f"frazil generate orders_2026 --from '{file}'" in shown.output
    (spec,), errors = Deployment.at(folder).streams()
    assert errors == []
    assert (spec.stream, spec.table.name) == ("orders_2026", "landing.orders_2026")
    columns = {
        field.name: str(field.field_type) for field in spec.table_schema.fields if not field.name.startswith("_kafka")
    }
    assert columns["at"] == "timestamptz"
    assert set(columns) >= {"id", "amount", "at", "tags"}
    checked = CliRunner().invoke(main, ["--home", str(folder), "validate"])
    assert checked.exit_code == 0, checked.output
    assert (folder / ".gitignore").read_text().splitlines()[-1] == "/.frazil/"


def test_lines_that_are_no_json_object_are_counted_in_the_streams_file(tmp_path: Path) -> None:
    text = '{"id": 1}\nno json\n{"id": 2}\n[3]\n'
    folder = tmp_path / "lake"
    shown = CliRunner().invoke(main, ["init", str(folder), "--records", str(records_file(tmp_path, text))])
    assert shown.exit_code == 0, shown.output
    (file,) = (folder / "streams").iterdir()
    head = file.read_text().split("\nstream: ")[0].replace("\n# ", " ")
    assert (
        "from 2 records of Orders 2026.jsonl. In another form: 2, which would become dead letters; the first at" in head
    )
    assert "Orders 2026.jsonl: In another form: 2" in shown.stderr


@pytest.mark.parametrize(
    "text", [json.dumps(RECORDS, indent=2), "\n".join(json.dumps(each, indent=1) for each in RECORDS)]
)
def test_an_array_comes_with_the_command_that_makes_lines_of_it(text: str, tmp_path: Path) -> None:
    file = records_file(tmp_path, text)
    shown = CliRunner().invoke(main, ["init", str(tmp_path / "lake"), "--records", str(file)])
    assert shown.exit_code == 1
    assert f"{file}: no line is a JSON object with a field." in shown.stderr
    (command,) = re.findall(r"Next: (jq .*), and name that file", shown.stderr)
    if shutil.which("jq") is None:
        pytest.skip("jq is not on this machine")
    subprocess.run(command, shell=True, check=True)
    lines = (tmp_path / "Orders 2026-lines.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == RECORDS


def test_wrong_names_and_brokers_are_refused_in_frazils_own_words(tmp_path: Path) -> None:
    records = ["--records", str(records_file(tmp_path))]
    topic = CliRunner().invoke(main, ["init", str(tmp_path / "a"), *records, "--topic", "my orders!"])
    assert "source.topics[0]: is not the name of a topic" in topic.stderr
    assert "Next: name another topic with --topic" in topic.stderr
    assert "validation error" not in topic.stderr
    brokers = CliRunner().invoke(main, ["init", str(tmp_path / "b"), *records, "--brokers", "localhost"])
    assert "make no settings: kafka.bootstrap_servers: must be host:port" in brokers.stderr
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def test_brokers_and_a_catalog_are_written_down(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    options = ["--records", str(records_file(tmp_path)), "--brokers", "kafka.example.com:9092"]
    options += ["--catalog", "https://catalog.example.com", "--warehouse", "prod"]
    shown = CliRunner().invoke(main, ["init", str(folder), *options])
    assert shown.exit_code == 0, shown.output
    assert "frazil up" not in shown.output
    settings = Deployment.at(folder).settings()
    assert settings.kafka.require_bootstrap() == "kafka.example.com:9092"
    assert settings.catalog.properties["uri"] == "https://catalog.example.com"
    assert settings.catalog.properties["warehouse"] == "prod"


def test_without_records_it_names_the_command_that_makes_a_stream(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["init", str(tmp_path / "lake")])
    assert shown.exit_code == 0, shown.output
    assert "frazil schema infer TOPIC --output streams/TOPIC.yaml" in shown.output
    assert Deployment.at(tmp_path / "lake").settings().kafka.is_embedded


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--warehouse", "prod"], "name it with --catalog"),
        (["--topic", "orders"], "name the brokers with --brokers"),
        (["--format", "avro"], "--format belongs to a topic"),
        (["--catalog", "postgresql+psycopg://db/lake"], "name it with --warehouse"),
    ],
)
def test_options_that_need_another_one(tmp_path: Path, options: list[str], said: str) -> None:
    shown = CliRunner().invoke(main, ["init", str(tmp_path / "lake"), *options])
    assert shown.exit_code == 2
    assert said in shown.output
    assert not (tmp_path / "lake").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    records_file(tmp_path)
    shown = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert shown.exit_code == 1
    assert "is not empty, and nothing is written over" in shown.output


def test_a_stream_is_added_to_a_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, more = tmp_path / "lake", tmp_path / "refunds.jsonl"
    more.write_text('{"id": 1}\n')
    assert CliRunner().invoke(main, ["init", str(folder), "--brokers", "kafka.example.com:9092"]).exit_code == 0
    settings = (folder / "frazil.yaml").read_text()
    monkeypatch.chdir(folder)
    shown = CliRunner().invoke(main, ["init", ".", "--records", str(more)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.split() == (
        f"wrote streams/refunds.yaml Next: frazil generate refunds --from {more} frazil run refunds frazil dev".split()
    )
    assert [spec.stream for spec in Deployment.at(folder).streams()[0]] == ["refunds"]
    assert (folder / "frazil.yaml").read_text() == settings
    again = CliRunner().invoke(main, ["init", ".", "--records", str(more)])
    assert again.exit_code == 1
    assert "streams/refunds.yaml exists, and nothing is written over it" in again.output
    assert "name the new stream with --topic" in again.output
    assert CliRunner().invoke(main, ["init", ".", "--records", str(more), "--topic", "others"]).exit_code == 0
    assert sorted(file.name for file in (folder / "streams").iterdir()) == ["others.yaml", "refunds.yaml"]


@pytest.mark.parametrize("options", [[], ["--brokers", "kafka.example.com:9092"], ["--topic", "orders"]])
def test_settings_of_a_deployment_stay(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "streams").mkdir()
    shown = CliRunner().invoke(main, ["init", str(tmp_path), *options])
    assert shown.exit_code == 1
    assert "is a deployment. Only a stream can be added to it" in shown.output
    assert f"frazil init {tmp_path} --records FILE" in shown.output
    assert [entry.name for entry in tmp_path.iterdir()] == ["streams"]


def test_a_file_without_records_makes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    shown = CliRunner().invoke(main, ["init", str(folder), "--records", str(records_file(tmp_path, "[1]\n\nno\n"))])
    assert shown.exit_code == 1
    assert "no line is a JSON object with a field" in shown.output
    assert not folder.exists()


def test_a_sql_catalog_and_a_registry_are_written_down(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    options = ["--catalog", "postgresql+psycopg://me@db/lake", "--warehouse", "s3://lake/warehouse"]
    options += ["--brokers", "kafka.example.com:9092", "--registry", "https://registry.example.com"]
    shown = CliRunner().invoke(main, ["init", str(folder), *options])
    assert shown.exit_code == 0, shown.output
    assert "frazil up" not in shown.output
    settings = Deployment.at(folder).settings()
    assert (settings.catalog.kind, settings.catalog.properties["warehouse"]) == ("sql", "s3://lake/warehouse")
    assert settings.registry is not None and settings.registry.url == ("https://registry.example.com",)


def test_a_password_is_not_written_down(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    options = ["--catalog", "postgresql+psycopg://me:hunter2@db/lake", "--warehouse", "s3://lake/warehouse"]
    shown = CliRunner().invoke(main, ["init", str(folder), *options])
    assert shown.exit_code == 1
    assert "a password must not be in the file" in shown.output
    assert "hunter2" not in shown.output
    assert not folder.exists()


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("file\nFILE\n\ny\nlocal\n", "--records FILE --times"),
        ("\nFILE\nkafka.example.com:9092\nn\nrest\nhttps://c\n\n",
         "--records FILE --brokers kafka.example.com:9092 --catalog https://c"),
        ("none\n\nsql\npostgresql+psycopg://me@db/lake\ns3://lake/w\n",
         "--catalog postgresql+psycopg://me@db/lake --warehouse s3://lake/w"),
    ],
)  # fmt: skip
def test_the_questions_make_what_the_options_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, command: str
) -> None:
    file = tmp_path / "orders.jsonl"
    records_file(tmp_path).rename(file)
    monkeypatch.setattr(init_module, "at_terminal", lambda: True)
    asked, told = tmp_path / "asked", tmp_path / "told"
    shown = CliRunner().invoke(main, ["init", str(asked)], input=typed.replace("FILE", str(file)))
    assert shown.exit_code == 0, shown.output
    options = command.replace("FILE", str(file))
    assert f"The same without questions:\n  frazil init {asked} {options}\n" in shown.output
    assert CliRunner().invoke(main, ["init", str(told), *options.split()]).exit_code == 0
    files = {path.relative_to(asked): path.read_text() for path in asked.rglob("*") if path.is_file()}
    assert files == {path.relative_to(told): path.read_text() for path in told.rglob("*") if path.is_file()}


def test_an_answer_that_cannot_be_is_asked_again_and_topics_have_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_module, "at_terminal", lambda: True)
    typed = "nowhere\ntopic\n127.0.0.1:1\norders\navro\nhttp://127.0.0.1:1\nn\nlocal\n"
    shown = CliRunner().invoke(main, ["init", str(tmp_path / "lake")], input=typed)
    assert "'nowhere' is not one of 'file', 'topic', 'none'" in shown.output
    # Nobody listens there: the error names the brokers, and nothing is made.
    assert shown.exit_code == 1
    assert "Kafka at 127.0.0.1:1" in shown.output
    assert not (tmp_path / "lake").exists()


def test_at_a_terminal_it_asks(tmp_path: Path) -> None:
    """With a real terminal; without one, and with options, nothing is asked."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "orchestration.cli.main", "init", str(tmp_path / "lake")]
    root = Path(__file__).resolve().parents[4]
    environment = {**os.environ, "PYTHONPATH": str(root), "TERM": "dumb"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    ) as process:
        os.close(terminal)
        os.write(controller, b"none\n\nlocal\n")
        output = b""
        # The system ends the stream with an error when the process, which had the other side, has ended.
        with contextlib.suppress(OSError):
            while part := os.read(controller, 4096):
                output += part
        assert process.wait(60) == 0, output
    os.close(controller)
    assert b"for a topic, or none yet?" in output
    assert (tmp_path / "lake" / "frazil.yaml").is_file()
