"""A stream's status as data, for `frazil status --json`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from jobs.commit.offsets import TopicPartition
from orchestration.cli.status.model import StreamStatus


def status_facts(status: StreamStatus) -> dict[str, Any]:
    """Offsets by topic and partition, times in UTC."""
    error = status.error
    return {
        "stream": status.stream,
        "table": status.table,
        "dead_letter_table": status.dead_letter_table,
        "state": status.state,
        "next": status.fix,
        "wish": {"state": status.wish, "by": status.wished_by, "reason": status.wished_for},
        "holder": status.holder,
        "generation": status.generation,
        "wanted_generation": status.wanted_generation,
        "attempt": status.attempt,
        "failures_in_a_row": status.failures,
        "driver": {
            "pid": status.pid,
            "host": status.host,
            "since": _time(status.since),
            "uptime_seconds": uptime_seconds(status),
            "beat_age_seconds": status.beat_age_seconds,
            "log": status.log,
            "spark_ui": status.ui_url,
            "metrics": status.metrics_url,
        },
        "error": error
        and {
            "message": error.message,
            "kind": error.kind,
            "at": _time(datetime.fromtimestamp(error.at, UTC)),
            "next": error.fix,
            "trace": error.trace,
        },
        "file_problem": status.file_problem,
        "supervisor": status.decision,
        "epoch": status.epoch,
        "batch": status.batch,
        "position": by_topic(status.position),
        "records_passed": sum(status.position.values()),
        "lag": status.lag,
        "lag_by_partition": by_topic(status.lag_by),
        "undecided_records": status.undecided_records,
        "undecided_since": _time(status.undecided_since),
        "topics_without_id": status.topics_without_id and list(status.topics_without_id),
        "records_per_second": status.rate,
        "rows": status.rows,
        "dead": status.dead,
        "dead_letters_by_reason": status.reasons,
        "unknown_fields": {
            "since": status.unknown_fields and _time(datetime.fromtimestamp(status.unknown_fields.since, UTC)),
            "records_landed": status.unknown_fields and status.unknown_fields.landed,
            "fields": status.unknown_field_facts,
        },
        "unpublished_letters": status.unpublished_letters,
        "outbox_error": status.outbox_error and status.outbox_error.message,
        "last_commit": _time(status.last_commit),
        "complete_through": _time(status.complete_through),
        "unknown": status.unknown,
    }


def uptime_seconds(status: StreamStatus) -> float | None:
    """How long the driver has been running; None without one."""
    return None if status.since is None else max(0.0, (datetime.now(UTC) - status.since).total_seconds())


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Numbers by topic and partition, in order."""
    topics: dict[str, dict[str, int]] = {}
    for at, number in sorted(offsets.items()):
        topics.setdefault(at.topic, {})[str(at.partition)] = number
    return topics


def _time(at: datetime | None) -> str | None:
    return at and at.isoformat(timespec="milliseconds")
