"""Memory of the alert sensor: which alarms last, who has heard of them, and which deliveries failed.

It is the sensor's cursor, and has what is to be sent before anything is sent. A daemon that is killed after a delivery
sends the same message once more, with the same deduplication key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.config.services.monitoring import SEVERITIES, AlertTarget, Severity
from orchestration.alerts.alarms import ALARM_BY_ID, Alarm
from orchestration.alerts.conditions import Condition, Conditions

# A condition that is not seen for less than this has not ended.
CLEAR_SECONDS = 60
# An alert that could not be delivered for so long is given up.
GIVE_UP_SECONDS = 7 * 86400
# A failed run that nobody repeats counts as over after so long.
RUN_SECONDS = 86400
# Dagster keeps the cursor with every tick.
MOST_ALERTS = 300
_MOST_TEXT = 400
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 15, 900


class Alert(msgspec.Struct, omit_defaults=True):
    """Alert about a stream, from its beginning to its end. Times are seconds since 1970.

    Attributes:
        since: Time when the condition began.
        seen: Time when it was first seen.
        fires: Whether it has lasted as long as its alarm requires.
        gone: Time when it was first not seen any more; 0 while it lasts.
        ended: Time when it ended; 0 while it lasts.
        begun, closed: Names of the targets that were notified of its beginning, and of its end.
    """

    id: str = msgspec.field(name="a")
    stream: str = msgspec.field(name="s")
    subject: str = msgspec.field(name="o")
    severity: Severity = msgspec.field(name="v")
    since: int = msgspec.field(name="b")
    seen: int = msgspec.field(name="f")
    what: str = msgspec.field(name="w")
    next: str = msgspec.field(name="n")
    page: str = msgspec.field(default="", name="p")
    fires: bool = msgspec.field(default=False, name="x")
    gone: int = msgspec.field(default=0, name="g")
    ended: int = msgspec.field(default=0, name="e")
    begun: list[str] = msgspec.field(default_factory=list, name="t")
    closed: list[str] = msgspec.field(default_factory=list, name="c")

    @property
    def alarm(self) -> Alarm:
        """The entry of its condition in the table of alarms."""
        return ALARM_BY_ID[self.id]

    @property
    def key(self) -> str:
        """Key that identifies the condition."""
        return f"{self.id}/{self.stream}/{self.subject}"

    @property
    def dedupe_key(self) -> str:
        """A key that all messages about this alert share, and no other alert has."""
        return f"{self.key}/{self.since}"

    def concerns(self, name: str, target: AlertTarget) -> bool:
        """Whether a target hears of it. A target that has heard of its beginning hears of its end."""
        return name in self.begun or target.wants(self.stream, self.severity)


class Receiver(msgspec.Struct, omit_defaults=True):
    """State of a target to which a delivery failed.

    Attributes:
        failures: Number of consecutive failed deliveries.
        again: Time of the next attempt; seconds since 1970.
        problem: Reason of the newest failure, without secrets.
    """

    failures: int = msgspec.field(default=0, name="f")
    again: int = msgspec.field(default=0, name="a")
    problem: str = msgspec.field(default="", name="p")


class AlertMemory(msgspec.Struct, omit_defaults=True):
    """Cursor of the sensor of alerts.

    Attributes:
        receivers: The targets to which deliveries fail, by name.
        runs_at: Update time of the newest run that was read; seconds since 1970.
        stream: The stream that was read last; empty if all were.
        check: The check that was read last; empty if all were.
        left_out: Conditions that wait for room.
    """

    alerts: list[Alert] = []
    receivers: dict[str, Receiver] = {}
    runs_at: float = 0.0
    stream: str = ""
    check: str = ""
    left_out: int = 0

    @classmethod
    def from_cursor(cls, cursor: str | None) -> AlertMemory:
        """Read a cursor; an unreadable one gives an empty memory. Alarms of another release are left out."""
        with contextlib.suppress(msgspec.DecodeError):
            memory = decode_json(cursor or "{}", cls)
            memory.alerts = [alert for alert in memory.alerts if alert.id in ALARM_BY_ID]
            return memory
        return cls()

    def to_cursor(self) -> str:
        """The memory as text, as Dagster keeps it."""
        return msgspec.json.encode(self).decode()

    @property
    def lasting(self) -> dict[str, Alert]:
        """The alerts whose condition has not ended, by key."""
        return {alert.key: alert for alert in self.alerts if not alert.ended}

    def update(self, conditions: Conditions, ended_runs: Collection[str], now: float) -> None:
        """Take in what is so now: conditions begin, go on, and end.

        Args:
            ended_runs: Keys of failed runs that a later run has made good.
            now: Seconds since 1970.
        """
        at, lasting = int(now), self.lasting
        lasting_alarms = {(condition.alarm.id, condition.stream) for condition in conditions.by_key.values()}
        new: list[Condition] = []
        for key, condition in conditions.by_key.items():
            if (alert := lasting.get(key)) is not None:
                _refresh(alert, condition)
            elif not any((other, condition.stream) in lasting_alarms for other in condition.alarm.hidden_by):
                new.append(condition)
        new.sort(key=lambda condition: -SEVERITIES.index(condition.severity))
        self.left_out = 0
        for condition in new:
            if self._has_room(condition.severity):
                self.alerts.append(_new_alert(condition, at))
            else:
                self.left_out += 1
        for key, alert in self.lasting.items():
            if key not in conditions.by_key:
                self._end(alert, conditions, ended_runs, at)
        for alert in self.lasting.values():
            alert.fires = alert.fires or (not alert.gone and at - alert.seen >= alert.alarm.seconds)

    def _has_room(self, severity: Severity) -> bool:
        """Whether an alert of this severity fits in. If need be, one that matters less is given up for it.

        Ends that a target has not taken go first, the oldest before others. Then lesser severities go, those that
        nobody has heard of before others.
        """
        if len(self.alerts) < MOST_ALERTS:
            return True
        least = min(
            self.alerts,
            key=lambda alert: (not alert.ended, alert.ended or SEVERITIES.index(alert.severity), bool(alert.begun)),
        )
        if not least.ended and SEVERITIES.index(least.severity) >= SEVERITIES.index(severity):
            return False
        self.alerts.remove(least)
        self.left_out += not least.ended
        return True

    def _end(self, alert: Alert, conditions: Conditions, ended_runs: Collection[str], at: int) -> None:
        if alert.id == "run_failed":
            # A tick sees only the runs that have ended since the last one.
            if alert.key in ended_runs or at - alert.since > RUN_SECONDS:
                alert.ended = at
            return
        if not conditions.knows(alert.id, alert.stream, alert.key):
            return
        if not alert.fires:
            # It did not last, and no target was sent a message about it.
            self.alerts.remove(alert)
        elif not alert.gone:
            alert.gone = at
        elif at - alert.gone >= CLEAR_SECONDS:
            alert.ended = alert.gone

    def forget(self, names: Collection[str], targets: Collection[AlertTarget], now: float) -> None:
        """Forget alerts whose end every target has received, and targets that are no longer in the settings.

        Args:
            names: Names of the targets, in the order of the settings.
            now: Seconds since 1970.
        """
        self.receivers = {name: receiver for name, receiver in self.receivers.items() if name in names}
        self.alerts = [
            alert
            for alert in self.alerts
            if not alert.ended
            or (
                now - alert.ended < GIVE_UP_SECONDS
                and any(
                    alert.concerns(name, target) and name not in alert.closed
                    for name, target in zip(names, targets, strict=True)
                )
            )
        ]

    def due_for(self, name: str, target: AlertTarget) -> Iterator[tuple[Alert, bool]]:
        """The alerts that a target still has to receive, the oldest first, each with whether it has ended."""
        for alert in sorted(self.alerts, key=lambda alert: (alert.seen, alert.key)):
            if not alert.fires or not alert.concerns(name, target):
                continue
            if name not in alert.begun:
                yield alert, False
            if alert.ended and name not in alert.closed:
                yield alert, True

    def delivered(self, name: str, notices: Collection[tuple[Alert, bool]]) -> None:
        """Note that a target has taken a message."""
        self.receivers.pop(name, None)
        for alert, is_end in notices:
            (alert.closed if is_end else alert.begun).append(name)

    def refused(self, name: str, problem: str, now: float) -> None:
        """Note that a delivery failed. The next one is tried after a pause that doubles, up to a quarter of an hour."""
        receiver = self.receivers.setdefault(name, Receiver())
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(receiver.failures, 10))
        receiver.failures, receiver.again, receiver.problem = receiver.failures + 1, int(now) + pause, problem

    def waits(self, name: str, now: float) -> bool:
        """Whether a target is left alone still, since a delivery to it failed."""
        receiver = self.receivers.get(name)
        return receiver is not None and now < receiver.again <= now + LONGEST_PAUSE_SECONDS


def _new_alert(condition: Condition, at: int) -> Alert:
    return Alert(
        id=condition.alarm.id,
        stream=condition.stream,
        subject=condition.subject,
        severity=condition.severity,
        # A heartbeat may hold a time that no calendar has.
        since=int(min(max(condition.since, 0), at)),
        seen=at,
        what=_cut(condition.what),
        next=_cut(condition.next),
        page=condition.page,
    )


def _refresh(alert: Alert, condition: Condition) -> None:
    alert.gone = 0
    alert.severity, alert.page = condition.severity, condition.page
    alert.what, alert.next = _cut(condition.what), _cut(condition.next)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
