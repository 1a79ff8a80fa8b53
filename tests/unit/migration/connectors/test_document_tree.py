"""Trees of JSON and YAML: values as Kafka Connect takes them, lines, and keys that are written twice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.migration.connectors.document_tree import Mapping, UnreadableDocument, as_text, parse_json, parse_yaml


def pairs(tree: object) -> list[tuple[str, str, int | None]]:
    assert isinstance(tree, Mapping)
    return [(pair.key, as_text(pair.value), pair.line) for pair in tree.pairs]


def test_json_keeps_texts_of_numbers_and_truth_values_and_the_line_of_each_key() -> None:
    text = '{"a": "x",\n "b": 010.50e1,\n "c": true, "d": null,\n "e": ["p", "q"]}'
    assert pairs(parse_json(text.replace("010", "10"))) == [
        ("a", "x", 1),
        ("b", "10.50e1", 2),
        ("c", "true", 3),
        ("d", "", 3),
        ("e", "p,q", 4),
    ]


def test_json_keeps_a_key_that_is_written_twice() -> None:
    tree = parse_json('{"a": "1",\n"a": "2"}')
    assert pairs(tree) == [("a", "1", 1), ("a", "2", 2)]
    assert isinstance(tree, Mapping)
    assert tree.get("a") == "2"


def test_lines_of_nested_json_are_those_of_the_text() -> None:
    tree = parse_json('{"x": {"a : \\" b": ":",\n"b": [{"c":\n "d"}]},\n"y": "e"}')
    assert isinstance(tree, Mapping)
    assert [(pair.key, pair.line) for pair in tree.pairs] == [("x", 1), ("y", 4)]
    assert pairs(tree.mapping("x"))[0] == ('a : " b', ":", 1)
    inner = tree.mapping("x").get("b")
    assert isinstance(inner, list)
    assert pairs(inner[0]) == [("c", "d", 2)]


keys = st.text(st.characters(codec="utf-8"), max_size=6)
values = st.recursive(
    st.text(max_size=4) | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(keys, values, max_size=4))
def test_every_key_of_any_json_has_its_line(document: dict[str, object]) -> None:
    text = json.dumps(document, indent=1)
    lines = text.split("\n")

    def check(tree: object) -> None:
        if isinstance(tree, Mapping):
            for pair in tree.pairs:
                assert pair.line is not None
                assert lines[pair.line - 1].lstrip().startswith(f"{json.dumps(pair.key)}:")
                check(pair.value)
        elif isinstance(tree, list):
            for item in tree:
                check(item)

    check(parse_json(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,}', "is no JSON: line 1, column"),
        ('{"a": {{ n }}}', "render them first"),
        ("", "is no JSON: line 1, column 1"),
    ],
)
def test_what_is_no_json_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(UnreadableDocument, match=said):
        parse_json(text)


def test_deep_json_is_no_connector() -> None:
    with pytest.raises(UnreadableDocument, match="nested too deeply"):
        parse_json("[" * 200_000)


def test_yaml_resolves_anchors_and_merge_keys_and_keeps_scalars_as_written() -> None:
    text = "base: &b {topics: a, tasks: 1}\none:\n  <<: *b\n  topics: b\ntwo: *b\nflag: False\nnone: ~\nempty:\n"
    (tree,) = parse_yaml(text)
    assert isinstance(tree, Mapping)
    assert [(key, value) for key, value, _ in pairs(tree.mapping("one"))] == [("tasks", "1"), ("topics", "b")]
    assert tree.mapping("two").text("topics") == "a"
    assert (tree.text("flag"), tree.get("none"), tree.get("empty")) == ("false", None, None)


def test_yaml_has_lines_and_keys_that_are_written_twice() -> None:
    (tree,) = parse_yaml("a: 1\nb: 2\na: 3\n")
    assert pairs(tree) == [("a", "1", 1), ("b", "2", 2), ("a", "3", 3)]


def test_yaml_has_several_documents() -> None:
    assert [pairs(tree) for tree in parse_yaml("a: 1\n---\n---\nb: 2\n") if tree] == [
        [("a", "1", 1)],
        [("b", "2", 4)],
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "is no YAML: line"),
        ("a: {{ x }}: b\n", "render them first"),
        ("a: &x [*x]\n", "an anchor contains itself"),
    ],
)
def test_what_is_no_yaml_is_named(text: str, said: str) -> None:
    with pytest.raises(UnreadableDocument, match=said):
        parse_yaml(text)


def test_truth_values_of_yaml_are_those_of_kubernetes() -> None:
    text = "a: no\nb: 'no'\nc: Off\nd: Yes\ne: \"on\"\nf: norway"
    values = [value for _, value, _ in pairs(parse_yaml(text)[0])]
    assert values == ["false", "no", "false", "true", "on", "norway"]


def test_anchors_that_make_millions_of_values_are_refused() -> None:
    lines = ["a0: &a0 x"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 100)}]" for n in range(1, 9)]
    with pytest.raises(UnreadableDocument, match="anchors make millions of values"):
        parse_yaml("\n".join(lines))


def test_half_a_character_becomes_one_that_files_can_have() -> None:
    assert pairs(parse_json(r'{"\ud800k": "\udfff", "e": "\ud83d\ude00"}')) == [
        ("\ufffdk", "\ufffd", 1),
        ("e", "😀", 1),
    ]
