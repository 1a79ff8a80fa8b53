"""Sentences of a contract: what records of a subject would lead to, and what somebody can do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobs.schema.difference import RenameSuggestion
from jobs.schema_contract.finding import ContractFinding, Outcome
from jobs.schema_contract.subjects import SubjectContract
from jobs.spec.models import StreamSpec

_SHOWN = 3
_BAD: dict[Outcome, str] = {
    "stops": "would stop the stream",
    "dead_letter": "would become dead letters",
    "proposed": "would become dead letters until somebody decides",
}


def subject_sentences(subject: SubjectContract, table: str) -> str:
    """What records of a subject would lead to: what is bad of it, then what changes the table, and what is left out."""
    if subject.problem is not None:
        return f"Records of {subject.shown} would become dead letters: {subject.problem.rstrip('.')}."
    bad = [
        f"{what}: {listed(found)}"
        for outcome, what in _BAD.items()
        if (found := [each for each in subject.findings if each.outcome == outcome])
    ]
    if bad:
        said = [f"Records of {subject.shown} {', and '.join(bad)}."]
    else:
        said = [f"Table {table} takes what {subject.shown} brings."]
    if changes := [each.why for each in subject.findings if each.outcome == "changes_table"]:
        said.append(f"The first record of it changes the table: {_cut(changes)}.")
    if left := [each.difference.column for each in subject.findings if each.outcome == "left_out"]:
        said.append(f"No column takes, so it is left out and counted: {_cut(left)}.")
    return " ".join(said)


def renames_sentence(stream: str, renames: Iterable[RenameSuggestion]) -> str:
    """What somebody can do about columns that may be called otherwise, before their records come."""
    told = [f"{each}: frazil schema apply {stream} {each.option} keeps its values together" for each in renames]
    return f"Nothing is renamed by itself; {'; '.join(told)}."


def listed(findings: Sequence[ContractFinding]) -> str:
    """Some differences as one text."""
    return _cut([str(each.difference) for each in findings])


def advice(spec: StreamSpec, subject: SubjectContract) -> str | None:
    """What somebody can do before such a record comes; None where all of them land."""
    if subject.level == "ok":
        return None
    file = f"streams/{spec.stream}.yaml"
    bad = [each for each in subject.findings if each.outcome in _BAD]
    policies = [each.difference.needs for each in bad if getattr(spec.evolution, _change(each), "auto") != "auto"]
    wanted = sorted({need.change for need in policies if need is not None})
    steps: list[str] = []
    if wanted and spec.decode.declared is None:
        steps.append(f"set {', '.join(f'evolve.{each}: auto' for each in wanted)} in {file}")
    if len(policies) < len(bad) or subject.problem is not None:
        steps.append("keep its records from being produced")
    if any(each.outcome == "proposed" for each in bad):
        steps.append(f"with the first record the change is proposed: frazil schema apply {spec.stream}")
    return "; or ".join(steps) if steps else f"correct decode.schema in {file}"


def _change(finding: ContractFinding) -> str:
    return finding.difference.needs.change if finding.difference.needs else ""


def _cut(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
