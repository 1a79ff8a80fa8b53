"""Text for amounts: sizes, durations, numbers of files."""

from __future__ import annotations

from datetime import timedelta


def size_text(size: float) -> str:
    """A size as text of maintenance: `128 MiB` for 134,217,728 bytes."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "bytes" or size >= 10 else f"{size:,.1f} {unit}"


def duration_text(duration: timedelta) -> str:
    """A time span as text of maintenance: `3 h`, `2 days`."""
    hours = duration.total_seconds() / 3600
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"


def files_text(number: int) -> str:
    return f"{number:,} file" if number == 1 else f"{number:,} files"


def sized_text(sizes: tuple[int, ...]) -> str:
    return f"{files_text(len(sizes))} of {size_text(sum(sizes))}"
