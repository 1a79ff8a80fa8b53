"""What a group's driver reads of its streams, and what it writes for them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.streaming.groups.documents import MemberDocuments
from jobs.streaming.groups.members import Member
from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedProcess,
    planned_process,
    read_launch,
    write_launch,
)
from jobs.streaming.supervision.processes.groups import DriverGroup

FILE = """stream: s
group: {group}
source: {{topics: [t]}}
decode: {{value: json, schema: id string}}
table: {{name: a.s}}
"""


@pytest.fixture
def documents(tmp_path: Path) -> MemberDocuments:
    (tmp_path / "streams").mkdir()
    process = LaunchedProcess(1, "a", 1, "1", "boot", socket.gethostname(), 0.0, "small")
    return MemberDocuments(DriverGroup.of(Settings.embedded(tmp_path), "small"), process)


@pytest.mark.parametrize("written", ["absolute", "relative to the launcher", "relative to the deployment"])
def test_a_stream_begins_again_only_while_its_file_says_the_group(
    documents: MemberDocuments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    file = tmp_path / "streams" / "s.yaml"
    paths = {
        "absolute": file,
        "relative to the launcher": file.relative_to(tmp_path.parent),
        "relative to the deployment": file.relative_to(tmp_path),
    }
    launch = Launch(1, "a", str(paths[written]), 0, 0.0, group="small")
    assert not documents.is_named(launch)
    file.write_text(FILE.format(group="small"))
    assert documents.is_named(launch)
    for other in ("cdc", "own"):
        file.write_text(FILE.format(group=other))
        assert not documents.is_named(launch)
    # What cannot be read now says nothing else.
    file.write_text("stream: [")
    assert documents.is_named(launch)


def test_a_launch_says_who_is_about_to_begin_it_before_its_process_is_recorded(tmp_path: Path) -> None:
    """An action that comes in between would otherwise launch the stream once more, and the driver begin it twice."""
    settings = Settings.embedded(tmp_path)
    folder = stream_folder(settings, "s")
    former = Launch(3, "a", "s.yaml", 0, 0.0, group="small", launcher="spark_submit", handle="driver-1-0001")
    write_launch(folder.store, former, FILE.format(group="small"))
    me = LaunchedProcess(2, "a", 0, "", "", "", 0.0, "small", "spark_submit", "driver-1-0002")
    member = Member("s", former, ControlRequest(), None)
    MemberDocuments(DriverGroup.of(settings, "small"), me).launched_anew(member, folder)
    launch = read_launch(folder.store)
    assert launch is not None
    process = planned_process(launch)
    assert process is not None
    assert (process.attempt, process.handle) == (4, "driver-1-0002")
