"""Which topics a pattern means, to frazil and to Spark, which reads regular expressions in its own way."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.spec.settings import KafkaSettings
from jobs.spec.source import Source
from jobs.stream.query import kafka_source_options
from tests.helpers.tasks import stream_spec


@pytest.mark.parametrize(
    ("pattern", "topic", "reads"),
    [
        (r"pax\.[a-z]", "pax.a", True),
        (r"pax\.[a-z]", "xpax.a", False),
        (r"pax\.[a-z]", "pax.ab", False),
        (r"payments\.\d{8}", "payments.20260131", True),
        (r"payments\.\d{8}", "payments.20260131.dead", False),
        (r"payments\.\d{8}", "old-payments.20260131", False),
        (r"a|b", "a", True),
        (r"a|b", "ab", False),
        (r"^a$", "a", True),
        (r"(?i)PAY.*", "payments", True),
        (r".*", "payments", True),
        (r".*", "__consumer_offsets", False),
        (r".*", "__transaction_state", False),
    ],
)
def test_a_pattern_means_the_whole_name(pattern: str, topic: str, reads: bool) -> None:
    assert Source(topics_pattern=pattern).reads(topic) is reads


names = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)


@given(st.lists(names, min_size=1, max_size=8, unique=True), names)
def test_spark_is_given_the_names_that_are_meant(topics: list[str], other: str) -> None:
    spec = stream_spec("id string")
    spec = spec.model_copy(update={"source": Source(topics_pattern=".*")})
    kafka = KafkaSettings(bootstrap_servers="b:1")
    options = kafka_source_options(spec, kafka, {}, topics, drain=True)
    assert "subscribe" not in options
    # Spark finds a match anywhere in a name.
    found = re.compile(options["subscribePattern"])
    assert all(found.search(topic) for topic in topics)
    for near in (other, f"x{topics[0]}", f"{topics[0]}x", topics[0].replace(".", "-")):
        assert (found.search(near) is not None) == (near in topics)


def test_names_are_given_as_names() -> None:
    options = kafka_source_options(
        stream_spec("id string"), KafkaSettings(bootstrap_servers="b:1"), {}, ["payments"], drain=True
    )
    assert (options["subscribe"], "subscribePattern" in options) == ("payments", False)
