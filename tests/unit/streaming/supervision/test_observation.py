"""What one observation of a stream reads, and whose a file is that cannot be read."""

from __future__ import annotations

import errno
from collections import Counter
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import load_settings
from jobs.streaming.supervision.documents.launches import Launch
from jobs.streaming.supervision.processes.actual import UnreadableStateError, read_actual, read_certain
from jobs.streaming.supervision.state.desired import read_stream_files, stream_files
from jobs.streaming.supervision.state.observation import Observation, observe
from tests.helpers.memory_store import InMemoryStore
from tests.unit.streaming.supervision.worlds import WHY, World


def observed(world: World) -> Observation:
    return observe("payments", read_stream_files(world.home / "streams"), load_settings(None, home=world.home))


@pytest.mark.parametrize("damaged", [b"{half", b'{"reason": "\xff"}'])
@pytest.mark.parametrize(
    ("document", "words"), [("lease-00000001.json", "is no lease"), ("control.json", "what was last asked")]
)
def test_a_damaged_document_is_named_and_the_others_are_read(
    world: World, document: str, words: str, damaged: bytes
) -> None:
    world.control().start(*WHY)
    world.control().pause(*WHY)
    whole = (world.folder() / document).read_bytes()
    (world.folder() / document).write_bytes(damaged)
    now = observed(world)
    assert words in now.actual.problem
    assert now.actual.launch is not None
    assert now.actual.heartbeat is not None
    assert now.driver is not None
    assert (now.driver.attempt, now.desired.file) == (1, "valid")
    with pytest.raises(FrazilError, match=words):
        world.control().stop(*WHY)
    (world.folder() / document).write_bytes(whole)
    now = observed(world)
    assert (now.actual.problem, now.control.mode) == ("", "paused")


class Away(InMemoryStore):
    """A store that one document cannot be read from."""

    def get(self, key: str) -> bytes | None:
        if key == "heartbeat.json":
            raise OSError(errno.ESTALE, "Stale file handle")
        return super().get(key)


def test_nothing_is_concluded_from_what_cannot_be_read() -> None:
    store = Away()
    assert read_actual(store, "payments").driver is None
    with pytest.raises(UnreadableStateError, match="Stale file handle") as told:
        read_certain(store, "payments")
    assert told.value.fix


def test_each_document_is_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().start(*WHY)
    read: Counter[str] = Counter()
    real = Path.read_bytes

    def counted(path: Path) -> bytes:
        read[path.name] += 1
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    assert observed(world).driver is not None
    documents = {"launch.json", "heartbeat.json", "control.json", "process.json", "keeper.json", "lease-00000001.json"}
    assert {name: read[name] for name in documents} == dict.fromkeys(documents, 1)


def test_a_stream_without_state_is_only_desired(world: World) -> None:
    now = observed(world)
    assert (now.desired.file, now.desired.continuous, now.control.mode) == ("valid", True, "running")
    assert (now.driver, now.actual.other_holder, now.last_attempt, now.ending) == (None, None, 0, False)
    assert not (world.home / ".frazil").exists(), "looking makes nothing"


@pytest.mark.parametrize(
    ("name", "text", "launched_from", "is_its_own"),
    [
        ("sales", "stream: orders\n", None, True),
        ("sales", "stream: 'orders'  # ours\n", None, True),
        ("sales", "strem: orders\n", None, False),
        ("sales", "strem: orders\n", "streams/sales.yaml", True),
        ("orders", "strem: orders\n", None, True),
        ("orders", "stream: refunds\n", None, False),
        ("refunds", "", "streams/orders.yaml", False),
    ],
)
def test_whose_a_bad_file_is(tmp_path: Path, name: str, text: str, launched_from: str | None, is_its_own: bool) -> None:
    file = tmp_path / "streams" / f"{name}.yaml"
    file.parent.mkdir()
    file.write_text(text)
    error = SpecError([f"{file}:1: no"], path=file)
    files = stream_files(file.parent, [], [error])
    launch = Launch(1, "g", launched_from, 0, 0.0) if launched_from else None
    assert files.errors_of("orders", launch, tmp_path) == ((error,) if is_its_own else ())
