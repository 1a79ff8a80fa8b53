"""Documents in JSON and YAML as trees of texts that keep lines, and keys that are written twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from yaml.constructor import SafeConstructor

from jobs.migration.connectors.model import Place

_STRING_OR_KEY = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_TOO_DEEP = "is no JSON of a connector: it is nested too deeply"
_MOST_NODES = 1_000_000
_NULL = re.compile(r"~|null|Null|NULL|")


class UnreadableDocument(Exception):
    """A text is not the document that it seems to be.

    Args:
        message: Sentence without a subject and without values, such as `is no JSON: line 3, column 7`.
    """


@dataclass(slots=True)
class Pair:
    """One key of a mapping with its value, and the line of the key."""

    key: str
    value: Tree
    line: int | None = None


@dataclass(slots=True)
class Mapping:
    """A mapping, with keys that are written twice as often as they are written."""

    pairs: list[Pair] = field(default_factory=list)

    def get(self, key: str) -> Tree:
        """Value of a key, the last of several; None if the mapping does not have it."""
        return next((pair.value for pair in reversed(self.pairs) if pair.key == key), None)

    def mapping(self, key: str) -> Mapping:
        """Value of a key that is a mapping; an empty one otherwise."""
        value = self.get(key)
        return value if isinstance(value, Mapping) else Mapping()

    def text(self, key: str) -> str | None:
        """Value of a key that is a text; None otherwise."""
        value = self.get(key)
        return value if isinstance(value, str) else None

    def __contains__(self, key: str) -> bool:
        return any(pair.key == key for pair in self.pairs)

    def texts(self, source: str, above: str = "", *, apart: tuple[str, ...] = ()) -> Iterator[tuple[str, str, Place]]:
        """Key, value as text and place of each pair.

        Args:
            source: Name of the document for places.
            above: Path of this mapping in the document.
            apart: Keys to leave out.
        """
        for pair in self.pairs:
            if pair.key not in apart:
                path = f"{above}.{pair.key}" if above else pair.key
                yield pair.key, as_text(pair.value), Place(source, path, pair.line)


Tree: TypeAlias = "Mapping | list[Any] | str | None"
"""A mapping, a list of trees, a scalar as text, or null."""


def as_text(tree: Tree) -> str:
    """A value as Kafka Connect takes it: a scalar as it is, null as an empty text, a list with commas."""
    if isinstance(tree, Mapping):
        return json.dumps(_plain(tree), ensure_ascii=False)
    if isinstance(tree, list):
        return ",".join(as_text(item) for item in tree)
    return tree or ""


def _plain(tree: Tree) -> Any:
    if isinstance(tree, Mapping):
        return {pair.key: _plain(pair.value) for pair in tree.pairs}
    return [_plain(item) for item in tree] if isinstance(tree, list) else tree


def parse_json(text: str) -> Tree:
    """Tree of a JSON document.

    Raises:
        UnreadableDocument: The text is no JSON.
    """

    def pairs(found: list[tuple[str, Any]]) -> Mapping:
        return Mapping([Pair(key, value) for key, value in found])

    decoder = json.JSONDecoder(object_pairs_hook=pairs, parse_int=str, parse_float=str, parse_constant=str)
    try:
        tree = decoder.decode(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as problem:
        raise UnreadableDocument(f"is no JSON: line {problem.lineno}, column {problem.colno}{_reason(text)}") from None
    except RecursionError:
        raise UnreadableDocument(_TOO_DEEP) from None
    # A text with a colon behind it is a key, and keys are visited in the order in which they are written.
    try:
        return _with_lines(tree, _key_lines(text))
    except RecursionError:
        raise UnreadableDocument(_TOO_DEEP) from None


def _reason(text: str) -> str:
    """Why a text is no JSON, where that is plain, as a sentence's end."""
    if not text.strip():
        return "; it is empty"
    if re.search(r"\{\{|\{%", text):
        return "; it has templates in it: render them first"
    if re.search(r"^\s*(//|/\*|#)", text, re.MULTILINE):
        return "; it has comments in it, which JSON does not have: remove them"
    if "\x00" in text:
        return "; it is not UTF-8: convert it, as by iconv -f UTF-16 -t UTF-8"
    return ""


def _key_lines(text: str) -> Iterator[int]:
    line, end = 1, 0
    for match in _STRING_OR_KEY.finditer(text):
        if match[1]:
            line, end = line + text.count("\n", end, match.start()), match.start()
            yield line


def _with_lines(tree: Any, lines: Iterator[int]) -> Tree:
    if isinstance(tree, Mapping):
        for pair in tree.pairs:
            pair.key, pair.line = well_formed(pair.key), next(lines, None)
            pair.value = _with_lines(pair.value, lines)
        return tree
    if isinstance(tree, list):
        return [_with_lines(item, lines) for item in tree]
    if isinstance(tree, str):
        return well_formed(tree)
    return str(tree).lower() if isinstance(tree, bool) else tree


def well_formed(text: str) -> str:
    r"""A text in which pairs of UTF-16 are characters, and a lone half such as `\ud800` is U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse_yaml(text: str) -> list[Tree]:
    """Trees of the documents of a YAML file, with anchors resolved.

    Raises:
        UnreadableDocument: The text is no YAML.
    """
    try:
        nodes = [node for node in yaml.compose_all(text, yaml.SafeLoader) if node is not None]
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        place = f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        template = "; it has templates in it: render them first" if "{{" in text or "{%" in text else ""
        raise UnreadableDocument(f"is no YAML{place}{template}") from None
    except (yaml.YAMLError, RecursionError):
        raise UnreadableDocument("is no YAML") from None
    nodes_left = iter(range(_MOST_NODES))
    return [_of_node(node, (), nodes_left) for node in nodes]


def _of_node(node: yaml.Node, above: tuple[int, ...], nodes_left: Iterator[int]) -> Tree:
    if id(node) in above:
        raise UnreadableDocument("is no YAML of a connector: an anchor contains itself")
    if next(nodes_left, None) is None:
        raise UnreadableDocument("is no YAML of a connector: its anchors make millions of values")
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        merged, own = Mapping(), Mapping()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:merge":
                parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for part in [_of_node(part, above, nodes_left) for part in parts]:
                    merged.pairs += [p for p in part.pairs if p.key not in merged] if isinstance(part, Mapping) else []
            else:
                name = as_text(_of_node(key, above, nodes_left))
                own.pairs.append(Pair(name, _of_node(value, above, nodes_left), key.start_mark.line + 1))
        return Mapping([pair for pair in merged.pairs if pair.key not in own] + own.pairs)
    if isinstance(node, yaml.SequenceNode):
        return [_of_node(item, above, nodes_left) for item in node.value]
    plain = isinstance(node, yaml.ScalarNode) and node.style is None
    if plain and node.tag == "tag:yaml.org,2002:bool":
        # Kubernetes reads YAML 1.1: `no` and `off` are false.
        return "true" if SafeConstructor.bool_values[node.value.lower()] else "false"
    return None if plain and _NULL.fullmatch(node.value) else str(node.value)
