"""Sources in every form: JSON, Strimzi's resources, folders, and the worker of each connector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.migration.connectors.model import Connector, Sources
from jobs.migration.connectors.reading import UnreadableSource, read_sources

CONFIG = {"connector.class": "C", "topics": "t", "secret": "hunter2"}


def read(tmp_path: Path, name: str, content: Any) -> Sources:
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_sources([name], cwd=tmp_path)


def names(sources: Sources) -> list[tuple[str, str]]:
    return [(one.name, one.connector_class) for one in sources.connectors]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({**CONFIG, "name": "n"}, ["n"]),
        (CONFIG, ["file"]),
        ({"name": "n", "config": CONFIG}, ["n"]),
        ({"config": {**CONFIG, "name": "n"}}, ["file"]),
        ([{"name": "n", "config": CONFIG}, {**CONFIG, "name": "m"}, CONFIG], ["n", "m", "file-3"]),
        ([CONFIG], ["file"]),
        ({"connectors": [{"name": "n", "config": CONFIG}]}, ["n"]),
        ({"connectors": {"n": CONFIG, "m": {"config": CONFIG}}}, ["n", "m"]),
        ({"n": CONFIG, "m": CONFIG}, ["n", "m"]),
        ({"n": {"info": {"name": "n", "config": CONFIG}, "status": {}}}, ["n"]),
        ({"n": {"info": {"config": CONFIG}}}, ["n"]),
    ],
)
def test_every_form_of_json(tmp_path: Path, document: Any, expected: list[str]) -> None:
    assert names(read(tmp_path, "file.json", document)) == [(name, "C") for name in expected]


def test_the_same_forms_in_yaml(tmp_path: Path) -> None:
    text = "connectors:\n- name: n\n  config: &c {connector.class: C, topics: t}\n- {name: m, config: *c}\n"
    assert names(read(tmp_path, "f.yaml", text)) == [("n", "C"), ("m", "C")]


@pytest.mark.parametrize("document", [{}, [], {"a": 1}, "7", [[]], [{"id": 1}, {"id": 2}]])
def test_a_document_without_a_connector_is_named(tmp_path: Path, document: Any) -> None:
    sources = read(tmp_path, "f.json", document)
    assert sources.connectors == ()
    assert sources.skipped == ("f.json: has no connector: no connector.class in it",)


@pytest.mark.parametrize(
    ("document", "skipped"),
    [
        ([{"name": "n", "config": CONFIG}, {"name": "m", "topics": "t"}], "f.json: m has no connector.class"),
        ({"connectors": {"n": CONFIG, "m": {"topics": "t"}}}, "f.json: m has no connector.class"),
        (
            {"n": {"info": {"config": CONFIG}}, "m": {"status": {"connector": {"state": "RUNNING"}}}},
            "f.json: m has a status and no configuration: expand=info gives both",
        ),
    ],
)
def test_a_connector_without_a_class_beside_others_is_named(tmp_path: Path, document: Any, skipped: str) -> None:
    sources = read(tmp_path, "f.json", document)
    assert names(sources) == [("n", "C")]
    assert sources.skipped == (skipped,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{\n// the sink\n"a": 1}', "it has comments in it, which JSON does not have"),
        ("", "it is empty"),
        ('{"a": 1}'.encode("utf-16").decode("latin-1"), "it is not UTF-8"),
    ],
)
def test_what_is_wrong_with_json_is_said_where_it_is_plain(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UnreadableSource, match=reason):
        read(tmp_path, "f.json", text)


def test_a_form_is_found_without_an_ending(tmp_path: Path) -> None:
    assert names(read(tmp_path, "connector", {**CONFIG, "name": "n"})) == [("n", "C")]
    assert names(read(tmp_path, "sink.conf", "name=n\nconnector.class=C\n")) == [("n", "C")]
    strimzi = "apiVersion: kafka.strimzi.io/v1\nkind: KafkaConnector\nmetadata: {name: n}\nspec: {class: C}\n"
    assert names(read(tmp_path, "resource", strimzi)) == [("n", "C")]


def test_state_and_failures_of_a_worker_are_kept_without_stack_traces(tmp_path: Path) -> None:
    status = {
        "connector": {"state": "STOPPED"},
        "tasks": [{"id": 0, "state": "RUNNING"}, {"id": 1, "state": "FAILED", "trace": "password=hunter2"}],
    }
    (connector,) = read(tmp_path, "f.json", {"n": {"info": {"config": CONFIG}, "status": status}}).connectors
    assert (connector.state, connector.failed) == ("stopped", ("task 1 is FAILED",))
    assert "hunter2" not in repr(connector)


STRIMZI = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaConnect
metadata: {name: main, namespace: a}
spec: {bootstrapServers: "b:9093", config: {value.converter: V}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaConnect
metadata: {name: main, namespace: b}
spec: {bootstrapServers: "c:9093"}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaConnector
metadata: {name: n, namespace: b, labels: {strimzi.io/cluster: main}}
spec: {class: C, tasksMax: 2, state: stopped, config: {topics: t, topics.regex: ~}}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
data: {password: aHVudGVyMg==}
"""


def test_resources_of_strimzi_find_their_worker_in_their_namespace(tmp_path: Path) -> None:
    sources = read(tmp_path, "f.yaml", STRIMZI)
    (connector,) = sources.connectors
    assert connector.worker is sources.workers[1]
    assert (connector.state, connector.worker_name, connector.value("tasks.max")) == ("stopped", "main", "2")
    assert connector.settings["topics"].place.path == "spec.config.topics"
    assert connector.settings["topics"].place.line == 14
    assert sources.skipped == ("f.yaml: Secret s is neither KafkaConnect nor KafkaConnector",)


def test_a_list_of_resources_as_kubectl_prints_it(tmp_path: Path) -> None:
    item = {
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "kind": "KafkaConnector",
        "metadata": {"name": "n", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}},
        "spec": {"class": "C", "pause": True, "config": {"topics": "t"}},
    }
    sources = read(tmp_path, "f.json", {"apiVersion": "v1", "kind": "List", "items": [item]})
    assert names(sources) == [("n", "C")]
    assert sources.connectors[0].state == "paused"


def test_a_resource_without_its_worker_keeps_the_name(tmp_path: Path) -> None:
    text = STRIMZI.split("---\n")[2]
    (connector,) = read(tmp_path, "f.yaml", text).connectors
    assert (connector.worker, connector.worker_name) == (None, "main")


def connector_named(sources: Sources, name: str) -> Connector:
    return next(one for one in sources.connectors if one.name == name)


def test_a_folder_is_read_below_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    folder = tmp_path / "connect"
    for path, text in {
        "a/one.json": json.dumps({"name": "one", "config": CONFIG}),
        "a/worker.properties": "bootstrap.servers=a:9092\n",
        "b/two.json": json.dumps({"name": "two", "config": CONFIG}),
        "b/worker.properties": "bootstrap.servers=b:9092\n",
        "c/three.json": json.dumps({"name": "three", "config": CONFIG}),
        "c/broken.json": "{",
        "c/notes.txt": "name=x\nconnector.class=C\n",
        ".git/four.json": json.dumps({"name": "four", "config": CONFIG}),
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    sources = read_sources(["connect"], cwd=tmp_path)
    assert [one.name for one in sources.connectors] == ["one", "two", "three"]
    workers = {one.name: one.worker and one.worker.place.source for one in sources.connectors}
    # Which of two workers runs the third is not guessed.
    assert workers == {"one": "connect/a/worker.properties", "two": "connect/b/worker.properties", "three": None}
    assert len(sources.skipped) == 1
    assert sources.skipped[0].startswith("connect/c/broken.json is no JSON: line 1, column 2")


def test_a_worker_beside_the_connectors_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "w.properties").write_text("bootstrap.servers=b:9092\n")
    (tmp_path / "c.properties").write_text("name=n\nconnector.class=C\n")
    sources = read_sources(["c.properties", "w.properties"], cwd=tmp_path)
    assert connector_named(sources, "n").worker is sources.workers[0]


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    assert read_sources(["."], cwd=tmp_path).skipped == (".: has no files in JSON, YAML or properties",)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no.json", None, "no.json cannot be read: No such file or directory"),
        ("bad.json", '{"a": {{ x }}}', "bad.json is no JSON: line 1, column 8; it has templates in it: render them"),
        ("bad.yaml", "a: [", "bad.yaml is no YAML: line 1, column 5"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UnreadableSource, match=said):
        read_sources([name], cwd=tmp_path)


def test_a_configuration_without_a_class_is_named_beside_others(tmp_path: Path) -> None:
    sources = read(tmp_path, "c.json", [{"name": "n", "config": CONFIG}, {"name": "lost", "config": {"topics": "t"}}])
    assert names(sources) == [("n", "C")]
    assert sources.skipped == ("c.json: lost has a config without connector.class",)
