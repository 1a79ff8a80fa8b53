"""The formats that values may have, by the name that a stream's file gives them."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.formats.format import Format
from jobs.formats.json.format import JSON

FORMATS: Mapping[str, Format] = {each.name: each for each in (JSON,)}
