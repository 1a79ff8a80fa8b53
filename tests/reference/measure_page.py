"""Page of the measures and of what Dagster has: docs/reference/measures.md, from the list of measures."""

from __future__ import annotations

from typing import Any

from jobs.streaming.supervision.documents.measures import OF_DRIVER, OF_WORK, Measure

_HEAD = """\
# Measures and checks

A driver serves these figures as OpenMetrics; `frazil status --json` and Dagster show some of them under other names. An
empty cell is a place that does not show the figure. Every metric has the label `stream` besides those in the table.
`python -m tests.reference` writes this page from `jobs/streaming/supervision/documents/measures.py`.
"""

CHECKS = {
    "driver_alive": "no driver runs that should; a warning while an operator has paused or stopped the stream",
    "batch_not_stalled": "the JVM does not answer, tasks use no CPU, or waiting records are not read",
    "lag_within_slo": "the table is behind by more than `slo.lag_records`, `slo.lag_time` or `freshness.fail` allow; "
    "without any, a warning from 15 minutes beyond the trigger",
    "dead_letter_ratio": "more of the newest records failed than `slo.dead_letter_ratio` allows",
    "unknown_fields": "records have fields that neither the schema nor `slo.unknown_fields` names; a warning",
    "configuration": "the file is invalid, or the driver runs another configuration",
    "schema_contract": "records of the newest schema would stop the stream; a warning if they became dead letters",
    "adds_up": "the records read are not the sum of rows, dead letters, tombstones and filtered records",
    "exactly_once": "the audit finds records missing or doubled; a warning if others removed rows",
    "table_health": "the health score is below 40; a warning below 70, or if a branch has grown",
    "published": "rows are quarantined",
    "closed_partitions": "rows came into an hour or day that was reported as closed; a warning",
    "letters_waiting": "dead letters are exhausted, wait for a suspended table, or are too many; a warning",
    "replay_would_help": "dead letters of an earlier configuration would land now; a warning",
    "mirror_current": "a mirror lacks old changes, cannot merge, or was written to by others",
    "mirror_consistent": "rows of a mirror differ from its changelog, or from the source",
}
_DAGSTER = """
Each expectation of a contract is a check as well, by its name; with `contract_` before it if the name is taken.

## Jobs, schedules and sensors

| job | does |
|---|---|
| `frazil_start`, `frazil_stop`, `frazil_pause`, `frazil_resume`, `frazil_restart`, `frazil_flush` | the command of the same name, from the launchpad |
| `frazil_control` | one action on streams; the run that commands and the supervisor ask for |
| `frazil_replay` | `frazil replay` |
| `frazil_reset_offsets`, `frazil_release`, `frazil_discard` | the commands; they only show what would happen unless `dry_run` is `false` |
| `frazil_check`, `frazil_publish`, `frazil_audit`, `frazil_mirror_check` | the checks of all streams |
| `frazil_maintain`, `frazil_compaction`, `frazil_snapshot_expiry`, `frazil_orphan_removal` | `frazil maintain`, or a part of it |
| `frazil_ledger` | fills the ledger |
| `frazil_expire_letters` | deletes dead letters older than `errors.dead_letters.keep` |
| `frazil_history` | deletes old events of Dagster from PostgreSQL |
| `frazil_halted` | fails while a stream is halted, with the reason and the next command |

| schedule (UTC) | runs | at |
|---|---|---|
| `frazil_maintenance_hourly` | `frazil_maintain` for all tables | minute 57 |
| `frazil_ledger_hourly` | `frazil_ledger` | minute 47 |
| `frazil_expire_letters_daily` | `frazil_expire_letters` | 03:17 |
| `frazil_audit_daily` | `frazil_audit` for all streams | 03:23 |
| `frazil_history_daily` | `frazil_history`; off until you turn it on | 03:37 |
| `frazil_mirror_check_daily` | `frazil_mirror_check` for an eighth of the keys | 03:53 |
| `frazil_check_STREAM` | the contract of a stream with `contract.check.schedule` | as in its file |

| sensor | every | does |
|---|---|---|
| `frazil_reconcile` | 10 s | supervises the streams |
| `frazil_alerts` | 15 s | sends alerts, if `alerts.targets` names a target |
| `frazil_halts` | 30 s | runs `frazil_halted` |
| `frazil_schemas` | 30 s | evaluates `schema_contract` |
| `frazil_contracts`, `frazil_publications` | 30 s | start checks of contracts, and publications, that are due |
| `frazil_closed_partitions` | 60 s | reports closed hours and days |
| `frazil_mirrors` | 60 s | evaluates `mirror_current`, and reports merges |
| `frazil_replays` | 60 s | proposes or starts replays after a change |
"""  # noqa: E501


def measure_page() -> str:
    """The page docs/reference/measures.md."""
    lines = [_HEAD]
    for title, measures in (("Work of a stream", OF_WORK), ("The driver", OF_DRIVER)):
        lines += [f"## {title}", "", "| metric | type | unit | `status --json` | Dagster | labels | meaning |"]
        lines += ["|---|---|---|---|---|---|---|", *(_row(measure) for measure in measures), ""]
    lines += ["## Asset checks", "", "| check | fails if |", "|---|---|"]
    lines += [f"| `{name}` | {reason} |" for name, reason in CHECKS.items()]
    return "\n".join(lines).rstrip() + f"\n{_DAGSTER}"


def _row(measure: Measure[Any]) -> str:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    unit = "seconds since 1970" if measure.is_time else measure.unit
    cells = (
        _code(_sample(measure)), measure.type if measure.metric else "", unit,
        _code(measure.status), _code(measure.metadata), labels, measure.help,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _sample(measure: Measure[Any]) -> str:
    """Name of the samples: a counter's ends in `_total`, that of facts in `_info`."""
    endings = {"counter": "_total", "info": "_info"}
    return measure.metric + endings.get(measure.type, "") if measure.metric else ""


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
