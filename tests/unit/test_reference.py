"""Generated pages of the reference: they are what models, commands, measures and errors say, and these say all."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

from assets.audit_check import EXACTLY_ONCE
from assets.closed_partitions import CLOSED_PARTITIONS
from assets.dead_letters import LETTERS_WAITING, REPLAY_WOULD_HELP
from assets.mirror_check import MIRROR_CONSISTENT
from assets.mirrors import MIRROR_CURRENT
from assets.published_check import PUBLISHED
from assets.schema_contract import SCHEMA_CONTRACT
from assets.stream_checks import ADDS_UP, DESCRIPTIONS
from assets.table_health import TABLE_HEALTH
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import SettingsFile, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.operator.accept import Answer
from orchestration.cli.main import main
from orchestration.reconcile.halts import Halt
from tests.helpers.import_order import LAYERS, ROOT, package_files
from tests.reference.config_pages import ROOTS
from tests.reference.error_page import MIRROR_STOP, STOP, answers, error_classes, section_of, stops
from tests.reference.measure_page import CHECKS
from tests.reference.model_keys import Block, Key, blocks, example_files, example_lines
from tests.reference.pages import DOCS, PAGES
from tests.reference.type_words import WORDS, field_annotations, models_in, validators

MODELS = pytest.mark.parametrize("root", ROOTS.values(), ids=list(ROOTS))


def keys(root: type[StreamSpec] | type[SettingsFile]) -> list[tuple[Block, Key]]:
    return [(block, key) for block in blocks(root, example_lines(ROOTS)) for key in block.keys]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_its_source_says(page: str) -> None:
    written = (DOCS / page).read_text(encoding="utf-8") if (DOCS / page).exists() else ""
    assert written == PAGES[page](), "run: python -m tests.reference"


@MODELS
def test_every_key_has_a_description_in_its_models_docstring(root: type[StreamSpec]) -> None:
    lacking = [f"{block.path}.{key.name}" for block, key in keys(root) if not key.description.endswith(".")]
    assert lacking == [], "describe them under Args: of the model's docstring, in one sentence or two"


@MODELS
def test_every_key_has_an_example(root: type[StreamSpec]) -> None:
    lacking = [f"{block.path}.{key.name}" for block, key in keys(root) if not key.example and not key.blocks]
    assert lacking == [], "use them in a file below tests/reference/examples"


@MODELS
def test_paths_of_blocks_are_unique(root: type[StreamSpec]) -> None:
    paths = [block.path for block in blocks(root, {})]
    assert len(paths) == len(set(paths))


def test_every_validator_of_a_key_has_words() -> None:
    seen: set[str] = set()
    found: set[str] = set()
    waiting: list[type] = list(ROOTS.values())
    while waiting:
        model = waiting.pop()
        for annotation in field_annotations(model).values():
            found |= {name for name in validators(annotation) if not name.endswith("<lambda>")}
            waiting += [each for each in models_in(annotation) if each.__name__ not in seen]
            seen |= {each.__name__ for each in models_in(annotation)}
    ours = {name for name in found if name.startswith("jobs.")}
    assert sorted(ours - WORDS.keys()) == [], "say in tests/reference/type_words.py what they accept"
    assert sorted(WORDS.keys() - ours) == []


# The last needs packages that are not installed here.
@pytest.mark.parametrize(
    "path", [path for path in example_files("streams") if path.stem != "own"], ids=lambda path: path.stem
)
def test_an_example_of_a_stream_is_valid(path: Path) -> None:
    assert load_stream(path).stream == path.stem


@pytest.mark.parametrize("path", example_files("settings"), ids=lambda path: path.stem)
def test_an_example_of_the_settings_is_valid(path: Path, tmp_path: Path) -> None:
    assert load_settings(path, home=tmp_path).kafka


def test_every_asset_check_has_words() -> None:
    others = (EXACTLY_ONCE, CLOSED_PARTITIONS, LETTERS_WAITING, REPLAY_WOULD_HELP, MIRROR_CURRENT, MIRROR_CONSISTENT)
    assert CHECKS.keys() == {*DESCRIPTIONS, ADDS_UP, SCHEMA_CONTRACT, TABLE_HEALTH, PUBLISHED, *others}


def test_every_error_says_what_is_safe_and_what_to_do() -> None:
    lacking = [each.name for each in error_classes().values() if not (each.what and each.safe and each.next)]
    assert lacking == [], "write Safe: and Next: into the docstring of the class"
    assert {section_of(each) for each in error_classes().values() if each.name != STOP}


def test_every_stop_is_an_error_of_its_own() -> None:
    general = {STOP, MIRROR_STOP, "_TableStop"}
    raised: list[str] = []
    for layer in LAYERS:
        for path in package_files(layer):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                    name = getattr(node.exc.func, "id", "")
                    raised += [f"{path.relative_to(ROOT)}:{node.lineno}"] if name in general else []
    assert raised == []
    assert {each.name for each in stops(STOP)} >= {each.name for each in stops(MIRROR_STOP)} >= {"NullKeyError"}


def test_every_answer_of_an_operator_belongs_to_a_stop() -> None:
    named = {option for command, _ in answers() for option in re.findall(r"--[\w-]+", command)}
    accept = main.get_command(click.Context(main), "accept")
    assert accept is not None
    names = {field.name for field in fields(Answer)}
    given = {option for parameter in accept.params if parameter.name in names for option in parameter.opts}
    assert len(given) == len(names)
    assert given <= named


def test_every_halt_is_decided_somewhere() -> None:
    source = (ROOT / "orchestration/reconcile/decide.py").read_text(encoding="utf-8")
    assert source.count("Action.HALT,") == source.count("halt=")
    assert [halt for halt in Halt if f"Halt.{halt.name}" not in source] == []


def unknown_in(command: str) -> list[str]:
    """Words of a command line of `frazil` that are no command and no option of it."""
    group: click.Command = main
    context = click.Context(main)
    _, *words = command.split()
    while isinstance(group, click.Group) and words:
        found = group.get_command(context, words[0])
        if found is None:
            return [words[0]]
        group, words = found, words[1:]
    options = {option for parameter in group.params for option in parameter.opts}
    return [word for word in words if word.startswith("--") and word not in options]


def test_every_command_of_the_page_of_the_errors_exists() -> None:
    commands = set(re.findall(r"`(frazil [^`]+)`", PAGES["reference/errors.md"]()))
    assert len(commands) > 30
    assert {command: unknown for command in commands if (unknown := unknown_in(command))} == {}
    assert unknown_in("frazil accept S --rolback keep") == ["--rolback"]
    assert unknown_in("frazil mirror merge S") == ["merge"]
