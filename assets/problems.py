"""Files that could not be read, made visible where an operator looks: as an asset that says what is wrong."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import dagster as dg

from jobs.spec.validation import SpecError

PROBLEMS_KEY = dg.AssetKey(["frazil", "problems"])


def problem_assets(errors: Sequence[SpecError], still_shown: Collection[str] = ()) -> list[dg.AssetSpec]:
    """One external asset that lists the problems of all broken files; none if there is no problem.

    Args:
        still_shown: Streams of broken files that are shown all the same, as they were launched last.
    """
    problems = [problem for error in errors for problem in error.problems]
    if not problems:
        return []
    listed = "\n".join(f"- `{problem}`" for problem in problems)
    shown = ", ".join(f"`{stream}`" for stream in sorted(still_shown))
    fate = (
        f"their streams are missing, but for {shown}, shown as launched last" if shown else "their streams are missing"
    )
    return [
        dg.AssetSpec(
            PROBLEMS_KEY,
            description=f"Files that cannot be read; {fate}. Correct them and reload.\n\n{listed}",
            group_name="problems",
            metadata={"problems": len(problems)},
        )
    ]
