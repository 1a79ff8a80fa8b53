"""The jars on disk are the committed ones, or the message says which is not. Ivy is replaced: no test here fetches."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.clients.install import artifacts, ivy
from jobs.clients.install.artifacts import (
    ArtifactError,
    committed_checksums,
    jar_folder,
    resolve_jars,
)
from jobs.clients.install.coordinates import ArtifactSet, Coordinate, artifact_sets

CONTENT = {"iceberg-1.jar": b"iceberg", "kafka-2.jar": b"kafka"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Repository:
    """Stands in for Ivy and the repository behind it."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = dict(CONTENT)
        self.calls: int = 0
        self.failure: ivy.IvyError | None = None
        self.seconds: float = 0

    def retrieve(
        self,
        coordinates: Sequence[Coordinate],
        target: Path,
        *,
        work: Path,
        label: str,
        total: int | None = None,
        on_progress: Callable[[str], None],
    ) -> None:
        self.calls += 1
        time.sleep(self.seconds)
        for name, content in self.content.items():
            (target / name).write_bytes(content)
            if self.failure:
                raise self.failure
        work.mkdir(parents=True, exist_ok=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    checksums = tmp_path / "artifacts.sha256"
    checksums.write_text(
        "# a comment\n" + "".join(f"{sha256(content)}  spark/{name}\n" for name, content in CONTENT.items())
    )
    repository = Repository()
    monkeypatch.setattr(artifacts, "CHECKSUMS", checksums)
    monkeypatch.setattr(ivy, "retrieve", repository.retrieve)
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    return repository


def test_fetched_once_then_found(repository: Repository) -> None:
    said: list[str] = []
    jars = resolve_jars("spark", on_progress=said.append)
    assert [jar.name for jar in jars] == ["iceberg-1.jar", "kafka-2.jar"]
    assert [jar.read_bytes() for jar in jars] == [b"iceberg", b"kafka"]
    assert said[0] == f"spark: fetching 2 jars into {jar_folder('spark')}"
    assert resolve_jars("spark") == jars
    assert repository.calls == 1
    assert sorted(path.name for path in jar_folder("spark").parent.iterdir() if path.is_dir()) == [jars[0].parent.name]


def test_a_missing_jar_is_named(repository: Repository) -> None:
    missing = resolve_jars("spark")[1]
    missing.unlink()
    with pytest.raises(ArtifactError) as caught:
        resolve_jars("spark")
    assert str(caught.value) == (
        f"The jar kafka-2.jar of the set `spark` is missing in {missing.parent}"
        f" (expected sha256 {sha256(b'kafka')}, found no file)\n"
        f"  Next: {sys.executable} -m jobs.clients.install.artifacts"
    )


def test_a_changed_jar_is_named_with_both_digests(repository: Repository) -> None:
    changed = resolve_jars("spark")[0]
    changed.write_bytes(b"somebody else's")
    for _ in range(2):  # the first refusal must not be what makes the second pass
        with pytest.raises(ArtifactError) as caught:
            resolve_jars("spark")
        assert caught.value.message == (
            f"The jar {changed} is not the committed one: expected sha256 {sha256(b'iceberg')},"
            f" found {sha256(b'somebody else' + bytes([39]) + b's')}"
        )


def test_a_changed_jar_of_the_same_size_and_later_time_is_noticed(repository: Repository) -> None:
    changed = resolve_jars("spark")[0]
    changed.write_bytes(b"1ceberg")
    with pytest.raises(ArtifactError, match="is not the committed one"):
        resolve_jars("spark")


def test_a_touched_jar_is_hashed_again_and_accepted(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = resolve_jars("spark")
    os.utime(jars[0], (1, 1))
    hashed: list[str] = []
    real = artifacts._sha256
    monkeypatch.setattr(artifacts, "_sha256", lambda path: hashed.append(path.name) or real(path))
    assert resolve_jars("spark") == jars
    assert resolve_jars("spark") == jars
    assert hashed == ["iceberg-1.jar"]


def test_repair_fetches_a_damaged_set_again(repository: Repository) -> None:
    damaged = resolve_jars("spark")[0]
    damaged.write_bytes(b"damaged")
    said: list[str] = []
    assert resolve_jars("spark", repair=True, on_progress=said.append)[0].read_bytes() == b"iceberg"
    assert repository.calls == 2
    assert "is not the committed one" in said[0]


def test_a_repository_with_other_bytes_is_refused_and_leaves_nothing(repository: Repository) -> None:
    repository.content["kafka-2.jar"] = b"other"
    with pytest.raises(ArtifactError, match=rf"expected sha256 {sha256(b'kafka')}, found {sha256(b'other')}"):
        resolve_jars("spark")
    assert [path for path in jar_folder("spark").parent.iterdir() if path.is_dir()] == []
    repository.content["kafka-2.jar"] = b"kafka"
    assert len(resolve_jars("spark")) == 2


def test_a_jar_that_is_not_listed_is_refused(repository: Repository) -> None:
    repository.content["extra-3.jar"] = b"extra"
    with pytest.raises(ArtifactError, match=r"Ivy brought extra-3\.jar for the set `spark`, which .* does not list"):
        resolve_jars("spark")


def test_a_failed_attempt_is_told_and_the_next_one_starts_clean(repository: Repository) -> None:
    repository.failure = ivy.IvyError("unresolved dependency: a#b;1: not found", fix="check the network")
    with pytest.raises(ArtifactError) as caught:
        resolve_jars("spark")
    assert str(caught.value) == (
        "The spark jars could not be fetched: unresolved dependency: a#b;1: not found\n  Next: check the network"
    )
    assert not jar_folder("spark").exists()
    repository.failure = None
    assert len(resolve_jars("spark")) == 2


def test_two_at_once_fetch_once(repository: Repository) -> None:
    repository.seconds = 0.3
    together = threading.Barrier(2)

    def resolve() -> list[Path]:
        together.wait()
        return resolve_jars("spark")

    with ThreadPoolExecutor(2) as pool:
        first, second = [future.result() for future in [pool.submit(resolve), pool.submit(resolve)]]
    assert first == second
    assert repository.calls == 1


def test_another_list_is_another_folder(repository: Repository) -> None:
    before = jar_folder("spark")
    artifacts.CHECKSUMS.write_text(f"{sha256(b'new')}  spark/iceberg-2.jar\n")
    assert jar_folder("spark") != before


def test_a_list_without_the_set(repository: Repository) -> None:
    with pytest.raises(ArtifactError, match="has no checksum for the set `broker`"):
        resolve_jars("broker")


@pytest.mark.parametrize("name", list(artifact_sets()))
def test_every_coordinate_has_a_committed_checksum(name: ArtifactSet) -> None:
    committed = committed_checksums(name)
    assert all(len(digest) == 64 and set(digest) <= set("0123456789abcdef") for digest in committed.values())
    for coordinate in artifact_sets()[name]:
        assert coordinate.filename in committed
    if not any(coordinate.transitive for coordinate in artifact_sets()[name]):
        assert len(committed) == len(artifact_sets()[name])
    assert all(coordinate.why for coordinate in artifact_sets()[name])
