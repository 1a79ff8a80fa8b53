"""Messages about alerts: one document for all targets, as JSON for webhooks and as text for people."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jobs.config.settings.settings import Settings
from orchestration.alerts.memory import Alert

VERSION = 1


@dataclass(frozen=True, slots=True)
class Message:
    """The content of one delivery.

    Attributes:
        alerts: Facts of each alert, see `alert_facts`.
        settings: Settings of the deployment.
    """

    alerts: tuple[dict[str, Any], ...]
    settings: Settings

    @property
    def id(self) -> str:
        """An id that is the same for each delivery of the same alerts."""
        keys = "\n".join(f"{facts['dedupe_key']} {facts['status']}" for facts in self.alerts)
        return hashlib.sha256(keys.encode()).hexdigest()[:24]

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document that a webhook receives."""
        return {"version": VERSION, "id": self.id, "deployment": str(self.settings.home), "alerts": list(self.alerts)}

    @property
    def subject(self) -> str:
        """The message in a line."""
        first = self.alerts[0]
        more = f", and {len(self.alerts) - 1} more" if len(self.alerts) > 1 else ""
        return f"{_headline(first)}{more}"

    @property
    def text(self) -> str:
        """The message as a person reads it."""
        return "\n\n".join(_paragraph(facts) for facts in self.alerts)


def make_message(notices: Sequence[tuple[Alert, bool]], settings: Settings) -> Message:
    """The message about alerts.

    Args:
        notices: Each alert, and whether the message is about its end.
    """
    return Message(tuple(alert_facts(alert, is_end, settings) for alert, is_end in notices), settings)


def alert_facts(alert: Alert, is_end: bool, settings: Settings) -> dict[str, Any]:
    """The facts of one alert, as JSON.

    Args:
        is_end: Whether the message is about its end.
    """
    alerts = settings.alerts
    return {
        "dedupe_key": alert.dedupe_key,
        "status": "resolved" if is_end else "firing",
        "alarm": alert.id,
        "severity": alert.severity,
        "stream": alert.stream or None,
        "subject": alert.subject or None,
        "meaning": alert.alarm.meaning,
        "what": alert.what,
        "since": _utc(alert.since),
        "ended": _utc(alert.ended) if is_end else None,
        "safe": alert.alarm.safe,
        "next": None if is_end else alert.next,
        "runbook": alerts.runbook(alert.alarm.runbook),
        "dagster": f"{alerts.dagster_url.rstrip('/')}{alert.page}" if alerts.dagster_url and alert.page else None,
    }


def _utc(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _headline(facts: dict[str, Any]) -> str:
    state = "resolved" if facts["status"] == "resolved" else facts["severity"]
    return f"[{state}] {facts['stream'] or 'deployment'}: {facts['alarm']}"


def _paragraph(facts: dict[str, Any]) -> str:
    lines = [
        _headline(facts),
        facts["what"],
        f"Subject: {facts['subject']}" if facts["subject"] else "",
        f"Since: {facts['since']}",
        f"Ended: {facts['ended']}" if facts["ended"] else "",
        f"Safe: {facts['safe']}" if not facts["ended"] else "",
        f"Next: {facts['next']}" if facts["next"] else "",
        f"Runbook: {facts['runbook']}" if not facts["ended"] else "",
        f"Dagster: {facts['dagster']}" if facts["dagster"] else "",
    ]
    return "\n".join(line for line in lines if line)
