"""Connector: a stream as Kafka Connect's REST interface shows it, with its state, one task and its configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.state.observation import Observation
from orchestration.reconcile.stream_state import next_command, state_word
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat

CLASS = "frazil.Stream"
"""What stands in `connector.class`, and among the plugins."""
VERSION = version("frazil")
"""The plugin's version."""

ConnectState = Literal["RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING"]

# By frazil's word, see `state_word`. FAILED: its driver ended with an error, or hangs; UNASSIGNED: it lacks a driver.
STATES: Mapping[str, ConnectState] = {
    "running": "RUNNING",
    "waiting": "RUNNING",
    "retrying": "RUNNING",
    "draining": "RUNNING",
    "paused": "PAUSED",
    "stopped": "STOPPED",
    "idle": "STOPPED",
    "finished": "STOPPED",
    "terminated": "UNASSIGNED",
    "dead": "UNASSIGNED",
    "unknown": "UNASSIGNED",
    "starting": "RESTARTING",
    "stopping": "RESTARTING",
    "failed": "FAILED",
    "halted": "FAILED",
    "fenced": "FAILED",
    "frozen": "FAILED",
    "stalled": "FAILED",
}
_FIRST_KEYS = ("connector.class", "name", "tasks.max", "topics", "topics.regex")


@dataclass(frozen=True, slots=True)
class Connector:
    """A stream at one moment.

    Attributes:
        name: The stream's id.
        state: Of the connector, and of its task if it has one.
        worker_id: Host and process of the driver, or the address of this server.
        trace: Why it does not run, with the next command; empty if it runs.
        config: What its file says, as flat texts.
        topics: What it reads, as far as known: those of the file, and those of which it has positions.
        offsets: Next offset of each topic and partition, as its living driver reports; None if none does.
        file: Where its configuration is.
    """

    name: str
    state: ConnectState
    worker_id: str
    trace: str
    config: Mapping[str, str]
    topics: tuple[str, ...]
    offsets: Mapping[str, Mapping[str, int]] | None
    file: Path

    @property
    def tasks(self) -> range:
        """Ids of its tasks: a driver is one task, and a stopped connector has none."""
        return range(0 if self.state == "STOPPED" else 1)

    def info(self) -> dict[str, Any]:
        """Answer to `GET /connectors/NAME`."""
        tasks = [{"connector": self.name, "task": number} for number in self.tasks]
        return {"name": self.name, "config": dict(self.config), "tasks": tasks, "type": "sink"}

    def status(self, state: ConnectState | None = None) -> dict[str, Any]:
        """Answer to `GET /connectors/NAME/status`; `state`: another one than it had."""
        tasks = [self.task_status(number, state) for number in self.tasks]
        return {"name": self.name, "connector": self._part(state), "tasks": tasks, "type": "sink"}

    def task_status(self, number: int, state: ConnectState | None = None) -> dict[str, Any]:
        """Answer to `GET /connectors/NAME/tasks/NUMBER/status`."""
        return {"id": number, **self._part(state)}

    def task_configs(self) -> list[dict[str, Any]]:
        """Answer to `GET /connectors/NAME/tasks`."""
        return [
            {"id": {"connector": self.name, "task": number}, "config": {**self.config, "task.class": f"{CLASS}Task"}}
            for number in self.tasks
        ]

    def _part(self, state: ConnectState | None) -> dict[str, Any]:
        trace = self.trace if state is None else ""
        part = {"state": state or self.state, "worker_id": self.worker_id, "version": VERSION}
        return {**part, **({"trace": trace} if trace else {})}


def connector_of(
    observed: Observation, spec: StreamSpec, note: SupervisorHeartbeat | None, server: str, config: Mapping[str, str]
) -> Connector:
    """A stream as a connector.

    Args:
        observed: The stream as its state folder has it.
        spec: As its file says, or as it was launched last if its file has problems.
        note: The supervisor's newest tick; None if nobody supervises.
        server: Host and port of this server, the worker of a stream without a driver.
        config: As `flat_config` makes it of the spec.
    """
    decision = note.decisions.get(spec.stream, {}) if note is not None else {}
    word = "unknown" if observed.actual.problem else state_word(observed, decision.get("action"))
    if word in ("never ran", "idle"):
        # A driver that ended by itself is missed where one is wanted.
        word = "dead" if observed.desired.continuous and observed.control.mode == "running" else "idle"
    state = STATES.get(word, "UNASSIGNED")
    if word == "stopping" and observed.control.mode == "stopped":
        state = "STOPPED"
    beat, driver = observed.heartbeat, observed.driver
    reports = driver is not None and driver.heartbeat is not None
    offsets = beat.work.position if beat is not None and reports and beat.work.position else None
    launch = observed.actual.launch
    file = observed.settings.home / (launch.file if launch is not None else f"streams/{spec.stream}.yaml")
    return Connector(
        name=spec.stream,
        state=state,
        worker_id=f"{driver.host}:{driver.pid}" if driver is not None else server,
        trace=_trace(observed, decision, word),
        config=config,
        topics=tuple(sorted({*(spec.source.topics or ()), *(offsets or {})})),
        offsets=offsets,
        file=file,
    )


def _trace(observed: Observation, decision: Mapping[str, str], word: str) -> str:
    """Why a stream does not run, and the next command."""
    if STATES.get(word) in ("STOPPED", "PAUSED") or word in ("running", "waiting", "draining", "starting", "stopping"):
        return ""
    if observed.actual.problem:
        return _with_next(observed.actual.problem, observed.actual.fix)
    error = observed.heartbeat.error if observed.heartbeat is not None else None
    fix = decision.get("fix") or next_command(observed, word)
    if error is not None and word in ("failed", "halted", "fenced", "retrying"):
        return _with_next(error.message, error.fix or fix)
    said = {
        "dead": "its driver is gone, or was never started",
        "frozen": "its driver gives no sign of life",
        "stalled": "its driver does not get on",
    }
    return _with_next(decision.get("sentence") or f"stream {observed.stream}: {said.get(word, word)}.", fix)


def _with_next(sentence: str, fix: str | None) -> str:
    return f"{sentence}\n  Next: {fix}" if fix else sentence


def flat_config(spec: StreamSpec) -> dict[str, str]:
    """A stream's file as Connect's flat configuration; a secret stays the reference that the file has.

    Texts stay as they are. Anything else, and a text that is JSON itself, is JSON.
    """
    document = spec.model_dump(mode="json", exclude_unset=True, by_alias=True)
    source = {**document.pop("source", {})}
    config = {"connector.class": CLASS, "name": str(document.pop("stream", spec.stream)), "tasks.max": "1"}
    if topics := source.pop("topics", None):
        config["topics"] = ",".join(topics)
    if pattern := source.pop("topics_pattern", None):
        config["topics.regex"] = pattern
    return config | dict(_flat({**document, "source": source}))


def nested_config(config: Mapping[str, str]) -> dict[str, Any]:
    """The stream's file that a flat configuration stands for: what `flat_config` was made of."""
    document: dict[str, Any] = {"stream": config.get("name", "")}
    if "topics" in config:
        topics = [each.strip() for each in config["topics"].split(",")]
        document["source"] = {"topics": [each for each in topics if each]}
    if "topics.regex" in config:
        document.setdefault("source", {})["topics_pattern"] = config["topics.regex"]
    for key, text in config.items():
        if key in _FIRST_KEYS:
            continue
        *parents, last = key.split(".")
        place = document
        for parent in parents:
            inner = place.setdefault(parent, {})
            place = inner if isinstance(inner, dict) else {}
        place[last] = _value(text)
    return document


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner and all("." not in str(each) for each in inner):
            yield from _flat(inner, f"{prefix}{key}.")
        elif not (isinstance(inner, Mapping) and not inner and not prefix):
            yield f"{prefix}{key}", inner if isinstance(inner, str) and _value(inner) == inner else json.dumps(inner)


def _value(text: str) -> Any:
    """What a flat text stands for: JSON's value, or else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
