"""The version of a stream's file with a hash is found in Git, under whatever name it had, and what is not is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.spec.generation import generation
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.time_travel.git_versions import GitSearch, find_git_version
from tests.helpers.git_folder import GitFolder


class Streams:
    """A streams' folder in Git, and the hashes of what was written there."""

    def __init__(self, home: Path) -> None:
        self.folder: Path = home / "streams"
        self.folder.mkdir(parents=True)
        self.repository: GitFolder = GitFolder(home)
        self.settings: Settings = Settings.embedded(home)

    def write(self, schema: str, name: str = "orders.yaml", stream: str = "orders", **more: Any) -> StreamSpec:
        document = {
            "stream": stream,
            "source": {"topics": ["orders"]},
            "decode": {"value": "json", "schema": schema},
            "table": {"name": "lake.orders"},
            **more,
        }
        (self.folder / name).write_text(f"# {schema}\n{yaml.safe_dump(document)}")
        return StreamSpec.model_validate(document)

    def find(self, spec: StreamSpec, **options: Any) -> GitSearch:
        whole = generation(spec, self.settings)
        return find_git_version(self.folder, spec.stream, spec.config_hash, whole, self.settings, **options)


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    return Streams(tmp_path / "home")


def test_each_version_is_found_by_its_hash(streams: Streams) -> None:
    versions = []
    for number, schema in enumerate(["id long", "id long, name string", "id string"]):
        spec = streams.write(schema)
        versions.append((spec, streams.repository.commit(f"version {number}"), schema))
    streams.repository.git("mv", "streams/orders.yaml", "streams/purchases.yml")
    streams.repository.commit("another name")
    told: list[str] = []
    for number, (spec, commit, schema) in enumerate(versions):
        found = streams.find(spec, on_progress=told.append).found
        assert found is not None and found.exact
        assert found.text.startswith(f"# {schema}\n")
        if number < 2:
            assert (found.commit, found.subject, found.path) == (commit, f"version {number}", "streams/orders.yaml")
        else:
            assert (found.subject, found.path) == ("another name", "streams/purchases.yml")
        assert streams.repository.git("show", f"{found.commit}:{found.path}") == found.text.strip()
    assert told[0] == "1 of 4 commits, 0 versions" and "4 of 4 commits" in " ".join(told)


def test_the_version_of_the_same_generation_is_preferred(streams: Streams) -> None:
    first = streams.write("id long", trigger="available_now")
    commit = streams.repository.commit("drained")
    second = streams.write("id long")
    streams.repository.commit("running")
    assert first.config_hash == second.config_hash
    found = streams.find(first).found
    assert found is not None and (found.exact, found.commit) == (True, commit)
    other = find_git_version(streams.folder, "orders", first.config_hash, "0" * 12, streams.settings).found
    assert other is not None and (other.exact, other.subject) == (False, "running")
    unknown = find_git_version(streams.folder, "orders", first.config_hash, "", streams.settings).found
    assert unknown is not None and unknown.subject == "running"


def test_what_is_not_there_is_told_with_what_was_looked_through(streams: Streams) -> None:
    streams.write("id long")
    streams.write("id string", "others.yaml", stream="orders_of_others")
    streams.repository.commit("one")
    (streams.folder / "orders.yaml").write_text("stream: orders\nno_such_key: 1\n")
    streams.repository.commit("two")
    (streams.folder / "orders.yaml").write_text("stream: orders\n  broken")
    streams.repository.commit("three")
    (streams.folder / "orders.yaml").unlink()
    streams.repository.commit("four")
    wanted = streams.write("id string")
    missing = streams.find(wanted)
    assert missing.found is None
    assert "none of 4 versions in 4 commits of streams/ in Git has it; 2 of them cannot be read" in missing.said
    few = streams.find(wanted, most_commits=1)
    assert "older commits were not looked at" in few.said


def test_a_shallow_clone_says_so(streams: Streams, tmp_path: Path) -> None:
    old = streams.write("id long")
    streams.repository.commit("one")
    streams.write("id string")
    streams.repository.commit("two")
    clone = tmp_path / "clone"
    streams.repository.git("clone", "-q", "--depth", "1", streams.folder.parent.as_uri(), str(clone))
    found = find_git_version(clone / "streams", "orders", old.config_hash, "", streams.settings)
    assert found.found is None and "shallow clone" in found.said


def test_without_git_or_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    settings = Settings.embedded(tmp_path)
    nothing = find_git_version(tmp_path, "orders", "0" * 12, "", settings)
    assert nothing.found is None and "not a git repository" in nothing.said
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "is not installed" in find_git_version(tmp_path, "orders", "0" * 12, "", settings).said
