"""Followed columns of a stream's table: what the next start makes of it for the file's steps, or why it does not."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.opening_columns import OpeningColumns, has_landed, keeps_decoded, opening_columns
from jobs.errors import FrazilError
from jobs.spec.base import field_path
from jobs.spec.models import StreamSpec
from jobs.spec.transform.shaping import misfit_fix
from orchestration.cli.validate.findings import Finding, Verdict


def followed_findings(spec: StreamSpec, metadata: TableMetadata) -> tuple[list[Finding], OpeningColumns | None]:
    """What a table lacks of what the steps of a stream make, whose file does not declare all columns.

    Args:
        spec: The stream.
        metadata: Of its table, which is there.

    Returns:
        What there is to say, nothing where the table takes the rows as it is; and what becomes of the table, None
        where only the start knows which columns are decoded.
    """
    name, file = spec.table.name, f"streams/{spec.stream}.yaml"

    def said(verdict: Verdict, sentence: str, fix: str = "") -> Finding:
        return Finding(spec.stream, "table", verdict, sentence, fix)

    if spec.shapes and not keeps_decoded(spec, metadata) and not has_landed(spec, metadata):
        return [], None
    try:
        found = opening_columns(spec, metadata, None)
    except FrazilError as problem:
        return [said("wrong", problem.message, problem.fix or "")], None
    fix, apply = f"correct {file}, or alter table {name}", f"frazil schema apply {spec.stream}"
    if found.problems:
        told = [said("wrong", f"{field_path(place)}: {problem}", fix) for place, problem in found.problems]
        return told, found
    told = [said("wrong", f"table {name}: {why}", misfit_fix(spec)) for why in found.refused]
    told += [
        said("wrong", f"table {name}: {each}, which evolve.{each.change} leaves to you", apply)
        for each in found.unasked(spec)
    ]
    if found.changes and not told:
        changes = "; ".join(map(str, found.changes))
        told = [said("unchecked", f"table {name} lacks what the steps make; the next run makes it so: {changes}")]
    return told, found
