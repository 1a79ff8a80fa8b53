"""Streams of one deployment that one driver carries, for tests that start it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from jobs.base.system.processes import session_members
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.documents.keeper_record import read_keeper
from jobs.streaming.supervision.documents.launches import LaunchedProcess, read_launched_process
from jobs.streaming.supervision.processes.groups import DriverGroup
from tests.helpers.topics import read_topic
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

FAST = {"every": "1s"}


def landed_once(one: Pipeline, seconds: float = 90.0) -> None:
    """Wait until all records of a stream are where they belong, each once: letters are committed after the rows."""
    one.wait_until_landed(seconds)
    counted = len(read_topic(one.address, one.stream))
    wait_for(lambda: sum(one.landed().values()) + sum(one.dead().values()) >= counted, "the letters to land", 30)
    one.assert_exactly_once()


class Group:
    """Streams of one deployment, in one group."""

    def __init__(self, home: Path, address: str, names: list[str], settings: Mapping[str, Any]) -> None:
        self.home: Path = home
        self.streams: list[Pipeline] = [Pipeline(home, address, name, lease_ttl="10s") for name in names]
        written = yaml.safe_load((home / "frazil.yaml").read_text()) | {"groups": {"default": "small"}, **settings}
        (home / "frazil.yaml").write_text(yaml.safe_dump(written))
        for each in self.streams:
            each.create_topic()
            each.write_spec(trigger=FAST)

    @property
    def settings(self) -> Settings:
        return self.streams[0].settings()

    @property
    def group(self) -> DriverGroup:
        return DriverGroup.of(self.settings, "small")

    def start(self) -> None:
        for each in self.streams:
            each.control().start("the test begins", "tester")

    def produce(self) -> None:
        for each in self.streams:
            each.produce({GOOD: 20, TRUNCATED: 2})

    def process(self) -> LaunchedProcess:
        found = read_launched_process(self.group.folder.store)
        assert found is not None
        return found

    def kept(self) -> bool:
        keeper = read_keeper(self.group.folder.store.local)
        return keeper is not None and keeper.lives()

    def complete(self, seconds: float = 90.0) -> None:
        for each in self.streams:
            landed_once(each, seconds)

    def log(self) -> str:
        return (self.group.folder.root / "logs" / "driver.log").read_text()


@contextlib.contextmanager
def driver_group(home: Path, address: str, settings: Mapping[str, Any] | None = None) -> Iterator[Group]:
    """A group of three streams with topics, none of them started; whatever runs at the end is ended.

    Args:
        home: The deployment's folder.
        address: Of the broker.
        settings: Top-level keys of the settings, over those of a `Pipeline`.
    """
    word = re.sub(r"[^a-z0-9]", "", home.name)[-12:]
    group = Group(home, address, [f"{name}{word}" for name in ("a", "b", "c")], settings or {})
    try:
        yield group
    finally:
        for each in group.streams:
            with contextlib.suppress(Exception):
                each.control().stop("the test ends", "tester")
        with contextlib.suppress(FileNotFoundError):
            last = group.process()
            wait_for(lambda: not session_members(last.pid), "the group's driver to end, as it has no stream left", 60)
            # While its state store is there, or it would wait for it.
            wait_for(lambda: not group.kept(), "the end of its keeper", 30)
