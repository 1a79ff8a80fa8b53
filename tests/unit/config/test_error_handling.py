# ruff: noqa: E501 (a table reads best with one case a line)
"""The block `errors` of a stream's file."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import load_stream
from jobs.config.stream.error_handling import (
    DEFAULT_STOP,
    MOST_BY_CHANCE,
    DeadLetterTopic,
    Errors,
    dead_letter_secrets,
    exceeds_ratio,
)
from jobs.config.stream.models import StreamSpec
from tests.helpers.problem_places import without_columns

HEAD = """\
stream: payments
source: {topics: [payments, more]}
decode: {value: json, schema: 'id string not null, card struct<number string>'}
table: {name: orders.payments}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(errors: str, head: str = HEAD) -> StreamSpec:
    path = Path("payments.yaml")
    path.write_text(f"{head}errors:\n{errors}", encoding="utf-8")
    return load_stream(path)


def test_defaults() -> None:
    errors = Errors()
    assert (errors.retry.timeout, errors.retry.max_delay) == (timedelta(0), timedelta(seconds=60))
    assert (errors.replay.automatic, errors.replay.park_after, errors.replay.rate) == (False, 3, None)
    assert (errors.topic, errors.mask.columns, errors.mask.headers, errors.mask.key) == (None, (), (), False)


EVERYTHING = """\
  tolerance: all
  retry: {timeout: forever, max_delay: 10s}
  stop_above: {ratio: 0.05, min_records: 50, count: 100, window: {of: 1h, ratio: 0.01, count: 1_000}}
  dead_letters:
    table: orders.dead
    topic:
      name: payments.dead
      create: true
      partitions: 6
      replication_factor: 3
      publish: all
      kafka:
        bootstrap_servers: [one:9092, two:9092]
        security: {protocol: SASL_SSL, mechanism: PLAIN, user: me, password: '${env:SECRET}', ca: /etc/ca.pem}
    keep: 90d
    mask: {columns: [id, card.number, 'not.`de-clared`'], headers: [trace], key: true}
  replay: {automatic: true, park_after: 5, rate: 1_000}
"""


def test_everything_given() -> None:
    spec = loaded(EVERYTHING)
    errors = spec.errors
    assert errors.retry.timeout == "forever"
    assert errors.stop_above is not None
    assert errors.stop_above.window is not None
    assert errors.stop_above.window.of == timedelta(hours=1)
    assert errors.topic is not None
    assert errors.topic.kafka is not None
    assert errors.topic.kafka.bootstrap_servers == "one:9092,two:9092"
    assert errors.topic.kafka.security is not None
    assert [str(secret) for secret in dead_letter_secrets(errors)] == ["${env:SECRET}"]
    assert errors.topic.kafka.security.ca == Path("/etc/ca.pem")
    assert errors.dead_letters is not None
    assert errors.dead_letters.keep == timedelta(days=90)
    assert errors.mask.paths == (("id",), ("card", "number"), ("not", "de-clared"))
    assert StreamSpec.model_validate_json(spec.model_dump_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("off", ["off", "'off'", "false", "null", ""])
def test_the_limit_is_there_without_a_word_and_can_be_set_off(off: str) -> None:
    assert Errors().stop_above == DEFAULT_STOP
    spec = loaded(f"  stop_above: {off}\n")
    assert spec.errors.stop_above is None
    assert StreamSpec.model_validate_json(spec.model_dump_json()) == spec
    plain = loaded("  tolerance: data\n")
    assert StreamSpec.model_validate_json(plain.model_dump_json()) == plain
    assert plain.config_hash == spec.config_hash


def test_a_topic_may_be_a_plain_name_and_the_table_its_default() -> None:
    spec = loaded("  dead_letters: {topic: payments.dead}\n")
    assert spec.errors.topic == DeadLetterTopic(name="payments.dead")
    assert spec.dead_letter_table == "orders.payments_dead"


@pytest.mark.parametrize(
    ("text", "timeout"),
    [("0s", timedelta(0)), ("0", timedelta(0)), ("5m", timedelta(minutes=5)), ("forever", "forever")],
)
def test_retries(text: str, timeout: object) -> None:
    spec = loaded(f"  retry: {{timeout: {text}}}\n")
    assert spec.errors.retry.timeout == timeout
    assert StreamSpec.model_validate_json(spec.model_dump_json()) == spec


PROBLEMS = [
    ("  retry: {timeout: -1}", 6, "errors.retry.timeout", "must be forever, or a duration"),
    ("  retry: {timeout: 5}", 6, "errors.retry.timeout", "needs a unit; write 5s, 5m, 5h or 5d; or forever, or 0s for none"),
    ("  retry: {timeout: soon}", 6, "errors.retry.timeout", "or forever"),
    ("  retry: {max_delay: 0s}", 6, "errors.retry.max_delay", "must be longer than zero"),
    ("  retry: {timout: 1s}", 6, "errors.retry.timout", "did you mean 'timeout'?"),
    ("  stop_above: {min_records: 5}", 6, "errors.stop_above", "needs ratio, count or window"),
    ("  stop_above: 0.5", 6, "errors.stop_above", "must be off, or a mapping with ratio, count or window"),
    ("  stop_above: on", 6, "errors.stop_above", "must be off, or a mapping"),
    ("  stop_above: {ratio: 1, first_min_records: 0}", 6, "errors.stop_above.first_min_records", "must be greater than 0"),
    ("  stop_above: {count: 0}", 6, "errors.stop_above.count", "must be greater than 0"),
    ("  stop_above: {window: {ratio: 0.1}}", 6, "errors.stop_above.window.of", "is required and missing"),
    ("  stop_above:\n    window:\n      of: 1h", 7, "errors.stop_above.window", "needs ratio or count"),
    ("  stop_above: {window: {of: 1h, ratio: 2}}", 6, "errors.stop_above.window.ratio", "less than or equal to 1"),
    ("  stop_above: {window: {off: 1h, ratio: 1}}", 6, "errors.stop_above.window.off", "did you mean 'of'?"),
    ("  dead_letters: {topic: payments}", 6, "errors.dead_letters.topic", "the stream reads the topic 'payments' itself"),
    ("  dead_letters:\n    topic: {name: more}", 7, "errors.dead_letters.topic", "the stream reads the topic 'more' itself"),
    ("  dead_letters: {topic: a b}", 6, "errors.dead_letters.topic", "is not the name of a topic"),
    ("  dead_letters: {topic: [a]}", 6, "errors.dead_letters.topic", "must be the name of a topic, or a mapping"),
    ("  dead_letters: {topic: {create: true, replication_factor: 1}}", 6, "errors.dead_letters.topic.name", "is required and missing"),
    ("  dead_letters: {topic: {name: dead, create: true}}", 6, "errors.dead_letters.topic.replication_factor", "is required with create: true"),
    ("  dead_letters: {topic: {name: dead, partitions: 3}}", 6, "errors.dead_letters.topic.partitions", "add create: true"),
    ("  dead_letters: {topic: {name: dead, replicas: 3}}", 6, "errors.dead_letters.topic.replicas", "unknown key"),
    ("  dead_letters: {topic: {name: dead, kafka: {bootstrap_servers: 'kafka://one'}}}", 6, "errors.dead_letters.topic.kafka.bootstrap_servers", "must be host:port"),
    ("  dead_letters: {topic: {name: dead, kafka: {bootstrap_servers: 'a:1', security: {protocol: SSL, ca: ca.pem}}}}", 6, "errors.dead_letters.topic.kafka.security.ca", "must be an absolute path"),
    ("  dead_letters: {keep: 5}", 6, "errors.dead_letters.keep", "needs a unit"),
    ("  dead_letters: {keep: 5h}", 6, "errors.dead_letters.keep", "must be at least 1d"),
    ("  dead_letters:\n    mask:\n      columns:\n        - id\n        - a b", 10, "errors.dead_letters.mask.columns[1]", "is not a path of keys"),
    ("  dead_letters:\n    mask:\n      columns:\n        - id\n        - Card.number", 10, "errors.dead_letters.mask.columns[1]", "which has 'card'; keys are exact"),
    ("  dead_letters:\n    mask:\n      columns:\n        - card.Number", 9, "errors.dead_letters.mask.columns[0]", "which has 'number'"),
    ("  dead_letters: {mask: {columns: id}}", 6, "errors.dead_letters.mask.columns", "must be a list"),
    ("  dead_letters: {mask: {headers: ['']}}", 6, "errors.dead_letters.mask.headers[0]", "must be the name of a header"),
    ("  dead_letters: {mask: {key: 'yes'}}", 6, "errors.dead_letters.mask.key", "must be true or false"),
    ("  replay: {park_after: 0}", 6, "errors.replay.park_after", "must be greater than 0"),
    ("  replay: {automatic: sometimes}", 6, "errors.replay.automatic", "must be true or false"),
    ("  replay: {rate: fast}", 6, "errors.replay.rate", "must be a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "field", "sentence"), PROBLEMS, ids=[text for text, *_ in PROBLEMS])
def test_problems_name_line_and_field(text: str, line: int, field: str, sentence: str) -> None:
    with pytest.raises(SpecError) as error:
        loaded(text + "\n")
    (problem,) = error.value.problems
    assert without_columns(problem).startswith(f"payments.yaml:{line}: {field}: ")
    assert sentence in problem


def test_the_topic_of_the_letters_is_not_read_by_pattern_either() -> None:
    with pytest.raises(SpecError, match=r"errors\.dead_letters\.topic: the stream reads the topic 'payments\.dead'"):
        loaded(
            "  dead_letters: {topic: payments.dead}\n",
            HEAD.replace("topics: [payments, more]", "topics_pattern: 'payments.*'"),
        )


def test_disagreements_are_told_beside_other_problems() -> None:
    with pytest.raises(SpecError) as error:
        loaded("  dead_letters: {topic: payments, mask: {columns: [ID]}}\nfreshness: {warn: 5}\n")
    assert [problem.split(": ")[1] for problem in error.value.problems] == [
        "errors.dead_letters.topic",
        "errors.dead_letters.mask.columns[0]",
        "freshness.fail",
        "freshness.warn",
    ]


def test_a_password_is_never_repeated() -> None:
    bad = "  dead_letters: {topic: {name: dead, kafka: {bootstrap_servers: 'a:1', security: {protocol: hunter2, mechanism: hunter2, user: me, password: hunter2}}}}\n"
    with pytest.raises(SpecError) as error:
        loaded(bad)
    assert "hunter2" not in str(error.value)
    assert "errors.dead_letters.topic.kafka.security.password" in str(error.value)


@pytest.mark.parametrize(("least", "read"), [(3, 3), (5, 10), (14, 100), (47, 580), (51, 1_000), (501, 10_000)])
def test_the_numbers_of_the_documentation(least: int, read: int) -> None:
    assert exceeds_ratio(least, read, 0.05, MOST_BY_CHANCE)
    assert not exceeds_ratio(least - 1, read, 0.05, MOST_BY_CHANCE)


def test_exactly_the_allowed_share_does_not_exceed_it() -> None:
    assert not exceeds_ratio(500, 1_000, 0.5, 20)
    assert exceeds_ratio(501, 1_000, 0.5, 20)
    assert not exceeds_ratio(0, 1_000, 0.0, 20)
