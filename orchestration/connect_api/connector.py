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
"""Connector class: the value of `connector.class`, and the plugin's name."""
VERSION = version("frazil")
"""The plugin's version."""

ConnectState = Literal["RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING"]

# Connect's states by frazil's, see `state_word`. FAILED: the driver failed or hangs. UNASSIGNED: no driver runs.
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
        state: State of the connector, and of its task if it has one.
        worker_id: Host and process of the driver, or the address of this server.
        trace: Reason why the stream does not run, with the next command; empty if it runs.
        config: The stream's file as a flat configuration.
        topics: Known topics of the stream: those in its file, and those with positions.
        offsets: Next offset of each topic and partition, as the running driver reports; None without a report.
        file: Path of the stream's file.
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
        """Ids of the connector's tasks: one, its driver; none if it is stopped."""
        return range(0 if self.state == "STOPPED" else 1)

    def info(self) -> dict[str, Any]:
        """Answer to `GET /connectors/NAME`."""
        tasks = [{"connector": self.name, "task": number} for number in self.tasks]
        return {"name": self.name, "config": dict(self.config), "tasks": tasks, "type": "sink"}

    def status(self, state: ConnectState | None = None) -> dict[str, Any]:
        """Answer to `GET /connectors/NAME/status`; `state` replaces the observed state."""
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
    """Connector of a stream.

    Args:
        observed: Observation of the stream, read from its state folder.
        spec: Spec in the stream's file, or that of the last launch if the file is invalid.
        note: The supervisor's newest heartbeat; None if nobody supervises.
        server: Host and port of this server, shown as the worker of a stream without a driver.
        config: Flat configuration of the spec, by `flat_config`.
    """
    decision = note.decisions.get(spec.stream, {}) if note is not None else {}
    word = "unknown" if observed.actual.problem else state_word(observed, decision.get("action"))
    if word in ("never ran", "idle"):
        # A continuous stream whose driver ended by itself lacks a driver.
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
    """Reason why a stream does not run, with the next command; empty if it runs or was stopped or paused."""
    if STATES.get(word) in ("STOPPED", "PAUSED") or word in ("running", "waiting", "draining", "starting", "stopping"):
        return ""
    if observed.actual.problem:
        return _with_next(observed.actual.problem, observed.actual.fix)
    error = observed.heartbeat.error if observed.heartbeat is not None else None
    fix = decision.get("fix") or next_command(observed, word)
    if error is not None and word in ("failed", "halted", "fenced", "retrying"):
        return _with_next(error.message, error.fix or fix)
    said = {
        "dead": "its driver has ended, or was never started",
        "frozen": "its driver gives no sign of life",
        "stalled": "its driver does not get on",
    }
    return _with_next(decision.get("sentence") or f"stream {observed.stream}: {said.get(word, word)}.", fix)


def _with_next(sentence: str, fix: str | None) -> str:
    return f"{sentence}\n  Next: {fix}" if fix else sentence


def flat_config(spec: StreamSpec) -> dict[str, str]:
    """Flatten a stream's file to Connect's configuration. Secrets stay references, as in the file.

    Texts stay as they are. Other values, and texts that are valid JSON, are encoded as JSON.
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
    """Nest a flat configuration as a stream's file; the inverse of `flat_config`."""
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
    """Value of a flat text: the decoded JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
