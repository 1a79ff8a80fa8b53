"""`frazil certify` as a user runs it: one that passes, with every shape of stream, and one that is interrupted."""

from __future__ import annotations

import signal
import time

import pytest

from tests.helpers.certifying import Certifying
from tests.helpers.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2100)]


def test_a_certificate_of_every_shape(certifying: Certifying) -> None:
    """Drivers die within a batch, between two tables, and with new tables made; a publisher and a merge die, too."""
    shapes = {
        "after_tasks": "plain",
        "after_schema_commit": "plain",
        "before_commit": "plain",
        "after_recovery_commit": "plain",
        "kept": "plain",
        "after_table_commit": "routed",
        "publish_after_hold": "gated",
        "after_new_tables": "named",
        "mirror_before_publish": "mirrored",
    }
    status, facts = certifying.run("--steps", ",".join(shapes), "--runs", "1", "--seed", "11", "--records", "200")
    assert status == 0, certifying.said()
    assert facts["passed"] is True
    assert facts["problems"] == []
    assert {row["step"]: (row["kills"], row["passed"]) for row in facts["steps"]} == dict.fromkeys(shapes, (1, True))
    assert facts["kills"] == len(shapes)
    by_step = {trial["step"]: trial for trial in facts["trials"]}
    assert {step: trial["shape"] for step, trial in by_step.items()} == shapes
    records = facts["records"]
    assert records["produced"] == records["landed"] + records["dead"] + records["tombstones"]
    assert min(records["landed"], records["dead"], records["tombstones"]) > 0
    assert records["added_values"] > 0, "of the fields that turned up meanwhile"
    assert by_step["after_tasks"]["replayed"] > 0, "what the tasks had read was read again"
    assert not by_step["after_tasks"]["from_record"]
    noted = by_step["before_commit"]
    assert noted["from_record"]
    assert noted["replayed"] == 0, "what was noted was committed, and not read again"
    assert by_step["after_table_commit"]["from_record"]
    # A claim and what it published, of the merge before the kill and the one behind it at the least.
    assert facts["mirror_snapshots"] >= 4
    assert 0 < facts["recovery_seconds"]["median"] <= facts["recovery_seconds"]["worst"] < 360
    assert facts["audit"].count("complete") == len(set(shapes.values())), "of each stream"
    reports = sorted(path.name for path in (certifying.home / ".frazil" / "certificates").iterdir())
    assert [name.rpartition(".")[2] for name in reports] == ["json", "md"]
    assert f"trial 1 of {len(shapes)}" in certifying.said()
    wait_for(lambda: not certifying.topics(), "the topics' end")
    certifying.assert_nothing_left()


def test_an_interrupt_leaves_nothing(certifying: Certifying) -> None:
    process = certifying.start("--steps", "after_tasks", "--seed", "13")
    drivers = certifying.home / ".frazil" / "state" / "certify"

    def driver_runs() -> bool:
        assert process.poll() is None, certifying.said()
        return any(drivers.glob("*/state/streams/certify/heartbeat.json"))

    wait_for(driver_runs, "a driver")
    assert certifying.topics()
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=300)
    assert process.returncode == 130, certifying.said()
    assert time.monotonic() - began < 300
    wait_for(lambda: not certifying.topics(), "the topics' end")
    certifying.assert_nothing_left()
