"""Streams whose file is broken, as far as they can be shown all the same."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.spec.models import StreamSpec
from jobs.spec.problems import SpecError
from jobs.spec.settings import Settings
from orchestration.reconcile.desired import files_of, read_desired
from resources.deployment import Deployment


def as_launched(
    specs: Sequence[StreamSpec], errors: Sequence[SpecError], settings: Settings, deployment: Deployment
) -> list[StreamSpec]:
    """The streams of broken files as they were launched last, unless another stream has their tables by now."""
    taken = {table for spec in specs for table in spec.target_names}
    shown: list[StreamSpec] = []
    for each in read_desired(files_of(specs, errors), settings, deployment):
        spec = each.spec
        if each.desired.file != "invalid" or spec is None:
            continue
        tables = {spec.table.name, spec.dead_letter_table}
        if spec.stream == each.desired.stream and not tables & taken:
            taken |= tables
            shown.append(spec)
    return shown
