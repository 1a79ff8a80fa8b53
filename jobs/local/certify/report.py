"""A certificate's report: one JSON document, and the same for people in Markdown."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.clients.spark.master import is_local, master_of
from jobs.clients.state_store.durable_files import write_durably
from jobs.config.settings.settings import Settings
from jobs.local.certify.results import CertificateResults, StepRow
from jobs.local.certify.scenario_plan import (
    EXECUTORS,
    EXTRA,
    NOT_HERE,
    STEPS,
    Scenario,
)

_PACKAGES = ("frazil", "pyspark", "pyiceberg", "pyarrow", "confluent-kafka")


def report_facts(
    outcome: CertificateResults,
    *,
    run: str,
    seed: int,
    repeat: str,
    settings: dict[str, Any],
    not_tried: list[str],
) -> dict[str, Any]:
    """Everything about a certificate, as its JSON report has it.

    Args:
        run: The certificate's id.
        repeat: The command that runs the same scenarios again.
        settings: Certified settings, without secrets.
        not_tried: Sentences about faults and failpoints that were not tried.
    """
    return {
        "certificate": run,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "repeat": repeat,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "machine": {"cores": _cores(), "system": f"{platform.system()} {platform.machine()}"},
        "settings": settings,
        "not_tried": not_tried,
        **outcome.facts(),
    }


def write_report(folder: Path, facts: dict[str, Any], outcome: CertificateResults) -> tuple[Path, Path]:
    """Write the report in both forms; returns the Markdown file and the JSON file."""
    name = f"certificate-{facts['certificate']}"
    markdown, document = folder / f"{name}.md", folder / f"{name}.json"
    write_durably(markdown, markdown_report(facts, outcome).encode(), shared=True)
    write_durably(document, json.dumps(facts, indent=2).encode(), shared=True)
    return markdown, document


def markdown_report(facts: dict[str, Any], outcome: CertificateResults) -> str:
    """The report for people."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    settings = facts["settings"]
    records = facts["records"]
    lines = [
        f"# Certificate {facts['certificate']}: {'passed' if outcome.passed else 'FAILED'}",
        "",
        report_summary(facts),
        *([f"`frazil audit`: {facts['audit']}"] if facts["audit"] else []),
        *([mirror_sentence(facts)] if facts["mirror_snapshots"] else []),
        "",
        *markdown_table(outcome.rows()),
        "",
        "| records | |",
        "|---|---:|",
        *(f"| {name.replace('_', ' ')} | {count:,} |" for name, count in records.items()),
        "",
        *(["Problems:", "", *(f"- {problem}" for problem in facts["problems"]), ""] if facts["problems"] else []),
        f"{facts['at']} · {facts['machine']['cores']} cores, {facts['machine']['system']} · {versions}",
        "",
        f"Catalog `{settings['catalog']}` ({settings['catalog_type']}), {where_it_ran(settings)}. Kafka at "
        f"`{settings['kafka']}` ({settings['security']}, {settings['isolation']}), Spark `{settings['spark_master']}`, "
        f"lease {settings['lease_ttl']}.",
        "",
        "Not tried:",
        "",
        *(f"- {each}" for each in facts["not_tried"]),
        "",
        f"The same trials again: `{facts['repeat']}`",
        "",
        "| trial | step | killed at | seconds to the next commit | replayed | from the record | |",
        "|---:|---|---|---:|---:|---|---|",
        *(_scenario_line(result) for result in facts["trials"]),
        "",
    ]
    return "\n".join(lines)


def report_summary(facts: dict[str, Any]) -> str:
    """The report of a certificate in two sentences."""
    seconds, records = facts["recovery_seconds"], facts["records"]
    recovered = (
        f" From kill to the next commit: median {seconds['median']:.1f} s, worst {seconds['worst']:.1f} s."
        if seconds["median"] is not None
        else ""
    )
    once = (
        f" {records['produced']:,} records: {records['landed']:,} landed, {records['dead']:,} dead, "
        f"{records['tombstones']:,} tombstones, {records['passed_over']:,} passed over by resets; each exactly once."
        if facts["passed"]
        else ""
    )
    minutes, rest = divmod(round(facts["seconds"]), 60)
    return f"{facts['kills']} kills in {minutes} min {rest} s.{once}{recovered}"


def mirror_sentence(facts: dict[str, Any]) -> str:
    """Sentence about the mirror's snapshots that readers could see."""
    said = "each matches its changes"
    found = f"not {said}" if facts["mirror_problems"] else said
    return f"The mirror: main has shown {facts['mirror_snapshots']:,} snapshots, {found}."


def where_it_ran(settings: dict[str, Any]) -> str:
    """The kinds of places of a report's settings, in words."""
    places = {"file": "a folder", "folder": "a folder", "s3": "S3", "postgresql": "PostgreSQL"}
    tables, state = (places.get(settings[each], settings[each]) for each in ("tables_in", "state"))
    tasks = "on a cluster" if settings["on_a_cluster"] else "in the drivers"
    return f"tables in {tables or 'no place'}, state in {state}, tasks {tasks}"


def markdown_table(rows: list[StepRow]) -> list[str]:
    """The table of steps."""
    return [
        "| step | part | kills | | seconds to recover: median | worst | replayed records, worst |",
        "|---|---|---:|---|---:|---:|---:|",
        *(
            f"| `{row.step}` | {row.kind} | {row.kills} | {report_verdict(row)} | {seconds(row.median)} | "
            f"{seconds(row.worst)} | {row.replayed:,} |"
            for row in rows
        ),
    ]


def report_verdict(row: StepRow) -> str:
    """The report's verdict on a step: pass or fail, or that it came to none of the scenarios, or not to all."""
    if row.passed is None:
        return "not run"
    return "pass" if row.passed and row.kills == row.planned else "FAIL" if not row.passed else "incomplete"


def seconds(value: float | None) -> str:
    """Seconds in the report's table, with a decimal; a dash where nothing was measured."""
    return "–" if value is None else f"{value:.1f}"


def _scenario_line(result: dict[str, Any]) -> str:
    at = result.get("at", "")
    passes = f"`{at}`, time {result['passes']}" if at else f"after {result['delay']} s: {result['where'] or '–'}"
    fine = "pass" if result["passed"] else "FAIL"
    record = "yes" if result["from_record"] else ""
    return (
        f"| {result['number']} | `{result['step']}` | {passes} | {seconds(result['seconds'])} | "
        f"{result['replayed']:,} | {record} | {fine} |"
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def not_tried(settings: Settings, scenarios: Sequence[Scenario]) -> list[str]:
    """Sentences about what a certificate leaves out, beside faults that are no kills.

    Args:
        settings: Settings of its drivers.
        scenarios: Planned scenarios.
    """
    return list(_not_tried(settings, {scenario.step for scenario in scenarios}))


def _not_tried(settings: Settings, tried: set[str]) -> Iterator[str]:
    left = [name for name in (*STEPS, *EXTRA) if name not in tried and not _of_executors(name)]
    if left:
        yield f"steps that were not asked for: {', '.join(left)}"
    yield f"other failpoints, at which the project's own tests kill: {', '.join(NOT_HERE)}"
    if is_local(master_of(settings)):
        yield "executors of a cluster: the drivers ran their tasks on their own machine"
        return
    if not any(_of_executors(name) for name in tried):
        yield "executors: none was killed; --steps all,executor kills one, of the certificate's own application"
    yield "workers and the master of the cluster, which are not the certificate's"
    yield "another machine that takes over: all drivers were started on this one"


def _of_executors(step: str) -> bool:
    return step in STEPS and STEPS[step].kind == EXECUTORS


def refused_steps(settings: Settings, scenarios: Sequence[Scenario]) -> list[str]:
    """The steps that were asked for and that these settings have no process for."""
    if not is_local(master_of(settings)):
        return []
    return list(dict.fromkeys(each.step for each in scenarios if _of_executors(each.step)))
