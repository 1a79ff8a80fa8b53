"""What a killed process's Spark left is removed by the next one; a living one's is not."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.clients.spark.scratch import process_folder

_OTHER = """
import sys, time
from pathlib import Path
from jobs.clients.spark.scratch import process_folder
print(process_folder(Path(sys.argv[1])), flush=True)
time.sleep(600)
"""


@contextmanager
def another(parent: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A process that has a folder below `parent`, with something in it."""
    command = [sys.executable, "-c", _OTHER, str(parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            folder = Path(process.stdout.readline().strip())
            (folder / "blockmgr-1").mkdir()
            (folder / "blockmgr-1" / "shuffle").write_bytes(b"x" * 1000)
            yield folder, process
        finally:
            process.kill()


def test_of_processes_gone_and_living(tmp_path: Path) -> None:
    parent = tmp_path / "spark" / "local"
    with another(parent) as (gone, killed), another(parent) as (living, _):
        killed.kill()
        killed.wait()
        (gone / "blockmgr-1" / "shuffle").chmod(0o400)
        (parent / "somebody's").mkdir()
        own = process_folder(parent)
        assert own.is_dir()
        assert own.parent == parent
        assert own not in {gone, living}
        assert process_folder(parent) == own, "it stays the same while the process lives"
        assert not gone.exists()
        assert (living / "blockmgr-1" / "shuffle").exists()
        assert (parent / "somebody's").exists()


def test_a_process_killed_before_it_held_its_folder(tmp_path: Path) -> None:
    (tmp_path / "process-1").mkdir()
    own = process_folder(tmp_path)
    assert [path.name for path in tmp_path.glob("process-*")] == [own.name]


def test_a_folder_that_was_taken_away_is_made_again(tmp_path: Path) -> None:
    first = process_folder(tmp_path)
    (first / "held").unlink()
    first.rmdir()
    assert process_folder(tmp_path).is_dir()


def test_where_files_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with another(tmp_path) as (folder, _):

        def refused(*_: object) -> None:
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(fcntl, "flock", refused)
        assert process_folder(tmp_path) == tmp_path
        assert folder.exists()
