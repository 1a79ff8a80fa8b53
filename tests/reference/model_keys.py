"""Keys of the YAML files, read from their models: path, type, default, description and an example of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel

from jobs.config.documents.yaml_document import parse_yaml
from tests.reference.type_words import default_words, field_annotations, models_in, type_words

LONGEST = 90
"""Letters of the longest example of a key whose blocks have examples of their own."""
EXAMPLES = Path(__file__).parent / "examples"
_ARGUMENT = re.compile(r"    (\w+): (.*)")
# The fullest of the example files.
FIRST = ("payments", "cluster")
# How the file writes a key that its model holds under another name; None: not a key of its own.
WRITTEN: Mapping[tuple[str, str], str | None] = {
    ("DecodeKey", "form"): "format",
    ("SmtStep", "properties"): None,
    ("Expectation", "type"): "expect_…",
    ("Expectation", "arguments"): None,
}
# Where the words made of an annotation would be a riddle.
TYPES: Mapping[tuple[str, str], str] = {
    ("StartOffsets", "offsets"): "mapping of topics to mappings of partitions to offsets",
    ("Expectation", "type"): "mapping of arguments",
    ("Contract", "tables"): "mapping of tables to lists of mappings",
}
# Models of entries under keys that a user chooses.
_CHOSEN = {"headers": "COLUMN", "set": "COLUMN", "sources": "NAME", "tables": "TABLE"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a block.

    Attributes:
        name: As the file writes it.
        type: What it may hold, in words.
        default: In code type, or a word.
        description: One or two sentences.
        example: A line of YAML; empty if the key only holds blocks with keys of their own.
        blocks: Paths of the blocks below it.
    """

    name: str
    type: str
    default: str
    description: str
    example: str
    blocks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One mapping of a YAML file.

    Attributes:
        path: Where it stands, such as `errors.retry`; empty for the whole file.
        summary: What it is, in a sentence.
        keys: Its keys, in the model's order.
    """

    path: str
    summary: str
    keys: tuple[Key, ...]


@cache
def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Description of each field of a model by `Args:` of its docstring, or of that of the model it derives from."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        doc = inspect.cleandoc(owner.__doc__ or "") if issubclass(owner, BaseModel) else ""
        _, _, arguments = doc.partition("Args:\n")
        name = ""
        for line in arguments.split("\n"):
            if match := _ARGUMENT.match(line):
                name = match[1]
                found[name] = match[2]
            elif line.startswith("        ") and name:
                found[name] += f" {line.strip()}"
    return {name: text.replace("``", "`") for name, text in found.items() if name in model.model_fields}


def summary(model: type[BaseModel]) -> str:
    """First paragraph of a model's docstring, without what only a reader of the code needs."""
    text = " ".join(inspect.cleandoc(model.__doc__ or "").split("\n\n")[0].split())
    return re.sub(r"[;,] see `[\w.]+`\.", ".", text).replace("``", "`")


@cache
def owner(model: type[BaseModel], field: str) -> str:
    """Name of the model that declares a field: the model, or one that it derives from."""
    return next(each.__name__ for each in model.__mro__ if field in inspect.get_annotations(each))


def key_name(model: type[BaseModel], field: str) -> str | None:
    """The key of a field as the file writes it; None if the file writes no such key."""
    written = WRITTEN.get((owner(model, field), field), "")
    if written != "":
        return written
    return model.model_fields[field].alias or field


def child_path(path: str, key: str, model: type[BaseModel], annotation: Any) -> str:
    """Path of a block below a key: a list has `[]` behind it, a mapping by chosen keys their kind."""
    here = f"{path}.{key}" if path else key
    if any(issubclass(kind, Mapping) and model in models_in(value) for kind, value in _mappings(annotation)):
        here += f".{_CHOSEN.get(key, 'NAME')}"
    return here + ("[]" if _in_list(annotation, model) else "")


def _mappings(annotation: Any) -> Iterator[tuple[type, Any]]:
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        yield origin, get_args(annotation)[1]
    for argument in get_args(annotation):
        yield from _mappings(argument)


def _in_list(annotation: Any, model: type[BaseModel]) -> bool:
    if get_origin(annotation) in (tuple, list):
        return model in models_in(annotation)
    return any(_in_list(argument, model) for argument in get_args(annotation))


def blocks(root: type[BaseModel], examples: Mapping[tuple[str, str], str]) -> list[Block]:
    """All blocks of a YAML file from its top, each model once.

    Args:
        root: Model of the whole file.
        examples: Lines of YAML by model and field, see `example_lines`.
    """
    made: list[Block] = []
    paths: dict[type[BaseModel], str] = {root: ""}

    def add(model: type[BaseModel], path: str) -> None:
        keys: list[Key] = []
        below: list[tuple[type[BaseModel], str]] = []
        for field, annotation in field_annotations(model).items():
            name = key_name(model, field)
            if name is None:
                continue
            inner = list(dict.fromkeys(_shown(each) for each in models_in(annotation)))
            for each in inner:
                if each not in paths:
                    variant = f" ({_variant(each)})" if len(inner) > 1 else ""
                    paths[each] = child_path(path, name, each, annotation) + variant
                    below.append((each, paths[each]))
            keys.append(_key(model, field, name, tuple(paths[each] for each in inner), examples))
        made.append(Block(path, summary(model), tuple(keys)))
        for each, where in below:
            add(each, where)

    add(root, "")
    return made


def _shown(model: type[BaseModel]) -> type[BaseModel]:
    """The model whose block a page has: that from which it derives, if it adds no field."""
    base = model.__mro__[1]
    same = issubclass(base, BaseModel) and base.model_fields.keys() == model.model_fields.keys() != set()
    return base if same else model


def _variant(model: type[BaseModel]) -> str:
    """What tells a model from others in its place: its format, or its first key."""
    field, annotation = next(
        (entry for entry in field_annotations(model).items() if get_origin(entry[1]) is Literal),
        next(iter(field_annotations(model).items())),
    )
    return get_args(annotation)[0] if get_origin(annotation) is Literal else field


def _key(
    model: type[BaseModel], field: str, name: str, inner: tuple[str, ...], examples: Mapping[tuple[str, str], str]
) -> Key:
    annotation = field_annotations(model)[field]
    return Key(
        name,
        TYPES.get((model.__name__, field)) or type_words(annotation),
        default_words(model.model_fields[field], annotation),
        descriptions(model).get(field, ""),
        example if len(example := examples.get((owner(model, field), field), "")) <= LONGEST or not inner else "",
        inner,
    )


def example_files(folder: str) -> list[Path]:
    """Example files of a folder, the one to look into first before the others."""
    return sorted((EXAMPLES / folder).glob("*.yaml"), key=lambda path: (path.stem not in FIRST, path.stem))


def example_lines(roots: Mapping[str, type[BaseModel]]) -> dict[tuple[str, str], str]:
    """A line of YAML for each field that an example file has, by the model that declares it and the field.

    Args:
        roots: Models of whole files, by the folder of their example files.
    """
    lines: dict[tuple[str, str], str] = {}
    for folder, root in roots.items():
        for path in example_files(folder):
            text = path.read_text(encoding="utf-8")
            _collect(root, parse_yaml(text, shown=path.name).root, text, lines)
    return lines


def _collect(model: type[BaseModel], node: yaml.Node, text: str, lines: dict[tuple[str, str], str]) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    values = {key.value: value for key, value in node.value}
    for field, annotation in field_annotations(model).items():
        name = key_name(model, field)
        key = next(
            (each for each in values if each == name or (name == "expect_…" and each.startswith("expect_"))), None
        )
        if key is None:
            continue
        value = values[key]
        written = text[value.start_mark.index : value.end_mark.index].strip()
        if "\n" not in written and getattr(value, "flow_style", True) is not False:
            lines.setdefault((owner(model, field), field), f"{key}: {written}")
        for inner in models_in(annotation):
            for each in _places(annotation, inner, value):
                if _may_be(inner, each):
                    _collect(inner, each, text, lines)


def _places(annotation: Any, model: type[BaseModel], node: yaml.Node) -> list[yaml.Node]:
    """The nodes at which a value of an annotation has a model: itself, its elements, or the values of chosen keys."""
    if isinstance(node, yaml.MappingNode) and any(model in models_in(value) for _, value in _mappings(annotation)):
        return [place for _, value in node.value for place in _places(None, model, value)]
    return node.value if isinstance(node, yaml.SequenceNode) else [node]


def _may_be(model: type[BaseModel], node: yaml.Node) -> bool:
    """Whether a node has the keys of a model, and names it where several models have the same."""
    if not isinstance(node, yaml.MappingNode):
        return False
    values = {key.value: value for key, value in node.value}
    known = {key_name(model, field) for field in model.model_fields}
    for field, annotation in field_annotations(model).items():
        if get_origin(annotation) is Literal and len(get_args(annotation)) == 1 and field in values:
            return values[field].value in get_args(annotation)
    if model.__name__ in ("SmtStep", "Expectation", "DeadLetterExpectation"):
        return "type" in values or any(each.startswith("expect_") for each in values)
    return bool(values) and values.keys() <= known
