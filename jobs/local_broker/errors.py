"""Error of a local broker that does not come up, with the end of what Kafka printed."""

from __future__ import annotations

import re

from jobs.errors import FrazilError

_SHOWN_LINES = 12


class BrokerError(FrazilError):
    """The local broker did not come up."""


def last_kafka_lines(text: str) -> str:
    """Return the end of what Kafka printed for a broker's error, indented, without Java's stack frames."""
    told = [line for line in text.splitlines() if line.strip() and not re.match(r"\s+(at |\.\.\. \d+ more)", line)]
    return "\n".join(f"    {line}" for line in told[-_SHOWN_LINES:])
