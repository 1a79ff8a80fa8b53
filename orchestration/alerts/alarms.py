"""Alarms: every condition that a person hears of, with its severity, what is safe meanwhile, and the next command.

The sensor `frazil_alerts`, the rules for Prometheus and the runbooks go by this table. An alarm's id is also the name
of its rule and, with `-` for `_`, of its runbook.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assets.audit_check import EXACTLY_ONCE
from assets.closed_partitions import CLOSED_PARTITIONS
from assets.dead_letters import DEFAULT_DEAD_LETTER_RATIO, LETTERS_WAITING, REPLAY_WOULD_HELP
from assets.mirror_check import MIRROR_CONSISTENT
from assets.mirrors import MIRROR_CURRENT
from assets.published_check import PUBLISHED
from assets.schema_contract import SCHEMA_CONTRACT
from assets.stream_checks import ADDS_UP
from assets.table_health import TABLE_HEALTH
from jobs.clients.kafka.open_transactions import HANGING_SECONDS
from jobs.config.services.monitoring import Severity
from orchestration.reconcile.check_outcomes import DEFAULT_LAG_TIME

_COMMITTED = "Committed rows stay, and the next driver goes on behind them. No record is lost or doubled."
_IN_KAFKA = "Records wait in Kafka, and are lost only if the topic's retention deletes them first."


@dataclass(frozen=True, slots=True)
class Alarm:
    """Kind of condition that a person is notified of.

    Attributes:
        meaning: Sentence about the condition.
        severity: Severity of the condition; that of a check that only warns is `warning` at most.
        safe: Sentence about what stays safe meanwhile.
        next: The next command if the condition itself names none, with `{stream}` as the stream's id.
        seconds: Seconds that the condition lasts before it is reported.
        states: States of a stream that are the condition, as `frazil status` names them.
        checks: Asset checks whose failure is the condition.
        query: The same condition as a query of Prometheus; empty where metrics do not show it.
        hidden_by: Alarms of the same stream that explain this one; while one of them lasts, this one does not begin.
    """

    id: str
    meaning: str
    severity: Severity
    safe: str
    next: str
    seconds: int = 0
    states: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    query: str = ""
    hidden_by: tuple[str, ...] = ()

    @property
    def runbook(self) -> str:
        """Name of its runbook's page."""
        return self.id.replace("_", "-")


_WITHOUT_DRIVER = ("stream_halted", "stream_stopped", "driver_gone")

ALARMS: tuple[Alarm, ...] = (
    Alarm(
        "stream_halted",
        "The stream has ended, and frazil does not start it again before a person acts.",
        "critical", f"Committed rows stay, and nothing lands before the stream is started. {_IN_KAFKA}",
        "frazil status {stream}",
        states=("halted",),
    ),
    Alarm(
        "stream_stopped",
        "An operator has paused or stopped the stream, and it has stayed so.",
        "warning", f"{_COMMITTED} {_IN_KAFKA}", "frazil resume {stream}", 900,
        states=("paused", "stopped"),
        query='max by (stream) (frazil_driver_state{state="paused"}) == 1',
    ),
    Alarm(
        "driver_gone",
        "A driver that should run does not, and no other was started.",
        "critical", f"{_COMMITTED} {_IN_KAFKA}", "frazil start {stream}", 120,
        states=("dead",),
        query="max by (stream) (max_over_time(frazil_driver_start_timestamp_seconds[1h])) "
        "unless on (stream) frazil_driver_start_timestamp_seconds",
    ),
    Alarm(
        "heartbeat_stale",
        "The driver's process lives and writes no heartbeat, or does not answer Prometheus.",
        "critical", f"{_COMMITTED} Once its lease has run out, whatever it does later is refused.",
        "frazil restart {stream}", 120,
        states=("frozen",),
        query='label_replace(up{job="frazil"} == 0, "stream", "$1", "driver", "(.*)")',
    ),
    Alarm(
        "driver_stalled",
        "The driver writes heartbeats and does not get on: its JVM does not answer, or records wait and no batch ends.",
        "critical", f"{_COMMITTED} {_IN_KAFKA}", "frazil restart {stream}", 60,
        states=("stalled",),
        query="(time() - max by (stream) (frazil_last_commit_timestamp_seconds) > 1800) "
        "and on (stream) (sum by (stream) (frazil_consumer_lag_records) > 0)",
    ),
    Alarm(
        "driver_failing",
        "The driver has ended with an error, and is started again after a pause.",
        "warning", f"{_COMMITTED} {_IN_KAFKA}", "frazil status {stream}", 60,
        states=("failed", "fenced"),
        query="count by (stream) (count by (stream, attempt) (count_over_time(frazil_driver_info[15m]))) > 3",
    ),
    Alarm(
        "service_unavailable",
        "Kafka, the catalog or the schema registry does not answer. The driver tries again by itself.",
        "warning", f"{_COMMITTED} The stream goes on by itself once the service answers.", "frazil validate", 300,
        states=("retrying",),
        query='max by (stream) (frazil_driver_state{state="retrying"}) == 1',
    ),
    Alarm(
        "supervisor_silent",
        "The sensor frazil_reconcile has not looked at the streams for a minute: no driver that failed is started "
        "again, and no check is up to date.",
        "critical", "Drivers that run go on, and their watchdogs restart those that are killed.",
        "frazil status", 60,
    ),
    Alarm(
        "table_suspended",
        "A table takes no commits, so it is suspended (`on_table_error: park`): its records become dead letters.",
        "critical", "The stream's other tables get their rows. The records for this one wait as dead letters.",
        "frazil accept {stream} --unpark TABLE, once it takes commits",
        query="frazil_parked_since_timestamp_seconds > 0",
    ),
    Alarm(
        "transaction_open",
        "Records have waited for the end of a producer's transaction for a quarter of an hour.",
        "warning", "They land, or are left out, when the transaction ends. Nothing behind them is lost.",
        "frazil status {stream}",
        query="time() - max by (stream) (frazil_undecided_since_timestamp_seconds) "
        f"> {HANGING_SECONDS:.0f}",
    ),
    Alarm(
        "dead_letters_unpublished",
        "Dead letters are in their table and not yet in their topic.",
        "warning", "The table has all of them. They are published once the topic takes them.",
        "frazil status {stream}", 300,
        query="min by (stream) (min_over_time(frazil_unpublished_letters[15m])) > 0",
    ),
    Alarm(
        "lag_above_slo",
        "The table is further behind its topics than is allowed.",
        "critical", f"{_COMMITTED} {_IN_KAFKA}", "frazil status {stream}", 60,
        checks=("lag_within_slo",),
        query="time() - max by (stream) (frazil_valid_through_timestamp_seconds) "
        f"> {DEFAULT_LAG_TIME.total_seconds():.0f}",
        hidden_by=_WITHOUT_DRIVER,
    ),
    Alarm(
        "dead_letters_above_limit",
        "More of the newest records became dead letters than is allowed.",
        "critical", "Every dead letter has the original bytes and can be replayed.", "frazil letters {stream}", 60,
        checks=("dead_letter_ratio",),
        query="sum by (stream) (rate(frazil_records_dead_total[5m])) "
        f"/ sum by (stream) (rate(frazil_records_read_total[5m])) > {DEFAULT_DEAD_LETTER_RATIO}",
        hidden_by=_WITHOUT_DRIVER,
    ),
    Alarm(
        "records_do_not_add_up",
        "Records that were read are neither rows nor dead letters, or exist twice.",
        "critical", "Kafka still has the records within its retention. Keep it from deleting them.",
        "frazil audit {stream}",
        checks=(ADDS_UP, EXACTLY_ONCE),
    ),
    Alarm(
        "configuration_invalid",
        "The stream's file, the settings or its state cannot be read, or the table cannot hold the file's columns.",
        "critical", "What was launched last runs on. Nothing is rolled out before it is corrected.",
        "frazil validate", 60,
        checks=("configuration",),
    ),
    Alarm(
        "rows_quarantined",
        "Rows that break the stream's contract wait on its branch.",
        "critical", "Readers of main see none of them. Rows that land meanwhile wait behind them.",
        "frazil status {stream}",
        checks=(PUBLISHED,),
    ),
    Alarm(
        "schema_conflict",
        "Records that fit the newest schema would stop the stream, become dead letters, or wait for a proposal.",
        "critical", "Rows in the tables are not affected. No record has been lost.",
        "frazil status {stream}", 60,
        checks=(SCHEMA_CONTRACT,),
    ),
    Alarm(
        "contract_broken",
        "Rows of a table break an expectation of its contract.",
        "critical", "All records are in the tables. The check names the rows.", "frazil check {stream}",
    ),
    Alarm(
        "mirror_differs",
        "Rows of a mirror differ from its changelog, or from its source.",
        "critical", "The changelog and the stream's other tables are not affected.",
        "frazil mirror check {stream}",
        checks=(MIRROR_CONSISTENT,),
    ),
    Alarm(
        "mirror_behind",
        "A mirror lacks changes that its changelog has had for too long.",
        "warning", "The changelog has the changes, and the mirror is merged up to them later.",
        "frazil mirror check {stream}", 60,
        checks=(MIRROR_CURRENT,),
    ),
    Alarm(
        "table_unhealthy",
        "A table has many small files, deletes or snapshots, so reads of it become slow.",
        "warning", "All rows exist and are correct. Only reads and plans take longer.", "frazil maintain {stream}",
        checks=(TABLE_HEALTH,),
    ),
    Alarm(
        "dead_letters_waiting",
        "Dead letters are exhausted, wait for a suspended table, or are more than is allowed.",
        "warning", "Every dead letter has the original bytes and can be replayed.", "frazil letters {stream}",
        checks=(LETTERS_WAITING,),
    ),
    Alarm(
        "replay_would_help",
        "Dead letters of an earlier configuration would succeed under the present one.",
        "info", "Every dead letter has the original bytes and can be replayed.", "frazil letters {stream}",
        checks=(REPLAY_WOULD_HELP,),
    ),
    Alarm(
        "rows_after_close",
        "Rows came into an hour or a day that had been reported as closed.",
        "warning", "The rows are in the table. Reports on the closed period lack them.",
        "frazil status {stream}",
        checks=(CLOSED_PARTITIONS,),
    ),
    Alarm(
        "undeclared_fields",
        "Records have keys that the schema does not declare. They are left out.",
        "info", "All declared columns land. Kafka has the keys within its retention.",
        "frazil status {stream}", 60,
        checks=("unknown_fields",),
        query="sum by (stream) (increase(frazil_unknown_fields_total[15m])) > 0",
    ),
    Alarm(
        "run_failed",
        "A run of one of frazil's jobs has failed, and none of the same job and stream has succeeded since.",
        "warning", "Streams run on. A run changes a table by one commit, or not at all.",
        "open the run in Dagster",
    ),
)  # fmt: skip

ALARM_BY_ID: Mapping[str, Alarm] = {alarm.id: alarm for alarm in ALARMS}
ALARM_BY_STATE: Mapping[str, Alarm] = {state: alarm for alarm in ALARMS for state in alarm.states}
# The states of a stream report more of it than these checks do.
CHECKS_OF_STATES = frozenset({"driver_alive", "batch_not_stalled"})
_BY_CHECK: Mapping[str, Alarm] = {name: alarm for alarm in ALARMS for name in alarm.checks}


def alarm_of_check(name: str) -> Alarm | None:
    """The alarm that a failing asset check raises; None if the alarms of the stream's states cover it.

    Args:
        name: The check's name. One that is no name of frazil's is an expectation of a contract.
    """
    if name in CHECKS_OF_STATES:
        return None
    return _BY_CHECK.get(name, ALARM_BY_ID["contract_broken"])
