"""Scrapes of a real server: parsed as Prometheus would, and nothing is left when it stops."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator

import msgspec
import pytest
from prometheus_client import parser
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from jobs.base.errors import FrazilError
from jobs.streaming.driver.process.metrics import MetricsServer, metrics_of_all
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Work

STARTING = Heartbeat("payments", "0123456789ab", 3, 1, "1", "", "host", 1000.5, "starting", 1000.5, 0.0, 0.0)
RUNNING = msgspec.structs.replace(
    STARTING,
    state="running",
    epoch=7,
    work=Work(
        batch=4,
        batches=5,
        read=100,
        landed=90,
        dead=8,
        tombstones=2,
        filtered=4,
        warned={"small": 3},
        commit_seconds=0.25,
        batch_seconds=12.5,
        last_commit_seconds=0.05,
        last_batch_seconds=2.5,
        last_commit_at=1700000000.25,
        refusals=1,
        position={"payments": {"0": 60, "10": 1, "2": 40}, 'odd "topic"\\': {"0": 9}},
        lag={"payments": {"0": 5, "2": 0}},
        lag_at=1700000001.0,
        undecided={"payments": {"2": 7, "10": 4}},
        undecided_since=1700000000.5,
        valid_through_ms=1700000000123,
        watermark_ms=1699999000500,
        late=6,
        late_by=(3, 0, 2, 0, 1),
        latest_ms=90_061_500,
        event_ms=(1699990000250, 1699999600500),
        reasons={"not_json": 3, "missing": 5},
        unknown_fields={"$.x": 4},
    ),
)

Labels = tuple[tuple[str, str], ...]


class Driver:
    def __init__(self) -> None:
        self.beat = STARTING


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def server(driver: Driver) -> Iterator[MetricsServer]:
    with MetricsServer(lambda: (driver.beat,)) as made:
        yield made


def scrape(server: MetricsServer, accept: str = "application/openmetrics-text; version=1.0.0") -> tuple[str, str]:
    """Content type and body."""
    request = urllib.request.Request(server.url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(families: Iterator[Metric]) -> dict[tuple[str, Labels], float]:
    """Values by name and labels, the stream's own left out, as every sample has it."""
    found: dict[tuple[str, Labels], float] = {}
    for sample in (sample for family in families for sample in family.samples):
        assert sample.labels["stream"] == "payments", sample
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "stream"))
        assert (sample.name, labels) not in found
        found[sample.name, labels] = sample.value
    return found


def expected() -> dict[tuple[str, Labels], float]:
    def at(topic: str, partition: str) -> Labels:
        return (("partition", partition), ("topic", topic))

    states = ("starting", "running", "paused", "retrying", "stopping", "stopped", "terminated", "finished", "fenced")
    return {
        ("frazil_records_read_total", ()): 100,
        ("frazil_records_landed_total", ()): 90,
        ("frazil_records_dead_total", (("reason", "missing"),)): 5,
        ("frazil_records_dead_total", (("reason", "not_json"),)): 3,
        ("frazil_tombstones_total", ()): 2,
        ("frazil_filtered_total", ()): 4,
        ("frazil_rule_warnings_total", (("rule", "small"),)): 3,
        ("frazil_unknown_fields_total", (("path", "$.x"),)): 4,
        ("frazil_batches_total", ()): 5,
        ("frazil_batch_seconds_total", ()): 12.5,
        ("frazil_commit_seconds_total", ()): 0.25,
        ("frazil_commit_refusals_total", ()): 1,
        ("frazil_last_batch_seconds", ()): 2.5,
        ("frazil_last_commit_seconds", ()): 0.05,
        ("frazil_last_commit_timestamp_seconds", ()): 1700000000.25,
        ("frazil_valid_through_timestamp_seconds", ()): 1700000000.123,
        ("frazil_watermark_timestamp_seconds", ()): 1699999000.5,
        ("frazil_records_late_total", ()): 6,
        ("frazil_lateness_seconds_bucket", (("le", "60.0"),)): 3,
        ("frazil_lateness_seconds_bucket", (("le", "600.0"),)): 3,
        ("frazil_lateness_seconds_bucket", (("le", "3600.0"),)): 5,
        ("frazil_lateness_seconds_bucket", (("le", "86400.0"),)): 5,
        ("frazil_lateness_seconds_bucket", (("le", "+Inf"),)): 6,
        ("frazil_lateness_greatest_seconds", ()): 90061.5,
        ("frazil_event_time_least_timestamp_seconds", ()): 1699990000.25,
        ("frazil_event_time_greatest_timestamp_seconds", ()): 1699999600.5,
        ("frazil_consumer_lag_timestamp_seconds", ()): 1700000001.0,
        ("frazil_undecided_records", ()): 11,
        ("frazil_undecided_since_timestamp_seconds", ()): 1700000000.5,
        ("frazil_driver_start_timestamp_seconds", ()): 1000.5,
        ("frazil_consumer_lag_records", at("payments", "0")): 5,
        ("frazil_consumer_lag_records", at("payments", "2")): 0,
        ("frazil_position_offset", at("payments", "0")): 60,
        ("frazil_position_offset", at("payments", "2")): 40,
        ("frazil_position_offset", at("payments", "10")): 1,
        ("frazil_position_offset", at('odd "topic"\\', "0")): 9,
        **{("frazil_driver_state", (("state", s),)): float(s == "running") for s in (*states, "failed")},
        ("frazil_driver_info", (("attempt", "3"), ("epoch", "7"), ("generation", "0123456789ab"))): 1,
    }


def test_openmetrics_says_everything_that_the_beat_says(server: MetricsServer, driver: Driver) -> None:
    driver.beat = RUNNING
    kind, body = scrape(server)
    assert kind.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert body.endswith("# EOF\n")
    assert samples(parse_openmetrics(body)) == expected()


def test_the_older_text_says_the_same(server: MetricsServer, driver: Driver) -> None:
    driver.beat = RUNNING
    kind, body = scrape(server, "text/plain; version=0.0.4")
    assert kind.startswith("text/plain; version=0.0.4")
    assert samples(iter(parser.text_string_to_metric_families(body))) == expected()


def test_every_metric_is_explained_and_named_by_its_unit(server: MetricsServer, driver: Driver) -> None:
    driver.beat = RUNNING
    for family in parse_openmetrics(scrape(server)[1]):
        assert family.documentation.endswith((".", "made again", "1970")), family.name
        assert family.type in ("counter", "gauge", "info", "histogram"), family.name
        for unit in ("seconds", "records"):
            assert (family.unit == unit) == family.name.endswith(f"_{unit}"), family.name


def test_a_lag_that_nobody_can_look_up_is_left_out(server: MetricsServer, driver: Driver) -> None:
    work = msgspec.structs.replace(RUNNING.work, lag_unknown_since=1700000002.0)
    driver.beat = msgspec.structs.replace(RUNNING, work=work)
    found = samples(parse_openmetrics(scrape(server)[1]))
    assert {name for name, _ in expected()} - {name for name, _ in found} == {
        "frazil_consumer_lag_records",
        "frazil_undecided_records",
    }


def test_before_the_first_batch_what_is_not_known_is_left_out(server: MetricsServer) -> None:
    found = samples(parse_openmetrics(scrape(server)[1]))
    assert found["frazil_records_read_total", ()] == 0
    assert found["frazil_driver_state", (("state", "starting"),)] == 1
    names = {name for name, _ in found}
    assert names.isdisjoint(
        {
            "frazil_last_commit_timestamp_seconds",
            "frazil_valid_through_timestamp_seconds",
            "frazil_consumer_lag_records",
            "frazil_position_offset",
            "frazil_records_dead_total",
        }
    )


def test_each_scrape_asks_anew(server: MetricsServer, driver: Driver) -> None:
    before = samples(parse_openmetrics(scrape(server)[1]))
    driver.beat = RUNNING
    after = samples(parse_openmetrics(scrape(server)[1]))
    assert (before["frazil_batches_total", ()], after["frazil_batches_total", ()]) == (0, 5)


def test_it_listens_on_loopback_alone_and_leaves_nothing() -> None:
    before = set(threading.enumerate())
    server = MetricsServer(lambda: (RUNNING,))
    server.start()
    assert server.url.startswith("http://127.0.0.1:")
    port = int(server.url.split(":")[2].split("/")[0])
    scrape(server)
    # One that connects and says nothing does not keep it.
    with socket.create_connection(("127.0.0.1", port), timeout=30):
        server.stop()
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)
    server.stop()


def test_a_given_port_and_a_taken_one() -> None:
    first = MetricsServer(lambda: (RUNNING,))
    port = int(first.url.split(":")[2].split("/")[0])
    with pytest.raises(FrazilError, match=rf"metrics cannot be served on 127.0.0.1:{port}: Address already in use"):
        MetricsServer(lambda: (RUNNING,), port)
    first.stop()
    second = MetricsServer(lambda: (RUNNING,), port)
    second.start()
    assert second.url == f"http://127.0.0.1:{port}/metrics"
    assert scrape(second)[0].startswith("application/openmetrics-text")
    second.stop()


def test_several_streams_have_one_metric_of_each_name() -> None:
    other = msgspec.structs.replace(RUNNING, stream="other")
    found = {metric.name: metric for metric in metrics_of_all([RUNNING, other])}
    alone = {metric.name: metric for metric in metrics_of_all([RUNNING])}
    assert found.keys() == alone.keys()
    for name, metric in found.items():
        assert len(metric.samples) == 2 * len(alone[name].samples)
        assert {sample.labels["stream"] for sample in metric.samples} <= {RUNNING.stream, "other"}
    text = "".join(f"{sample}" for metric in found.values() for sample in metric.samples)
    assert "other" in text
