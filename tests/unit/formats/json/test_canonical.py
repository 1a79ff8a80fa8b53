"""Canonical JSON: equal values are equal texts, and the text says what was sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.formats.json_texts import canonical

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(values, st.sampled_from([None, 1, "\t"]), st.booleans(), st.randoms())
def test_white_space_order_and_escapes_do_not_matter(value: Any, indent: Any, ascii_only: bool, chance: Any) -> None:
    def shuffled(each: Any) -> Any:
        if isinstance(each, list):
            return [shuffled(one) for one in each]
        if isinstance(each, dict):
            return dict(sorted(((k, shuffled(one)) for k, one in each.items()), key=lambda _: chance.random()))
        return each

    one = canonical(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode())
    assert canonical(json.dumps(shuffled(value), ensure_ascii=not ascii_only).encode()) == one
    assert canonical(one) == one
    assert json.loads(one) == value


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (' { "b" : 1.50 , "a" : [ 1E2, -0, 123456789012345 ] } ', '{"a":[1E2,-0,123456789012345],"b":1.50}'),
        (r'"\u0041\u00e9\/\"\\\b\u0001\u007f😀\ud83d\ude00"', '"Aé/\\"\\\\\\b\\u0001\x7f😀😀"'),
        ('{"a":1,"a":{"x":1,"x":2}}', '{"a":{"x":2}}'),
        ('{"\uffff":1,"😀":2,"Z":3,"é":4,"":5}', '{"":5,"Z":3,"é":4,"\uffff":1,"😀":2}'),
        ("null", "null"),
        ("[]", "[]"),
        ("{}", "{}"),
    ],
)  # fmt: skip
def test_the_text_of_a_value(sent: str, text: str) -> None:
    assert canonical(sent.encode()) == text.encode()


@pytest.mark.parametrize("sent", ["", "NaN", "[Infinity]", "{", "1 2", "'a'", r'"\ud800"', "01"])
def test_what_is_no_json_is_refused(sent: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical(sent.encode())
