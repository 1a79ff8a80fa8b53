"""Places of problems in YAML files, as tests compare them: file and line, without the column."""

from __future__ import annotations

import re


def without_columns(text: str) -> str:
    """The text with `streams/payments.yaml:12:3:` as `streams/payments.yaml:12:`."""
    return re.sub(r"(\.ya?ml:\d+):\d+:", r"\1:", text)
