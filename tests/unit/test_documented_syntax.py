"""Commands and YAML in the docs: every command and option exists, and so does every key of a stream or the settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from pydantic import ValidationError

from jobs.config.settings.settings import SettingsFile
from jobs.config.stream.models import StreamSpec
from orchestration.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^( *)```([\w-]*)[^\n`]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
# Stands for arguments, or says that a line goes on.
PLACEHOLDER = re.compile(r"[…|<>\[\]{}]|\.\.\.")
BASE = {
    "stream": "payments",
    "source": {"topics": ["payments"]},
    "decode": {"value": "json", "schema": "id string not null, amount decimal(12,2), created_at timestamptz"},
    "table": {"name": "orders.payments"},
}


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Languages and texts of a page's fenced blocks."""
    for _, language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        yield language, text


def commands(page: Path) -> Iterator[str]:
    """Command lines of a page that begin with `frazil`, without comments."""
    for language, text in blocks(page):
        if language not in ("", "console", "bash"):
            continue
        for line in text.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if line.startswith("frazil ") and not PLACEHOLDER.search(line):
                yield line


def wrong_word(line: str) -> str:
    """What of a command line does not exist; empty if all does."""
    try:
        words = shlex.split(line.partition(" < ")[0].partition(" && ")[0], comments=True)[1:]
    except ValueError:
        return ""
    command: click.Command = main
    context = click.Context(main, info_name="frazil")
    while isinstance(command, click.Group) and words:
        if words[0].startswith("-"):
            # Options of `frazil` itself.
            words = words[2 if words[0] in ("--home", "--settings") else 1 :]
            continue
        found = command.get_command(context, words[0])
        if found is None:
            return words[0] if words[0].isascii() and re.fullmatch(r"[a-z][a-z-]*", words[0]) else ""
        context, command, words = click.Context(found, parent=context, info_name=words[0]), found, words[1:]
    try:
        command.make_parser(context).parse_args(args=list(words))
    except click.UsageError as problem:
        return problem.format_message()
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    assert [(line, word) for line in commands(page) if (word := wrong_word(line))] == []


def unknown_keys(document: dict[str, Any], model: type[Any]) -> list[str]:
    """Paths of keys that a model does not know."""
    try:
        model.model_validate(document)
    except ValidationError as problem:
        return [".".join(map(str, error["loc"])) for error in problem.errors() if error["type"] == "extra_forbidden"]
    return []


def documents(page: Path) -> Iterator[dict[str, Any]]:
    """YAML of a page whose keys at the top are those of a stream's file or of the settings."""
    for language, text in blocks(page):
        if language != "yaml" or "…" in text:
            continue
        for part in re.split(r"^# (?:streams/\S+|frazil)\.yaml$", text, flags=re.MULTILINE):
            document = yaml.safe_load(part)
            if isinstance(document, dict):
                yield document


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_keys_of_a_page_are_known(page: Path) -> None:
    models = {StreamSpec: BASE, SettingsFile: dict[str, Any]()}
    wrong: list[list[str]] = []
    for document in documents(page):
        # A key such as `maintenance` is one of both files.
        meant = [(model, base) for model, base in models.items() if document.keys() <= set(model.model_fields)]
        found = [unknown_keys(base | document, model) for model, base in meant]
        wrong += [min(found, key=len)] if found and all(found) else []
    assert wrong == []


def test_finds_what_is_wrong() -> None:
    assert wrong_word("frazil staus payments") == "staus"
    assert "--fulll" in wrong_word("frazil audit payments --fulll")
    assert wrong_word("frazil --home x schema apply payments --yes") == ""
    assert unknown_keys(BASE | {"errors": {"tolerence": "data"}}, StreamSpec) == ["errors.tolerence"]
