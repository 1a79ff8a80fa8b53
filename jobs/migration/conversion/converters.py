"""Converters by connector class: which function converts which connectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from jobs.migration.conversion.draft import Draft

Convert = Callable[[Draft], None]
"""Fills a draft. It answers each key that it knows by `draft.keys`; the table of Connect's keys answers the others."""


@dataclass(frozen=True, slots=True)
class Converter:
    """Converter of a family of connectors.

    Attributes:
        family: Name of the family in the report, such as `iceberg-sink`.
        classes: Regular expression that a connector's whole class matches.
        function: Module within this package and function, as `iceberg_sink:convert_iceberg_sink`.
    """

    family: str
    classes: str
    function: str

    def load(self) -> Convert:
        """The function, imported when it is needed."""
        module, name = self.function.split(":")
        return getattr(import_module(f"{__package__}.{module}"), name)


CONVERTERS = (
    Converter(
        "iceberg-sink",
        r"(org\.apache\.iceberg\.connect|io\.tabular\.iceberg\.connect|(com|io)\..*iceberg.*)\.IcebergSink(Connector)?"
        r"|IcebergSink(Connector)?",
        "iceberg_sink:convert_iceberg_sink",
    ),
)
"""Converters; the first whose classes match counts."""


def converter_of(connector_class: str) -> Converter | None:
    """Converter of a connector class; None if frazil knows none."""
    return next((one for one in CONVERTERS if re.fullmatch(one.classes, connector_class.strip())), None)
