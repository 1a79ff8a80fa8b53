"""What `frazil validate` says of topics to which the brokers give no id."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from jobs.commit.log_state import NO_ID
from jobs.commit.offsets import TopicPartition
from jobs.spec.models import StreamSpec
from orchestration.cli.validate.service_checks import check_topics
from tests.unit.stream.test_runner import spec


def stream(*topics: str) -> StreamSpec:
    return spec(source={"topics": list(topics)})


def kafka(identities: dict[str, str], *, epochs: bool = True) -> Any:
    """Brokers that have these topics, with one partition each."""

    def ends(partitions: Iterable[TopicPartition]) -> SimpleNamespace:
        return SimpleNamespace(leader_epochs=dict.fromkeys(partitions, 0) if epochs else {})

    return SimpleNamespace(
        topics=lambda source: {topic: [0] for topic in identities},
        identities=lambda topics: identities,
        ends=ends,
    )


def test_topics_with_ids_exist() -> None:
    finding = check_topics(stream("a"), kafka({"a": "id"}))
    assert (finding.verdict, finding.sentence) == ("ok", "topic a (1 partitions) exists")


def test_topics_without_ids_are_named() -> None:
    finding = check_topics(stream("a", "b", "c"), kafka({"a": NO_ID, "b": "id", "c": NO_ID}))
    assert (finding.verdict, finding.sentence) == (
        "ok",
        "topic a, c has no id: if it is created anew, leader epochs alone can tell",
    )
    assert "2.8 for ids" in (finding.fix or "")


def test_topics_without_ids_and_leader_epochs_are_wrong() -> None:
    finding = check_topics(stream("a", "b"), kafka({"a": NO_ID, "b": "id"}, epochs=False))
    assert finding.verdict == "wrong"
    assert finding.sentence == "the brokers give topic a neither an id nor leader epochs"


def test_a_missing_topic_is_named_before_those_without_ids() -> None:
    finding = check_topics(stream("a", "b"), kafka({"a": NO_ID}))
    assert (finding.verdict, finding.sentence) == ("wrong", "topic b does not exist")
