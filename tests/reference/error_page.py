"""Page of the errors: docs/reference/errors.md, from the docstrings of the error classes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from orchestration.reconcile.halts import Halt
from tests.helpers.import_order import LAYERS, ROOT, package_files

_HEAD = """\
# Errors

An error names the thing, the place and, behind `Next:`, the next command. `S` stands for the stream. This page lists
every class, what is safe, and what to do; the message of an error has the details. `python -m tests.reference` writes
it from the docstrings of the classes.
"""
_HALTS = """\
The supervisor leaves a stream to an operator for one of these reasons. `frazil status` shows the state `halted`.
"""
_WAITING = """\
These are no stops: the stream goes on, and something waits for an operator. `frazil status S` shows each.

| state | what happened | safe | next |
|---|---|---|---|
| quarantined snapshots | A critical expectation of the contract failed. | `main` is as it was, and the stream lands on its branch. | `frazil publish S` checks again; `frazil release S` publishes them; `frazil discard S` makes dead letters of them |
| suspended table | A table with `on_table_error: park` was dropped or refuses commits. | Dead letters keep its records. | `frazil accept S --unpark TABLE`, then `frazil replay S` |
| exhausted dead letter | It failed in `errors.replay.park_after` replays. | Its bytes are kept. | correct the cause, then `frazil replay S --state parked` |
| proposed schema change | Records need a change for which `evolve` is `propose`. | The records are dead letters. | `frazil schema apply S --proposal ID`, then `frazil replay S` |
"""  # noqa: E501
BASE, STOP, MIRROR_STOP = "FrazilError", "StreamStopped", "MirrorStopped"
# Titles by the package that defines an error; the first that fits counts.
SECTIONS: tuple[tuple[str, str], ...] = (
    ("jobs.mirrors", "Mirrors"),
    ("jobs.quality.publishing", "Publishing"),
    ("jobs.quality", "Contracts"),
    ("jobs.maintenance", "Maintenance"),
    ("jobs.dead_letters", "Dead letters"),
    ("jobs.tables.dead_letter_table", "Dead letters"),
    ("jobs.streaming.dead_letter_publisher", "Dead letters"),
    ("jobs.tables.commit", "Commits and positions"),
    ("jobs.tables", "Rows and data files"),
    ("jobs.streaming.supervision", "Drivers"),
    ("jobs.streaming", "Drivers"),
    ("jobs.clients.state_store.lease", "Drivers"),
    ("jobs.clients.spark", "Drivers"),
    ("jobs.migration", "Kafka Connect"),
    ("orchestration.cli.connect", "Kafka Connect"),
    ("orchestration.alerts", "Alerts"),
    ("orchestration.cli.common", "Files"),
    ("orchestration", "Drivers"),
    ("jobs.clients.kafka", "Kafka"),
    ("jobs.clients.catalog", "Catalog"),
    ("jobs.clients.registry", "Schema registry"),
    ("jobs.clients.state_store", "State store"),
    ("jobs.clients.install", "Installation and local services"),
    ("jobs.local", "Installation and local services"),
    ("jobs.config.settings", "Installation and local services"),
    ("jobs.config.services", "Installation and local services"),
    ("jobs.config", "Files"),
    ("jobs.records", "Files"),
    ("jobs.base.system", "Drivers"),
)
_ACCEPT = re.compile(r"`(frazil (?:mirror )?accept [^`]+)`")


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """One error class, by its source.

    Attributes:
        name: Of the class.
        module: Dotted name of the module.
        bases: Names of the classes that it derives from.
        what: What happened.
        safe: What is safe meanwhile; empty if the docstring lacks it.
        next: The next command; empty likewise.
        more: Further paragraphs.
    """

    name: str
    module: str
    bases: tuple[str, ...]
    what: str
    safe: str
    next: str
    more: tuple[str, ...]


def error_class(node: ast.ClassDef, module: str) -> ErrorClass:
    """What a class's docstring says: a sentence, `Safe:`, `Next:`, and paragraphs."""
    first, *others = (inspect.cleandoc(ast.get_docstring(node) or "")).split("\n\n")
    parts = {"Safe": "", "Next": ""}
    more: list[str] = []
    for paragraph in others:
        if paragraph.startswith("Safe:"):
            text = " ".join(paragraph.split())
            safe, _, following = text.removeprefix("Safe: ").partition(" Next: ")
            parts = {"Safe": safe, "Next": following}
        elif not re.match(r"(Args|Attributes|Raises):", paragraph):
            more.append(" ".join(paragraph.split()))
    bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
    return ErrorClass(node.name, module, bases, " ".join(first.split()), parts["Safe"], parts["Next"], tuple(more))


@cache
def _classes() -> dict[str, ErrorClass]:
    """Every class that derives from FrazilError, by name."""
    found: dict[str, ErrorClass] = {}
    for layer in LAYERS:
        for path in package_files(layer):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            tree = ast.parse(path.read_text(encoding="utf-8"))
            classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            found |= {node.name: error_class(node, module) for node in classes}

    def derives(name: str) -> bool:
        return any(base == BASE or (base in found and derives(base)) for base in found[name].bases)

    return {name: found[name] for name in sorted(found) if derives(name)}


def error_classes() -> dict[str, ErrorClass]:
    """Every public class that derives from FrazilError, by name."""
    return {name: each for name, each in _classes().items() if not name.startswith("_")}


def stops(base: str) -> list[ErrorClass]:
    """The errors that derive from a stop, without the stop itself and those below a stop of a mirror."""
    return [each for each in error_classes().values() if base in set(_ancestors(each)) and each.name != MIRROR_STOP]


def _ancestors(error: ErrorClass) -> Iterator[str]:
    for base in error.bases:
        yield base
        if base in _classes():
            yield from _ancestors(_classes()[base])


def answers() -> list[tuple[str, ErrorClass]]:
    """The commands that answer a stop, each with the error that asks for it."""
    return [(command, each) for each in error_classes().values() for command in _ACCEPT.findall(each.next)]


def section_of(error: ErrorClass) -> str:
    """Title of the section of an error that stops nothing."""
    return next(title for package, title in SECTIONS if error.module.startswith(package))


def error_page() -> str:
    """The page docs/reference/errors.md."""
    mirror = stops(MIRROR_STOP)
    stream = [each for each in stops(STOP) if each not in mirror]
    stopping = {each.name for each in (*stream, *mirror)} | {STOP, MIRROR_STOP}
    lines = [_HEAD, *_answer_lines()]
    lines += ["## Stops of a stream", "", _stop_lead(STOP), *_entries(stream)]
    lines += ["## Stops of a mirror", "", _stop_lead(MIRROR_STOP), *_entries(mirror)]
    lines += ["## Halts by the supervisor", "", _HALTS, *_halt_lines()]
    lines += ["## Waiting for an operator", "", _WAITING]
    others: dict[str, list[ErrorClass]] = {title: [] for _, title in SECTIONS}
    for each in error_classes().values():
        if each.name not in stopping:
            others[section_of(each)].append(each)
    for title, errors in others.items():
        if errors:
            lines += [f"## {title}", "", *_entries(errors)]
    return "\n".join(lines).rstrip() + "\n"


def _stop_lead(name: str) -> str:
    error = error_classes()[name]
    return f"{error.what} {error.safe} The class is `{name}`.\n"


def _answer_lines() -> list[str]:
    rows = [f"| `{command}` | [{each.name}](#{each.name.lower()}) |" for command, each in sorted(answers(), key=str)]
    lead = "A stop that needs a decision waits for one of these commands:"
    return ["## Answers of an operator", "", lead, "", "| command | answers |", "|---|---|", *rows, ""]


def _halt_lines() -> list[str]:
    rows = [f"| `{halt}` | {halt.what} | {halt.safe} | {halt.next_command} |" for halt in Halt]
    return ["| reason | what happened | safe | next |", "|---|---|---|---|", *rows, ""]


def _entries(errors: list[ErrorClass]) -> list[str]:
    lines: list[str] = []
    for each in errors:
        lines += [f"### {each.name}", "", each.what, "", f"- Safe: {each.safe}", f"- Next: {_sentence(each.next)}", ""]
        for paragraph in each.more:
            lines += [paragraph, ""]
    return lines


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
