"""Conventions of all commands: which act at once and which ask, `--dry-run`, `--yes` and `--json`."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from orchestration.cli.main import main

LOOK = {
    "status", "watch", "logs", "preview", "query", "shell", "open", "at", "schema infer", "schema diff",
    "schema check", "mirror status", "mirror check", "validate", "audit", "contract import", "test", "certify",
    "doctor", "completion", "compare", "registry status", "manifest", "plan",
}  # fmt: skip
# What they do can be repeated safely, or taken back by a command.
ACT = {
    "run", "start", "stop", "pause", "resume", "restart", "flush", "letters", "replay", "publish", "mirror run",
    "mirror rebuild", "maintain", "tag", "check", "state copy", "generate", "offsets",
}  # fmt: skip
ASK = {
    "accept", "release", "discard", "reset-offsets", "schema apply", "mirror accept", "registry forget", "takeover",
    "import", "backfill", "apply", "register",
}  # fmt: skip
# They start and end what is on this machine alone, or make a folder that was not there.
LOCAL = {"up", "down", "dev", "demo", "init", "connect-api"}
# Commands that act, but ask before what some of their options do.
ASK_BY_OPTION = {"letters", "publish", "mirror rebuild", "generate", "offsets"}
# What they give is no document: a script, files, a shell, a page, or a screen that changes until Ctrl-C.
WITHOUT_DOCUMENT = {"completion", "init", "shell", "open", "watch", "dev", "demo", "logs", "connect-api"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands, those of groups with the group's name before theirs."""
    ctx = click.Context(main)
    for name in main.list_commands(ctx):
        command = main.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            for part in command.list_commands(ctx):
                inner = command.get_command(ctx, part)
                assert inner is not None
                yield f"{name} {part}", inner
        else:
            yield name, command


ALL = dict(commands())


def options(command: click.Command) -> dict[str, click.Option]:
    return {name: each for each in command.params if isinstance(each, click.Option) for name in each.opts}


def test_the_table_has_every_command_once() -> None:
    assert sum(map(len, (LOOK, ACT, ASK, LOCAL))) == len(LOOK | ACT | ASK | LOCAL)
    assert {*ALL} <= LOOK | ACT | ASK | LOCAL


@pytest.mark.parametrize("name", sorted({*ALL} & (ACT | ASK)))
def test_what_changes_something_has_a_dry_run(name: str) -> None:
    option = options(ALL[name])["--dry-run"]
    assert (option.is_flag, option.name) == (True, "plan_only" if name == "maintain" else "dry_run")


@pytest.mark.parametrize("name", sorted({*ALL} & (ASK | ASK_BY_OPTION)))
def test_what_asks_takes_yes(name: str) -> None:
    assert options(ALL[name])["--yes"].is_flag


@pytest.mark.parametrize("name", sorted({*ALL} - ASK - ASK_BY_OPTION))
def test_nothing_else_takes_yes(name: str) -> None:
    assert "--yes" not in options(ALL[name])


@pytest.mark.parametrize("name", sorted({*ALL} - WITHOUT_DOCUMENT))
def test_json_is_one_flag_everywhere(name: str) -> None:
    option = options(ALL[name])["--json"]
    assert (option.is_flag, option.name) == (True, "as_json")
