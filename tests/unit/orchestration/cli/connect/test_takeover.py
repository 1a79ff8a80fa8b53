"""`frazil takeover` and `frazil offsets`: what they refuse before they ask anybody, and how they show a plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.migration.sink_protocol.sink_floor import SinkFloor
from jobs.migration.takeover.completion_plan import TableCompletion
from jobs.migration.takeover.control_topic import AnnouncedFile
from jobs.migration.takeover.sink import sink_of
from jobs.migration.takeover.stream_start import PartitionStart
from jobs.migration.takeover.takeover_plan import TakeoverPlan
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.migration.takeover.takeover_seam import Seam, SeamPartition
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from orchestration.cli.connect.takeover import plan_lines, streams_of_same_tables, takeover_facts, unsound_seam
from resources.deployment import Deployment
from tests.helpers.command import frazil

P0 = TopicPartition("payments", 0)
SECRET = "pa55-of-the-tests"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "streams").mkdir()
    stream: dict[str, Any] = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "id string not null"},
        "table": {"name": "orders.payments"},
    }
    (tmp_path / "streams" / "payments.yaml").write_text(yaml.safe_dump(stream))
    (tmp_path / "frazil.yaml").write_text("kafka: {bootstrap_servers: '127.0.0.1:1', request_timeout: 1s}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        (["--stop-connector"], "--stop-connector needs the worker's address", "--connect URL"),
        ([], "the group and control topic of connector sink are unknown", "--control-topic TOPIC"),
        (
            ["--connect", f"http://me:{SECRET}@127.0.0.1:1"],
            "has a user or a password in it",
            "--connect-password '${env:NAME}'",
        ),
        (
            ["--connect", "http://127.0.0.1:1", "--connect-user", "me", "--connect-password", SECRET],
            "--connect-password takes a reference",
            "--connect-password '${env:CONNECT_PASSWORD}'",
        ),
        (["--connect", "http://127.0.0.1:1"], "does not answer", "curl http://127.0.0.1:1/connectors"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_option_that_helps(
    home: Path, options: list[str], said: str, fix: str
) -> None:
    result = frazil(SimpleNamespace(home=home), "takeover", "payments", "--from-connect", "sink", *options)
    assert result.exit_code == 1
    assert said in result.stderr
    assert fix in result.stderr
    assert SECRET not in result.output


def test_other_streams_are_asked_whose_values_may_name_the_same_tables(home: Path) -> None:
    text = (home / "streams" / "payments.yaml").read_text()
    routes = {"one": "lake.{value}", "two": "lake.{value}_x", "three": "pond.{value}"}
    for stream, to in routes.items():
        file = yaml.safe_load(text) | {"stream": stream, "table": {"name": f"orders.{stream}"}}
        file["route"] = {"by": "topic", "to": to}
        (home / "streams" / f"{stream}.yaml").write_text(yaml.safe_dump(file))
    deployment = Deployment.at(home)
    asked = {
        stream: [each.stream for each in streams_of_same_tables(deployment, deployment.stream(stream))]
        for stream in ("payments", *routes)
    }
    assert asked == {"payments": [], "one": ["two"], "two": ["one"], "three": []}


def test_a_look_makes_no_catalog(home: Path) -> None:
    result = frazil(
        SimpleNamespace(home=home),
        "takeover",
        "payments",
        "--from-connect",
        "sink",
        "--group",
        "connect-sink",
        "--dry-run",
    )
    assert result.exit_code == 1
    assert not (home / ".frazil").exists()
    assert "Next: write the connector's catalog" in result.stderr
    assert "frazil run" not in result.stderr


@pytest.mark.parametrize("option", [["--dry-run"], ["--yes"], ["--reason", "x"], ["--control-topic", "t"]])
def test_options_of_the_way_back_need_its_group(home: Path, option: list[str]) -> None:
    result = frazil(SimpleNamespace(home=home), "offsets", "payments", *option)
    assert result.exit_code == 1
    assert "frazil offsets payments --commit-to-group GROUP" in result.stderr


def plan(obstacle: FrazilError | None = None) -> TakeoverPlan:
    file = AnnouncedFile(0, 7, None, {"file_path": "s3://b/1.parquet", "record_count": 1_200})
    floor = SinkFloor({0: 5}, 1, 1)
    return TakeoverPlan(
        "payments",
        sink_of("sink", "apache", group=None, control_topic="control"),
        (PartitionStart(P0, 40, 40, OffsetRange(0, 90), 40),),
        (
            TableCompletion("orders.payments", (file,), floor),
            TableCompletion("orders.other", (), floor, (file,)),
        ),
        {0: 9},
        ("A note.",),
        obstacle,
        tags={"orders.payments": "connect-sink"},
    )


def test_a_plan_in_lines() -> None:
    assert plan_lines(plan(TakeoverRefusedError("it runs.", fix="stop it"))) == [
        "orders.payments: 1 announced files with 1,200 rows are in no snapshot; they are committed.",
        "orders.other: has all that the sink has announced.",
        "orders.other: 1 announced files are left out, by --passed-over.",
        "A note.",
        "Not now: it runs.",
        "  Next: stop it",
    ]


def test_a_takeover_as_json() -> None:
    seam = Seam((SeamPartition(P0, 40, 40, 90),), 50, 0, 0)
    facts = json.loads(json.dumps(takeover_facts(plan(), done=True, seam=seam)))
    assert facts["start"] == {"payments": {"0": 40}}
    assert (facts["group"], facts["control_topic"], facts["done"]) == ("connect-sink", "control", True)
    assert facts["tables"][0] == {
        "table": "orders.payments",
        "floor": {"0": 5},
        "files": 1,
        "rows": 1_200,
        "left_out": 0,
        "tag": "connect-sink",
    }
    assert facts["seam"]["partitions"][0]["gap"] == 0
    assert (facts["seam"]["missing"], facts["seam"]["doubled"]) == (0, 0)


def test_doubled_records_of_a_connector_that_was_started_again_are_explained() -> None:
    seam = Seam((SeamPartition(P0, 40, 40, 90),), 50, 0, 6, ("it stands.",))
    first, second = (unsound_seam(each, seam).message for each in (plan(), replace(plan(), restarted=True)))
    assert first == "stream payments has taken over. The audit found 0 missing and 6 doubled records. Also, it stands."
    assert "Connector sink had committed since an earlier takeover" in second


@pytest.mark.parametrize(
    ("seam", "sound"),
    [
        (Seam((SeamPartition(P0, 40, 40, 90),), 50, 0, 0), True),
        (Seam((SeamPartition(P0, 40, None, 40),), 0, 0, 0), True),
        (Seam((SeamPartition(P0, 40, 41, 90),), 49, 0, 0), False),
        (Seam((SeamPartition(P0, 40, 39, 90),), 51, 0, 0), False),
        (Seam((SeamPartition(P0, 40, 40, 90),), 50, 1, 0), False),
        (Seam((SeamPartition(P0, 40, 40, 90),), 50, 0, 1), False),
    ],
)
def test_a_seam_is_sound_without_gap_and_overlap(seam: Seam, sound: bool) -> None:
    assert seam.sound is sound
