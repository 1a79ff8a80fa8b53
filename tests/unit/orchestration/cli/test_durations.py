"""Times as options: the same forms in every command that takes one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from jobs.base.errors import FrazilError
from orchestration.cli.common.durations import TimeOption
from orchestration.cli.main import main

COMMANDS = {
    "letters": ("--since", "--until"),
    "replay": ("--since", "--until"),
    "audit": ("--since",),
    "at": ("--timestamp",),
    "tag": ("--timestamp",),
}


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T08:00", datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ("2026-01-31 08:00:01", datetime(2026, 1, 31, 8, 0, 1, tzinfo=UTC)),
        ("2026-01-31T08:00:00Z", datetime(2026, 1, 31, 8, tzinfo=UTC)),
        (" 2026-01-31T08:00:00.25+02:00", datetime(2026, 1, 31, 6, 0, 0, 250_000, UTC)),
        ("20260131", datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
def test_days_and_instants(text: str, at: datetime) -> None:
    found = TimeOption(past=True).convert(text, None, None)
    assert (found, found.tzinfo) == (at, UTC)
    assert TimeOption().convert(at, None, None) is at


@pytest.mark.parametrize(
    ("text", "ago"), [("24h", timedelta(days=1)), ("7d", timedelta(7)), ("90 s", timedelta(0, 90))]
)
def test_how_long_ago(text: str, ago: timedelta) -> None:
    before = datetime.now(UTC)
    found = TimeOption(past=True).convert(text, None, None)
    assert before <= found + ago <= datetime.now(UTC)


@pytest.mark.parametrize(
    "text", ["yesterday", "", "24", "-1h", "0s", "2026-02-30", "999999999d", "0001-01-01T00:00+23:00"]
)
def test_what_is_no_time(text: str) -> None:
    option = click.Option(["--since"])
    with pytest.raises(FrazilError, match=r"^--since: '.*' is no time") as refused:
        TimeOption().convert(text, option, None)
    assert refused.value.fix == "write it as 24h or 7d, 2026-01-31, or 2026-01-31T08:00:00Z"


def test_what_is_still_to_come() -> None:
    later = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    assert TimeOption().convert(later, None, None) > datetime.now(UTC)
    with pytest.raises(FrazilError, match="is still to come"):
        TimeOption(past=True).convert(later, None, None)


@pytest.mark.parametrize(("name", "option"), [(name, each) for name, found in COMMANDS.items() for each in found])
def test_commands_take_the_same_forms(name: str, option: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    (found,) = [each for each in command.params if option in each.opts]
    assert isinstance(found.type, TimeOption)
