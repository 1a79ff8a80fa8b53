"""Whatever a command meets, its user reads sentences; stack traces are in files."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from pyspark.errors import PythonException

from jobs.streaming.driver.batch.retry import query_failure_text
from orchestration.cli.common.interrupts import Terminated
from orchestration.cli.common.unexpected_error import _KEPT
from orchestration.cli.main import Commands, main
from tests.unit.orchestration.deployments import deployment_in

SECRET = "hunter2-of-the-catalog"


class OneCommand(Commands):
    """The command line with another body for every command."""

    body: Callable[[], object]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return click.Command(cmd_name, callback=self.body)


def failing(home: Path, body: Callable[[], object]) -> Result:
    """Run `frazil status` with another body."""
    frazil = OneCommand("frazil", params=main.params, callback=main.callback)
    frazil.body = body
    result = CliRunner().invoke(frazil, ["--home", str(home), "status"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def raising(problem: BaseException) -> Callable[[], object]:
    def body() -> None:
        raise problem

    return body


def test_an_error_that_nobody_expected_is_a_sentence_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_PASSWORD", SECRET)
    home = deployment_in(tmp_path, "payments")
    (home / "frazil.yaml").write_text(
        "catalog: {properties: {type: sql, uri: 'postgresql://me:${env:CATALOG_PASSWORD}@db/lake'}}\n"
    )
    result = failing(home, raising(ValueError(f"cannot reach me:{SECRET}@db\n[SQL: SELECT 1]")))
    assert (result.exit_code, result.stdout) == (1, "")
    (file,) = (home / ".frazil" / "state" / "errors").iterdir()
    assert result.stderr == (
        "Error: frazil status failed with an error that frazil does not know: ValueError: cannot reach "
        f"me:postgresql://me:${{env:CATALOG_PASSWORD}}@db/lake@db\n  The stack trace is in {file}.\n  Next: if the "
        "sentence does not help, report it with that file\n"
    )
    text = file.read_text()
    assert "Traceback" in text
    assert "[SQL: SELECT 1]" in text
    assert SECRET not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    result = failing(tmp_path, raising(PermissionError(13, "Permission denied", "/lake/dead/data")))
    assert result.exit_code == 1
    assert "does not know: /lake/dead/data: Permission denied (PermissionError)\n" in result.stderr


def test_no_more_files_are_kept_than_somebody_reads(tmp_path: Path) -> None:
    folder = tmp_path / ".frazil" / "state" / "errors"
    folder.mkdir(parents=True)
    for number in range(3 * _KEPT):
        (folder / f"20200101T{number:06d}Z-1.txt").touch()
    failing(tmp_path, raising(ValueError("x")))
    names = sorted(file.name for file in folder.iterdir())
    assert len(names) == _KEPT
    assert names[-1] > "2021"


def test_where_the_state_folder_is_what_is_wrong_it_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    home = deployment_in(tmp_path / "home", "payments")
    (home / ".frazil").write_text("a file, where a folder belongs")
    result = failing(home, raising(NotADirectoryError(20, "Not a directory", str(home / ".frazil" / "state"))))
    (file,) = elsewhere.iterdir()
    assert f"The stack trace is in {file}." in result.stderr


@pytest.mark.parametrize(("kind", "status"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_an_interrupt_while_a_lock_is_taken_again_is_an_interrupt(
    tmp_path: Path, kind: type[KeyboardInterrupt], status: int
) -> None:
    """As at the end of a wait for a thread's start: the lock is open when `with` gives it back."""

    def body() -> None:
        lock = threading.Lock()
        with lock:
            lock.release()
            raise kind

    with pytest.raises(RuntimeError, match="release unlocked lock"):
        body()
    result = failing(tmp_path, body)
    assert (result.exit_code, result.output) == (status, "\nStopped.\n")
    assert not (tmp_path / ".frazil").exists()


@pytest.mark.parametrize(
    ("problem", "status"), [(click.UsageError("no such thing"), 2), (click.exceptions.Exit(3), 3), (click.Abort(), 1)]
)
def test_clicks_own_endings_stay_what_they_are(tmp_path: Path, problem: Exception, status: int) -> None:
    assert failing(tmp_path, raising(problem)).exit_code == status
    assert not (tmp_path / ".frazil").exists()


def test_what_a_task_raised_is_told_without_its_stack_trace() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: Job aborted.: Traceback (most recent call last):\n"
        '  File "slice_task.py", line 3, in take\n    self.write(rows)\n'
        "PermissionError: [Errno 13] Failed to open local file '/lake/dead/data/x.parquet'. Detail: Permission denied\n"
        "\n\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)\n"
    )
    assert query_failure_text(PythonException(text)) == (
        "[STREAM_FAILED] Query terminated with exception: Job aborted.: PermissionError: [Errno 13] Failed to open "
        "local file '/lake/dead/data/x.parquet'. Detail: Permission denied"
    )
    assert query_failure_text(ValueError("plain")) == "plain"


def test_a_key_that_java_cannot_read_is_told_with_the_command_that_makes_it_one_that_it_can() -> None:
    said = query_failure_text(
        ValueError(
            "[STREAM_FAILED] terminated with exception: Failed to create new KafkaAdminClient\nJVM stacktrace:\n"
            "Caused by: java.security.NoSuchAlgorithmException: PBES2 SecretKeyFactory not available\n"
        )
    )
    assert "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES" in said
