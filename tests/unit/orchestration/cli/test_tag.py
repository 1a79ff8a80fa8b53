"""`frazil tag` on real tables: made, found again, refused, deleted, and beside writers that commit meanwhile."""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import SnapshotRefType

from jobs.base.errors import FrazilError
from jobs.proof.lookup.tags import (
    TAG_PREFIX,
    check_tag_name,
    delete_tag,
    tag_snapshot,
    tags_of,
)
from jobs.tables.commit.protocol import compare_and_swap as compare_and_swap_module
from orchestration.cli.main import main
from tests.helpers.forked import Forked, frazil
from tests.helpers.real_stream import DEAD, SINK, RealStream
from tests.helpers.stream_history import FAILED, ROW


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    made = RealStream(tmp_path)
    made.land([ROW, FAILED])
    made.land([ROW, ROW])
    return made


def command(stream: RealStream, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(stream.home), "tag", "payments", *arguments])


def facts(stream: RealStream, *arguments: str) -> dict[str, Any]:
    result = command(stream, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def snapshot_ids(stream: RealStream, name: str | None = None) -> list[int]:
    return [each.snapshot_id for each in stream.table(name).snapshots()]


def test_what_is_tagged(stream: RealStream) -> None:
    first, second = snapshot_ids(stream)
    assert facts(stream, "newest")["snapshot_id"] == second
    assert facts(stream, "record", "--partition", "0", "--offset", "0")["snapshot_id"] == first
    assert facts(stream, "by-id", "--snapshot", str(first))["snapshot_id"] == first
    (letters,) = snapshot_ids(stream, DEAD)
    of_letter = ["letter", "--table", "dead_letters", "--partition", "0", "--offset", "1"]
    assert facts(stream, *of_letter)["snapshot_id"] == letters
    refs = stream.table().metadata.refs
    assert {name: ref.snapshot_id for name, ref in refs.items() if ref.snapshot_ref_type == SnapshotRefType.TAG} == {
        "newest": second,
        "record": first,
        "by-id": first,
    }
    assert stream.table().scan().use_ref("record").to_arrow().column("id").to_pylist() == ["p-0-0"]
    refused = command(stream, "gone", "--snapshot", "5")
    assert refused.exit_code == 1 and "snapshot 5 of table orders.payments has expired, or never was" in refused.stderr
    refused = command(stream, "later", "--timestamp", "2026-01-01T00:00Z")
    assert refused.exit_code == 1 and "is not complete through 2026-01-01 00:00:00 UTC yet" in refused.stderr
    refused = command(stream, "later", "--partition", "0", "--offset", "99")
    assert refused.exit_code == 1 and "frazil at payments --topic payments" in refused.stderr


def test_how_long_it_is_kept_counts_from_now_on(stream: RealStream) -> None:
    before = datetime.now(UTC)
    # Iceberg counts from the snapshot's time on, which was before.
    time.sleep(0.01)
    made = facts(stream, "audit", "--snapshot", str(snapshot_ids(stream)[0]), "--keep", "90d", "--note", "of Q3")
    until = datetime.fromisoformat(made["kept_until"])
    assert before + timedelta(days=90) <= until <= datetime.now(UTC) + timedelta(days=90)
    assert made["note"] == "of Q3" and "@" in made["by"]
    (listed,) = facts(stream, "--list")["tags"]
    assert listed == {key: value for key, value in made.items() if key != "changed"}
    assert "audit" in command(stream, "--list").stdout and "of Q3" in command(stream, "--list").stdout
    assert facts(stream, "for-good")["kept_until"] is None


def test_the_same_again_and_another(stream: RealStream) -> None:
    first = str(snapshot_ids(stream)[0])
    made = facts(stream, "audit", "--snapshot", first, "--keep", "90d", "--note", "of Q3")
    location = stream.table().metadata_location
    again = facts(stream, "audit", "--snapshot", first)
    assert again == made | {"changed": False}
    assert stream.table().metadata_location == location, "nothing was written"
    longer = facts(stream, "audit", "--snapshot", first, "--keep", "120d")
    assert longer["changed"] and longer["kept_until"] > made["kept_until"] and longer["note"] == "of Q3"
    noted = facts(stream, "audit", "--snapshot", first, "--note", "of the year")
    assert (noted["kept_until"], noted["note"]) == (longer["kept_until"], "of the year")
    refused = command(stream, "audit")
    assert refused.exit_code == 1 and f"has a tag audit already, of snapshot {first}" in refused.stderr
    stream.table().manage_snapshots().create_branch(int(first), "ingest").commit()
    refused = command(stream, "ingest", "--snapshot", first)
    assert refused.exit_code == 1 and "is a branch" in refused.stderr
    assert command(stream, "ingest", "--delete").exit_code == 1
    assert command(stream, "main").exit_code == 1


def test_a_tag_is_deleted(stream: RealStream) -> None:
    facts(stream, "audit", "--note", "of Q3")
    assert TAG_PREFIX + "audit" in stream.table().metadata.properties
    assert facts(stream, "audit", "--delete")["deleted"]
    assert tags_of(stream.table().metadata) == []
    assert TAG_PREFIX + "audit" not in stream.table().metadata.properties
    assert command(stream, "--list").stdout == f"no tags on {SINK}\n"
    refused = command(stream, "audit", "--delete")
    assert refused.exit_code == 1 and "has no tag audit; it has none" in refused.stderr
    assert f"Next: frazil tag {stream.spec.stream} --list\n" in refused.stderr
    refused = command(stream, "audit", "--delete", "--table", "rows")
    assert f"Next: frazil tag {stream.spec.stream} --list --table {SINK}\n" in refused.stderr


def test_a_tag_of_somebody_elses_is_shown_and_deleted(stream: RealStream) -> None:
    stream.table().manage_snapshots().create_tag(snapshot_ids(stream)[0], "theirs").commit()
    (listed,) = facts(stream, "--list")["tags"]
    assert (listed["tag"], listed["by"], listed["note"]) == ("theirs", None, None)
    assert facts(stream, "theirs", "--delete")["snapshot_id"] == snapshot_ids(stream)[0]


@pytest.mark.parametrize("name", ["", "1st", "123", "a b", "a/b", "ä", "a'", "a" * 101, "-x"])
def test_names_that_will_not_do(name: str) -> None:
    with pytest.raises(FrazilError, match="cannot be the name of a tag"):
        check_tag_name(name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give a name, or --list"),
        (["x", "--list"], "Give a name, or --list"),
        (["--list", "--keep", "1d"], "go with nothing else"),
        (["x", "--delete", "--snapshot", "5"], "go with nothing else"),
        (["x", "--keep", "soon"], "--keep: that is no time"),
        (["1x"], "cannot be the name of a tag"),
    ],
)
def test_what_means_nothing(stream: RealStream, arguments: list[str], said: str) -> None:
    refused = command(stream, *arguments)
    assert refused.exit_code == 1 and said in refused.stderr, refused.output
    assert list(stream.table().metadata.refs) == ["main"]


def test_a_commit_that_comes_in_between_is_no_matter(stream: RealStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream commits between the look at the table and the change, two times of three: all of it lands, once."""
    catalog, attempts, lands = stream.catalog(), 0, False
    write_metadata = SqlCatalog._write_metadata

    def beaten(**arguments: Any) -> None:
        nonlocal attempts, lands
        write_metadata(**arguments)
        if not lands:
            attempts += 1
            if attempts % 3:
                lands = True
                stream.land([ROW])
                lands = False

    monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(beaten))
    first = snapshot_ids(stream)[0]
    for number in range(5):
        tag_snapshot(catalog, SINK, f"t{number}", first, keep=None, note="", by="ada")
    delete_tag(catalog, SINK, "t0")
    assert attempts == 3 * 6, "each was refused twice, and tried again"
    assert [each.name for each in tags_of(stream.table().metadata)] == ["t1", "t2", "t3", "t4"]
    rows = stream.table().scan().to_arrow().column("id").to_pylist()
    assert len(rows) == len(set(rows)) == 3 + 2 * 6, "each batch of the stream stands once"


def test_a_writer_that_never_rests_is_told(stream: RealStream, monkeypatch: pytest.MonkeyPatch) -> None:
    def always(*arguments: Any, **more: Any) -> Any:
        raise CommitFailedException("another commit is under way")

    monkeypatch.setattr(SqlCatalog, "commit_table", always)
    monkeypatch.setattr(compare_and_swap_module.Backoff.__init__, "__kwdefaults__", {"most": 3, "failing_seconds": 1.0})
    refused = command(stream, "audit")
    assert (
        refused.exit_code == 1 and "the catalog refused 3 commits in a row on table orders.payments" in refused.stderr
    )
    assert "nothing was changed" in refused.stderr


@pytest.mark.parametrize("step", ["tag_before_commit", "tag_after_commit"])
@pytest.mark.parametrize("deletes", [False, True])
def test_killed_it_is_there_with_who_and_why_or_not_at_all(stream: RealStream, step: str, deletes: bool) -> None:
    first = snapshot_ids(stream)[0]
    made = ("month-end", "--snapshot", str(first), "--note", "the books of January")
    words = made
    if deletes:
        assert command(stream, *made).exit_code == 0
        words = ("month-end", "--delete")
    process = Forked(
        frazil,
        *("--home", str(stream.home), "tag", "payments", *words),
        env={"FRAZIL_STEPS": f"{step}=kill"},
        folder=stream.home,
    )
    assert process.wait() == -signal.SIGKILL, process.said()
    assert f"step {step}: SIGKILL" in process.said()
    done = step == "tag_after_commit"
    there = done != deletes
    # The name and what is said of it are one commit.
    properties = stream.table().metadata.properties
    assert ("month-end" in stream.table().metadata.refs, TAG_PREFIX + "month-end" in properties) == (there, there)
    if deletes:
        again = command(stream, *words)
        assert (again.exit_code, "has no tag month-end" in again.stderr) == ((1, True) if done else (0, False))
        assert tags_of(stream.table().metadata) == []
        return
    assert facts(stream, "month-end", "--snapshot", str(first), "--note", "the books of January")["tag"] == "month-end"
    (found,) = tags_of(stream.table().metadata)
    assert found.made is not None
    assert (found.snapshot_id, found.made.note) == (first, "the books of January")
