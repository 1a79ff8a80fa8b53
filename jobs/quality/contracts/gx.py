"""Great Expectations in this process, imported only if a contract is evaluated."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jobs.base.errors import FrazilError
from jobs.quality.contracts.outcome import MOST_SAMPLES
from jobs.quality.contracts.unavailable import what_is_away

KEY = "frazil"
"""Key in an expectation's `meta` that identifies its result, as results come in another order."""


def import_gx() -> None:
    """Import Great Expectations, which takes some seconds, without its analytics.

    Raises:
        FrazilError: It is not installed.
    """
    if importlib.util.find_spec("great_expectations") is None:
        raise FrazilError(
            "contracts need Great Expectations, and it is not installed", fix="pip install 'frazil[expectations]'"
        )
    # Read when the package is imported.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # Its warnings name expectations and metrics that are registered again on purpose (exact_expectations).
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # It imports deprecated parts of Python.
        warnings.simplefilter("ignore")
        import great_expectations  # noqa: F401


class Batch:
    """A pandas or Spark frame to validate; nothing is stored on disk or sent over the network."""

    def __init__(self, frame: Any, *, spark: bool) -> None:
        import great_expectations

        sources = _context().data_sources
        # The owner of the frame decides how long it is cached.
        spark_or_pandas = sources.add_or_update_spark if spark else sources.add_or_update_pandas
        source = spark_or_pandas("spark" if spark else "pandas", **({"persist": False} if spark else {}))
        definition = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
        self._batch: Any = definition.get_batch({"dataframe": frame})
        self._suite: Any = great_expectations.ExpectationSuite

    def validate(self, expectations: Sequence[Any], *, samples: Sequence[str] = ()) -> dict[int, Any]:
        """Validate expectations.

        Args:
            expectations: Expectations, each with its number as `KEY` in its meta.
            samples: Columns of coordinates, to return the unexpected rows.

        Returns:
            Results by number.

        Raises:
            Exception: Something that a metric needs is unavailable (see `unavailable`); the original error.
        """
        suite = self._suite(name="contract", expectations=list(expectations))
        wanted: Any = {"result_format": "BOOLEAN_ONLY"}
        if samples:
            wanted = {
                "result_format": "SUMMARY",
                "partial_unexpected_count": MOST_SAMPLES,
                "unexpected_index_column_names": list(samples),
            }
        with warnings.catch_warnings(), self._errors() as errors:
            # Warnings of pandas and NumPy within Great Expectations; what cannot be computed is an error.
            warnings.simplefilter("ignore")
            found = self._batch.validate(suite, result_format=wanted)
        if away := next(filter(None, map(what_is_away, errors)), None):
            raise away
        return {result.expectation_config.meta[KEY]: result for result in found.results}

    @contextlib.contextmanager
    def _errors(self) -> Iterator[list[Exception]]:
        """Errors of metrics within the block, of which Great Expectations keeps only the text."""
        engine, errors = self._batch.data.execution_engine, list[Exception]()
        resolve = engine.resolve_metrics

        def noted(*arguments: Any, **named: Any) -> Any:
            try:
                return resolve(*arguments, **named)
            except Exception as error:
                errors.append(error)
                raise

        engine.resolve_metrics = noted
        try:
            yield errors
        finally:
            del engine.resolve_metrics


@cache
def _context() -> Any:
    import great_expectations
    from great_expectations.data_context.types import base

    config = base.DataContextConfig(
        # It has no folder for result pages.
        store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=base.ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    return great_expectations.get_context(mode="ephemeral", project_config=config)


def error_of(result: Any) -> str | None:
    """Great Expectations' reason why a metric could not be computed; None if it could."""
    info: Mapping[str, Any] = result.exception_info or {}
    if info.get("raised_exception") is False:
        return None
    if info.get("raised_exception"):
        return str(info.get("exception_message"))
    said = [each.get("exception_message") for each in info.values() if isinstance(each, Mapping)]
    return str(said[0]) if said else None


_BOUNDS = ("min_value", "max_value", "sum_total", "value", "threshold")
_ONLY_SHOWN = (".unexpected_values", ".unexpected_index_query", ".unexpected_value_counts")


@cache
def exact_expectations() -> dict[str, Any]:
    """Expectation classes by name."""
    import_gx()
    from great_expectations import expectations

    import jobs.quality.contracts.metrics  # noqa: F401

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
"""Computed metrics of each expectation, by its number, until they are taken."""


def _get_validation_dependencies(self: Any, *arguments: Any, **named: Any) -> Any:
    above: Any = super(type(self), self)
    dependencies = above.get_validation_dependencies(*arguments, **named)
    for name in list(dependencies.metric_configurations):
        # Each of them is another Spark job for what the list of rows has already.
        if name.endswith(_ONLY_SHOWN):
            del dependencies.metric_configurations[name]
    return dependencies


def _validate(self: Any, metrics: dict[str, Any], *arguments: Any, **named: Any) -> Any:
    from jobs.quality.contracts.metrics import exact_value

    metrics = {name: exact_value(value) for name, value in metrics.items()}
    if any(name.endswith(".unexpected_index_list") for name in metrics):
        # Only the rows are needed: whether it passes is known.
        found_metrics[self.meta[KEY]] = dict(metrics)
        return {"success": False, "result": {}}
    above: Any = super(type(self), self)
    result = above._validate(metrics, *arguments, **named)
    said = result if isinstance(result, dict) else {}
    found_metrics[self.meta[KEY]] = {**metrics, "result": said.get("result", {})}
    return result
