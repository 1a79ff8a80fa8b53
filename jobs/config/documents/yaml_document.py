"""YAML documents with the line of every value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.config.documents.base import LineInText, Location


class LocatedText(str):
    """A text from a YAML file with its file and line (``frazil.yaml:12``)."""

    where: str


@dataclass(frozen=True, slots=True)
class YamlProblem:
    """Why a file cannot be read: a sentence, with its line and column (from 1; 0 if unknown)."""

    line: int
    message: str
    column: int = 0

    @property
    def place(self) -> tuple[int, int, str]:
        """Line, column and sentence."""
        return self.line, self.column, self.message


class YamlUnreadable(Exception):
    """A file is not the YAML that frazil reads.

    Args:
        problems: Why the file cannot be read.
        document: The document, if its only fault is duplicate keys, of which the last one counts.
    """

    def __init__(self, problems: list[YamlProblem], document: YamlDocument | None = None) -> None:
        super().__init__(problems)
        self.problems: list[YamlProblem] = problems
        self.document: YamlDocument | None = document

    def located(self, shown: str) -> list[str]:
        """Return one sentence for each problem, with file and line."""
        marks = (":".join(str(part) for part in (shown, p.line, p.column) if part) for p in self.problems)
        return [f"{mark}: {p.message}" for mark, p in zip(marks, self.problems, strict=True)]


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Loader(yaml.SafeLoader):
    """Loader with the scalars of YAML 1.2: `no` is a text, `0123` not octal, `12:30` not 750, a date stays a text."""

    def construct_located(self, node: yaml.ScalarNode) -> str:
        text = self.construct_scalar(node)
        if not _is_encodable(text):
            # JSON escapes some characters as two surrogates, which PyYAML does not join.
            try:
                text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            except UnicodeDecodeError:
                said = "an escape such as \\ud800 is half a character"
                raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from None
        if "${" not in text:
            return text
        located = LocatedText(text)
        located.where = f"{self.name}:{node.start_mark.line + 1}"
        return located


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9_]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
     list("-+0123456789.")),
    ("merge", r"<<", ["<"]),
):  # fmt: skip
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)
_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.construct_located)


def plain_resolvers() -> dict[Any, Any]:
    """Return the resolvers of unquoted scalars, for a dumper whose output is read here."""
    return _Loader.yaml_implicit_resolvers


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """Data of a YAML file with its node tree.

    Args:
        shown: Name of the file in messages.
        data: Plain Python values; texts with ``${`` are ``LocatedText``.
        root: The composed nodes, which have the lines.
    """

    shown: str
    data: Any
    root: yaml.Node

    def line_of(self, location: Location) -> int:
        """Returns the line (from 1) of a key or list item; for one not in the file, of its nearest parent."""
        return self.mark_of(location)[0]

    def mark_of(self, location: Location) -> tuple[int, int]:
        """Returns line and column (from 1) of a key or list item; for one not in the file, of its nearest parent."""
        node, line, column = self.root, self.root.start_mark.line, self.root.start_mark.column
        for part in location:
            if isinstance(node, yaml.MappingNode):
                # The last one counts: keys merged by `<<` come before the mapping's own.
                entry = next((e for e in reversed(node.value) if e[0].value == str(part)), None)
                if entry is not None:
                    line, column, node = entry[0].start_mark.line, entry[0].start_mark.column, entry[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and 0 <= part < len(node.value):
                node = node.value[part]
                line, column = node.start_mark.line, node.start_mark.column
            elif isinstance(part, LineInText) and isinstance(node, yaml.ScalarNode) and node.style == "|":
                # Only in a literal block the text's lines are lines of the file. It starts below the `|`.
                line = node.start_mark.line + 1 + part.lines_before
                column = _indent(node, part.lines_before)
        return line + 1, column + 1


def _indent(block: yaml.ScalarNode, line: int) -> int:
    """Return the column (from 0) in which a line of a literal block begins."""
    buffer = block.start_mark.buffer
    lines = buffer.splitlines() if isinstance(buffer, str) else []
    text = lines[at] if (at := block.start_mark.line + 1 + line) < len(lines) else ""
    return len(text) - len(text.lstrip())


def read_yaml(path: Path, *, shown: str) -> YamlDocument:
    """Reads one file that holds one YAML document.

    Raises:
        YamlUnreadable: The file cannot be opened, is empty, is no YAML, or has duplicate keys.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise YamlUnreadable([YamlProblem(0, f"cannot be read: {error.strerror or error}")]) from None
    except UnicodeDecodeError as error:
        raise YamlUnreadable([YamlProblem(0, f"is not UTF-8 text (at byte {error.start})")]) from None
    return parse_yaml(text, shown=shown)


def parse_yaml(text: str, *, shown: str) -> YamlDocument:
    """Reads one YAML document.

    Raises:
        YamlUnreadable: The text is empty, is no YAML, or has duplicate keys.
    """
    problem: YamlProblem | None = None
    try:
        loader = _Loader(text)
        loader.name = shown
        root = loader.get_single_node()
        if root is None:
            raise YamlUnreadable([YamlProblem(1, "the file is empty")])
        duplicates = list(_duplicate_keys(root))
        try:
            document = YamlDocument(shown, loader.construct_document(root), root)
        except (ValueError, TypeError, LookupError, AttributeError):
            # PyYAML raises plain Python errors for `!!int`, `!!bool` or `!!timestamp` before another value.
            tagged = YamlProblem(0, "has a value that its tag, such as !!int, does not take")
            raise YamlUnreadable([*duplicates, tagged]) from None
        if duplicates:
            raise YamlUnreadable(duplicates, document)
        return document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        problem = YamlProblem(line, f"is not YAML: {_without_quotations(error)}", column)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        problem = YamlProblem(line, f"is not YAML: the character U+{int(error.character):04X} is not allowed", column)
    except RecursionError:
        problem = YamlProblem(0, "is nested too deeply")
    raise YamlUnreadable([problem])


def _without_quotations(error: yaml.MarkedYAMLError) -> str:
    """Removes PyYAML's quotations of the file (aliases, tags): a password that starts with `*` or `!` may be one."""
    told = ", ".join(part for part in (error.context, error.problem) if part) or "it cannot be parsed"
    return re.sub(r"'[^']*'|\"[^\"]*\"", lambda match: match[0] if len(match[0]) <= 4 else "'…'", told)


def _duplicate_keys(root: yaml.Node) -> Iterator[YamlProblem]:
    pending, visited = [root], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if isinstance(key, yaml.ScalarNode):
                    if key.value in first:
                        said = f"the key '{key.value}' is here twice (first in line {first[key.value]})"
                        yield YamlProblem(line, said, key.start_mark.column + 1)
                    first.setdefault(key.value, line)
                pending.append(value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
