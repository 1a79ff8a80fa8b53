"""What a task brings along from the driver's machine."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.base.system.carried import (
    NOTHING,
    Carried,
    carry,
    local_file,
    local_options,
    variable,
)
from jobs.config.documents.secrets import Secret


@pytest.fixture(autouse=True)
def nothing() -> Iterator[None]:
    yield
    carry(NOTHING)


def test_a_file_that_is_not_here_is_what_the_task_brought_along_and_is_read_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "ca.pem")
    assert local_file(path) == path
    carry(Carried(files={path: b"the authorities"}))
    found = local_file(path)
    assert found != path
    assert [Path(found).read_bytes() for _ in range(2)] == [b"the authorities"] * 2
    assert local_file(path) == found
    assert list(tmp_path.iterdir()) == [], "nothing of it lies on a disk"


def test_a_file_that_is_here_is_the_one(tmp_path: Path) -> None:
    (path := tmp_path / "ca.pem").write_bytes(b"this host's own")
    carry(Carried(files={str(path): b"the driver's"}))
    assert local_file(str(path)) == str(path)


def test_of_a_client_s_options_those_that_name_files_are_found(tmp_path: Path) -> None:
    ca, other = str(tmp_path / "ca.pem"), str(tmp_path / "other.pem")
    carry(Carried(files={ca: b"pem"}))
    given = {"ssl.ca.location": ca, "ssl.key.location": other, "ssl.key.password": ca, "url": "https://x"}
    options = local_options(given)
    assert Path(options.pop("ssl.ca.location")).read_bytes() == b"pem"
    assert options == {key: value for key, value in given.items() if key != "ssl.ca.location"}
    assert local_options({"ssl.ca.location": False}) == {"ssl.ca.location": False}


def test_a_secret_is_read_from_what_the_task_brought_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    carry(Carried({"SOME_KEY": "from afar"}))
    assert Secret("${env:SOME_KEY}").reveal() == "from afar"
    monkeypatch.setenv("SOME_KEY", "from here")
    assert variable("SOME_KEY") == "from here"
    monkeypatch.delenv("SOME_KEY")
    carry(NOTHING)
    assert variable("SOME_KEY") is None


def test_it_travels_and_does_not_show_itself() -> None:
    carried = Carried({"SOME_KEY": "hunter2"}, {"/etc/key.pem": b"hunter2"})
    assert pickle.loads(pickle.dumps(carried)) == carried
    assert "hunter2" not in repr(carried)
