"""Layers of maintenance policies: one block of keys laid over another, and what contradicts itself in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.spec.base import Location, SpecModel
from jobs.spec.units import format_duration, format_size

if TYPE_CHECKING:
    from jobs.spec.maintenance_policy import Policy

ModelT = TypeVar("ModelT", bound=SpecModel)

STRATEGY: Location = ("compact", "strategy")
SORT_BY: Location = ("compact", "sort_by")
TARGET: Location = ("compact", "target")
KEEP: Location = ("expire", "keep")
TIME_TRAVEL: Location = ("expire", "time_travel")
MIN_SNAPSHOTS: Location = ("expire", "min_snapshots")
MAX_SNAPSHOTS: Location = ("expire", "max_snapshots")
BUDGET: Location = ("budget",)


def overlaid(below: ModelT, layer: SpecModel) -> ModelT:
    """Returns the lower layer with what the upper one gives; keys that the lower one does not know are left out."""
    given: dict[str, Any] = {}
    for name in layer.model_fields_set & set(type(below).model_fields):
        value, former = getattr(layer, name), getattr(below, name)
        given[name] = overlaid(former, value) if isinstance(former, SpecModel) else value
    if "strategy" in given and "sort_by" in type(below).model_fields:
        # A strategy and its columns belong together, also where another block says only how it is not sorted.
        given.setdefault("sort_by", ())
    return below.model_copy(update=given)


def is_given(block: SpecModel, place: Location) -> bool:
    """Whether a layer of the policy itself gives the key, so that it is not a default."""
    first, *rest = place
    if first not in block.model_fields_set:
        return False
    return not rest or is_given(getattr(block, str(first)), tuple(rest))


def contradictions(policy: Policy) -> Iterator[tuple[tuple[Location, ...], str]]:
    """Yields what contradicts itself in a policy: the keys that do, and a sentence."""
    compact, expire = policy.compact, policy.expire
    if expire.time_travel is not None and expire.keep < expire.time_travel:
        keep, promised = format_duration(expire.keep), format_duration(expire.time_travel)
        sentence = (
            f"expire.keep ({keep}) is shorter than the time travel that expire.time_travel promises ({promised}); "
            f"keep at least {promised}"
        )
        yield (KEEP, TIME_TRAVEL), sentence
    if expire.min_snapshots > expire.max_snapshots:
        sentence = (
            f"expire.min_snapshots ({expire.min_snapshots}) is above expire.max_snapshots ({expire.max_snapshots})"
        )
        yield (MIN_SNAPSHOTS, MAX_SNAPSHOTS), sentence
    if policy.budget < compact.target:
        sentence = (
            f"the budget of a run ({format_size(policy.budget)}) is below compact.target "
            f"({format_size(compact.target)}): no such file could ever be written"
        )
        yield (BUDGET, TARGET), sentence
    if compact.strategy == "zorder" and any(column.direction or column.nulls for column in compact.sort_by):
        yield (SORT_BY, STRATEGY), "z-order has no direction; leave out asc, desc and nulls"


def contradictions_given(policy: Policy, block: Policy) -> list[tuple[Location, str]]:
    """Returns the contradictions of a policy that a block takes part in, each at the first key that the block gives."""
    found: list[tuple[Location, str]] = []
    for places, text in contradictions(policy):
        given = [place for place in places if is_given(block, place)]
        found.extend((place, text) for place in given[:1])
    return found
