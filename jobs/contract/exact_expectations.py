"""Expectations of Great Expectations whose bounds stay what they are, and whose metrics can be read.

Great Expectations takes numbers of arguments as doubles, so an amount and a long beyond 2^53 would be rounded; and
with the least that it computes it says no counts. Each of its classes has a subclass here, which takes its place in the
registry of this process.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from jobs.contract.gx import KEY, import_gx

_BOUNDS = ("min_value", "max_value", "sum_total", "value", "threshold")
_ONLY_SHOWN = (".unexpected_values", ".unexpected_index_query", ".unexpected_value_counts")


@cache
def exact_expectations() -> dict[str, Any]:
    """The classes by the names of the expectations."""
    import_gx()
    from great_expectations import expectations

    import jobs.contract.metrics  # noqa: F401

    found: dict[str, Any] = {}
    kinds: list[Any] = [kind for _, kind in inspect.getmembers(expectations, inspect.isclass)]
    for kind in kinds:
        if getattr(kind, "expectation_type", "") and kind.__module__.split(".")[-2] == "core":
            found[kind.expectation_type] = _exact(kind)
    return found


def _exact(kind: Any) -> Any:
    bounds = [name for name in _BOUNDS if name in kind.__fields__]
    body: dict[str, Any] = {
        "__module__": __name__,
        "__annotations__": dict.fromkeys(bounds, Any),
        "get_validation_dependencies": _get_validation_dependencies,
        "_validate": _validate,
    }
    body |= {name: kind.__fields__[name].default for name in bounds if not kind.__fields__[name].required}
    return type(kind.__name__, (kind,), body)


found_metrics: dict[int, dict[str, Any]] = {}
"""What was computed for each expectation, by its number, until somebody takes it."""


def _get_validation_dependencies(self: Any, *arguments: Any, **named: Any) -> Any:
    above: Any = super(type(self), self)
    dependencies = above.get_validation_dependencies(*arguments, **named)
    for name in list(dependencies.metric_configurations):
        # Each of them is a job of Spark, for what the list of rows has as well.
        if name.endswith(_ONLY_SHOWN):
            del dependencies.metric_configurations[name]
    return dependencies


def _validate(self: Any, metrics: dict[str, Any], *arguments: Any, **named: Any) -> Any:
    from jobs.contract.metrics import exact_value

    metrics = {name: exact_value(value) for name, value in metrics.items()}
    if any(name.endswith(".unexpected_index_list") for name in metrics):
        # Asked for the rows alone: whether it passes has been said.
        found_metrics[self.meta[KEY]] = dict(metrics)
        return {"success": False, "result": {}}
    above: Any = super(type(self), self)
    result = above._validate(metrics, *arguments, **named)
    said = result if isinstance(result, dict) else {}
    found_metrics[self.meta[KEY]] = {**metrics, "result": said.get("result", {})}
    return result
