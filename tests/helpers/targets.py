"""Targets of a stream, and what stands in for its file where only they matter."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from jobs.schema.evolution_policy import NO_EVOLUTION
from jobs.spec.targets import TargetSpec


def pair(table: str, dead_letters: str) -> tuple[TargetSpec, TargetSpec]:
    """The targets of a stream that routes nothing."""
    return TargetSpec(table, "rows", coordinator=True), TargetSpec(dead_letters, "dead_letters")


def spec_with(stream: str, targets: Sequence[TargetSpec], **more: Any) -> Any:
    """A stream's file as far as its targets go, under any configuration hash; its table is left alone."""
    return SimpleNamespace(
        stream=stream,
        targets=tuple(targets),
        target_names=tuple(target.name for target in targets),
        coordinator=next(target.name for target in targets if target.coordinator),
        **{"evolution": NO_EVOLUTION, "event_time": None, "route": None, **more},
    )
