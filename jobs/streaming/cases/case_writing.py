"""Expectations written into a case file: they replace `rows` and `dead_letters`, and everything else stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import yaml

from jobs.base.errors import FrazilError
from jobs.config.documents.yaml_document import YamlDocument, plain_resolvers
from jobs.records.schema.kafka_columns import KafkaColumns
from jobs.streaming.cases.case_run import CaseOutcome
from jobs.streaming.cases.comparison import plain

_WIDTH = 118


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes a text which the case files' reader would read as a number."""

    yaml_implicit_resolvers = plain_resolvers()

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # Lists are indented two blanks from their key.
        super().increase_indent(flow, False)


_Dumper.add_representer(
    Decimal, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:float", _decimal_text(value))
)


def _decimal_text(value: Decimal) -> str:
    text = f"{value:f}"
    return text if "." in text else f"{text}.0"


def expectation(outcome: CaseOutcome, kafka: KafkaColumns) -> dict[str, Any]:
    """The outcome in the form of a case's expectation, without Kafka's columns.

    Args:
        outcome: Rows and dead letters of a case's records.
        kafka: The stream's columns of Kafka's coordinates.
    """
    own = kafka.names
    by_table: dict[str, list[dict[str, Any]]] = {}
    for _, table, row in outcome.rows:
        by_table.setdefault(table, []).append({name: plain(value) for name, value in row.items() if name not in own})
    made: dict[str, Any] = {}
    if by_table:
        made["rows"] = by_table if len(by_table) > 1 else next(iter(by_table.values()))
    if outcome.letters:
        made["dead_letters"] = [
            {
                name: value
                for name, value in (
                    ("class", letter.error_class),
                    ("stage", letter.stage),
                    ("field", letter.field),
                    ("message", letter.message),
                )
                if value
            }
            for _, letter in outcome.letters
        ]
    return made


def with_expectations(text: str, document: YamlDocument, made: Mapping[int, Mapping[str, Any]]) -> str:
    """The text of a case file with new expectations.

    Args:
        text: Text of the file, as it was read.
        document: The same text, parsed.
        made: Expectations by the index of their case; see `expectation`.

    Raises:
        FrazilError: A case is written on one line, `{name: …}`, where nothing can be inserted.
    """
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    cases = _value(document.root, "cases")
    assert isinstance(cases, yaml.SequenceNode)
    # From the end, so that line numbers before an edit stay valid.
    for index in sorted(made, reverse=True):
        case = cases.value[index]
        assert isinstance(case, yaml.MappingNode)
        if case.flow_style or cases.flow_style:
            raise FrazilError(
                f"{document.shown}:{case.start_mark.line + 1}: the case is written on one line, and nothing can be "
                "put into it.",
                fix="write each key of the case on a line of its own",
            )
        spans = [
            (key.start_mark.line, _end(value, lines))
            for key, value in case.value
            if key.value in ("rows", "dead_letters")
        ]
        at = min((first for first, _ in spans), default=_end(case, lines))
        for first, end in sorted(spans, reverse=True):
            del lines[first:end]
        indent = " " * case.start_mark.column
        lines[at:at] = [f"{indent}{line}\n" for line in _yaml(made[index])]
    return "".join(lines)


def _yaml(made: Mapping[str, Any]) -> Sequence[str]:
    if not made:
        return ["rows: []"]
    return yaml.dump(made, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH).split("\n")[:-1]


def _value(node: yaml.Node, name: str) -> yaml.Node | None:
    assert isinstance(node, yaml.MappingNode)
    return next((value for key, value in node.value if key.value == name), None)


def _end(node: yaml.Node, lines: Sequence[str]) -> int:
    """Line behind the last one of a node, without the blank lines and comments that follow it."""
    mark = node.end_mark
    end = mark.line if mark.column == 0 or not lines[mark.line : mark.line + 1] else mark.line + 1
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        # The end of a block is the start of the next one.
        end = min(len(lines), mark.line)
        while end > node.start_mark.line + 1 and lines[end - 1].strip().partition("#")[0] == "":
            end -= 1
    return max(end, node.start_mark.line + 1)
