"""A heartbeat in which every figure is known, as a driver of any release writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat

NOW = 1_700_000_000.0
OFFSETS = {"payments.v1": {"0": 40, "1": 60}}
# As a driver of any release writes it.
WORK: dict[str, Any] = {
    "batch": 4,
    "batches": 5,
    "recovered": 1,
    "busy_since": NOW - 3,
    "got_on_at": NOW - 1,
    "unanswered_since": NOW - 2,
    "read": 100,
    "landed": 90,
    "dead": 8,
    "tombstones": 2,
    "filtered": 4,
    "commit_seconds": 0.25,
    "batch_seconds": 12.5,
    "last_commit_seconds": 0.05,
    "last_batch_seconds": 2.5,
    "last_commit_at": NOW - 4,
    "refusals": 3,
    "position": OFFSETS,
    "lag": {"payments.v1": {"0": 3, "1": 0}},
    "lag_at": NOW - 1,
    "lag_unknown_since": None,
    "waiting_since": NOW - 6,
    "undecided": {"payments.v1": {"1": 7}},
    "undecided_since": NOW - 7,
    "snapshot_id": 11,
    "dead_letter_snapshot_id": 12,
    "valid_through_ms": int(NOW * 1000) - 9000,
    "reasons": {"not_json": 3, "missing": 5},
    "recent": {"seconds": 10.0, "read": 100, "landed": 90, "dead": 8},
    "unknown_fields": {"$.x": 4},
    "watermark_ms": int(NOW * 1000) - 60_000,
    "late": 6,
    "late_by": [3, 0, 2, 0, 1],
    "latest_ms": 90_061_500,
    "event_ms": [1_700_000_000_000, 1_700_003_600_000],
    "warned": {"small": 3},
    "parked": {"orders.b": int(NOW * 1000) - 5000},
    "parked_letters": {"orders.b": 9},
    "flush": {"number": 2, "done": True, "batches": 1, "read": 10, "landed": 9, "dead": 1},
}
BEAT: dict[str, Any] = {
    "stream": "payments",
    "generation": "0123456789ab",
    "attempt": 3,
    "pid": 1,
    "started": "1",
    "boot": "b",
    "host": "host",
    "since": NOW - 60,
    "state": "running",
    "state_since": NOW - 50,
    "beat": 1.0,
    "beat_wall": NOW,
    "epoch": 7,
    "log": "driver.log",
    "application_id": "app",
    "query_id": "query",
    "ui_url": "http://127.0.0.1:4040",
    "metrics_url": "http://127.0.0.1:9100/metrics",
    "error": {
        "message": "m", "kind": "away", "at": NOW, "fix": "f", "trace": "t", "question": None, "failed": 0, "read": 0,
    },
    "retries": 1,
    "unpublished_letters": 13,
    "outbox_error": None,
    "group": None,
    "work": WORK,
}  # fmt: skip


def full_beat(tmp_path: Path, **changes: Any) -> Heartbeat:
    store = LocalStore(tmp_path)
    store.put("heartbeat.json", json.dumps(BEAT | changes).encode(), durable=False)
    found = read_heartbeat(store)
    assert found is not None
    return found
