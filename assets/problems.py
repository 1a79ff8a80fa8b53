"""Files that could not be read, made visible where an operator looks: as an asset that says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from jobs.spec.problems import SpecError

PROBLEMS_KEY = dg.AssetKey(["frazil", "problems"])


def problem_assets(errors: Sequence[SpecError]) -> list[dg.AssetSpec]:
    """One external asset that lists the problems of all broken files; none if there is no problem."""
    problems = [problem for error in errors for problem in error.problems]
    if not problems:
        return []
    listed = "\n".join(f"- `{problem}`" for problem in problems)
    return [
        dg.AssetSpec(
            PROBLEMS_KEY,
            description=f"Files that cannot be read; their streams are missing. Correct them and reload.\n\n{listed}",
            group_name="problems",
            metadata={"problems": len(problems)},
        )
    ]
