"""The archive of the local registry is unpacked once, by whoever comes first. No test here fetches it."""

from __future__ import annotations

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.clients.install import artifacts
from jobs.clients.install.artifacts import ArtifactError
from jobs.local.registry import registry


def packed(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    path = folder / "registry.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 3
            file.addfile(entry, io.BytesIO(b"jar"))
    return path


def found(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(registry, "resolve_jars", lambda *_, **__: [path])


def test_it_is_unpacked_once_by_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, packed(tmp_path / "jars", "app-runner.jar", "lib/a.jar"))
    unpacked: list[Path] = []
    real = artifacts._unpack
    monkeypatch.setattr(artifacts, "_unpack", lambda of, to: unpacked.append(to) or real(of, to))
    # What an interrupted attempt left is in nobody's way.
    (tmp_path / "jars" / ".unpacking" / "half").mkdir(parents=True)
    with ThreadPoolExecutor(4) as pool:
        jars = set(pool.map(lambda _: registry.registry_application(), range(8)))
    assert jars == {tmp_path / "jars" / "unpacked" / "app-runner.jar"}
    assert len(unpacked) == 1
    assert (tmp_path / "jars" / "unpacked" / "lib" / "a.jar").read_bytes() == b"jar"
    assert not (tmp_path / "jars" / "unpacked" / "half").exists()


def test_a_folder_that_lacks_the_jar_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, packed(tmp_path / "jars", "lib/a.jar"))
    with pytest.raises(ArtifactError, match="unpacked has no registry in it"):
        registry.registry_application()
