"""Worker of Kafka Connect that puts the records of cases through chains of transforms, and says what came of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.install.preflight import check_java
from tests.helpers.connect_worker import ConnectWorker
from tests.smt.case import Case

_SINK = Path(__file__).with_name("CaseSink.java")
_SECONDS = 120.0
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
_OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC")


class SmtWorker:
    """A standalone worker with every transform on its class path; as a context manager it runs for its length.

    Args:
        folder: Its own, which is there.
        address: The broker.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self._folder: Path = folder
        self._address: str = address
        self._jars: list[Path] = resolve_jars("transforms", on_progress=print)
        settings = {
            "key.converter": _CONVERTER,
            "value.converter": _CONVERTER,
            "offset.flush.interval.ms": "300",
            "plugin.discovery": "hybrid_warn",
        }
        jars = [folder / "classes", *self._jars]
        self._worker: ConnectWorker = ConnectWorker(
            folder, address, jars, settings=settings, connectors={}, options=_OPTIONS
        )
        self._rest: str = self._worker.rest

    def __enter__(self) -> Self:
        classes = self._folder / "classes"
        java = str(check_java().executable)
        jars = os.pathsep.join(map(str, self._jars))
        subprocess.run([_javac(java), "-cp", jars, "-d", str(classes), str(_SINK)], check=True)
        services = classes / "META-INF" / "services"
        services.mkdir(parents=True)
        (services / "org.apache.kafka.connect.sink.SinkConnector").write_text("CaseSink\n")
        self._worker.__enter__()
        self._wait(lambda: self._ask("GET", "/connectors")[0] == 200, "the worker answers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.stop()

    def run(self, cases: Sequence[Case]) -> list[dict[str, Any]]:
        """What the worker made of each case: `config_error`, or `results`, one for each record.

        A result is the record as the sink was given it, `{"dropped": true}`, or `{"error": …, "message": …}`.
        """
        self._produce(cases)
        names = [f"c-{os.getpid()}-{time.time_ns()}-{number}" for number in range(len(cases))]
        refused = {name: self._create(name, each) for name, each in zip(names, cases, strict=True)}
        found = [
            {"config_error": refused[name]} if refused[name] else self._results(name, case)
            for name, case in zip(names, cases, strict=True)
        ]
        for name in names:
            self._ask("DELETE", f"/connectors/{name}")
        return found

    def _produce(self, cases: Sequence[Case]) -> None:
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        for future in admin.create_topics([NewTopic(each.topic, 1, 1) for each in cases]).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": self._address, "log_level": 0})
        for case in cases:
            for each in case.records:
                producer.produce(
                    case.topic, each.value, each.key, 0, timestamp=each.timestamp, headers=list(each.headers)
                )
        assert producer.flush(30) == 0

    def _create(self, name: str, case: Case) -> str | None:
        aliases = [f"t{number}" for number in range(len(case.transforms))]
        config: dict[str, str] = {
            "name": name,
            "connector.class": "CaseSink",
            "tasks.max": "1",
            "topics": case.topic,
            "case.file": str(self._folder / name),
            "consumer.override.auto.offset.reset": "earliest",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"dead-{name}",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
            "transforms": ",".join(aliases),
            "predicates": ",".join(case.predicates),
        }
        for kind, blocks in (
            ("transforms", dict(zip(aliases, case.transforms, strict=True))),
            ("predicates", case.predicates),
        ):
            for alias, block in blocks.items():
                for key, value in block.items():
                    text = str(value).lower() if isinstance(value, bool) else str(value)
                    config[f"{kind}.{alias}.{key}"] = text
        status, answer = self._ask("POST", "/connectors", {"name": name, "config": config})
        return None if status == 201 else str(answer.get("message", answer))

    def _results(self, name: str, case: Case) -> dict[str, Any]:
        seen = self._folder / f"{name}.seen"
        failed: list[str] = []

        def done() -> bool:
            _, status = self._ask("GET", f"/connectors/{name}/status")
            parts = [status.get("connector", {}), *status.get("tasks", [])]
            failed.extend(each["trace"] for each in parts if each.get("state") == "FAILED")
            return bool(failed) or (seen.exists() and int(seen.read_text() or 0) >= len(case.records))

        self._wait(done, f"{case} is through")
        if failed:
            return {"config_error": _root(failed[0])}
        lines = self._folder / name
        written = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        by_offset = {each["record"]: each for each in written}
        by_offset |= self._dead(f"dead-{name}", len(case.records) - len(by_offset), case)
        return {"results": [by_offset.get(at, {"record": at, "dropped": True}) for at in range(len(case.records))]}

    def _dead(self, topic: str, missing: int, case: Case) -> dict[int, dict[str, Any]]:
        if not missing:
            return {}
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        found: dict[int, dict[str, Any]] = {}
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + _SECONDS
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error():
                    break
                headers = {
                    key: value.decode()
                    for key, value in message.headers() or ()
                    if key.startswith("__connect.errors.") and isinstance(value, bytes)
                }
                offset = int(headers["__connect.errors.offset"])
                found[offset] = {
                    "record": offset,
                    "error": headers["__connect.errors.exception.class.name"],
                    "message": _root(headers["__connect.errors.exception.stacktrace"]),
                    "stage": headers["__connect.errors.stage"],
                    "class": headers["__connect.errors.class.name"],
                }
        finally:
            consumer.close()
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._rest + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read()
            with contextlib.suppress(ValueError):
                return error.code, json.loads(text)
            return error.code, {"message": text.decode(errors="replace")}
        except OSError:
            return 0, {}

    def _wait(self, until: Any, what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not until():
            self._worker.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"gave up waiting until {what}; see {self._folder / 'connect.log'}")
            time.sleep(0.1)


def _javac(java: str) -> str:
    beside = Path(java).resolve().with_name("javac")
    return str(beside) if beside.exists() else "javac"


def _root(trace: str) -> str:
    """The last cause of a stack trace: its class and message."""
    causes = [line for line in trace.splitlines() if line.startswith("Caused by: ")]
    first = trace.splitlines()[0] if trace else ""
    found = (causes[-1].removeprefix("Caused by: ") if causes else first).strip()
    # An identity of Java says another thing in every run.
    return re.sub(r"@[0-9a-f]{5,8}\b", "@…", found)
