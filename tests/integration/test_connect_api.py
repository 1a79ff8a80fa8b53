"""The Connect-shaped interface beside a real Connect worker: one topic, the same requests, the same answers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from jobs.base.system.threads import background_thread
from jobs.clients.install.artifacts import resolve_jars
from jobs.streaming.supervision.control.lifecycle import ActionResult
from orchestration.connect_api.connector import CLASS
from resources.deployment import Deployment
from tests.helpers.connect_worker import ConnectWorker
from tests.helpers.served_connectors import Answer, ask, serving_connectors
from tests.helpers.topics import create_topic
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, Pipeline

pytestmark = pytest.mark.integration

SINK = "org.apache.iceberg.connect.IcebergSinkConnector"
# Scanning the sink's class path takes more than the small heap of other workers.
JVM = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
RECORDS = 40

# What both are asked while the connector runs; {p}: the plugin's class, {n}: the connector.
SAME = [
    ("GET", "/"),
    ("HEAD", "/"),
    ("GET", "/connectors"),
    ("GET", "/connectors/"),
    ("GET", "/connectors?expand=status"),
    ("GET", "/connectors?expand=info"),
    ("GET", "/connectors?expand=info&expand=status"),
    ("GET", "/connectors?expand=nonsense"),
    ("GET", "/connectors/{n}"),
    ("GET", "/connectors/{n}/status"),
    ("GET", "/connectors/{n}/tasks"),
    ("GET", "/connectors/{n}/tasks/0/status"),
    ("GET", "/connectors/{n}/tasks/7/status"),
    ("GET", "/connectors/{n}/tasks/x/status"),
    ("GET", "/connectors/{n}/topics"),
    ("GET", "/connectors/none"),
    ("GET", "/connectors/none/config"),
    ("GET", "/connectors/none/status"),
    ("GET", "/connectors/none/tasks"),
    ("GET", "/connectors/none/offsets"),
    ("PUT", "/connectors/none/pause"),
    ("PUT", "/connectors/none/resume"),
    ("POST", "/connectors/none/restart?includeTasks=true"),
    ("DELETE", "/connectors/none"),
    ("GET", "/connector-plugins"),
    ("GET", "/connector-plugins/Nonsense/config"),
    ("GET", "/health"),
    ("GET", "/nothing"),
    ("GET", "/connectors/{n}/nothing"),
    ("POST", "/connectors/{n}/status"),
    ("DELETE", "/connectors"),
    ("GET", "/admin/loggers/none"),
    ("POST", "/connectors/{n}/restart?includeTasks=true&onlyFailed=true"),
    ("POST", "/connectors/{n}/restart?onlyFailed=true"),
    ("POST", "/connectors/{n}/tasks/9/restart"),
]
# Keys whose values are texts of one's own, by the name of what holds them.
OWN = {"config", "topics"}


@dataclasses.dataclass(frozen=True)
class Both:
    """Where the two are.

    Attributes:
        name: Of the connector and of the stream.
    """

    name: str
    worker: str
    served: str

    def ask(self, method: str, path: str, body: object = None) -> tuple[Answer, Answer]:
        """The worker's answer, and frazil's."""
        path = path.replace("{n}", self.name)
        return ask(self.worker, method, path, body), ask(self.served, method, path, body)

    def states(self) -> list[str]:
        """The connector's state there and here."""
        return [answer.document["connector"]["state"] for answer in self.ask("GET", "/connectors/{n}/status")]

    def wait_for(self, state: str) -> None:
        """Wait until both are in a state."""
        wait_for(lambda: self.states() == [state, state], f"both to be {state}")


def shape(value: Any, name: str = "") -> Any:
    """Keys and types of a document, without the values; a list has the shape of its first element."""
    if name in OWN:
        return type(value).__name__
    if isinstance(value, dict):
        return {key: shape(inner, key) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def sink_config(folder: Path, topic: str, control: str) -> dict[str, str]:
    """The real sink, on the topic of the stream."""
    return {
        "connector.class": SINK,
        "tasks.max": "1",
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "iceberg.tables": "tests.sink",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": "1000",
        "iceberg.catalog": "lake",
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:sqlite:{folder}/sink.db",
        "iceberg.catalog.jdbc.schema-version": "V1",
        "iceberg.catalog.warehouse": (folder / "sink").as_uri(),
        "iceberg.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }


WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "offset.flush.interval.ms": "1000",
    "plugin.discovery": "service_load",
}


@pytest.fixture
def both(pipeline: Callable[..., Pipeline], broker: str, tmp_path: Path) -> Iterator[Both]:
    """The sink and the stream on one topic with records, both running."""
    one = pipeline()
    one.write_spec(trigger={"every": "1s"})
    one.produce({GOOD: RECORDS})
    control = f"{one.stream}-control"
    create_topic(broker, control, 1)
    config = {one.stream: sink_config(tmp_path, one.stream, control)}
    worker = ConnectWorker(
        tmp_path / "worker", broker, resolve_jars("connect"), settings=WORKER, connectors=config, options=JVM
    )

    def begin(stream: str, action: Any) -> Future[ActionResult]:
        outcome = Future[ActionResult]()

        def act() -> None:
            try:
                outcome.set_result(one.control().perform(action, "Connect API", "tester"))
            except BaseException as problem:
                outcome.set_exception(problem)

        background_thread(act, stream).start()
        return outcome

    with worker, serving_connectors(Deployment.at(one.home), begin) as served:
        made = Both(one.stream, worker.rest, served)
        assert ask(served, "PUT", f"/connectors/{one.stream}/resume").status == 202
        worker.wait_until_running()
        try:
            made.wait_for("RUNNING")
            one.wait_until_landed()
            yield made
        finally:
            one.control().stop("the test ends", "tester")


def test_the_same_requests_have_the_same_answers(both: Both) -> None:
    wrong = dict[str, object]()
    for method, path in SAME:
        theirs, ours = both.ask(method, path)
        mine = (ours.status, shape(ours.document))
        if mine != (theirs.status, shape(theirs.document)):
            wrong[f"{method} {path}"] = ((theirs.status, shape(theirs.document)), mine)
    assert wrong == {}
    _validation(both)
    _driven(both)
    _client(both)


def _validation(both: Both) -> None:
    """Both judge a configuration key by key, in documents of one shape."""
    answers = [
        ask(url, "PUT", f"/connector-plugins/{plugin}/config/validate", {"connector.class": plugin, "name": "x"})
        for url, plugin in ((both.worker, SINK), (both.served, CLASS))
    ]
    assert [each.status for each in answers] == [200, 200]
    theirs, ours = (each.document for each in answers)
    assert theirs.keys() == ours.keys()
    for part in ("definition", "value"):
        assert theirs["configs"][0][part].keys() == ours["configs"][0][part].keys()
    assert all(each["error_count"] > 0 for each in (theirs, ours))
    other = [
        ask(url, "PUT", f"/connector-plugins/{plugin}/config/validate", {"connector.class": "Other"}).status
        for url, plugin in ((both.worker, SINK), (both.served, CLASS))
    ]
    assert other == [400, 400]


def _driven(both: Both) -> None:
    """Pause, resume, restart and stop: the same codes, states and, in the end, offsets."""

    def statuses(method: str, path: str) -> list[int]:
        return [each.status for each in both.ask(method, path)]

    assert statuses("PUT", "/connectors/{n}/pause") == [202, 202]
    both.wait_for("PAUSED")
    assert statuses("PUT", "/connectors/{n}/resume") == [202, 202]
    both.wait_for("RUNNING")
    assert statuses("POST", "/connectors/{n}/tasks/0/restart") == [204, 204]
    both.wait_for("RUNNING")

    def offsets() -> list[Any]:
        found = [answer.document["offsets"] for answer in both.ask("GET", "/connectors/{n}/offsets")]
        return [sorted(each, key=lambda entry: entry["partition"]["kafka_partition"]) for each in found]

    wait_for(lambda: (found := offsets())[0] == found[1] != [], "both to stand at the same offsets")
    assert sum(entry["offset"]["kafka_offset"] for entry in offsets()[1]) == RECORDS
    assert statuses("PUT", "/connectors/{n}/stop") == [204, 204]
    both.wait_for("STOPPED")
    assert offsets()[0] == offsets()[1], "as the table says, without a driver"
    assert statuses("GET", "/connectors/{n}/tasks") == [200, 200]
    assert [each.document for each in both.ask("GET", "/connectors/{n}/tasks")] == [[], []]
    assert statuses("GET", "/connectors/{n}/tasks/0/status") == [404, 404]
    assert statuses("PUT", "/connectors/{n}/resume") == [202, 202]
    both.wait_for("RUNNING")


def _client(both: Both) -> None:
    """A public client drives both, and sees the same."""
    client = pytest.importorskip("kafka_connect", reason="kafka-connect-py is not installed")
    theirs, ours = (client.KafkaConnect(url) for url in (both.worker, both.served))
    looks: list[Callable[[Any], Any]] = [
        lambda each: each.get_cluster_info(),
        lambda each: each.list_connectors(),
        lambda each: each.list_connectors(expand="status"),
        lambda each: each.list_connectors(expand="info"),
        lambda each: each.list_connectors(pattern=both.name[:4]),
        lambda each: each.list_connectors(state="RUNNING"),
        lambda each: each.list_connectors(state="FAILED"),
        lambda each: each.get_connector(both.name),
        lambda each: each.get_connector_status(both.name),
        lambda each: each.list_connector_tasks(both.name),
        lambda each: each.get_connector_task_status(both.name, 0),
        lambda each: each.list_connector_topics(both.name),
        lambda each: each.list_connector_plugins(),
    ]
    for number, look in enumerate(looks):
        assert shape(look(ours)) == shape(look(theirs)), f"look {number}: {json.dumps(look(ours))[:300]}"
    for each in (theirs, ours):
        each.pause_connector(both.name)
    both.wait_for("PAUSED")
    for each in (theirs, ours):
        each.resume_connector(both.name)
    both.wait_for("RUNNING")
    for each in (theirs, ours):
        each.restart_all_connectors(include_tasks=True)
        each.restart_connector_task(both.name, 0)
    both.wait_for("RUNNING")
