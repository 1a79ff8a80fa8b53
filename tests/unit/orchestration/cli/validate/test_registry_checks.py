"""What `frazil validate` finds about the schema registry, asked over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.spec.models import StreamSpec
from jobs.spec.registry import RegistrySettings
from orchestration.cli.validate.command import live_findings
from orchestration.cli.validate.findings import Finding
from orchestration.cli.validate.service_checks import check_registry
from resources.deployment import Deployment
from tests.helpers.registry_server import RegistryServer, serving
from tests.unit.orchestration.deployments import deployment_in

KEY = {"format": "avro", "schema": "registry", "into": "key"}


def stream(format_: str = "avro", topics: tuple[str, ...] = ("payments",), **decode: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": list(topics)},
            "decode": {"value": format_, "schema": "registry", **decode},
            "table": {"name": "orders.payments"},
        }
    )


def found(url: str | None, *specs: StreamSpec, **more: Any) -> list[tuple[str | None, str, str]]:
    registry = None if url is None else RegistrySettings.model_validate({"url": url, "timeout": "1s", **more})
    settings: Any = SimpleNamespace(registry=registry)
    findings: list[Finding] = list(check_registry(list(specs), settings))
    assert {each.subject for each in findings} <= {"registry"}
    return [(each.stream, each.verdict, each.sentence) for each in findings]


def test_a_stream_that_needs_one_is_wrong_without() -> None:
    assert found(None) == []
    ((stream_, verdict, sentence),) = found(None, stream())
    assert (stream_, verdict) == ("payments", "wrong")
    assert sentence == "values as avro name their schemas by ids of a registry; frazil.yaml names none"


def test_one_that_is_configured_is_asked_whether_it_answers(tmp_path: Path) -> None:
    with serving(RegistryServer()) as server:
        assert found(server.url) == [(None, "ok", f"The schema registry at {server.url} answers")]
        server.authorization = lambda: "Basic x"
        ((_, verdict, sentence),) = found(server.url)
        assert verdict == "wrong"
        assert "refuses us: HTTP 401" in sentence
        server.broken = (503, "")
        assert found(server.url)[0][1] == "unchecked"
        server.broken = (200, "<html>")
        assert found(server.url)[0][1] == "wrong"
        url = server.url
    assert found(url)[0][1] == "unchecked"
    ((_, verdict, sentence),) = found(url, bearer="${env:FRAZIL_T_NOT_SET}")
    assert verdict == "unchecked"
    assert "FRAZIL_T_NOT_SET" in sentence


@pytest.mark.parametrize(
    ("spec", "verdict", "said"),
    [
        (stream(), "ok", "subject payments-value stands at version 3, AVRO, id 7"),
        (stream("protobuf"), "wrong", "version 3, AVRO, id 7; decode.value is protobuf"),
        (
            stream(topics=("refunds",)),
            "unchecked",
            "has no subject refunds-value: nothing was produced as yet, or under",
        ),
        (stream(topics=("refunds",), subject="payments-value"), "ok", "subject payments-value stands at version 3"),
        (stream("json", schema="table", key=KEY), "unchecked", "has no subject payments-key: nothing was produced"),
        (
            stream("json", schema="table", key=KEY | {"subject": "payments-value"}),
            "ok",
            "subject payments-value stands",
        ),
    ],
)
def test_the_subject_of_each_topic_is_looked_for(spec: StreamSpec, verdict: str, said: str) -> None:
    server = RegistryServer()
    answer = server.answer

    def with_subjects(path: str, headers: dict[str, str], body: str) -> tuple[int, str]:
        if path.startswith("/subjects/payments-value/versions/latest"):
            version = {"subject": "payments-value", "version": 3, "id": 7, "schema": '"int"'}
            return 200, json.dumps(version)
        if path.startswith("/subjects/"):
            return 404, json.dumps({"error_code": 40401, "message": "Subject not found"})
        return answer(path, headers, body)

    server.answer = with_subjects  # type: ignore[method-assign]
    with serving(server):
        (_, about_stream) = found(server.url, spec)
    assert about_stream[:2] == ("payments", verdict)
    assert said in about_stream[2]


def test_it_is_among_what_validate_checks(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments"))
    with serving(RegistryServer()) as server:
        (tmp_path / "frazil.yaml").write_text(
            f"kafka: {{bootstrap_servers: '127.0.0.1:1'}}\nregistry: {{url: '{server.url}'}}\n"
        )
        findings = list(live_findings(deployment.streams()[0], deployment.settings()))
    assert [each.sentence for each in findings if each.subject == "registry"] == [
        f"The schema registry at {server.url} answers"
    ]


PAYMENT = {"type": "record", "name": "P", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"transform": [{"compute": {"twice": "n * 2"}}], "rules": [{"name": "few", "expect": "twice < 9"}]}, None),
        ({"transform": [{"compute": {"twice": "m * 2"}}]}, "transform[0].compute.twice: the expression is wrong"),
        ({"transform": [{"compute": {"n": "1"}}]}, "transform: would take the place of the column 'n'"),
        ({"rules": [{"name": "few", "expect": "id"}]}, "rules[0].expect: "),
        ({"table": {"name": "orders.payments", "partition_by": ["day(id)"]}}, "table.partition_by[0]: "),
    ],
)
def test_steps_are_checked_on_the_newest_schema_before_there_is_a_table(
    tmp_path: Path, more: dict[str, Any], said: str | None
) -> None:
    spec = StreamSpec.model_validate(stream().model_dump(mode="json", exclude_defaults=True) | more)
    newest = {"payments-value": ("AVRO", json.dumps(PAYMENT))}
    with serving(RegistryServer({1: json.dumps(PAYMENT)}, newest=newest)) as server:
        (tmp_path / "frazil.yaml").write_text(
            f"kafka: {{bootstrap_servers: '127.0.0.1:1'}}\nregistry: {{url: '{server.url}', timeout: 1s}}\n"
        )
        settings = Deployment.at(tmp_path).settings()
        found = list(live_findings([spec], settings))
    wrong = [each.sentence for each in found if each.subject == "spec" and each.verdict == "wrong"]
    if said is None:
        assert wrong == []
    else:
        (sentence,) = wrong
        assert sentence.startswith(said)
        assert "the columns are those of subject payments-value, version " in sentence


def test_a_schema_of_which_no_table_can_be_made_is_told_before_there_is_one(tmp_path: Path) -> None:
    schema = json.dumps(PAYMENT | {"fields": [*PAYMENT["fields"], {"name": "_pos", "type": "int"}]})
    with serving(RegistryServer({1: schema}, newest={"payments-value": ("AVRO", schema)})) as server:
        (tmp_path / "frazil.yaml").write_text(
            f"kafka: {{bootstrap_servers: '127.0.0.1:1'}}\nregistry: {{url: '{server.url}', timeout: 1s}}\n"
        )
        found = list(live_findings([stream()], Deployment.at(tmp_path).settings()))
    (sentence,) = [each.sentence for each in found if each.subject == "spec" and each.verdict == "wrong"]
    assert "table orders.payments cannot be made: _pos is a metadata column of Iceberg" in sentence
