"""The command line where nothing runs: what it says, and with which exit status."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.control_request import (
    ControlRequest,
    DesiredMode,
    read_control,
    write_control,
)
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Decision
from orchestration.cli.common.lazy_commands import quick_imports
from orchestration.cli.main import _COMMANDS, _GROUPS, Commands, main
from orchestration.cli.streams.accept import decision_lines
from tests.unit.orchestration.deployments import deployment_in

ROOT = Path(__file__).resolve().parents[4]


def frazil(home: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def test_every_command_has_help_and_is_listed() -> None:
    listed = CliRunner().invoke(main, ["--help"]).output
    actions = ("start", "stop", "pause", "resume", "restart", "flush", "reset-offsets")
    for command in ("validate", "up", "down", "run", "status", *actions, "accept", "dev", "demo"):
        assert f"\n  {command} " in listed
        shown = CliRunner().invoke(main, [command, "--help"])
        assert shown.exit_code == 0
        assert "Usage:" in shown.output


def test_the_help_shows_every_command_once_in_its_group() -> None:
    lines = CliRunner().invoke(main, ["--help"]).stdout.splitlines()
    sections = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Options:", "Run:", "Look:", "Repair:", "Tables:", "Kafka Connect:", "Check:", "Set up:"]
    grouped = [name for names in _GROUPS.values() for name in names]
    assert len(grouped) == len({*grouped})
    assert {*_COMMANDS} <= {*grouped}
    assert sorted(main.list_commands(click.Context(main))) == sorted(_COMMANDS)
    for name in _COMMANDS:
        assert sum(line.split()[:1] == [name] and line.startswith("  ") for line in lines) == 1, name
    assert max(map(len, lines)) <= 80


def test_a_command_without_a_group_is_shown_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Commands.table, "extra", ("orchestration.cli.local.init", "One more."))
    assert CliRunner().invoke(main, ["--help"]).stdout.endswith("Other:\n  extra  One more.\n")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["staus"], "No such command 'staus'. Did you mean 'status', 'state' or 'start'?"),
        (["audti"], "No such command 'audti'. Did you mean 'audit'?"),
        (["help"], "No such command 'help'. main --help"),
        (["xyzzy"], "No such command 'xyzzy'. main --help"),
        (["schema", "infr"], "No such command 'infr'. Did you mean 'infer'?"),
        (["mirror", "stats"], "No such command 'stats'. Did you mean 'status'?"),
        (["status", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
        (["--hom", "x"], "No such option '--hom'. Did you mean '--home'?"),
    ],
)
def test_a_misspelt_word_comes_with_the_nearest_ones(typed: list[str], said: str) -> None:
    result = CliRunner().invoke(main, typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_missing_package_is_a_sentence_with_the_command_that_installs_it(tmp_path: Path) -> None:
    for command in ("status", "doctor"):
        code = "import sys; sys.modules['numpy'] = None; from orchestration.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, command], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, "")
        assert f"A package that frazil needs is missing in {sys.prefix}: " in done.stderr and "numpy" in done.stderr
        assert "Next: make setup" in done.stderr and "Traceback" not in done.stderr


def test_help_loads_neither_models_nor_tables() -> None:
    """It is there at once: half a second is the most that it may take on a slow machine."""
    code = "import sys; from orchestration.cli.main import main\ntry: main(['--help'])\n"
    code += "except SystemExit: print({'pyarrow', 'pydantic', 'pyiceberg', 'rich', 'yaml'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.endswith("\nset()\n")


def test_what_keeps_no_runs_does_not_wait_for_dagster() -> None:
    """Its import takes as long as everything else of such a command."""
    commands = ("validate", "run", "status", "letters", "replay", "accept", "maintain", "certify", "audit")
    code = "import sys; from orchestration.cli.main import main as cli; "
    code += "assert all(cli.get_command(None, name) for name in sys.argv[1:])"
    subprocess.run(
        [sys.executable, "-c", f"{code}; assert 'dagster' not in sys.modules", *commands], cwd=ROOT, check=True
    )


def test_what_may_do_without_tables_is_imported_without_them() -> None:
    """PyIceberg's tables and Kafka's client take a quarter of what the command takes."""
    commands = ("status", "watch", "logs", "start", "stop", "pause", "resume", "restart", "flush", "open")
    code = (
        "import sys; from orchestration.cli.main import main as cli;"
        "assert all(cli.get_command(None, name) for name in sys.argv[1:]);"
        "print({'pyiceberg.table', 'pyiceberg.catalog', 'confluent_kafka'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code, *commands], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_no_command_is_imported_with_pandas() -> None:
    """A third of what the shortest command takes."""
    code = (
        "import sys; from orchestration.cli.main import _COMMANDS, main;"
        "print([name for name in _COMMANDS if main.get_command(None, name) is None], 'pyarrow' in sys.modules,"
        " {'pandas', 'great_expectations'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[] True set()"


def test_validate_works_without_broker_and_catalog_and_says_so(tmp_path: Path) -> None:
    began = time.monotonic()
    result = frazil(deployment_in(tmp_path, "payments"), "validate")
    assert result.exit_code == 0
    assert time.monotonic() - began < 100
    assert "ok          payments: spec: payments.v1 to orders.payments, 3 columns" in result.stdout
    assert "not checked kafka: The local broker is not running, so the topics were not checked" in result.stdout
    assert "not checked payments: table: table orders.payments is not in catalog frazil yet" in result.stdout
    assert not (tmp_path / ".frazil").exists()


def test_validate_as_json(tmp_path: Path) -> None:
    facts = json.loads(frazil(deployment_in(tmp_path, "payments"), "validate", "--json").stdout)
    assert facts["valid"] is True
    assert {finding["verdict"] for finding in facts["findings"]} == {"ok", "unchecked"}
    assert {"stream": None, "subject": "kafka", "next": "frazil up"}.items() <= facts["findings"][2].items()


def test_validate_names_file_line_and_field_and_fails(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "streams" / "other.yaml").write_text("stream: other\ndecode: {value: json, shema: id string}\n")
    result = frazil(home, "validate")
    assert result.exit_code == 1
    assert "other.yaml:2:23: decode.shema: unknown key; did you mean 'schema'?" in result.stdout
    assert "ok          payments: spec:" in result.stdout


def test_validate_says_which_secret_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = deployment_in(tmp_path, "payments")
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    (home / "frazil.yaml").write_text(
        "kafka:\n  bootstrap_servers: 127.0.0.1:1\n  security: {protocol: SASL_PLAINTEXT, mechanism: PLAIN, user: me, "
        "password: '${env:KAFKA_PASSWORD}'}\n"
    )
    result = frazil(home, "validate")
    assert result.exit_code == 0, result.output
    assert "KAFKA_PASSWORD" in result.stdout
    assert "so the topics were not checked" in result.stdout


def test_validate_does_not_wait_for_brokers_that_are_not_there(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments", "refunds")
    (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: '127.0.0.1:1'}\n")
    began = time.monotonic()
    result = frazil(home, "validate")
    assert result.exit_code == 0
    assert time.monotonic() - began < 100
    assert "not checked kafka: Kafka at 127.0.0.1:1:" in result.stdout


def test_status_of_streams_that_never_ran(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments", "refunds")
    result = frazil(home, "status")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1].split()[:4] == ["payments", "orders.payments", "never", "ran"]
    assert lines[2].split()[:4] == ["refunds", "orders.refunds", "never", "ran"]
    assert "? kafka: The local broker is not running." in result.stdout
    facts = json.loads(frazil(home, "status", "--json").stdout)
    assert [stream["state"] for stream in facts["streams"]] == ["never ran", "never ran"]
    assert not (tmp_path / ".frazil").exists()


def test_an_unknown_stream_is_one_sentence_and_the_next_command(tmp_path: Path) -> None:
    result = frazil(deployment_in(tmp_path, "payments"), "run", "paiments")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: There is no stream 'paiments' in ")
    assert result.stderr.endswith("  Next: did you mean payments?\n")


def test_run_without_a_broker_names_the_command_that_starts_it(tmp_path: Path) -> None:
    result = frazil(deployment_in(tmp_path, "payments"), "run", "payments", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: The local broker is not running.\n  Next: frazil up\n" in result.stderr


@pytest.mark.parametrize("command", [["run", "payments"], ["up"], ["dev"], ["demo"]])
def test_a_wrong_java_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    began = time.monotonic()
    result = frazil(deployment_in(tmp_path / "home", "payments"), *command)
    assert result.exit_code == 1
    assert time.monotonic() - began < 100
    assert f"JAVA_HOME is {tmp_path / 'nowhere'}" in result.stderr
    assert not (tmp_path / "home" / ".frazil").exists()


def test_down_where_nothing_runs(tmp_path: Path) -> None:
    result = frazil(deployment_in(tmp_path, "payments"), "down")
    assert (result.exit_code, result.stdout) == (0, "The local broker is not running.\n")


def test_the_local_broker_is_not_started_where_other_brokers_are_named(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'kafka.example:9092'}\n")
    for command in ("up", "down", "demo"):
        result = frazil(home, command)
        assert result.exit_code == 1
        assert "kafka.example:9092" in result.stderr


def test_accept_shows_the_ranges_that_it_recorded() -> None:
    first, second = TopicPartition("payments", 0), TopicPartition("payments", 1)
    removed = {first: OffsetRange(20, 50)}
    decision = Decision("rollback_keep", passed=removed, again={second: OffsetRange(3, 5)}, removed=removed, since=7)
    assert decision_lines({"orders.payments": decision, "orders.payments_dead": Decision("rollback_keep")}) == [
        "Recorded on orders.payments, orders.payments_dead.",
        "  orders.payments: payments-0 [20, 50) no longer in the table",
        "  orders.payments: payments-0 [20, 50) passed over",
        "  orders.payments: payments-1 [3, 5) to be read again",
    ]
    assert decision_lines({}) == ["The table starts again; no other table is stamped."]


def test_accept_wants_exactly_one_answer(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    for options in ([], ["--lost-offsets", "--rollback", "keep"]):
        result = frazil(home, "accept", "payments", *options)
        assert result.exit_code == 1
        assert "Error: Exactly one answer is needed" in result.stderr


@pytest.mark.parametrize(("wish", "stays"), [("stopped", "stopped"), ("paused", "paused")])
def test_run_heeds_an_operator_who_has_stopped_the_stream(tmp_path: Path, wish: DesiredMode, stays: str) -> None:
    home = deployment_in(tmp_path, "payments")
    folder = home / ".frazil" / "state" / "streams" / "payments"
    write_control(LocalStore(folder), ControlRequest(wish, action="stop", reason="the migration", by="ann@desk"))
    result = frazil(home, "run", "payments")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Error: stream payments is {wish} by ann@desk: the migration.\n" in result.stderr
    assert "Next: frazil resume payments; or frazil run payments --force" in result.stderr
    result = frazil(home, "run", "payments", "--force")
    said = result.stderr
    assert f"Its records are landed nevertheless (--force), and it stays {stays}." in said
    assert "Error: The local broker is not running.\n  Next: frazil up\n" in said
    assert read_control(LocalStore(folder)).mode == wish


def test_a_local_broker_that_was_killed_is_started_again_by_a_command_and_not_by_settings(tmp_path: Path) -> None:
    """Its address file is still there, and there is no settings file that could name other brokers."""
    home = deployment_in(tmp_path, "payments")
    address = home / ".frazil" / "broker" / "address"
    address.parent.mkdir(parents=True)
    address.write_text("127.0.0.1:1")
    for command in (["run", "payments"], ["validate"], ["status", "payments"]):
        result = frazil(home, *command)
        assert "Kafka at 127.0.0.1:1: " in result.output
        assert "frazil.yaml" not in result.output
        if command[0] == "run":
            assert "Next: frazil up\n" in result.stderr


def test_imports_of_a_command_leave_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            with quick_imports():
                assert not gc.isenabled()
                assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
            assert gc.isenabled() is enabled
            assert "OPENBLAS_NUM_THREADS" not in os.environ
        finally:
            gc.enable()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    with quick_imports():
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"


def test_a_command_that_uses_arrow_later_imports_no_pandas() -> None:
    code = (
        "import sys\n"
        "from orchestration.cli.common.lazy_commands import quick_imports\n"
        "with quick_imports():\n"
        "    import pyarrow\n"
        "import pyarrow.dataset\n"
        "assert pyarrow.array([1]).sum().as_py() == 1\n"
        "raise SystemExit('pandas' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120).returncode == 0
