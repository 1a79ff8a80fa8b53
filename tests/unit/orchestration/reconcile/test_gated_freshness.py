"""A gated stream is as fresh as what main has of it, in every report, check and status; its branch stands beside it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from assets.metadata import branch_metadata
from jobs.quality.publishing.main_freshness import UNKNOWN
from jobs.streaming.supervision.documents.heartbeat import Work
from orchestration.cli.main import main
from orchestration.reconcile.assessment import evaluate_checks
from orchestration.reconcile.lag import BranchLag, Lag
from orchestration.reconcile.remote_queries import RemoteQueries
from tests.helpers.event_stream import GATE, EventStream, ms, write_file
from tests.unit.orchestration.reconcile.supervised_deployment import WaitingTopics, World, events, told, values

KEY = dg.AssetKey(["frazil", "orders", "payments"])
FRESHNESS = "freshness: {{warn: 11m, fail: 20m, by: {by}}}\nslo: {{lag_records: 5}}\n"
T0 = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)


class Gated:
    """A gated stream in a deployment; this process stands in for its driver."""

    def __init__(self, home: Path, by: str) -> None:
        self.world = World(home)
        write_file(home, besides=GATE + FRESHNESS.format(by=by))
        settings = self.world.deployment.prepared_settings()
        self.stream = EventStream(settings, self.world.deployment.stream("payments"))
        self.watermark = T0

    def land(self, at: datetime, rows: int = 1) -> None:
        """Rows of this time, with which the branch is complete."""
        before = self.watermark
        self.stream.land([at] * rows, at, through=at, before=before)
        self.watermark = at

    def tick(self, now: datetime) -> Any:
        head = self.stream.table.refs()["ingest"].snapshot_id
        work = Work(
            batch=1,
            batches=1,
            position={"payments": {"0": self.stream.rows}},
            lag={"payments": {"0": 0}},
            lag_at=now.timestamp(),
            valid_through_ms=ms(self.watermark),
            watermark_ms=ms(self.watermark),
            snapshot_id=head,
        )
        self.world.drive("payments", now=now.timestamp(), work=work)
        return self.world.tick(now.timestamp())


@pytest.fixture(params=["arrival", "event_time"])
def gated(tmp_path: Path, request: pytest.FixtureRequest) -> Gated:
    return Gated(tmp_path, request.param)


def lag_check(tick: Any) -> dg.AssetCheckEvaluation:
    (found,) = [each for each in events(tick, dg.AssetCheckEvaluation) if each.check_name == "lag_within_slo"]
    return found


def test_reports_and_the_slo_go_by_main(gated: Gated) -> None:
    gated.land(T0)
    gated.stream.publish()
    now = T0 + timedelta(seconds=10)
    tick = gated.tick(now)
    (fresh,) = told(tick, KEY)
    assert values(fresh)["dagster/row_count"] == 1
    assert values(fresh)["unpublished_rows"] == 0
    shown = gated.stream.table.current_snapshot()
    assert shown is not None
    assert values(fresh)["snapshot_id"] == str(shown.snapshot_id)
    assert values(fresh)["look_up"].endswith("--branch main")
    assert lag_check(tick).passed

    # Half an hour later the branch is fresh, and main is not.
    later = T0 + timedelta(minutes=30)
    gated.land(later - timedelta(seconds=5), rows=6)
    tick = gated.tick(later)
    assert told(tick, KEY) == [], "nothing that would make the table read as fresh"
    check = lag_check(tick)
    assert not check.passed
    assert "as main has it, is 1800 s behind; 1200 s are allowed (freshness.fail)" in (check.description or "")
    assert "6 rows are not published; slo.lag_records allows 5" in (check.description or "")
    assert "Next: frazil publish payments" in (check.description or "")
    figures = values(check)
    assert (figures["behind_seconds"], figures["unpublished_rows"]) == (1800, 6)
    assert figures["branch_behind_seconds"] <= 5

    gated.stream.publish()
    tick = gated.tick(later + timedelta(seconds=70))
    (again,) = told(tick, KEY)
    assert values(again)["dagster/row_count"] == 7
    assert values(again)["records_added"] == 6
    assert lag_check(tick).passed


def test_quarantined_rows_are_told_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(tmp_path, "arrival")
    now = datetime.now(UTC).replace(microsecond=0)
    gated.land(now - timedelta(seconds=9))
    gated.stream.publish()
    gated.tick(now)
    gated.land(now + timedelta(seconds=20), rows=3)
    assert gated.stream.publish(fit=False) == "held"
    answers = "frazil release payments --reason TEXT; or frazil discard payments --reason TEXT; or correct the contract"

    # At once, and whenever Dagster would else call the check not evaluated.
    for seconds in (40, 340, 640):
        at = now + timedelta(seconds=seconds)
        gated.watermark = at
        tick = gated.tick(at)
        evaluated = {each.check_name: each for each in events(tick, dg.AssetCheckEvaluation)}
        check = evaluated["published"]
        assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert (check.description or "").startswith("3 rows are quarantined since ")
        assert f"UTC: not fit. Next: {answers}" in (check.description or "")
        assert values(check)["unpublished_rows"] == 3
        if seconds == 40:
            (page,) = told(tick, KEY)
            assert values(page)["unpublished_rows"] == 3
            assert values(page)["quarantined"].startswith("3 rows are quarantined since ")
        (report,) = told(tick, dg.AssetKey(["frazil", "supervisor"]))
        (line,) = values(report)["needs_a_hand"].splitlines()[2:]
        assert "[payments]" in line
        assert answers in line

    def frazil(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["--home", str(tmp_path), "status", *arguments])

    shown = frazil()
    assert shown.exit_code == 0
    assert "! payments: 3 rows are quarantined since " in shown.stdout
    assert f"Next: {answers}" in shown.stdout
    assert frazil("--check").exit_code == 3
    (facts,) = json.loads(frazil("--json").stdout)["streams"]
    assert (facts["branch"]["unpublished_rows"], facts["next"].startswith(answers)) == (3, True)
    details = frazil("payments").stdout
    assert details.count(answers) == 1, details

    # An unavailable catalog says nothing about them, so the check stays as it was.
    with monkeypatch.context() as patch:
        patch.setattr(RemoteQueries, "main_freshness", lambda *_: UNKNOWN)
        tick = gated.tick(now + timedelta(seconds=980))
        (check,) = [each for each in events(tick, dg.AssetCheckEvaluation) if each.check_name == "published"]
        assert not check.passed
        assert answers in (check.description or "")

    assert gated.stream.publish() == "published"
    tick = gated.tick(now + timedelta(seconds=1_320))
    (check,) = [each for each in events(tick, dg.AssetCheckEvaluation) if each.check_name == "published"]
    assert check.passed
    assert "quarantined" not in frazil().stdout


def test_rows_that_nobody_can_count_are_not_counted_as_none() -> None:
    assert Lag(0, 1.0).on_main(UNKNOWN).branch == BranchLag(None)
    assert branch_metadata(None, None, None) == {}


def test_what_a_check_by_hand_and_status_say(gated: Gated) -> None:
    old, new = datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) - timedelta(seconds=30)
    gated.land(old)
    gated.stream.publish()
    gated.land(new, rows=2)
    kafka = WaitingTopics(gated.world, records=gated.stream.rows)
    found = evaluate_checks(gated.world.deployment, "payments", gated.world.catalog, gated.world.kafka)
    (check,) = [each for each in found if each.name == "lag_within_slo"]
    assert kafka.asked
    assert not check.passed
    assert check.figures["unpublished_rows"] == 2
    behind = check.figures["behind_seconds"]
    assert isinstance(behind, int)
    assert 3500 < behind < 3700
    done = CliRunner().invoke(main, ["--home", str(gated.world.deployment.home), "status", "payments"])
    assert done.exit_code == 0, done.output
    lines = {line.strip().split("  ")[0]: line for line in done.stdout.splitlines()}
    for name in ("complete through", "watermark"):
        assert "1 h" in lines[name] or "60 min" in lines[name] or "59 min" in lines[name], lines[name]
        assert "on branch ingest" in lines[name]
    gated.stream.publish()
    found = evaluate_checks(gated.world.deployment, "payments", gated.world.catalog, gated.world.kafka)
    assert all(each.passed for each in found if each.name == "lag_within_slo")
